//! The end of the log at opening: makes what is kept durable, and erases what follows.
//!
//! After a failed sync of the last writer, bytes may look clean in the page cache and be missing on
//! the disk. So everything not known to be durable is stored again and synced. Bytes after the end
//! could later be read as records, so they become zeros before the first append.

use super::find::Found;
use super::rebuild::Walked;
use crate::disk::Disk;
use crate::engine::directory::names;
use crate::error::Result;
use crate::mapped::queue::{FoundFile, file_name};
use crate::num::index;
use crate::options::Mode;
use crate::plant::{Bug, planted};
use crate::region::{Access, PAGE};
use std::ops::Range;
use std::path::Path;

/// Bytes that are read at once.
const CHUNK_LEN: u64 = 1 << 20;
static ZEROS: [u8; PAGE] = [0; PAGE];

/// A log whose end is final.
pub struct Trimmed {
    /// Its files.
    pub files: Vec<FoundFile>,
    /// Bytes after the end that were erased; in a read-only store, bytes that exist there.
    pub bytes: u64,
}

/// Makes the end of the log final. In a read-only store, only counts what follows it.
pub fn trim(found: &Found, walked: &Walked) -> Result<Trimmed> {
    match found.access {
        Access::ReadWrite => trim_files(found, walked),
        Access::Read => Ok(Trimmed {
            files: found.files.clone(),
            bytes: match walked.closed_at == Some(walked.end) {
                true => 0,
                false => count_stale(found, walked.end)?,
            },
        }),
    }
}

fn trim_files(found: &Found, walked: &Walked) -> Result<Trimmed> {
    let directory = found.root.join(names::COMMIT_LOG);
    let len = found.geometry.log_file_len;
    let (min, end) = (found.min_position(), walked.end);
    let mut trimmed = Trimmed {
        files: Vec::with_capacity(found.files.len()),
        bytes: 0,
    };
    for file in found.files.iter().cloned() {
        let path = directory.join(file_name(file.start));
        // A process that shares the store may have opened the file that begins at the end.
        let opened = found.options.mode == Mode::Share && file.start == end;
        if file.start >= end && file.start > min && !opened {
            found.disk().unlink(&path)?;
            continue;
        }
        let durable = match planted(Bug::TrustCache) {
            true => end,
            false => walked.durable.min(end),
        };
        keep(found, &path, &file, durable..end)?;
        if file.start + len > end {
            trimmed.bytes += erase_tail(found, &path, &file, end)?;
        }
        trimmed.files.push(file);
    }
    // A file that an earlier epoch removed could come back after a power loss, even if no file is
    // left. A clean close has made its removals durable.
    let may_come_back = found.state.epoch() > 0 && !walked.untouched_since_close;
    if !trimmed.files.is_empty() || may_come_back {
        found.disk().sync_directory(&directory)?;
    }
    Ok(trimmed)
}

/// Makes a file's part of the `doubtful` positions durable.
fn keep(found: &Found, path: &Path, file: &FoundFile, doubtful: Range<u64>) -> Result<()> {
    let (disk, len) = (found.disk(), found.geometry.log_file_len);
    if file.start + len <= doubtful.start || file.start >= doubtful.end {
        return Ok(());
    }
    let from = doubtful.start.saturating_sub(file.start);
    let to = (doubtful.end - file.start).min(len);
    if from >= to {
        return Ok(());
    }
    // A store into a hole on a full disk would raise a signal.
    disk.reserve(path, from, to - from)?;
    let region = disk.map(path, index(len), Access::ReadWrite)?;
    let (from, to) = (index(from), index(to));
    disk.dirty_range(&region, from, to - from)?;
    let page = from / PAGE * PAGE;
    disk.sync_range(&region, page, to - page)
}

/// Durably erases a file's bytes after the end of the log, and returns how many there were.
///
/// An opening that died before its sync, or whose sync failed, leaves zeros that may not be on the
/// disk. The page states how far they reach, so they are stored again.
fn erase_tail(found: &Found, path: &Path, file: &FoundFile, end: u64) -> Result<u64> {
    let (disk, state) = (found.disk(), &found.state);
    let from = end.saturating_sub(file.start);
    let erased = state.erasing().saturating_sub(file.start).min(file.len);
    let last = last_byte_after(&**disk, path, from, file.len)?;
    let last = last.unwrap_or(0).max(match planted(Bug::TrustZeros) {
        true => 0,
        false => erased,
    });
    if last <= from || planted(Bug::StaleTail) {
        return Ok(last.saturating_sub(from));
    }
    state.set_erasing(file.start + last);
    disk.erase(path, from, last - from)?;
    disk.sync_file(path)?;
    Ok(last - from)
}

/// Counts the bytes after the end of a read-only log.
fn count_stale(found: &Found, end: u64) -> Result<u64> {
    let directory = found.root.join(names::COMMIT_LOG);
    let mut stale = 0;
    for file in found.files.iter().filter(|file| file.len > 0) {
        let path = directory.join(file_name(file.start));
        let len = file.len.min(found.geometry.log_file_len);
        let from = end.saturating_sub(file.start);
        if from < len
            && let Some(last) = last_byte_after(&**found.disk(), &path, from, len)?
        {
            stale += last - from;
        }
    }
    Ok(stale)
}

/// End of the last byte at or after `from` that is not zero.
fn last_byte_after(disk: &dyn Disk, path: &Path, from: u64, len: u64) -> Result<Option<u64>> {
    let mut buffer = Vec::new();
    // Read, not mapped: on a full memory file system, a load from a hole raises a signal.
    for data in data_within(disk, path, from..len)?.into_iter().rev() {
        let mut end = data.end;
        while end > data.start {
            let start = data.start.max(end.saturating_sub(CHUNK_LEN));
            buffer.resize(index(end - start), 0);
            let have = disk.read_at(path, start, &mut buffer)?;
            if let Some(found) = last_byte(buffer.get(..have).unwrap_or_default()) {
                return Ok(Some(start + found as u64 + 1));
            }
            end = start;
        }
    }
    Ok(None)
}

/// The runs of `bytes` that may contain nonzero bytes.
///
/// All runs are found before the first is read: pages that the kernel's read-ahead fills count as
/// data, so a search that reads in between would go through all reserved blocks.
fn data_within(disk: &dyn Disk, path: &Path, bytes: Range<u64>) -> Result<Vec<Range<u64>>> {
    let mut found = Vec::new();
    let mut at = bytes.start;
    while at < bytes.end
        && let Some(data) = disk.next_data(path, at)?
    {
        let run = data.start.max(at)..data.end.min(bytes.end);
        at = data.end.max(at + 1);
        if run.start < run.end {
            found.push(run);
        }
    }
    Ok(found)
}

/// Index of the last byte that is not zero. Most pages are zeros, and are skipped as a whole.
fn last_byte(bytes: &[u8]) -> Option<usize> {
    let mut pages = bytes.chunks(PAGE).enumerate().rev();
    // Without optimisation, a comparison of slices is much faster than a loop over bytes.
    let (number, page) = pages.find(|(_, page)| ZEROS.get(..page.len()) != Some(*page))?;
    let found = page.iter().rposition(|byte| *byte != 0)?;
    Some(number * PAGE + found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Call, FileSystem, HookedDisk, RealDisk};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Pages that the kernel's read-ahead fills count as data. An opening after a crash once
    /// followed them through all reserved blocks.
    #[test]
    fn bytes_that_become_data_during_the_search_are_not_read() {
        const STEP: u64 = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, [0; 4096]).unwrap();
        FileSystem::set_len(&RealDisk, &path, 32 * STEP).unwrap();
        let reads = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&reads);
        let disk = HookedDisk::shared(move |call, of| {
            if call == Call::Read {
                let read = counted.fetch_add(1, Ordering::Relaxed);
                let zeros = vec![0; index(STEP)];
                FileSystem::write_at(&RealDisk, of, (read % 30) * STEP + 4096, &zeros)?;
            }
            Ok(())
        });
        let last = last_byte_after(&*disk, &path, 0, 32 * STEP).unwrap();
        assert_eq!(last, None);
        assert_eq!(reads.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn last_nonzero_byte_is_found_before_and_after_holes_and_across_chunks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let len = 8 * CHUNK_LEN;
        std::fs::write(&path, []).unwrap();
        FileSystem::set_len(&RealDisk, &path, len).unwrap();
        let disk = HookedDisk::shared(|_, _| Ok(()));
        let last_after = |from| last_byte_after(&*disk, &path, from, len).unwrap();
        assert_eq!(last_after(0), None);
        for at in [5, 3 * CHUNK_LEN - 1, 3 * CHUNK_LEN, 7 * CHUNK_LEN + 9] {
            FileSystem::write_at(&RealDisk, &path, at, &[1]).unwrap();
            assert_eq!(last_after(0), Some(at + 1));
            assert_eq!(last_after(at), Some(at + 1));
            assert_eq!(last_after(at + 1), None);
        }
        // Zeros that are stored after it, in more than one chunk.
        let zeros = vec![0; index(3 * CHUNK_LEN)];
        FileSystem::write_at(&RealDisk, &path, 4 * CHUNK_LEN, &zeros).unwrap();
        assert_eq!(last_after(6), Some(7 * CHUNK_LEN + 10));
        FileSystem::write_at(&RealDisk, &path, 7 * CHUNK_LEN, &[0; 10]).unwrap();
        assert_eq!(last_after(6), Some(3 * CHUNK_LEN + 1));
    }
}
