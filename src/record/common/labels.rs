//! Keys, tag and properties of a record.

use super::coded;
use std::borrow::Cow;

/// Keys, tag and properties of a record, found in one walk. It is reused for many records, so that
/// its memory is allocated once.
#[derive(Debug, Default)]
pub struct Labels<'a> {
    /// The keys as stored, separated by one space; if they are literal, the only key.
    pub keys: Option<&'a [u8]>,
    /// The keys after the first, separated by one space, if they are stored apart from it.
    pub further_keys: Option<&'a [u8]>,
    /// The tag.
    pub tags: Option<&'a [u8]>,
    /// How the key is coded; see [`coded::KEY`].
    pub form: Option<&'a [u8]>,
    /// Whether the key and the values of `own` are the user's bytes, never coded ones.
    pub is_literal: bool,
    /// The user's properties in stored order, if requested. Only a literal value can be null.
    pub own: Vec<(Cow<'a, str>, Option<&'a [u8]>)>,
}

impl<'a> Labels<'a> {
    /// Removes the labels of the previous record.
    #[inline]
    pub fn clear(&mut self) {
        (self.keys, self.tags, self.form) = (None, None, None);
        self.further_keys = None;
        self.is_literal = false;
        self.own.clear();
    }

    /// All keys as text, separated by one space.
    pub fn all_keys(&self) -> Option<Cow<'a, str>> {
        let keys = self.keys.map(String::from_utf8_lossy);
        match (keys, self.further_keys) {
            (Some(keys), Some(further)) => {
                let further = String::from_utf8_lossy(further);
                Some(Cow::Owned(format!("{keys} {further}")))
            }
            (keys, further) => keys.or_else(|| further.map(String::from_utf8_lossy)),
        }
    }

    /// The first key, decoded.
    pub fn key(&self) -> Option<Cow<'a, [u8]>> {
        match self.is_literal {
            true => self.keys.map(Cow::Borrowed),
            false => coded::key(self.keys.and_then(first_key), self.form),
        }
    }
}

/// The first of several keys separated by spaces.
fn first_key(keys: &[u8]) -> Option<&[u8]> {
    keys.split(|byte| *byte == b' ').find(|key| !key.is_empty())
}
