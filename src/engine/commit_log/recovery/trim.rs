//! The end of the log on opening: what is kept becomes durable, what lies behind is erased.
//!
//! Bytes that a sync failed on in the last life may look clean in the page cache and be missing on
//! the disk, so what was not known to be durable is stored again and synced. Bytes after the end
//! could come back as records one day, so they become zeros before the first append.

use super::opening::Opening;
use crate::engine::commit_log::log::walk::Outcome;
use crate::engine::directory::names;
use crate::error::{Error, Op, Result};
use crate::mapped::queue::{FoundFile, file_name};
use crate::num::index;
use crate::plant::{Bug, planted};
use crate::region::{Access, PAGE};
use std::path::Path;

impl Opening<'_> {
    /// Makes the end of the log final.
    pub fn settle_end(&mut self, outcome: &Outcome) -> Result<()> {
        let directory = self.root.join(names::COMMIT_LOG);
        let len = self.geometry.log_file_len;
        let min = self.min_position();
        let mut erased = 0;
        for mut file in std::mem::take(&mut self.files) {
            let path = directory.join(file_name(file.start));
            if file.start >= outcome.end && file.start > min {
                self.disk
                    .unlink(&path)
                    .map_err(|e| Error::io(Op::Unlink, &path, e))?;
                continue;
            }
            if file.len < len {
                // It was cut short. A file that can be mapped has its whole length.
                self.disk
                    .write_at(&path, len - 1, &[0])
                    .and_then(|()| self.disk.sync_file(&path))
                    .map_err(|e| Error::io(Op::Lengthen, &path, e))?;
                file.len = len;
            }
            self.keep(&path, &file, outcome.end)?;
            if file.start + len > outcome.end {
                erased += self.erase_tail(&path, outcome.end.saturating_sub(file.start))?;
            }
            self.files.push(file);
        }
        if !self.files.is_empty() {
            self.disk
                .sync_directory(&directory)
                .map_err(|e| Error::io(Op::Sync, &directory, e))?;
        }
        self.recovery.truncated_bytes = erased;
        Ok(())
    }

    /// Makes what a file holds below the end durable.
    fn keep(&self, path: &Path, file: &FoundFile, end: u64) -> Result<()> {
        let len = self.geometry.log_file_len;
        let durable = match planted(Bug::TrustCache) {
            true => end,
            false => self.durable.min(end),
        };
        if file.start + len <= durable || file.start >= end {
            return Ok(());
        }
        let from = durable.saturating_sub(file.start);
        let to = (end - file.start).min(len);
        if from >= to {
            return Ok(());
        }
        // A store to a hole on a full disk would be answered with a signal.
        self.disk
            .reserve(path, from, to - from)
            .map_err(|e| Error::io(Op::Reserve, path, e))?;
        let region = self.disk.map(path, index(len), Access::ReadWrite);
        let region = region.map_err(|e| Error::io(Op::Map, path, e))?;
        let (from, to) = (index(from), index(to));
        let dirtied = self.disk.dirty_range(&region, from, to - from);
        dirtied.map_err(|e| Error::io(Op::Store, path, e))?;
        let page = from / PAGE * PAGE;
        let synced = self.disk.sync_range(&region, page, to - page);
        synced.map_err(|e| Error::io(Op::Sync, path, e))
    }

    /// Turns what lies at or after `from` of a file into zeros, where there is anything.
    fn erase_tail(&self, path: &Path, from: u64) -> Result<u64> {
        let len = self.geometry.log_file_len;
        let Some(last) = self.last_byte_behind(path, from, len)? else {
            return Ok(0);
        };
        if planted(Bug::StaleTail) {
            return Ok(last - from);
        }
        let io = |error| Error::io(Op::Erase, path, error);
        self.disk.erase(path, from, len - from).map_err(io)?;
        self.disk.sync_file(path).map_err(io)?;
        Ok(last - from)
    }

    /// Counts what lies after the end, in a store that may not be written.
    pub fn count_stale(&mut self, outcome: &Outcome) -> Result<()> {
        let directory = self.root.join(names::COMMIT_LOG);
        for file in self.files.iter().filter(|file| file.len > 0) {
            let path = directory.join(file_name(file.start));
            let len = file.len.min(self.geometry.log_file_len);
            let from = outcome.end.saturating_sub(file.start);
            if from < len
                && let Some(last) = self.last_byte_behind(&path, from, len)?
            {
                self.recovery.truncated_bytes += last - from;
            }
        }
        Ok(())
    }

    /// End of the last byte at or after `from` that is not zero.
    fn last_byte_behind(&self, path: &Path, from: u64, len: u64) -> Result<Option<u64>> {
        const CHUNK: u64 = 1 << 20;
        let io = |error| Error::io(Op::Read, path, error);
        let mut buffer = Vec::new();
        let mut at = from;
        let mut last = None;
        // Read and not mapped: a load from a hole of a full memory file system is a signal.
        while let Some(data) = self.disk.next_data(path, at).map_err(io)? {
            at = data.start.max(at);
            if at >= len {
                break;
            }
            buffer.resize(index((len.min(data.end) - at).min(CHUNK)), 0);
            let have = self.disk.read_at(path, at, &mut buffer).map_err(io)?;
            let bytes = buffer.get(..have).unwrap_or_default();
            if let Some(found) = last_byte(bytes) {
                last = Some(at + found as u64 + 1);
            }
            if have == 0 {
                break;
            }
            at += have as u64;
        }
        Ok(last)
    }
}

/// Where the last byte that is not zero stands. Most pages are zeros, and passed over as a whole.
fn last_byte(bytes: &[u8]) -> Option<usize> {
    let mut pages = bytes.chunks(PAGE).enumerate().rev();
    let (number, page) =
        pages.find(|(_, page)| page.iter().fold(0, |any, byte| any | byte) != 0)?;
    let found = page.iter().rposition(|byte| *byte != 0)?;
    Some(number * PAGE + found)
}
