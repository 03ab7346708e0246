//! What a store reports: known damage, and warnings.

use crate::damage::Damage;
use crate::sync::Mutex;
use crate::warning::{Warning, Warnings};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of damaged places kept.
const KEPT_MAX: usize = 10_000;

/// What a store has to report since it was opened.
#[derive(Debug, Default)]
pub struct Report {
    /// Each damaged place once.
    damage: Mutex<Vec<Damage>>,
    stale: AtomicU64,
    /// Warnings that a caller should see once: damaged places when found, slow puts and flushes.
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

    /// All damaged places.
    pub fn damage(&self) -> Vec<Damage> {
        self.damage.lock().clone()
    }

    /// How many damaged places there are.
    pub fn damaged(&self) -> u64 {
        self.damage.lock().len() as u64
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
