//! Which of the messages sent to a partition it must have.

use super::frame::{Breach, Sent, body, hold};
use super::partitions::{BODY_MAX, Partitions, Place};
use crate::engine::partition_log::PartitionLog;
use crate::engine::{Check, Engine, Filter, Rows};
use crate::options::Flush;

impl Partitions {
    /// Compares a partition with what was sent to it. Returns its next offset.
    pub fn check_all(&self, engine: &PartitionLog, place: Place) -> Result<usize, Breach> {
        let failed = |error| format!("{place:?} cannot be read: {error}");
        let Some(topic) = engine.topics().get(place.0) else {
            return Ok(0);
        };
        let Some(bounds) = engine.bounds(&topic, place.1).map_err(failed)? else {
            return Ok(0);
        };
        let seen = self.starts.get(&place).copied().unwrap_or_default();
        let asked = self.asked.get(&place).copied().unwrap_or_default();
        let start = bounds.start;
        hold!(
            start >= seen,
            "{place:?} begins at {start}, and began at {seen} before"
        );
        hold!(
            start <= asked || self.options.retires(),
            "{place:?} begins at {start} instead of {asked}"
        );
        let archived = self.archived.get(&place).copied().unwrap_or_default();
        hold!(
            start <= asked.max(archived as u64) || !self.options.keep_unarchived,
            "{place:?} begins at {start}, and is archived up to {archived}"
        );
        let all = &self.sent[&place];
        let long = engine.with_room().map_err(failed)?;
        hold!(long.is_empty(), "not cut to their messages: {long:?}");
        let filter = Filter::default();
        let cursor = engine.cursor(&topic, place.1, bounds.clone(), &filter, Check::Full);
        let mut cursor = cursor.map_err(failed)?;
        let (mut rows, mut found) = (Rows::default(), start as usize);
        while cursor.refill(64, &mut rows).map_err(failed)? {
            for row in &rows.rows {
                let message = rows.message(row).ok_or("a row without a message")?;
                let Some(sent) = all.get(found) else {
                    return Err(format!("message {found} of {place:?} was never sent"));
                };
                let there = message.body().map_err(failed)?;
                hold!(
                    there == body(sent.id, None, BODY_MAX),
                    "message {found} of {place:?} differs from the one that was sent"
                );
                let offset = message.record().queue_offset() as u64;
                hold!(
                    offset == found as u64,
                    "message {found} of {place:?} is at {offset}"
                );
                found += 1;
            }
        }
        hold!(
            bounds.end == found as u64,
            "{place:?} ends at {}, and has messages up to {found}",
            bounds.end
        );
        Ok(found)
    }

    /// Checks what readers see of a partition while it is written.
    pub fn check_readable(&self, engine: &PartitionLog, place: Place) -> Result<(), Breach> {
        let found = self.check_all(engine, place)?;
        let all = &self.sent[&place];
        let seen = |sent: &&Sent| match self.options.flush() {
            Flush::Async => sent.certain,
            Flush::Sync => sent.acknowledged,
        };
        let least = all.iter().filter(seen).count();
        hold!(
            found >= least,
            "{place:?} shows {found} of {least} messages"
        );
        Ok(())
    }
}
