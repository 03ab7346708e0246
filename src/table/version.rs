//! RocketMQ's `dataVersion`: how often a table was changed, and when last.
//!
//! ```text
//! "dataVersion":{"counter":3,"stateVersion":0,"timestamp":1795214956880}
//! ```

use super::json::{self, RawMembers, raw};
use serde_json::value::RawValue;

/// Maximum number of members of a version.
const MEMBERS_MAX: usize = 1024;

/// Counts one change, made at `now_ms`, in the version in the root of a table. A missing or invalid
/// version begins at 1. Other members of the version are kept.
pub fn raise_version(root: &mut RawMembers, now_ms: i64) {
    let version = root.get("dataVersion");
    let read = |text: &RawValue| json::members::<MEMBERS_MAX>(text.get().as_bytes(), "members");
    let version = version.and_then(|text| read(text).ok());
    let mut version = version.unwrap_or_default();
    let counter = version.get("counter");
    let counter = counter.and_then(|text| text.get().parse::<i64>().ok());
    let counter = counter.unwrap_or(0).saturating_add(1);
    version.insert("counter".to_owned(), raw(&counter));
    let state = version.entry("stateVersion".to_owned());
    state.or_insert_with(|| raw(&0));
    version.insert("timestamp".to_owned(), raw(&now_ms));
    root.insert("dataVersion".to_owned(), raw(&version));
}
