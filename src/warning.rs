//! Warnings: problems that do not fail the call that finds them.
//!
//! The core keeps them until a caller takes them. It calls no logger: that would run foreign code
//! under the append lock or in a thread of the core.

use crate::damage::Damage;
use crate::sync::Mutex;
use crossbeam_utils::CachePadded;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Number of warnings kept until a caller takes them. Further ones are only counted.
pub const KEPT_MAX: usize = 100;
/// Number of damaged places remembered, so that each is reported once. Further ones are not
/// reported.
const PLACES_MAX: usize = 10_000;

/// One warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A damaged place was found. Each is reported once.
    Damage(Damage),
    /// A put that took longer than 500 ms.
    SlowPut(SlowPut),
    /// A sync of the log that took longer than 500 ms.
    SlowFlush {
        /// Bytes of the log that it made durable.
        bytes: u64,
        /// How long it took.
        took: Duration,
    },
    /// A delayed message cannot be delivered: its topic cannot exist or cannot be written, or the
    /// message does not fit there. It stays where it is.
    Undelivered {
        /// Where it is in the log.
        position: u64,
        /// Why.
        reason: String,
    },
    /// Messages were retired that a group had not consumed, or that waited for their delay.
    Retired {
        /// The topic.
        topic: Box<str>,
        /// The queue.
        queue: u32,
        /// How many.
        messages: u64,
    },
    /// A consumer has no queue: its group has more consumers than there are queues.
    NoQueue {
        /// The group.
        group: Box<str>,
        /// The topics of the consumer.
        topics: Vec<Box<str>>,
        /// The consumers of the group.
        consumers: usize,
        /// The queues of the topics.
        queues: usize,
    },
    /// Delayed messages could not be delivered, or progress not stored. It will be tried again.
    Delayed {
        /// The error.
        reason: String,
    },
    /// `lock_memory` cannot lock a file. Reported once per store.
    Unlocked {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        reason: String,
    },
    /// The options given at opening could not be saved because the disk is full. The next opening
    /// will not know them.
    NotKept {
        /// The file of the options.
        path: PathBuf,
        /// The error of the system.
        reason: String,
    },
    /// A queue of a partition log cannot be compacted. It is not tried again until the store is
    /// opened again.
    NotCompacted {
        /// What is not possible.
        reason: String,
    },
    /// Number of warnings that were dropped because too many were kept.
    More(u64),
}

/// A put that took longer than half a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowPut {
    /// The topic.
    pub topic: Box<str>,
    /// Number of messages: more than one in a batch.
    pub messages: usize,
    /// Bytes of their records.
    pub bytes: usize,
    /// How long it took without waiting for the disk, exact to a few milliseconds.
    pub took: Duration,
}

/// Warnings of one store that no caller has taken yet.
#[derive(Debug, Default)]
pub struct Warnings {
    /// Read by every call and rarely written; padded so that nothing else shares its cache line.
    any: CachePadded<AtomicBool>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    list: Vec<Warning>,
    more: u64,
    places: BTreeSet<(PathBuf, u64)>,
}

impl Warnings {
    /// Whether there are warnings.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Adds a warning, unless it is reported only once and already was.
    #[cold]
    pub fn add(&self, warning: Warning) {
        let mut kept = self.kept.lock();
        let is_news = match &warning {
            Warning::Damage(damage) => {
                kept.places.len() < PLACES_MAX
                    && kept.places.insert((damage.path.clone(), damage.position))
            }
            _ => true,
        };
        if !is_news {
            return;
        }
        match kept.list.len() < KEPT_MAX {
            true => kept.list.push(warning),
            false => kept.more += 1,
        }
        self.any.store(true, Ordering::Release);
    }

    /// Takes the warnings added since the last call, in order.
    pub fn take(&self) -> Vec<Warning> {
        let mut kept = self.kept.lock();
        self.any.store(false, Ordering::Release);
        let mut list = std::mem::take(&mut kept.list);
        let more = std::mem::take(&mut kept.more);
        if more > 0 {
            list.push(Warning::More(more));
        }
        list
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::damage::DamageKind;

    fn damage(position: u64) -> Warning {
        Warning::Damage(Damage {
            kind: DamageKind::Log,
            path: PathBuf::from("commitlog/00000000000000000000"),
            position,
            length: 100,
            reason: "body checksum".to_owned(),
            lost: Vec::new(),
        })
    }

    #[test]
    fn a_damaged_place_is_reported_once() {
        let warnings = Warnings::default();
        assert!(!warnings.any());
        warnings.add(damage(0));
        warnings.add(damage(0));
        assert!(warnings.any());
        assert_eq!(warnings.take(), [damage(0)]);
        warnings.add(damage(0));
        assert!(!warnings.any() && warnings.take().is_empty());
    }

    #[test]
    fn warnings_above_the_limit_are_only_counted() {
        let warnings = Warnings::default();
        for position in 0..2 * KEPT_MAX as u64 {
            warnings.add(damage(position));
        }
        let taken = warnings.take();
        assert_eq!(taken.len(), KEPT_MAX + 1);
        assert_eq!(taken.last(), Some(&Warning::More(KEPT_MAX as u64)));
        assert!(warnings.take().is_empty());
    }
}
