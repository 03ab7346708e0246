//! Rewrites a log file with its holes filled, and replaces the damaged one.
//!
//! Readers hold references to the bytes of a log file, so these must not change. The repaired file
//! is therefore a copy, which is made durable under another name and then renamed over the
//! original. Holders of a map of the original keep it; later readers get the copy. A crash leaves
//! one or the other, each complete.
//!
//! While the current file is copied, nothing is appended, dispatched or synced. Afterwards appends
//! and dispatch continue in the copy.

use super::damaged;
use crate::engine::commit_log::log::bridge::{fill, first};
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::verify::inspection::LostRange;
use crate::engine::directory::salvage;
use crate::error::{Error, Op, Result};
use crate::mapped::queue::file_name;
use crate::mapped::{Extent, MappedFile, TransientPool};
use crate::region::Access;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Fills the holes of the log file that begins at `start`. Each must lie within the file, and its
/// bytes must have been saved.
pub fn rewrite(parts: &Parts, start: u64, holes: &[LostRange]) -> Result<()> {
    let file = start..start + parts.log.files.file_len();
    let passed = parts.tail.lock().position() >= file.end;
    // After the check above: if the log has passed the file, all of the file is written out after
    // this call.
    parts.write_out()?;
    if passed {
        let copy = copy(parts, &file, file.end, holes)?;
        // A sync of the original would say nothing about the copy.
        let _unsynced = parts.flushing.log.lock();
        return replace(parts, &copy, &file, file.end).map(drop);
    }
    parts.dispatcher.pause(|| {
        let mut tail = parts.tail.lock();
        parts.write_out()?;
        let _unsynced = parts.flushing.log.lock();
        parts.health.check()?;
        // The file may have been filled meanwhile.
        let end = tail.position().min(file.end);
        let copy = copy(parts, &file, end, holes)?;
        let replaced = replace(parts, &copy, &file, end)?;
        if end < file.end
            && let Some(replaced) = replaced
        {
            parts.pool.iter().for_each(TransientPool::let_go);
            parts.allocator.begin(&replaced);
            let exchanged = tail.exchange(replaced);
            exchanged.inspect_err(|error| parts.fail(error))?;
            parts.log.ready.store(0, Ordering::Relaxed);
        }
        Ok(())
    })
}

/// Creates the repaired copy of a file that is written up to `end`. Durable on return.
fn copy(parts: &Parts, file: &Range<u64>, end: u64, holes: &[LostRange]) -> Result<PathBuf> {
    let disk = &*parts.disk;
    let from = parts.log.files.path_of(file.start);
    let directory = damaged(parts);
    salvage::make_directory(disk, &directory)?;
    let to = directory.join(format!("{}.repaired", file_name(file.start)));
    let io = |error: Error| error.undone(Op::Rewrite, &from);
    if disk.stat(&to).map_err(io)?.is_some() {
        disk.unlink(&to).map_err(io)?;
    }
    let write = || -> Result<()> {
        disk.create(&to, file.end - file.start)?;
        if disk.stat(&from)?.is_some() {
            salvage::copy(disk, &from, 0..end - file.start, &to)?;
        }
        for hole in holes {
            let len = hole.range.end - hole.range.start;
            disk.erase(&to, hole.range.start - file.start, len)?;
            // A hole at the end of a file without lost messages may have been just its BLANK.
            let filler =
                hole.lost.is_empty() && hole.range.end == file.end && hole.range.start > file.start;
            let first = first(&hole.range, file).filter(|_| !filler);
            let mut put = |at: u64, bytes: &[u8]| disk.write_at(&to, at - file.start, bytes);
            fill(&hole.range, file, first, hole.store_ms, &mut put)?;
        }
        disk.sync_file(&to)
    };
    write().map_err(|error| {
        let _ = disk.unlink(&to);
        io(error)
    })?;
    Ok(to)
}

/// Renames the copy to the file. Later lookups of the file return the copy. `None` if the file was
/// deleted meanwhile.
fn replace(
    parts: &Parts,
    copy: &Path,
    file: &Range<u64>,
    end: u64,
) -> Result<Option<Arc<MappedFile>>> {
    let (disk, files) = (&parts.disk, &parts.log.files);
    let path = files.path_of(file.start);
    let io = |error: Error| error.during(Op::Replace, &path);
    if file.start < parts.log.min_position() {
        disk.unlink(copy).map_err(io)?;
        return Ok(None);
    }
    disk.rename(copy, &path).map_err(io)?;
    let extent = Extent::Part(end - file.start);
    let (start, len) = (file.start, file.end - file.start);
    let replaced = MappedFile::open(disk, path.clone(), start, len, Access::ReadWrite, extent);
    let replaced = Arc::new(replaced);
    files.replace(&replaced);
    parts.log.state.next_generation();
    let names = [files.directory(), copy.parent().unwrap_or(Path::new("."))];
    for directory in names {
        // Without a durable name, bytes that are only in the copy could disappear, so no append may
        // follow.
        let synced = disk.sync_directory(directory);
        synced.inspect_err(|error| parts.fail(error))?;
    }
    Ok(Some(replaced))
}
