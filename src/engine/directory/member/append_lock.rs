//! The append lock, which one process holds at a time. Processes wait for it, take turns, and take
//! it over from a process that has died.

use super::Member;
use crate::engine::service::shared_lock::{self, LockWord, SLOTS, Taken};
use crate::engine::service::turns::TURN;
use crate::error::{Awaited, Error, Result};
use crate::interrupt;
use std::time::{Duration, Instant};

/// A sender waits this long for a process that recovers the store.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// Pauses between two loads of the append lock in a process whose turn is next. They are few, so
/// that it finds the moment between two appends of another process.
const SPINS_OF_NEXT: u32 = 8;

impl Member {
    /// Releases the append lock if a process with the slot of this one has died holding it: the
    /// others would take the dead holder for this process and wait.
    pub(super) fn release_of_dead(&self) {
        if shared_lock::holder(self) == self.slot {
            // The word still says that a holder died inside.
            drop(self.hold(Duration::ZERO));
        }
    }

    /// Whether a process is recovering the store.
    pub fn is_recovered(&self) -> bool {
        shared_lock::is_long(self)
    }

    /// Calls `take` with the time that it may wait for the append lock, in total at most `timeout`.
    /// If the caller can be interrupted, waits in slices, and holds no lock while it checks for an
    /// interrupt. Waits for longer while a process recovers the store after another one has died.
    ///
    /// # Errors
    ///
    /// Those of `take`.
    pub fn patiently<T>(
        &self,
        timeout: Duration,
        take: impl Fn(Duration) -> Result<T>,
    ) -> Result<T> {
        let mut epoch = self.page.epoch();
        let mut began = None;
        loop {
            let taken = in_slices(timeout, &take);
            if taken.is_ok() {
                return taken;
            }
            let began = *began.get_or_insert_with(Instant::now);
            let now = self.page.epoch();
            // A recovery begins an epoch.
            let recovered = epoch != now || self.is_recovered();
            if !matches!(taken, Err(Error::Busy { .. }))
                || !recovered
                || interrupt::is_raised()
                || began.elapsed() > RECOVERY_TIMEOUT
            {
                return taken;
            }
            epoch = now;
        }
    }

    /// Sleeps for a turn, at most for `timeout`, if another process holds the append lock and
    /// several want it all the time. Returns whether it slept. No other thread of this process may
    /// hold the lock.
    #[inline]
    pub fn give_way(&self, timeout: Duration) -> bool {
        let holder = shared_lock::holder(self);
        holder != 0 && holder != self.slot && self.turns.is_over() && self.leave_turn(timeout)
    }

    #[cold]
    fn leave_turn(&self, timeout: Duration) -> bool {
        let before = shared_lock::taken(self);
        std::thread::sleep(TURN.min(timeout));
        self.turns
            .slept(shared_lock::taken(self).wrapping_sub(before));
        true
    }

    /// Takes the append lock. No other thread of this process may hold it.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if a living process holds it for longer than `timeout`.
    #[inline]
    pub fn hold(&self, timeout: Duration) -> Result<(Held<'_>, Taken)> {
        let spins = match self.turns.is_next() {
            true => SPINS_OF_NEXT,
            false => Self::SPINS,
        };
        match shared_lock::acquire_with(self, self.slot, Some(timeout), spins) {
            Some(taken) => {
                self.turns.note(shared_lock::taken(self));
                Ok((Held(self), taken))
            }
            None => {
                let waited_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                Err(Error::Busy {
                    what: Awaited::Log,
                    waited_ms,
                })
            }
        }
    }
}

/// Calls `take` with the time that it may wait, in slices if the caller can be interrupted.
fn in_slices<T>(timeout: Duration, take: &impl Fn(Duration) -> Result<T>) -> Result<T> {
    if !interrupt::is_allowed() {
        return take(timeout);
    }
    let mut waited = Duration::ZERO;
    loop {
        let slice = interrupt::SLICE.min(timeout.saturating_sub(waited));
        let began = Instant::now();
        let taken = take(slice);
        let Err(Error::Busy { what, waited_ms }) = taken else {
            return taken;
        };
        waited += began.elapsed();
        // If the holder is a thread of this process, `waited_ms` is the age of its call, which may
        // be longer.
        let busy = waited.max(Duration::from_millis(waited_ms));
        if busy >= timeout || interrupt::is_raised() {
            let waited_ms = u64::try_from(busy.as_millis()).unwrap_or(u64::MAX);
            return Err(Error::Busy { what, waited_ms });
        }
    }
}

/// The append lock, held until it is dropped.
#[derive(Debug)]
pub struct Held<'a>(&'a Member);

impl Held<'_> {
    /// Notes that the lock will be held for as long as a recovery takes.
    pub fn lengthen(&self) {
        shared_lock::lengthen(self.0);
    }

    /// Notes that nothing is stored above the published end any more.
    pub fn clean(&self) {
        shared_lock::clean(self.0);
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if !shared_lock::release(self.0, self.0.slot) {
            self.0
                .page
                .set_failed("another process has overwritten the append lock");
        }
    }
}

impl LockWord for Member {
    const SPINS: u32 = 256;

    #[inline]
    fn load(&self) -> u64 {
        self.page.append_lock()
    }

    #[inline]
    fn exchange(&self, old: u64, new: u64) -> bool {
        self.page.exchange_append_lock(old, new)
    }

    fn sleep(&self, seen: u64, timeout: Duration) {
        self.page.sleep_on_append_lock(seen, timeout);
    }

    fn wake(&self) {
        self.page.wake_append_lock();
    }

    fn is_alive(&self, slot: u32) -> bool {
        // If the kernel does not say, the holder counts as alive: stealing its lock would be worse
        // than waiting for it.
        (1..=SLOTS).contains(&slot) && self.locks.is_taken(slot).unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
    use crate::engine::directory::agreed::Agreed;
    use crate::engine::directory::member::Meeting;
    use crate::options::Options;
    use std::path::Path;

    fn join(root: &Path) -> Member {
        let own = Agreed::of(&Options::default()).unwrap();
        let meeting = Meeting::OF_PARTITIONS;
        Member::join(&RealDisk, root, meeting, Duration::from_secs(5), &own).unwrap()
    }

    fn use_lock(member: &Member, times: usize) {
        for _ in 0..times {
            drop(member.hold(Duration::ZERO).unwrap());
        }
    }

    /// Two processes send all the time: after a turn, one of them leaves the lock to the other one.
    /// It does not if it finds the lock free, or sends now and then.
    #[test]
    fn a_process_that_has_had_its_turn_leaves_the_lock_to_a_rival() {
        let dir = tempfile::tempdir().unwrap();
        let (member, rival) = (join(dir.path()), join(dir.path()));
        let short = Duration::from_nanos(1);
        let meet = |uses| {
            use_lock(&member, uses);
            let _held = rival.hold(Duration::ZERO).unwrap();
            member.give_way(short)
        };
        assert!(!(0..100).any(|_| meet(1)));
        assert!((0..100).any(|_| meet(100)));
        use_lock(&member, 100);
        assert!(!member.give_way(short));
    }
}
