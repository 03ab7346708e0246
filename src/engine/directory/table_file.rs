//! Creates, opens and removes the file of a table that the processes of a shared store map. Its
//! length is fixed.
//!
//! ```text
//! at  width  field
//! 0   8      magic
//! 8   u32    version
//! 12         fields of the table, in the machine's byte order
//! ```
//!
//! Most of the file has no blocks until it is used.

use crate::disk::{Disk, Kind};
use crate::engine::directory::fields::Fields;
use crate::error::{Error, Result};
use crate::region::Access;
use std::path::Path;

const AT_VERSION: usize = 8;
/// Blocks are reserved in steps of this many bytes.
const STEP_LEN: usize = 64 << 10;

/// Name and layout of the file of a table.
#[derive(Debug)]
pub struct TableFile {
    /// Name of the file in the directory of a store.
    pub name: &'static str,
    /// What the table lists, for errors.
    pub of: &'static str,
    /// Its first bytes.
    pub magic: [u8; 8],
    /// Version of its bytes.
    pub version: u32,
    /// Length of the file.
    pub len: usize,
    /// Length of the fields before the first entry, which have blocks from the beginning.
    pub head_len: usize,
}

impl TableFile {
    /// Creates the file, with all fields 0. An existing file is replaced; no process may use it. No
    /// other process may call this meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], [`Error::Io`].
    pub fn create(&self, disk: &dyn Disk, root: &Path) -> Result<()> {
        let new = root.join(format!("{}.new", self.name));
        if disk.stat(&new)?.is_some() {
            disk.unlink(&new)?;
        }
        disk.create(&new, self.len as u64)?;
        disk.reserve(&new, 0, self.head_len as u64)?;
        let mut head = self.magic.to_vec();
        head.extend(self.version.to_ne_bytes());
        disk.write_at(&new, 0, &head)?;
        disk.rename(&new, &root.join(self.name))
    }

    /// Maps the file; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if it is not such a table, or one of another version;
    /// [`Error::Unsupported`] if it is not a regular file; [`Error::Io`].
    pub fn open(&self, disk: &dyn Disk, root: &Path, access: Access) -> Result<Option<Fields>> {
        let path = root.join(self.name);
        let Some(entry) = disk.stat(&path)? else {
            return Ok(None);
        };
        if entry.kind != Kind::File {
            let what = format!("{} is not a regular file", path.display());
            return Err(Error::Unsupported { what });
        }
        if entry.len != self.len as u64 {
            let reason = format!("{} bytes, expected {}", entry.len, self.len);
            return Err(Error::corrupt(&path, 0, reason));
        }
        let fields = Fields::new(disk.map(&path, self.len, access)?);
        let is_one = fields.words(0) == self.magic && fields.word(AT_VERSION) == self.version;
        fields.check()?;
        if !is_one {
            let reason = format!("no table of {}, or one of another version", self.of);
            return Err(fields.corrupt(0, reason));
        }
        Ok(Some(fields))
    }

    /// Removes the file, which no process uses, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn remove(&self, disk: &dyn Disk, root: &Path) -> Result<()> {
        match disk.unlink(&root.join(self.name)) {
            Err(error) if error.is_not_found() => Ok(()),
            done => done,
        }
    }

    /// Reserves blocks for the entry at `at` if it is the first of its step. `begin`: where the
    /// entries begin.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], [`Error::Io`].
    pub fn reserve(&self, disk: &dyn Disk, fields: &Fields, begin: usize, at: usize) -> Result<()> {
        if !(at - begin).is_multiple_of(STEP_LEN) {
            return Ok(());
        }
        let len = STEP_LEN.min(self.len - at);
        disk.reserve(fields.path(), at as u64, len as u64)
    }
}
