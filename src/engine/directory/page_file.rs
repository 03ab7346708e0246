//! Finds, creates, replaces and syncs the file of the state page.

use super::page::StatePage;
use super::page_layout::{AT_PENDING, AT_PUBLISHED, AT_VERSION, MAGIC, MARK_LEN, VERSION};
use crate::disk::{Disk, Identity, Kind, RealDisk, replace};
use crate::engine::directory::epochs::Epochs;
use crate::engine::directory::fields::Fields;
use crate::engine::directory::names;
use crate::error::{At, Error, Op, Result};
use crate::plant::{Bug, planted};
use crate::region::{Access, PAGE, Region};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Directories of a store that may be separate mounts.
const PARTS: [&str; 3] = [names::COMMIT_LOG, names::QUEUES, names::INDEX];

impl Epochs {
    /// Reads the epochs of the store at `root`, open or not; `None` if Forebay never wrote to it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], and [`Error::Unsupported`] if the page is not a regular file.
    pub fn of(root: &Path) -> Result<Option<Epochs>> {
        let page = StatePage::open(&RealDisk, root, Access::Read)?;
        Ok(page.map(|page| page.epochs()))
    }
}

impl StatePage {
    /// A page in memory, for a directory that has none and cannot get one.
    pub fn in_memory() -> Result<StatePage> {
        let path = PathBuf::from(names::STATE);
        let region = Region::anonymous(PAGE, &path).at(Op::Map, &path)?;
        Ok(StatePage::new(region, [0; 16], None))
    }

    /// Opens the page of the store at `root`; `None` if there is none, or it is not Forebay's.
    pub fn open(disk: &dyn Disk, root: &Path, access: Access) -> Result<Option<StatePage>> {
        let Some(region) = map_page(disk, &root.join(names::STATE), access)? else {
            return Ok(None);
        };
        StatePage::of(disk, root, region).checked()
    }

    /// Opens a page that is used for its words only; `None` if there is none.
    pub fn open_words(disk: &dyn Disk, path: &Path, access: Access) -> Result<Option<StatePage>> {
        let Some(region) = map_page(disk, path, access)? else {
            return Ok(None);
        };
        StatePage::new(region, [0; 16], None).checked()
    }

    /// Opens a page with marks that only processes of this boot believe; `None` if there is none.
    pub fn open_marks(disk: &dyn Disk, path: &Path, access: Access) -> Result<Option<StatePage>> {
        let Some(region) = map_page(disk, path, access)? else {
            return Ok(None);
        };
        StatePage::new(region, disk.boot_id(), None).checked()
    }

    /// Creates such a page, or replaces it, with all marks zero.
    pub fn create_marks(disk: &dyn Disk, path: &Path) -> Result<StatePage> {
        replace(disk, path, &StatePage::empty())?;
        disk.reserve(path, 0, PAGE as u64)?;
        let region = disk.map(path, PAGE, Access::ReadWrite)?;
        Ok(StatePage::new(region, disk.boot_id(), None))
    }

    /// The bytes of a page without marks.
    pub fn empty() -> Vec<u8> {
        let mut page = MAGIC.to_vec();
        page.extend(VERSION.to_ne_bytes());
        page.resize(PAGE, 0);
        page
    }

    /// Turns a file that is not a page into a page that is used for its words only. The file is not
    /// replaced, and the words keep their values: another process may do the same, or already use
    /// the page.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn complete_words(disk: &dyn Disk, path: &Path) -> Result<()> {
        let mut page = StatePage::empty();
        page.truncate(AT_PENDING);
        disk.write_at(path, 0, &page)?;
        disk.set_len(path, PAGE as u64)
    }

    /// The page, with the marks that it has; `None` if it is not Forebay's.
    fn checked(self) -> Result<Option<StatePage>> {
        let ours = self.fields.words(0) == MAGIC && self.fields.word(AT_VERSION) == VERSION;
        for (at, mark) in (AT_PUBLISHED..).step_by(MARK_LEN).zip(&self.own) {
            mark.store(self.fields.load(at), Ordering::Relaxed);
        }
        self.check()?;
        Ok(ours.then_some(self))
    }

    /// Durably creates the page of a store that has none, or replaces it, with all marks zero. The
    /// page exists at every moment, because it identifies a store.
    pub fn create(disk: &dyn Disk, root: &Path) -> Result<StatePage> {
        let path = root.join(names::STATE);
        replace(disk, &path, &StatePage::empty())?;
        disk.reserve(&path, 0, PAGE as u64)?;
        let region = disk.map(&path, PAGE, Access::ReadWrite)?;
        Ok(StatePage::of(disk, root, region))
    }

    fn of(disk: &dyn Disk, root: &Path, region: Region) -> StatePage {
        let own = disk.identity(&root.join(names::STATE));
        let is_beside = |own: &Identity| {
            PARTS.iter().all(|part| {
                let path = root.join(part);
                match disk.identity(&path) {
                    Some(part) => part.is_beside(own),
                    // It will be created in the same directory as the page.
                    None => matches!(disk.stat(&path), Ok(None)),
                }
            })
        };
        StatePage::new(region, disk.boot_id(), own.filter(is_beside))
    }

    fn new(region: Region, boot_id: [u8; 16], identity: Option<Identity>) -> StatePage {
        StatePage {
            fields: Fields::new(region),
            own: Default::default(),
            boot_id,
            identity,
            shared: false,
        }
    }

    /// Makes the page durable.
    ///
    /// After a failed sync the kernel may drop the page from its cache. The page on disk may still
    /// vouch for a cache that has lost bytes, so the page is marked dirty again.
    #[cfg_attr(test, track_caller)]
    pub fn sync(&self, disk: &dyn Disk) -> Result<()> {
        self.check()?;
        let region = self.fields.region();
        disk.sync_range(region, 0, PAGE).inspect_err(|_| {
            if !planted(Bug::DropDoubt) {
                let _ = disk.dirty_range(region, 0, PAGE);
            }
        })
    }
}

/// Maps the page at `path`; `None` if there is none of its length.
fn map_page(disk: &dyn Disk, path: &Path, access: Access) -> Result<Option<Region>> {
    match disk.stat(path)? {
        Some(entry) if entry.kind == Kind::File && entry.len == PAGE as u64 => {}
        Some(entry) if entry.kind != Kind::File => {
            let what = format!("{} is not a regular file", path.display());
            return Err(Error::Unsupported { what });
        }
        _ => return Ok(None),
    }
    if access == Access::ReadWrite {
        // If the page shares its block with a copy of the store, a store to it needs another
        // block. Reserving makes opening fail if there is none.
        disk.reserve(path, 0, PAGE as u64)?;
    }
    disk.map(path, PAGE, access).map(Some)
}
