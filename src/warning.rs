//! Warnings: what a store has to say that is no error of the call that met it.
//!
//! The core keeps them until somebody takes them. It calls no logger: a sender that is in the
//! append lock, or a thread of the core, would run foreign code there.

use crate::damage::Damage;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Warnings that are kept until somebody takes them; more are counted alone.
pub const KEPT_MAX: usize = 100;
/// Damaged places that are remembered, so that each is told once; of more none is told.
const PLACES_MAX: usize = 10_000;

/// One thing to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A damaged place that was met; each is told once.
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
    /// A message was sent with a delay level, and Forebay delivers none. Told once a store.
    Undelivered {
        /// Where the message was to go.
        topic: Box<str>,
        /// Its delay level.
        level: u8,
    },
    /// `lock_memory` cannot lock a file. Told once a store.
    Unlocked {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The disk is too full for the options that an opening was given: the next one does not find
    /// them.
    NotKept {
        /// The file that would have them.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// This many more there were than are kept.
    More(u64),
}

/// A put that took longer than half a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowPut {
    /// The topic.
    pub topic: Box<str>,
    /// Messages: more than one in a batch.
    pub messages: usize,
    /// Bytes of their records.
    pub bytes: usize,
    /// How long it took, some milliseconds more or less; without the wait for the disk.
    pub took: Duration,
}

/// Warnings of one store that were not told yet.
#[derive(Debug, Default)]
pub struct Warnings {
    /// Read by every call and hardly ever written: nothing else shares its cache line.
    any: CachePadded<AtomicBool>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    list: Vec<Warning>,
    more: u64,
    places: BTreeSet<(PathBuf, u64)>,
    undelivered: bool,
}

impl Warnings {
    /// Whether there is something to tell.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Adds a warning, unless it is one that is told once and was told.
    #[cold]
    pub fn add(&self, warning: Warning) {
        let mut kept = self.kept.lock();
        let is_news = match &warning {
            Warning::Damage(damage) => {
                kept.places.len() < PLACES_MAX
                    && kept.places.insert((damage.path.clone(), damage.position))
            }
            Warning::Undelivered { .. } => !std::mem::replace(&mut kept.undelivered, true),
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

    /// Takes what was added since the last call, in order.
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
    fn a_place_is_told_once() {
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
    fn warnings_that_nobody_takes_are_counted_and_do_not_pile_up() {
        let warnings = Warnings::default();
        for position in 0..2 * KEPT_MAX as u64 {
            warnings.add(damage(position));
        }
        let told = warnings.take();
        assert_eq!(told.len(), KEPT_MAX + 1);
        assert_eq!(told.last(), Some(&Warning::More(KEPT_MAX as u64)));
        assert!(warnings.take().is_empty());
    }
}
