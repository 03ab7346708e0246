//! The length of a draft's properties in a record.

use super::properties::{self, KEYS_BEGIN};
use crate::error::Result;
use crate::record::common::Draft;
use crate::record::common::check::{check_key, check_property, check_tags};

/// Checks the properties of a draft. Returns their length in bytes, without the checksum.
#[inline]
pub(super) fn check_properties(draft: &Draft<'_>) -> Result<usize> {
    draft.check_is_text()?;
    let mut len = 0;
    for key in draft.keys {
        check_key(key)?;
        len += key.len() + 1;
    }
    if !draft.keys.is_empty() {
        len += KEYS_BEGIN.len();
    }
    if let Some(tags) = draft.tags {
        check_tags(tags)?;
        len += properties::TAGS.len() + tags.len() + 2;
    }
    for (name, value) in draft.system_properties {
        len += name.len() + value.len() + 2;
    }
    for (name, value) in draft.properties {
        check_property(name, value)?;
        len += name.len() + value.len() + 2;
    }
    Ok(len)
}

/// Names the properties and the largest of them, for an error.
pub(super) fn largest_property(draft: &Draft<'_>) -> String {
    let keys: usize = draft.keys.iter().map(|key| key.len() + 1).sum();
    let tags = draft.tags.map_or(0, str::len);
    let fixed = [("KEYS", keys), ("TAGS", tags)];
    let own = draft
        .properties
        .iter()
        .map(|(name, value)| (*name, name.len() + value.len()));
    let largest = fixed.into_iter().chain(own).max_by_key(|(_, len)| *len);
    format!(
        "properties (the largest is {:?})",
        largest.map_or("", |(name, _)| name)
    )
}
