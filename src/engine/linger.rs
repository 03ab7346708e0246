//! Messages that linger: they wait for others of their queue, to be appended with them as one
//! batch.

use super::{Appended, Place, Topic, Waiter};
use crate::error::Result;
use crate::record::Draft;
use std::sync::{Arc, OnceLock};

/// What an engine whose messages linger does with a message; see
/// [`QueueLogs::linger`](super::QueueLogs::linger).
pub trait Linger: Send + Sync {
    /// The queue for messages that name none and have no key: the same until its batch is
    /// appended.
    fn queue_of_keyless(&self, topic: &Topic) -> u32;

    /// Adds a message to the batch of its queue. Appends the batch if that fills it. Otherwise the
    /// batch is appended when its first message has lingered for the time that the store allows,
    /// before any other message of this queue, and before a flush or a close returns.
    ///
    /// # Errors
    ///
    /// Those of encoding the message, which is then in no batch, and [`crate::Error::Closed`]. An
    /// error of the append goes to the waiters of its messages, and to the next flush.
    fn push(
        &self,
        topic: &Arc<Topic>,
        queue: u32,
        draft: &Draft<'_>,
        clock_ms: i64,
    ) -> Result<Lingering>;
}

/// A message that lingers, or did.
#[derive(Clone, Debug)]
pub struct Lingering {
    batch: Arc<OnceLock<Appended>>,
    row: usize,
    /// Completes when the message is durable, or with the error of its append.
    pub waiter: Arc<Waiter>,
}

impl Lingering {
    /// Row `row` of a batch, which `batch` describes once it is appended.
    pub fn new(batch: &Arc<OnceLock<Appended>>, row: usize) -> Lingering {
        Lingering {
            batch: Arc::clone(batch),
            row,
            waiter: Waiter::new(false),
        }
    }

    /// Where the message is, and the append that put it there; `None` until then.
    pub fn appended(&self) -> Option<(Place, &Appended)> {
        let batch = self.batch.get()?;
        Some((*batch.rows.get(self.row)?, batch))
    }
}
