//! Copies of records: for another topic, with other properties.

use super::encode::Batch;
use super::own;
use super::record::Record;
use crate::error::Result;
use crate::record::common::check::check_born;
use crate::record::common::{Copied, Draft};
use std::borrow::Cow;

impl Batch {
    /// Adds a copy of a record: its key, value, headers, tag and time, with the changes in `to`.
    /// Values that another system has written are copied unchanged, even if no sender could set
    /// them.
    ///
    /// # Errors
    ///
    /// [`crate::Error::TooLarge`] if a segment cannot hold it. The batch is then unchanged.
    pub fn push_copy(&mut self, of: &Record<'_>, to: &Copied<'_>) -> Result<()> {
        let is_replaced = |name: &str| {
            to.without.contains(&name) || to.with.iter().any(|(other, _)| *other == name)
        };
        let mut headers: Vec<(Cow<'_, str>, Option<&[u8]>)> = Vec::new();
        let mut system: Vec<(&str, Cow<'_, str>)> = Vec::new();
        for (name, value) in of.raw_headers().iter() {
            match own::system_property(name) {
                Some(name) if is_replaced(name) => {}
                Some(name) => {
                    system.extend(value.map(|value| (name, String::from_utf8_lossy(value))));
                }
                // Tag, keys and deliveries have places of their own.
                None if own::is_own(name) => {}
                None => {
                    let name = String::from_utf8_lossy(name);
                    if !is_replaced(&name) {
                        headers.push((name, value));
                    }
                }
            }
        }
        let headers: Vec<(&str, Option<&[u8]>)> = headers
            .iter()
            .map(|(name, value)| (&**name, *value))
            .collect();
        let system = system.iter().map(|(name, value)| (*name, &**value));
        let system: Vec<(&str, &str)> = system.chain(to.with.iter().copied()).collect();
        let tags = of.tags().map(String::from_utf8_lossy);
        let further = of.further_keys().map(String::from_utf8_lossy);
        // Format 0 has no times, and a foreign one may be any number.
        let timestamp = Some(of.timestamp()).filter(|time| *time >= 0);
        let timestamp = timestamp.filter(|time| check_born(Some(*time)).is_ok());
        let draft = Draft {
            body: of.value(),
            is_null: of.is_null(),
            key: of.key(),
            headers: &headers,
            tags: tags.as_deref(),
            system_properties: &system,
            born_timestamp: timestamp,
            reconsume_times: to.reconsume_times,
            ..Draft::default()
        };
        self.push_checked(to.queue, &draft, further.as_deref(), to.clock_ms)
    }
}
