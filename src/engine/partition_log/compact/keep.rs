//! What a pass keeps of a batch.
//!
//! | record | kept |
//! |---|---|
//! | at or after the end of what the map covers | always |
//! | without key | never |
//! | with value | if the map has no later offset for its key |
//! | without value, a *tombstone* | likewise, but only until its delete horizon has passed |
//! | of an aborted transaction | never |
//!
//! A tombstone gets its horizon in the first pass that keeps it, so a reader that began before has
//! that long to see it. A batch that keeps all its records is copied unchanged.

use super::offsets::{Hash, OffsetMap};
use crate::record::Flaw;
use crate::record::kafka::{Header, Opened};

/// What becomes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// No record is kept.
    Drop,
    /// It is copied.
    Copy,
    /// It is rebuilt from the records that are kept, with this delete horizon.
    Rebuild(Option<i64>),
}

/// What a pass knows about all batches.
#[derive(Clone, Copy, Debug)]
pub struct Knowledge<'a> {
    /// The latest offset of each key.
    pub map: &'a OffsetMap,
    /// End of the offsets that the map covers.
    pub end: u64,
    /// The time.
    pub now_ms: i64,
    /// How long tombstones stay.
    pub delete_retention_ms: i64,
    /// Whether tombstones in the formats 0 and 1, which have no horizon, stay in this segment.
    pub keeps_old_tombstones: bool,
}

/// What a pass needs of a record.
#[derive(Clone, Copy, Debug)]
struct Seen {
    offset: u64,
    is_keyed: bool,
    is_tombstone: bool,
}

/// Decides about batches, one after another.
#[derive(Debug, Default)]
pub struct Keeper {
    seen: Vec<Seen>,
    hashes: Vec<Hash>,
    kept: Vec<bool>,
    has_tombstones: bool,
}

impl Keeper {
    /// Which records of the last batch are kept, in order.
    pub fn kept(&self) -> &[bool] {
        &self.kept
    }

    /// Decides about a batch. Reads all its records. `is_needless`: it has the data of an aborted
    /// transaction, or a marker whose data is gone.
    ///
    /// # Errors
    ///
    /// The [`Flaw`] of a damaged record.
    pub fn decide(
        &mut self,
        know: &Knowledge<'_>,
        header: &Header,
        opened: &mut Opened,
        is_needless: bool,
    ) -> Result<Fate, Flaw> {
        let horizon = header.delete_horizon();
        let has_passed = horizon.is_some_and(|horizon| horizon <= know.now_ms);
        let is_removed = match header.is_control() {
            true => is_needless && has_passed,
            false => is_needless,
        };
        self.read(know, opened)?;
        self.has_tombstones = false;
        self.kept.clear();
        if is_removed {
            self.kept.resize(self.seen.len(), false);
        } else if header.is_control() {
            self.kept.resize(self.seen.len(), true);
        } else {
            let tombstones_stay = match header.magic {
                2 => !has_passed,
                _ => know.keeps_old_tombstones,
            };
            self.choose(know, tombstones_stay);
        }
        if !self.kept.contains(&true) {
            return Ok(Fate::Drop);
        }
        let begins_horizon =
            horizon.is_none() && (self.has_tombstones || header.is_control() && is_needless);
        Ok(if begins_horizon {
            Fate::Rebuild(Some(know.now_ms.saturating_add(know.delete_retention_ms)))
        } else if header.magic == 2 && !self.kept.contains(&false) {
            Fate::Copy
        } else {
            Fate::Rebuild(horizon)
        })
    }

    fn read(&mut self, know: &Knowledge<'_>, opened: &mut Opened) -> Result<(), Flaw> {
        self.seen.clear();
        self.hashes.clear();
        while let Some(entry) = opened.next()? {
            let key = entry.key.filter(|_| entry.offset < know.end);
            self.hashes.extend(key.map(|key| know.map.hash(key)));
            self.seen.push(Seen {
                offset: entry.offset,
                is_keyed: entry.key.is_some(),
                is_tombstone: entry.value.is_none(),
            });
        }
        know.map.warm(self.hashes.iter().copied());
        Ok(())
    }

    fn choose(&mut self, know: &Knowledge<'_>, tombstones_stay: bool) {
        let mut hashes = self.hashes.iter();
        for seen in &self.seen {
            let is_kept = seen.offset >= know.end
                || seen.is_keyed && {
                    let latest = hashes.next().and_then(|hash| know.map.get(*hash));
                    latest.is_none_or(|latest| seen.offset >= latest)
                        && (!seen.is_tombstone || tombstones_stay)
                };
            self.has_tombstones |= is_kept && seen.is_tombstone;
            self.kept.push(is_kept);
        }
    }
}
