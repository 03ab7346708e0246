//! One partition: its folder, and its transactions.

use super::folder::{Folder, View};
use super::segments::newest::NewestTimes;
use super::transactions::{Open, Outcomes};
use super::write::ends::Ends;
use crate::disk::Disk;
use crate::engine::Damage;
use crate::engine::report::Report;
use crate::error::Result;
use crate::options::Isolation;
use crate::sync::Mutex;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// A partition.
#[derive(Debug)]
pub(super) struct Partition {
    /// The topic.
    pub(super) topic: Arc<str>,
    /// Its number in the topic.
    pub(super) queue: u32,
    /// Its files.
    pub(super) folder: Arc<Folder>,
    /// Its transactions that are open.
    open: Mutex<Open>,
    /// How the complete ones ended.
    pub(super) outcomes: Mutex<Outcomes>,
    /// What searches by time have found out.
    pub(super) newest: NewestTimes,
}

impl Partition {
    /// The partition in `folder`, of which nothing is known yet.
    pub(super) fn new(topic: &str, queue: u32, folder: PathBuf) -> Partition {
        Partition {
            topic: topic.into(),
            queue,
            folder: Arc::new(Folder::new(folder)),
            open: Mutex::default(),
            outcomes: Mutex::default(),
            newest: NewestTimes::default(),
        }
    }

    /// A partition that this process writes.
    pub(super) fn written(topic: &str, queue: u32, ends: Arc<Ends>) -> Partition {
        Partition {
            folder: Arc::new(Folder::written(ends)),
            ..Partition::new(topic, queue, PathBuf::new())
        }
    }

    /// [`Folder::view`], up to what this isolation shows.
    pub(super) fn view(
        &self,
        disk: &dyn Disk,
        start: Option<u64>,
        isolation: Isolation,
    ) -> Result<View> {
        let mut view = self.folder.view(disk, start)?;
        if isolation == Isolation::ReadCommitted {
            let stable = self.open.lock().update(disk, &self.folder, &view)?;
            view.bounds.end = stable.max(view.bounds.start);
        }
        Ok(view)
    }

    /// Reports damage that has destroyed the messages with these offsets.
    pub(super) fn report(&self, report: &Report, damage: Damage, lost: Range<u64>) {
        /// Maximum number of messages that are named as lost in one place.
        const LOST_MAX: usize = 1000;
        let lost = lost.take(LOST_MAX);
        let lost = lost.map(|offset| (self.topic.to_string(), self.queue, offset));
        report.add_losing(damage, lost);
    }
}
