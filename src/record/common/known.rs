//! The properties by which a record is found.

/// The properties that dispatch and filters need, found in one walk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// `KEYS`
    pub keys: Option<&'a [u8]>,
    /// `TAGS`
    pub tags: Option<&'a [u8]>,
    /// `UNIQ_KEY`
    pub unique_key: Option<&'a [u8]>,
    /// `DELAY`
    pub delay: Option<&'a [u8]>,
}

impl<'a> Known<'a> {
    /// The keys to index: the unique key, then each part of `KEYS`.
    pub fn index_keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let keys = self.keys.unwrap_or_default().split(|byte| *byte == b' ');
        self.unique_key
            .into_iter()
            .chain(keys.filter(|key| !key.is_empty()))
    }
}
