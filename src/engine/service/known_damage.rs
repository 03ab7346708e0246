//! Known damage of a store.

use crate::engine::Damage;
use crate::warning::{Warning, Warnings};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// At most this many places are kept.
const KEPT_MAX: usize = 10_000;

/// Damage found since opening, without duplicates.
#[derive(Debug, Default)]
pub struct Report {
    damage: Mutex<Vec<Damage>>,
    stale: AtomicU64,
    /// Each place is reported here once.
    pub warnings: Arc<Warnings>,
}

impl Report {
    /// Adds a damaged place, or its lost messages if the place is known.
    pub fn add(&self, damage: Damage) {
        let mut known = self.damage.lock();
        let same = |other: &Damage| {
            other.path == damage.path
                && damage.position >= other.position
                && damage.position < other.position + other.length.max(1)
        };
        if let Some(other) = known.iter_mut().find(|other| same(other)) {
            for lost in damage.lost {
                if !other.lost.contains(&lost) {
                    other.lost.push(lost);
                }
            }
        } else if known.len() < KEPT_MAX {
            self.warnings.add(Warning::Damage(damage.clone()));
            known.push(damage);
        }
    }

    /// Removes the places for which `keep` returns `false`.
    pub fn retain(&self, keep: impl Fn(&Damage) -> bool) {
        self.damage.lock().retain(keep);
    }

    /// All places.
    pub fn all(&self) -> Vec<Damage> {
        self.damage.lock().clone()
    }

    /// Counts a record with another record's checksum.
    pub fn stale(&self) {
        self.stale.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of records found with another record's checksum.
    pub fn stale_count(&self) -> u64 {
        self.stale.load(Ordering::Relaxed)
    }
}
