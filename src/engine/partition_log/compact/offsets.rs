//! The offset map of a pass: the latest offset of each key, in bounded memory.
//!
//! A slot has 24 bytes, the hash of a key and its latest offset. Keys with equal hashes count as
//! one key, and the earlier message is lost. The hash is SipHash-1-3 of 128 bits with a key that is
//! drawn for each pass, so that nobody can choose keys that collide; by chance, a billion keys
//! collide with probability 10^-21.
//!
//! The table is open addressing with linear probing, and keeps each probe sequence in the order of
//! home slots: the search for a key that is absent ends as early as that for one that is present,
//! even where nine tenths of the slots are in use.

use crate::num::index;
use siphasher::sip128::{Hash128, SipHasher13};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::hint::black_box;

/// Bytes of a slot.
pub const SLOT_LEN: usize = size_of::<Slot>();
/// A map is full when this many of ten slots are in use.
const LOAD: u64 = 9;

const _: () = assert!(SLOT_LEN == 24);

/// Both halves of the hash, and the offset plus 1; 0 if the slot is free.
type Slot = [u64; 3];

/// The hash of a key.
pub type Hash = Hash128;

/// The latest offset of each key.
#[derive(Debug)]
pub struct OffsetMap {
    slots: Vec<Slot>,
    used: usize,
    used_max: usize,
    hasher: SipHasher13,
    /// The highest offset that the map covers; `None` if it covers none.
    latest: Option<u64>,
}

impl OffsetMap {
    /// An empty map for up to `keys` keys, in at most `bytes` bytes. It can hold at least one key,
    /// unless `keys` is 0.
    pub fn new(keys: u64, bytes: u64) -> OffsetMap {
        let wanted = keys.saturating_mul(10) / LOAD + 2;
        let slots = wanted.min(bytes / SLOT_LEN as u64).max(2);
        let draw = || RandomState::new().build_hasher().finish();
        OffsetMap {
            // The system provides zeros, and takes memory for a slot only when it is first used.
            slots: vec![[0; 3]; index(slots)],
            used: 0,
            used_max: index((slots * LOAD / 10).max(1).min(keys)),
            hasher: SipHasher13::new_with_keys(draw(), draw()),
            latest: None,
        }
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> Hash {
        self.hasher.hash(key)
    }

    /// The highest offset that the map covers; `None` if it covers none.
    pub fn latest(&self) -> Option<u64> {
        self.latest
    }

    /// States that the map covers all offsets up to `offset`.
    pub fn cover(&mut self, offset: u64) {
        self.latest = self.latest.max(Some(offset));
    }

    /// Loads the home slots of keys with these hashes. Independent loads wait for memory together;
    /// searches would wait one by one.
    pub fn warm(&self, hashes: impl Iterator<Item = Hash>) {
        let homes = hashes.map(|hash| self.home(hash.h1));
        let loads = homes.map(|home| self.slots.get(home).map_or(0, |slot| slot[2]));
        black_box(loads.fold(0, |sum, load| sum ^ load));
    }

    #[inline]
    fn home(&self, high: u64) -> usize {
        let scaled = u128::from(high) * self.slots.len() as u128;
        index((scaled >> 64) as u64)
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        match at + 1 == self.slots.len() {
            true => 0,
            false => at + 1,
        }
    }

    /// How far a slot is from the home of the key in it.
    #[inline]
    fn distance(&self, at: usize, high: u64) -> usize {
        let home = self.home(high);
        match at >= home {
            true => at - home,
            false => at + self.slots.len() - home,
        }
    }

    /// Finds the slot of a key, or the one where it belongs.
    #[inline]
    fn find(&self, hash: Hash) -> (usize, Option<u64>) {
        let mut at = self.home(hash.h1);
        let mut distance = 0;
        while let Some([high, low, offset]) = self.slots.get(at)
            && *offset != 0
        {
            if *high == hash.h1 && *low == hash.h2 {
                return (at, Some(offset - 1));
            }
            if self.distance(at, *high) < distance {
                break;
            }
            at = self.next(at);
            distance += 1;
        }
        (at, None)
    }

    /// The latest offset of a key; `None` if the map does not have it.
    #[inline]
    pub fn get(&self, hash: Hash) -> Option<u64> {
        self.find(hash).1
    }

    /// Sets the latest offset of a key. Returns `false`, and changes nothing, if the key is absent
    /// and the map is full.
    #[inline]
    pub fn put(&mut self, hash: Hash, offset: u64) -> bool {
        let (at, known) = self.find(hash);
        let entry = [hash.h1, hash.h2, offset + 1];
        if known.is_some() {
            if let Some(slot) = self.slots.get_mut(at) {
                *slot = entry;
            }
        } else if self.used == self.used_max {
            return false;
        } else {
            self.insert(at, entry);
            self.used += 1;
        }
        self.cover(offset);
        true
    }

    /// Sets the latest offsets of keys, in order. Returns `false` at the first that finds the map
    /// full.
    pub fn put_all(&mut self, keys: &[(Hash, u64)]) -> bool {
        self.warm(keys.iter().map(|(hash, _)| *hash));
        keys.iter().all(|(hash, offset)| self.put(*hash, *offset))
    }

    /// Moves the entries from `at` up to the next free slot, of which there is always one.
    #[inline]
    fn insert(&mut self, mut at: usize, mut entry: Slot) {
        while let Some(slot) = self.slots.get_mut(at) {
            std::mem::swap(slot, &mut entry);
            if entry[2] == 0 {
                return;
            }
            at = self.next(at);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #![proptest_config(crate::seeds::proptest_config())]

        #[test]
        fn the_map_has_the_latest_offset_of_each_key(
            puts in proptest::collection::vec(0_u16..400, 0..800),
            bytes in 48_u64..12_000,
        ) {
            let mut map = OffsetMap::new(puts.len() as u64, bytes);
            let mut model = HashMap::new();
            let mut is_full = false;
            for (offset, key) in (0_u64..).zip(&puts) {
                let hash = map.hash(&key.to_be_bytes());
                if map.put(hash, offset) {
                    model.insert(*key, offset);
                } else {
                    is_full = true;
                    prop_assert!(!model.contains_key(key));
                }
            }
            prop_assert_eq!(map.used, model.len());
            prop_assert!(!is_full || map.used as u64 == (bytes / 24).max(2) * 9 / 10);
            for key in 0_u16..400 {
                let hash = map.hash(&key.to_be_bytes());
                prop_assert_eq!(map.get(hash), model.get(&key).copied());
            }
            prop_assert_eq!(map.latest(), model.values().max().copied());
        }
    }

    #[test]
    fn a_map_is_full_at_nine_tenths_of_its_memory() {
        let mut map = OffsetMap::new(u64::MAX / 16, 24 * 1000);
        let put = |map: &mut OffsetMap, key: u64| map.put(map.hash(&key.to_be_bytes()), key);
        let kept = (0..2000).filter(|key| put(&mut map, *key)).count();
        assert_eq!(kept, 900);
        assert!(put(&mut map, 5), "a key that is known needs no slot");
        assert_eq!(map.latest(), Some(899));
    }

    #[test]
    fn a_map_takes_no_more_memory_than_its_keys_need() {
        let map = OffsetMap::new(10, 128 << 20);
        assert!(map.slots.len() < 20);
        assert_eq!(OffsetMap::new(0, 128 << 20).used_max, 0);
    }
}
