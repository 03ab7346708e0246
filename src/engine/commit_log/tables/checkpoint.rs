//! The file `checkpoint`: store times up to which the parts of a store are durable.
//!
//! ```text
//! 0   i64  log      8   i64  queues      16  i64  index     (ms, big-endian)
//! ```
//!
//! RocketMQ reads it to choose where recovery begins; Forebay has its marks for that. A time is
//! stored only after the sync that it describes, so whatever part of the page reaches the disk, and
//! whenever, is true. The rest of the 4096 bytes is never changed.

use crate::disk::{Disk, replace};
use crate::engine::directory::names;
use crate::error::{At, Op, Result};
use crate::region::{Access, PAGE, Region};
use std::path::Path;

/// The mapped page.
#[derive(Debug)]
pub struct Checkpoint {
    region: Region,
}

/// One of the times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// Of the log.
    Log = 0,
    /// Of the queues.
    Queues = 8,
    /// Of the index.
    Index = 16,
}

impl Checkpoint {
    /// Maps the file of the store at `root`. Creates it if it is missing or has another length.
    pub fn open(disk: &dyn Disk, root: &Path) -> Result<Checkpoint> {
        let path = root.join(names::CHECKPOINT);
        let there = disk.stat(&path)?;
        if there.is_none_or(|entry| entry.len != PAGE as u64) {
            replace(disk, &path, &[0; PAGE])?;
        }
        disk.reserve(&path, 0, PAGE as u64)?;
        let region = disk.map(&path, PAGE, Access::ReadWrite)?;
        Ok(Checkpoint { region })
    }

    /// Moves a time forward. An earlier time changes nothing.
    pub fn set(&self, stamp: Stamp, ms: i64) -> Result<()> {
        let set = self.region.update_u64(stamp as usize, |old| {
            let ours = old == 0 || i64::from_be(old.cast_signed()) < ms;
            ours.then_some(ms.to_be().cast_unsigned())
        });
        set.at(Op::Store, self.region.path())
    }

    /// Sets all times, also backwards, because the file is damaged.
    pub fn reset(&self, ms: i64) -> Result<()> {
        let time = ms.to_be().cast_unsigned();
        [Stamp::Log, Stamp::Queues, Stamp::Index]
            .into_iter()
            .try_for_each(|stamp| self.region.store_u64(stamp as usize, time))
            .at(Op::Store, self.region.path())
    }

    /// Makes the times durable.
    #[cfg_attr(test, track_caller)]
    pub fn sync(&self, disk: &dyn Disk) -> Result<()> {
        disk.sync_range(&self.region, 0, PAGE)
    }
}
