//! Completes last segments on demand.

use super::ends::Ends;
use super::parts::Parts;
use super::tail::Key;
use crate::error::Result;
use std::sync::Arc;

impl Parts {
    /// Completes the last segment of each partition that has messages in it. Returns whether there
    /// were any. Durable on return, with the indexes.
    ///
    /// # Errors
    ///
    /// Those of creating segments; the last segments of some partitions may be complete. Those of
    /// the disk.
    pub fn roll(&self) -> Result<bool> {
        let used = self.tail.lock().used();
        self.roll_keys(used)
    }

    /// As [`Parts::roll`], for these partitions only.
    ///
    /// # Errors
    ///
    /// As [`Parts::roll`].
    pub fn roll_some(&self, all: &[Arc<Ends>]) -> Result<bool> {
        let used = self.tail.lock().used_of(all);
        self.roll_keys(used)
    }

    fn roll_keys(&self, used: Vec<Key>) -> Result<bool> {
        self.health.check()?;
        let mut any = false;
        // One by one, so that senders wait for one segment only.
        let rolled = used.into_iter().try_for_each(|key| {
            let now_ms = self.clock.now_ms();
            let mut taken = self.take(now_ms)?;
            let done = taken.tail.roll(&self.appender(now_ms), key);
            self.note_strays(&mut taken.tail);
            let rolled = done.inspect_err(|error| self.fail_of(error))?;
            any |= rolled;
            if let Some(shared) = self.shared.as_ref().filter(|_| rolled) {
                // So that a flush covers the completion of the segment.
                self.publish_shared(shared, taken.tail.end() + 1);
            }
            Ok(())
        });
        // Also after an error.
        self.flush_completed()?;
        if any {
            self.pass_again()?;
        }
        rolled.map(|()| any)
    }
}
