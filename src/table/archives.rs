//! The table of archives, which `forebay.archive` writes: up to where each archive has the store.
//!
//! ```text
//! {"targets": {"/mnt/archive": {"orders-0": 4711}, "s3://bucket/log": {}}, "crc32": "223eb6d7"}
//! ```
//!
//! A value is a position of a commit log, or the offsets of the queues of a partition log. The
//! checksum covers the text before it: retention may remove what every archive has, so a damaged
//! digit could make it remove what no archive has. A table without a checksum counts too: either an
//! earlier version has written it, or a user has removed a target, and the checksum with it.

use super::file::{Loaded, TABLE_LEN_MAX, load};
use super::{Reason, json};
use crate::disk::Disk;
use crate::error::Result;
use serde_json::{Map, Value};
use std::path::Path;

/// Name of the file.
pub const FILE_NAME: &str = "forebay.archived";
const TARGETS: &str = "targets";
const SUM: &str = "crc32";

/// Archives, and what each has.
pub type Targets = Map<String, Value>;

/// Reads the archives of the store in `root`; none if there is no file.
///
/// # Errors
///
/// Those of reading. The contents of the file never cause an error.
pub fn load_targets(disk: &dyn Disk, root: &Path) -> Result<Loaded<Targets>> {
    Ok(
        match load(disk, &root.join(FILE_NAME), TABLE_LEN_MAX, parse)? {
            Loaded::Nothing => Loaded::Table(Map::new()),
            found => found,
        },
    )
}

fn parse(text: &[u8]) -> Result<Targets, Reason> {
    let mut table = json::object(text)?;
    if table.contains_key(SUM) && !has_right_sum(text) {
        return Err(Reason::Unreadable("its checksum is wrong".to_owned()));
    }
    match table.remove(TARGETS) {
        Some(Value::Object(targets)) => Ok(targets),
        _ => Err(Reason::Unreadable("it has no targets".to_owned())),
    }
}

/// The end of a text that begins with these bytes.
fn sum_of(covered: &[u8]) -> String {
    format!(", \"{SUM}\": \"{:08x}\"}}", crc32fast::hash(covered))
}

fn has_right_sum(text: &[u8]) -> bool {
    let text = text.trim_ascii_end();
    let begin = text.len().saturating_sub(sum_of(b"").len());
    let (covered, sum) = text.split_at(begin);
    sum == sum_of(covered).as_bytes()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod test {
    use super::*;

    #[test]
    fn no_flipped_bit_changes_how_far_a_store_is_archived() {
        let targets = r#"{"targets": {"/a": {"orders-0": 4711, "orders-1": 12}, "/b": {}}"#;
        let text = format!("{targets}{}\n", sum_of(targets.as_bytes()));
        // As Python computes it.
        assert!(text.ends_with(", \"crc32\": \"150a3b6e\"}\n"), "{text}");
        let known = parse(text.as_bytes()).unwrap();
        assert_eq!(known["/a"]["orders-0"], 4711);
        let mut bytes = text.clone().into_bytes();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                if let Ok(found) = parse(&bytes) {
                    assert_eq!(found, known, "bit {bit} of byte {at}");
                }
                bytes[at] ^= 1 << bit;
            }
        }
        for end in ["}", " }\n"] {
            assert_eq!(parse(format!("{targets}{end}").as_bytes()).unwrap(), known);
        }
        for wrong in [
            "",
            "{}",
            "[]",
            r#"{"targets": []}"#,
            r#"{"targets": {}, "crc32": 7}"#,
        ] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
