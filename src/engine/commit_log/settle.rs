//! Making the end of a log final: what is kept is durable, what lies behind it is erased.

use super::open::Opening;
use super::recover::Outcome;
use super::state::Mark;
use crate::error::{Error, Result};
use crate::mapped::queue::file_name;
use crate::mapped::{Access, PAGE};
use crate::num::index;
use std::path::Path;

impl Opening<'_> {
    /// Makes the end of the log final: what is kept is durable, what lies behind it is erased.
    pub(super) fn settle_end(&mut self, outcome: &Outcome) -> Result<()> {
        let directory = self.root.join("commitlog");
        let len = self.geometry.log_file_len;
        let durable = match self.recovery.clean {
            true => outcome.end,
            false => self.state.get(Mark::Durable).min(outcome.end),
        };
        let mut erased = 0;
        for file in std::mem::take(&mut self.files) {
            let path = directory.join(file_name(file.start));
            if file.start >= outcome.end && file.start > 0 || file.len != len {
                self.disk
                    .unlink(&path)
                    .map_err(|e| Error::io("unlink", &path, e))?;
                continue;
            }
            let end = file.start + file.len;
            if end > durable && file.start < outcome.end {
                let region = self.disk.map(&path, index(len), Access::ReadWrite);
                let region = region.map_err(|e| Error::io("map", &path, e))?;
                let from = index(durable.saturating_sub(file.start));
                let to = index(outcome.end.min(end) - file.start);
                // A sync that failed in the last life may have left pages that look clean.
                region.rewrite(from, to - from);
                let synced = region.sync(from / PAGE * PAGE, to - from / PAGE * PAGE);
                synced.map_err(|e| Error::io("sync", &path, e))?;
            }
            if end > outcome.end {
                erased += self.erase_tail(&path, outcome.end.saturating_sub(file.start), len)?;
            }
            self.files.push(file);
        }
        self.disk
            .sync_directory(&directory)
            .map_err(|e| Error::io("sync", &directory, e))?;
        self.recovery.truncated_bytes = erased;
        Ok(())
    }

    /// Turns what lies at or behind `from` of a file into zeros, where there is anything.
    fn erase_tail(&self, path: &Path, from: u64, len: u64) -> Result<u64> {
        let io = |error| Error::io("erase", path, error);
        let Some(data) = self.disk.next_data(path, from).map_err(io)? else {
            return Ok(0);
        };
        let region = self.disk.map(path, index(len), Access::Read).map_err(io)?;
        region.publish(index(len));
        let mut at = data.max(from);
        let mut last = None;
        while at < len {
            let chunk = (len - at).min(1 << 20);
            let bytes = region.slice(index(at), chunk as usize).unwrap_or_default();
            if let Some(found) = bytes.iter().rposition(|byte| *byte != 0) {
                last = Some(at + found as u64 + 1);
            }
            at = match self.disk.next_data(path, at + chunk).map_err(io)? {
                Some(next) => next.max(at + chunk),
                None => break,
            };
        }
        let Some(last) = last else { return Ok(0) };
        drop(region);
        self.disk.erase(path, from, len - from).map_err(io)?;
        self.disk.sync_file(path).map_err(io)?;
        Ok(last - from)
    }
}
