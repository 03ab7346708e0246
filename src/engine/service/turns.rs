//! Turns at a lock that several processes want all the time.
//!
//! A process that takes a lock over from another one finds nothing that the lock guards in the
//! caches of its processor, and first has to catch up with what the other one has done. If that
//! happens after each use of the lock, it takes longer than the use itself. So processes that want
//! the lock all the time use it in turns:
//!
//! ```text
//!   lock held by another one, again and again after many uses in a row?
//!     --> sleep for a turn; nobody is told, and nobody wakes it
//!     --> did others use the lock meanwhile? if not, forget that there are rivals
//! ```
//!
//! A process that uses the lock now and then never completes a turn, so it never sleeps.
//! Correctness does not depend on turns: a process that does not sleep waits for the lock as usual.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How long a process leaves the lock to others. The sleep takes about 50 us longer than this. If
/// several processes sleep, each one that wakes ends the turn of another, so turns are shorter.
pub const TURN: Duration = Duration::from_micros(100);
/// This many uses of the lock in a row make a turn.
const USES: u32 = 8;
/// This many turns must have ended at a held lock before a process expects rivals.
const MEETINGS: u32 = 8;

/// What a process knows of its turns. Read and changed by one thread at a time.
#[derive(Debug, Default)]
pub struct Turns {
    /// How often the lock had been taken when this process last took it.
    last: AtomicU64,
    /// How often this process took it since another one last did.
    uses: AtomicU32,
    /// Turns that ended at a held lock, less meetings without a turn; at most twice [`MEETINGS`].
    meetings: AtomicU32,
    /// Whether it has slept for a turn since it last took the lock.
    has_slept: AtomicBool,
}

impl Turns {
    /// Notes that the lock was taken, for the `taken`th time.
    #[inline]
    pub fn note(&self, taken: u64) {
        let before = self.last.load(Ordering::Relaxed);
        let uses = match taken == before.wrapping_add(1) {
            true => self.uses.load(Ordering::Relaxed).saturating_add(1),
            false => 1,
        };
        self.last.store(taken, Ordering::Relaxed);
        self.uses.store(uses, Ordering::Relaxed);
        self.has_slept.store(false, Ordering::Relaxed);
    }

    /// Whether the next turn is that of this process: it has slept since it last took the lock.
    #[inline]
    pub fn is_next(&self) -> bool {
        self.has_slept.load(Ordering::Relaxed)
    }

    /// Whether a process that finds the lock held by another one should sleep for a turn.
    pub fn is_over(&self) -> bool {
        let meetings = self.meetings.load(Ordering::Relaxed);
        let had_turn = self.uses.load(Ordering::Relaxed) >= USES;
        let next = match had_turn {
            true => (meetings + 1).min(2 * MEETINGS),
            false => meetings.saturating_sub(1),
        };
        self.meetings.store(next, Ordering::Relaxed);
        had_turn && meetings >= MEETINGS
    }

    /// Notes how often others took the lock while this process slept.
    pub fn slept(&self, taken: u64) {
        self.has_slept.store(true, Ordering::Relaxed);
        if taken < u64::from(USES) {
            self.meetings.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock that counts, and a process that uses it several times in a row.
    #[derive(Default)]
    struct Bed {
        taken: u64,
        turns: Turns,
    }

    impl Bed {
        fn use_it(&mut self, times: u32) {
            for _ in 0..times {
                self.taken += 1;
                self.turns.note(self.taken);
            }
        }

        /// Another process takes the lock, and this one finds it held.
        fn meet(&mut self) -> bool {
            self.taken += 1;
            self.turns.is_over()
        }

        /// How many of `turns` turns end with a sleep.
        fn sleeps(&mut self, turns: usize, uses: u32) -> usize {
            let mut slept = 0;
            for _ in 0..turns {
                self.use_it(uses);
                slept += usize::from(self.meet());
            }
            slept
        }
    }

    #[test]
    fn a_process_that_meets_rivals_after_each_of_many_turns_sleeps() {
        let mut bed = Bed::default();
        assert_eq!(bed.sleeps(100, USES), 100 - MEETINGS as usize);
        // Now and then another one comes after a few uses.
        assert_eq!(bed.sleeps(1, USES - 1), 0);
        assert_eq!(bed.sleeps(10, USES), 10);
    }

    #[test]
    fn a_process_that_uses_the_lock_now_and_then_never_sleeps() {
        let mut bed = Bed::default();
        assert_eq!(bed.sleeps(1000, 1), 0);
        assert_eq!(bed.sleeps(1000, USES - 1), 0);
        // It stops being one that uses the lock all the time.
        bed.sleeps(1000, USES);
        bed.sleeps(2 * MEETINGS as usize, 1);
        assert_eq!(bed.sleeps(1, USES), 0);
    }

    #[test]
    fn a_process_that_slept_while_nobody_used_the_lock_counts_its_rivals_anew() {
        let mut bed = Bed::default();
        bed.sleeps(100, USES);
        bed.turns.slept(u64::from(USES));
        assert!(bed.turns.is_next());
        assert_eq!(bed.sleeps(1, USES), 1);
        assert!(!bed.turns.is_next());
        bed.turns.slept(u64::from(USES) - 1);
        assert_eq!(bed.sleeps(MEETINGS as usize, USES), 0);
        assert_eq!(bed.sleeps(1, USES), 1);
    }
}
