//! Keys, tag and properties of a record.

use super::coded;
use std::borrow::Cow;

/// Keys, tag and properties of a record, found in one walk. It is reused for many records, so that
/// its memory is allocated once.
#[derive(Debug, Default)]
pub struct Labels<'a> {
    /// The keys as stored, separated by one space.
    pub keys: Option<&'a [u8]>,
    /// The tag.
    pub tags: Option<&'a [u8]>,
    /// How the key is coded; see [`coded::KEY`].
    pub form: Option<&'a [u8]>,
    /// The user's properties in stored order, if requested.
    pub own: Vec<(Cow<'a, str>, &'a [u8])>,
}

impl<'a> Labels<'a> {
    /// Removes the labels of the previous record.
    #[inline]
    pub fn clear(&mut self) {
        (self.keys, self.tags, self.form) = (None, None, None);
        self.own.clear();
    }

    /// The first key, decoded.
    pub fn key(&self) -> Option<Cow<'a, [u8]>> {
        coded::key(self.keys.and_then(first_key), self.form)
    }
}

/// The first of several keys separated by spaces.
fn first_key(keys: &[u8]) -> Option<&[u8]> {
    keys.split(|byte| *byte == b' ').find(|key| !key.is_empty())
}
