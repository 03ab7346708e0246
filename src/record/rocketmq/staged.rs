//! Adds records to a log that were encoded elsewhere, unchanged or encoded again.

use super::encode::Batch;
use super::layout::{CRC_PROPERTY, Record};
use crate::error::{Error, Result};
use crate::record::common::Draft;
use crate::record::common::names::{NAME_END, UNIQ_KEY, VALUE_END};
use crate::record::rocketmq::unique_id;
use smallvec::SmallVec;

impl<'a> Record<'a> {
    /// The properties as stored.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if they are not valid UTF-8.
    pub fn properties_text(&self) -> Result<&'a str> {
        let broken = |_| Error::option("properties", "staged", "not UTF-8");
        str::from_utf8(self.raw_properties()).map_err(broken)
    }
}

impl Batch {
    /// Adds a staged and checked record for `queue` of its topic.
    ///
    /// # Errors
    ///
    /// As [`Batch::push`].
    pub fn push_staged(
        &mut self,
        topic: &str,
        queue: u32,
        staged: &Record<'_>,
        with_id: bool,
        clock_ms: i64,
    ) -> Result<()> {
        if !with_id && self.push_encoded(staged, queue, clock_ms) {
            return Ok(());
        }
        let raw = staged.properties_text()?;
        let id = with_id.then(|| unique_id::next(&self.style.host, clock_ms));
        // The pairs are copied unchanged. They were checked when they were staged.
        let staged_pairs = raw
            .split(char::from(VALUE_END))
            .filter_map(|pair| pair.split_once(char::from(NAME_END)));
        let mut pairs: SmallVec<[(&str, &str); 8]> = staged_pairs
            .filter(|(name, _)| *name != CRC_PROPERTY)
            .collect();
        pairs.extend(id.as_ref().map(|id| (UNIQ_KEY, id.as_str())));
        let draft = Draft {
            body: staged.stored_body(),
            system_properties: &pairs,
            born_timestamp: Some(staged.born_timestamp()),
            ..Draft::default()
        };
        self.push_any_len(topic, queue, &draft, clock_ms)
    }

    /// [`Batch::push`] for a message that was accepted elsewhere, with other limits than those of
    /// this store.
    ///
    /// # Errors
    ///
    /// As [`Batch::push`].
    pub fn push_any_len(
        &mut self,
        topic: &str,
        queue: u32,
        draft: &Draft<'_>,
        clock_ms: i64,
    ) -> Result<()> {
        let own = self.style.max_message_size;
        self.style.max_message_size = own.max(draft.body.len());
        let pushed = self.push(topic, queue, draft, clock_ms);
        self.style.max_message_size = own;
        pushed
    }
}
