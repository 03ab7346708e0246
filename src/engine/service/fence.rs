//! A queue that processes share: one word has its owner's progress, and fences off earlier owners.
//!
//! ```text
//!   bit 0 to 47    committed: the smallest offset that is not settled
//!   bit 48 to 63   epoch: incremented when the queue leaves an owner
//! ```
//!
//! ```text
//!   owner:    settle --> exchange (epoch, committed) for (epoch, new)     no lock
//!   others:   lock --> increment the epoch --> store the new owner --> unlock
//!   heir:     lock --> is it mine? --> begin at committed, with this epoch --> unlock
//! ```
//!
//! Both are in one word, so an owner that lost the queue between reading the epoch and storing its
//! progress cannot store it: the exchange fails. The next owner sees what was stored before. An
//! owner needs no lock, so no other process can delay it. The epoch repeats after 65,536 owners:
//! only a process that slept through all of them, and finds `committed` unchanged, would be
//! deceived.
//!
//! The epoch also shows a process that the queue was given back to it. It takes the lock to read
//! the owner, because the epoch is incremented before the new owner is stored.

use crate::plant::{Bug, planted};

/// The largest offset that fits.
pub const COMMITTED_MAX: u64 = (1 << 48) - 1;
const EPOCH: u32 = 48;

/// The contents of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Changes when the queue leaves an owner.
    pub epoch: u16,
    /// The smallest offset that is not settled, at most [`COMMITTED_MAX`].
    pub committed: u64,
}

impl Fence {
    /// Unpacks a word.
    pub fn of(word: u64) -> Fence {
        Fence {
            epoch: (word >> EPOCH) as u16,
            committed: word & COMMITTED_MAX,
        }
    }

    /// Packs the word.
    pub fn word(self) -> u64 {
        u64::from(self.epoch) << EPOCH | self.committed.min(COMMITTED_MAX)
    }
}

/// The word, which other processes change too.
pub trait Fenced {
    /// Its value, acquiring.
    fn load(&self) -> u64;

    /// Replaces it by `new` if it is `old`, in one atomic step. Returns whether it was.
    fn exchange(&self, old: u64, new: u64) -> bool;

    /// Whether this process owns the queue. Exact only while the caller holds the lock of those
    /// that change owners.
    fn is_mine(&self) -> bool;
}

/// Stores the progress of an owner. Returns `false` if the queue has left it: then nothing is
/// stored.
#[inline]
pub fn advance(word: &impl Fenced, epoch: u16, committed: u64) -> bool {
    loop {
        let seen = word.load();
        let fence = Fence::of(seen);
        if fence.epoch != epoch && !planted(Bug::AdvanceBlindly) {
            return false;
        }
        let epoch = fence.epoch;
        let new = Fence { epoch, committed }.word();
        if new == seen || word.exchange(seen, new) {
            return true;
        }
    }
}

/// Takes the queue from its owner, whose progress stays. The caller holds the lock, and stores the
/// new owner afterwards.
pub fn revoke(word: &impl Fenced) -> Fence {
    let steps = u16::from(!planted(Bug::KeepEpoch));
    change(word, steps, |committed| committed)
}

/// Makes the owner begin again at `committed` and forget what it has delivered. The caller holds
/// the lock.
pub fn reset(word: &impl Fenced, committed: u64) -> Fence {
    // Two steps: an owner that finds the very next epoch was given the queue back, and keeps its
    // deliveries.
    change(word, 2, |_| committed)
}

fn change(word: &impl Fenced, steps: u16, committed: impl Fn(u64) -> u64) -> Fence {
    loop {
        let seen = word.load();
        let before = Fence::of(seen);
        let fence = Fence {
            epoch: before.epoch.wrapping_add(steps),
            committed: committed(before.committed),
        };
        if word.exchange(seen, fence.word()) {
            return fence;
        }
    }
}

/// What this process begins with if it owns the queue. `lock` takes the lock of those that change
/// owners.
///
/// # Errors
///
/// Those of `lock`.
pub fn adopt<G, E>(
    word: &impl Fenced,
    lock: impl FnOnce() -> Result<G, E>,
) -> Result<Option<Fence>, E> {
    let _held = match planted(Bug::AdoptUnlocked) {
        true => None,
        false => Some(lock()?),
    };
    Ok(word.is_mine().then(|| Fence::of(word.load())))
}
