//! Searches the log for the next record after bytes that are not a record.

use super::Log;
use super::blank::is_blank;
use crate::error::{At, Op, Result};
use crate::mapped::MappedFile;
use crate::mapped::queue::MappedFileQueue;
use crate::num::index;
use crate::record::rocketmq::Record;
use crate::record::rocketmq::layout::{AT_MAGIC, MAGIC_V1, extent};
use crate::region::{PAGE, Region};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Position in `from..end` of the first sound record, or of the first BLANK that fits its file.
pub fn next_record(log: &Log, from: u64, end: u64) -> Result<Option<u64>> {
    Searcher::default().next_record(log, from, end)
}

/// Finds the next record after each of several holes. Remembers the last range of data that it was
/// told of: a file system may check every page of a file to find where data ends.
#[derive(Debug, Default)]
pub struct Searcher {
    /// Start of a file, and a range of data in it.
    data: Option<(u64, Range<u64>)>,
}

impl Searcher {
    /// As [`next_record`].
    pub fn next_record(&mut self, log: &Log, from: u64, end: u64) -> Result<Option<u64>> {
        for file in log.files.all() {
            if file.end() <= from || file.start() >= end {
                continue;
            }
            match next_in_file(self, log, &file, from, end) {
                Err(error) if log.is_retired(&file, &error) => {}
                Ok(None) => {}
                found => return found,
            }
        }
        Ok(None)
    }

    /// The data of a file from a position on.
    fn next_data(
        &mut self,
        files: &MappedFileQueue,
        file: &MappedFile,
        at: u64,
    ) -> Result<Option<Range<u64>>> {
        let known = self
            .data
            .as_ref()
            .filter(|(start, _)| *start == file.start());
        if let Some((_, data)) = known.filter(|(_, data)| data.contains(&at)) {
            return Ok(Some(at..data.end));
        }
        let found = files.disk().next_data(file.path(), at)?;
        self.data = found.clone().map(|data| (file.start(), data));
        Ok(found)
    }
}

fn next_in_file(
    searcher: &mut Searcher,
    log: &Log,
    file: &Arc<MappedFile>,
    from: u64,
    end: u64,
) -> Result<Option<u64>> {
    let region = log.files.map(file)?;
    let mut at = index(from.saturating_sub(file.start()));
    let until = index(end.min(file.end()) - file.start());
    while at < until {
        // The file system knows which parts were never written: they hold nothing.
        let data = searcher.next_data(&log.files, file, at as u64)?;
        let Some(data) = data.filter(|data| data.start < until as u64) else {
            break;
        };
        at = at.max(index(data.start));
        let data_end = index(data.end.min(region.len() as u64));
        let chunk_end = until
            .min(data_end)
            .min((at / SEARCH_CHUNK + 1) * SEARCH_CHUNK);
        let bytes = region.run(at, chunk_end - at).at(Op::Read, file.path())?;
        let found = search(&region, file.start(), at..at + bytes.len(), data_end);
        if let Some(found) = found.at(Op::Read, file.path())? {
            return Ok(Some(found));
        }
        // A hole that cannot be loaded because the disk is full holds nothing.
        at = (at + bytes.len()).max(chunk_end.min((at + bytes.len()) / PAGE * PAGE + PAGE));
    }
    Ok(None)
}

/// Bytes searched between two queries for the next stored data.
const SEARCH_CHUNK: usize = 1 << 20;

/// Searches for a record or BLANK that begins in `bytes` of a file, all of which can be loaded.
/// Magics are searched only below `data_end`: the bytes after it are zeros that need not be loaded.
pub fn search(
    region: &Region,
    file_start: u64,
    bytes: Range<usize>,
    data_end: usize,
) -> io::Result<Option<u64>> {
    let first = (MAGIC_V1 >> 24) as u8;
    let mut at = bytes.start;
    while at < bytes.end {
        // A record begins in `bytes`, but its magic may lie after them.
        let until = bytes.end.min(data_end.saturating_sub(AT_MAGIC));
        let candidates = region.run(at + AT_MAGIC, until.saturating_sub(at))?;
        // The magics of records begin with the byte `first`, that of a BLANK with 0xCB.
        let Some(next) = memchr::memchr2(first, 0xCB, candidates) else {
            break;
        };
        at += next;
        let here = extent(|len| region.run(at, len))?;
        let position = file_start + at as u64;
        if let Ok(record) = Record::parse(here) {
            if record.position() == position as i64 && record.check(position).is_ok() {
                return Ok(Some(position));
            }
        } else if is_blank(here, region.len() - at) {
            return Ok(Some(position));
        }
        at += 1;
    }
    Ok(None)
}
