//! Anonymous memory that tests use again: the simulated disk creates thousands of files a second,
//! and to map and unmap memory for each takes a quarter of the simulator's time.

#![allow(unsafe_code)]

use memmap2::MmapRaw;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Deref;

/// Longer maps are not kept.
const LEN_MAX: usize = 64 << 10;
/// How many maps of one length a thread keeps.
const SPARE_MAX: usize = 64;

thread_local! {
    static SPARE: RefCell<BTreeMap<usize, Vec<MmapRaw>>> = const { RefCell::new(BTreeMap::new()) };
}

/// A map; anonymous memory goes back to its thread when the last owner drops it.
#[derive(Debug)]
pub struct Memory {
    map: Option<MmapRaw>,
    anonymous: bool,
}

impl Memory {
    /// Owns the map of a file.
    pub fn of_file(map: MmapRaw) -> Memory {
        Memory {
            map: Some(map),
            anonymous: false,
        }
    }

    /// Returns `len` zeros: memory that was used before, or else of a map that `create` returns.
    pub fn anonymous(
        len: usize,
        create: impl FnOnce() -> std::io::Result<MmapRaw>,
    ) -> std::io::Result<Memory> {
        let spare = SPARE.with_borrow_mut(|spare| spare.get_mut(&len)?.pop());
        if let Some(map) = &spare {
            // SAFETY: the map has `len` bytes and is writable, and nobody else has it.
            unsafe { std::ptr::write_bytes(map.as_mut_ptr(), 0, len) };
        }
        Ok(Memory {
            map: Some(spare.map_or_else(create, Ok)?),
            anonymous: true,
        })
    }
}

impl Deref for Memory {
    type Target = MmapRaw;

    fn deref(&self) -> &MmapRaw {
        let Some(map) = &self.map else {
            unreachable!("only `drop` takes it")
        };
        map
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Some(map) = self.map.take() else { return };
        if self.anonymous && map.len() <= LEN_MAX {
            // A thread that ends keeps nothing.
            let _ = SPARE.try_with(|spare| {
                let mut spare = spare.borrow_mut();
                let spare = spare.entry(map.len()).or_default();
                if spare.len() < SPARE_MAX {
                    spare.push(map);
                }
            });
        }
    }
}
