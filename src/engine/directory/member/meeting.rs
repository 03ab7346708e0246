//! The files through which the processes of a store meet.

use crate::disk::Disk;
use crate::engine::directory::names;
use crate::engine::directory::page::StatePage;
use crate::error::Result;
use crate::region::Access;
use std::path::Path;

/// The files through which the processes of a store meet.
#[derive(Clone, Copy, Debug)]
pub struct Meeting {
    /// The file whose bytes they lock.
    pub lock: &'static str,
    /// The page of marks.
    pub page: &'static str,
}

impl Meeting {
    /// Those of a store with a state page.
    pub const OF_STATE: Meeting = Meeting {
        lock: names::LOCK,
        page: names::STATE,
    };
    /// Those of a partition log.
    pub const OF_PARTITIONS: Meeting = Meeting {
        lock: names::BROKER_LOCK,
        page: names::SHARED,
    };

    /// Opens the page; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Those of [`StatePage::open`].
    pub fn open_page(
        self,
        disk: &dyn Disk,
        root: &Path,
        access: Access,
    ) -> Result<Option<StatePage>> {
        match self.page {
            names::STATE => StatePage::open(disk, root, access),
            name => StatePage::open_marks(disk, &root.join(name), access),
        }
    }

    /// Creates the page, or replaces it.
    ///
    /// # Errors
    ///
    /// Those of the disk.
    pub fn create_page(self, disk: &dyn Disk, root: &Path) -> Result<StatePage> {
        match self.page {
            names::STATE => StatePage::create(disk, root),
            name => StatePage::create_marks(disk, &root.join(name)),
        }
    }
}
