//! The append lock of a shared store: a word in the state page that names its holder. The table of
//! groups has a lock of the same form.
//!
//! ```text
//!   bit 0 to 8    slot of the holder, 1 to 250; 0 if nobody holds it
//!   bit 9         a process may be asleep on the word
//!   bit 10        a holder died inside, and what it left was not erased yet
//!   bit 11        the holder recovers the store, which may take long
//!   bit 16 to 63  generation: changes each time the lock is taken
//! ```
//!
//! A process is alive as long as it holds the byte of its slot in the file `lock`: the kernel
//! releases that when the process dies. A process that finds the holder dead takes the lock over;
//! of several that try, one succeeds, because the generation changes. A process that joins with the
//! slot of the dead holder finds its own slot in the word, and takes the lock over at once: the
//! others would take it for the holder.
//!
//! The threads of a process take a lock of the process first, so only one of them competes for this
//! one. Processes that want it all the time use it in turns; see `turns.rs`.

use crate::plant::{Bug, planted};
use crate::sync::{Instant, TRIES};
use std::time::Duration;

/// Number of slots: this many processes may share a store.
pub const SLOTS: u32 = 250;
/// A process sleeps this long before it checks whether the holder is alive.
const CHECK: Duration = Duration::from_millis(10);

const HOLDER: u64 = 0x1FF;
const WAITERS: u64 = 1 << 9;
const DIRTY: u64 = 1 << 10;
const LONG: u64 = 1 << 11;
const GENERATION: u64 = 1 << 16;

/// The word, and which processes are alive.
pub trait LockWord {
    /// Pauses of the processor between two loads of the word before the first sleep. More of them
    /// let the holder, which has what the lock guards in its cache, take it several times in a row.
    const SPINS: u32;

    /// Its value, acquiring.
    fn load(&self) -> u64;

    /// Replaces it by `new` if it is `old`, in one atomic step. Returns whether it was.
    fn exchange(&self, old: u64, new: u64) -> bool;

    /// Sleeps until the word is woken, at most for `timeout`. Returns at once if it is not `seen`.
    fn sleep(&self, seen: u64, timeout: Duration);

    /// Wakes all sleepers.
    fn wake(&self);

    /// Whether a process other than the caller's holds this slot.
    fn is_alive(&self, slot: u32) -> bool;
}

/// How the lock was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Nothing is stored above the published end.
    Clean,
    /// A holder died inside: it may have stored bytes that it has not published. Every later
    /// holder finds the lock so until one calls [`clean`].
    Dirty,
}

/// Takes the lock for `slot`. `None` if a living process holds it for longer than `timeout`.
/// Without a `timeout`, waits without limit.
#[inline]
pub fn acquire<W: LockWord>(word: &W, slot: u32, timeout: Option<Duration>) -> Option<Taken> {
    acquire_with(word, slot, timeout, W::SPINS)
}

/// As [`acquire`], with `spins` pauses between two loads of the word instead of
/// [`LockWord::SPINS`]. The total number of pauses before the first sleep is the same.
#[inline]
pub fn acquire_with<W: LockWord>(
    word: &W,
    slot: u32,
    timeout: Option<Duration>,
    spins: u32,
) -> Option<Taken> {
    let seen = word.load();
    if seen & HOLDER == 0 && word.exchange(seen, taken_by(seen, slot)) {
        return Some(how(seen));
    }
    wait(word, slot, timeout, spins)
}

/// The word after `slot` has taken the lock. Threads that sleep on it wake when it is released.
fn taken_by(seen: u64, slot: u32) -> u64 {
    let step = match planted(Bug::KeepGeneration) {
        true => 0,
        false => GENERATION,
    };
    let generation = (seen & !(GENERATION - 1)).wrapping_add(step);
    generation | seen & (WAITERS | DIRTY) | u64::from(slot)
}

fn how(seen: u64) -> Taken {
    match seen & DIRTY {
        0 => Taken::Clean,
        _ => Taken::Dirty,
    }
}

#[cold]
fn wait<W: LockWord>(word: &W, slot: u32, timeout: Option<Duration>, spins: u32) -> Option<Taken> {
    let began = Instant::now();
    let mut tries = TRIES * W::SPINS / spins;
    loop {
        let seen = word.load();
        let holder = (seen & HOLDER) as u32;
        if holder == 0 {
            if word.exchange(seen, taken_by(seen, slot)) {
                return Some(how(seen));
            }
            continue;
        }
        if tries > 0 {
            tries -= 1;
            (0..spins).for_each(|_| std::hint::spin_loop());
            continue;
        }
        if !word.is_alive(holder) {
            if word.exchange(seen, taken_by(seen, slot) | DIRTY) {
                return Some(Taken::Dirty);
            }
            continue;
        }
        let left = match timeout {
            Some(timeout) => timeout.saturating_sub(began.elapsed()),
            None => CHECK,
        };
        if left.is_zero() {
            return None;
        }
        let marked = seen | WAITERS;
        if marked == seen || word.exchange(seen, marked) {
            word.sleep(marked, left.min(CHECK));
        }
    }
}

/// Waits while a living process holds the lock, at most for `timeout`. The caller may still fail to
/// get it, because another process may be faster.
pub fn await_free(word: &impl LockWord, timeout: Duration) {
    let began = Instant::now();
    loop {
        let seen = word.load();
        let holder = (seen & HOLDER) as u32;
        let left = timeout.saturating_sub(began.elapsed());
        if holder == 0 || !word.is_alive(holder) || left.is_zero() {
            return;
        }
        let marked = seen | WAITERS;
        if marked == seen || word.exchange(seen, marked) {
            word.sleep(marked, left.min(CHECK));
        }
    }
}

/// Slot of the holder; 0 if nobody holds it.
pub fn holder(word: &impl LockWord) -> u32 {
    (word.load() & HOLDER) as u32
}

/// How often the lock was taken, modulo 2^48.
#[inline]
pub fn taken(word: &impl LockWord) -> u64 {
    word.load() / GENERATION
}

/// Whether a process may be asleep until the lock is released.
#[cfg(test)]
pub fn is_awaited(word: &impl LockWord) -> bool {
    word.load() & WAITERS != 0
}

/// Notes that the lock will be held for long. Called by the holder.
pub fn lengthen(word: &impl LockWord) {
    loop {
        let seen = word.load();
        if word.exchange(seen, seen | LONG) {
            return;
        }
    }
}

/// Whether the holder has called [`lengthen`].
pub fn is_long(word: &impl LockWord) -> bool {
    word.load() & LONG != 0
}

/// Notes that nothing is stored above the published end any more. Called by the holder.
pub fn clean(word: &impl LockWord) {
    loop {
        let seen = word.load();
        if seen & DIRTY == 0 || word.exchange(seen, seen & !DIRTY) {
            return;
        }
    }
}

/// Releases the lock. Returns `false` if the word does not name `slot`: it was overwritten.
#[inline]
pub fn release(word: &impl LockWord, slot: u32) -> bool {
    loop {
        let seen = word.load();
        if seen & HOLDER != u64::from(slot) {
            return false;
        }
        let forgotten = match planted(Bug::ForgetDirt) {
            true => HOLDER | WAITERS | LONG | DIRTY,
            false => HOLDER | WAITERS | LONG,
        };
        if word.exchange(seen, seen & !forgotten) {
            if seen & WAITERS != 0 && !planted(Bug::WakeNobody) {
                word.wake();
            }
            return true;
        }
    }
}
