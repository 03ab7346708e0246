//! Offsets that were given to messages that dispatch does not find: they are not given again.
//!
//! Appends count the offsets that they give, and dispatch counts the records that it finds. If a
//! record is damaged before it is dispatched, and no later message of its queue is sent, the queue
//! ends one offset too early. Full passes save the ends of the queues, so the next opening would
//! give the offset to another message. The offsets that appends have given are known to this
//! process alone, so they must be in the queues before a full pass saves them.

use super::Parts;
use crate::engine::Topic;
use crate::error::Result;
use crate::plant::{Bug, planted};
use std::sync::Arc;

/// The offsets that were given up to a position of the log.
#[derive(Default)]
pub struct Given {
    /// The position.
    pub end: u64,
    /// The queues, and the next offset of each.
    pub next: Vec<(Arc<Topic>, u32, u64)>,
}

impl Parts {
    /// The offsets that this process has given.
    pub fn given_offsets(&self) -> Given {
        let tail = self.tail.lock();
        Given {
            end: tail.position(),
            next: tail.next_offsets(&self.topics),
        }
    }

    /// [`Parts::keep_offsets`] of all given offsets, if dispatch has met damage since the last
    /// call.
    ///
    /// # Errors
    ///
    /// As [`Parts::keep_offsets`]. Then the next call tries again.
    pub fn keep_offsets_of_holes(&self) -> Result<()> {
        if !self.dispatcher.take_hole() {
            return Ok(());
        }
        let kept = self.keep_offsets(&self.given_offsets());
        kept.inspect_err(|_| self.dispatcher.note_hole())
    }

    /// Ends queues with fillers whose last given offsets have no message in the log.
    ///
    /// # Errors
    ///
    /// Errors of a flush and of dispatch, and of storing the fillers.
    pub fn keep_offsets(&self, given: &Given) -> Result<()> {
        self.make_readable(given.end)?;
        if planted(Bug::ForgetGiven) {
            return Ok(());
        }
        self.dispatcher.pause(|| {
            // Only then do queues without a given offset lack it because of damage.
            if self.dispatcher.dispatched() < given.end {
                return Ok(());
            }
            for (topic, queue, next) in &given.next {
                if self.end_of(topic, *queue) < *next {
                    self.queues.get_or_add(topic, *queue)?.bridge_to(*next)?;
                    self.queues.limit_maps();
                }
            }
            Ok(())
        })
    }

    /// The next offset of a queue. Does not open it.
    fn end_of(&self, topic: &Topic, queue: u32) -> u64 {
        match self.queues.opened(topic, queue) {
            Some(queue) => queue.max(),
            None => {
                let closed = self.queues.closed_offsets(topic, queue);
                closed.map_or(0, |offsets| offsets.end)
            }
        }
    }
}
