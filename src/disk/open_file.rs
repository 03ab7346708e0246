//! A file that stays the same file while it is open, whatever happens to its name.

use super::syscall;
use crate::error::{At, Op, Result};
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes that are read by position.
pub trait ReadAt: Send + Sync + Debug {
    /// How many there are.
    fn len(&self) -> io::Result<u64>;

    /// Reads up to `buffer.len()` bytes at `start`; fewer at the end.
    fn read_at(&self, start: u64, buffer: &mut [u8]) -> io::Result<usize>;
}

impl ReadAt for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, start: u64, buffer: &mut [u8]) -> io::Result<usize> {
        read_full(self, start, buffer)
    }
}

/// A file that was opened for reading. It can be read even after it was renamed or unlinked.
#[derive(Debug)]
pub struct OpenFile {
    file: Box<dyn ReadAt>,
    path: PathBuf,
    first_len: Option<u64>,
}

impl OpenFile {
    /// Wraps a file that was opened at `path`.
    pub fn new(file: impl ReadAt + 'static, path: &Path) -> OpenFile {
        OpenFile {
            file: Box::new(file),
            path: path.to_owned(),
            first_len: None,
        }
    }

    /// States the length that it had when it was opened.
    #[must_use]
    pub fn with_first_len(mut self, len: u64) -> OpenFile {
        self.first_len = Some(len);
        self
    }

    /// Its length in bytes when it was opened, or later.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`].
    pub fn first_len(&self) -> Result<u64> {
        self.first_len.map_or_else(|| self.len(), Ok)
    }

    /// The path at which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length in bytes.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`].
    pub fn len(&self) -> Result<u64> {
        self.file.len().at(Op::Stat, &self.path)
    }

    /// Reads up to `buffer.len()` bytes at `start`; fewer at the end of the file.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`].
    pub fn read_at(&self, start: u64, buffer: &mut [u8]) -> Result<usize> {
        self.file.read_at(start, buffer).at(Op::Read, &self.path)
    }
}

/// Reads until the buffer is full or the file ends.
pub(super) fn read_full(file: &File, start: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while let Some(rest) = buffer.get_mut(have..).filter(|rest| !rest.is_empty()) {
        match syscall::read_at(file, rest, start + have as u64) {
            Ok(0) => break,
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}
