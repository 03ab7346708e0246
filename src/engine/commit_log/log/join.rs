//! Log files that another process has added.

use super::Log;
use crate::error::Result;
use crate::mapped::Extent;
use crate::mapped::queue::{FoundFile, list_files};
use crate::region::Access;

impl Log {
    /// The published end. In a shared store, first opens the files up to it that other processes
    /// have added.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::error::Error::Io) if the directory or the state page cannot be read.
    pub fn join(&self) -> Result<u64> {
        let end = self.published();
        if self.state.is_shared() {
            self.state.check()?;
            let mut joined = self.joined.lock();
            if *joined < end {
                self.join_files(*joined, end, Access::ReadWrite)?;
                *joined = end;
            }
        }
        Ok(end)
    }

    /// Opens the log files that another process has added, and makes `from..end` readable.
    pub fn join_files(&self, from: u64, end: u64, access: Access) -> Result<()> {
        let known = self.files.last().map_or(0, |file| file.end());
        if end > known {
            let found = list_files(self.files.disk(), self.files.directory())?;
            let len = self.files.file_len();
            let fresh =
                |file: &FoundFile| file.start >= known && file.start < end && file.len == len;
            let fresh: Vec<_> = found.into_iter().filter(fresh).collect();
            self.files.load(&fresh, access, |_| Extent::Part(0));
        }
        for file in self.files.all().into_iter().rev() {
            file.publish(end.saturating_sub(file.start()).min(file.len()));
            if file.start() <= from {
                break;
            }
        }
        Ok(())
    }
}
