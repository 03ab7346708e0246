//! A log file is written anew with its holes filled, and takes the place of the damaged one.
//!
//! Readers hold the bytes of a log file, so none of them may change under them. The repaired file
//! is another one: a copy, made durable under another name, that is renamed over the first. Who
//! holds a map of the first keeps it; who asks for the file gets the second. A crash leaves one or
//! the other, each whole.
//!
//! The file that is appended to is copied while nothing is appended, dispatched or synced: the
//! appender, and dispatch behind it, go on in the copy.

use super::salvage;
use crate::engine::commit_log::log::bridge::{fill, first};
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::verify::inspection::Hole;
use crate::error::{Error, Op, Result};
use crate::mapped::queue::file_name;
use crate::mapped::{Extent, MappedFile, TransientPool};
use crate::region::Access;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Fills the holes of the log file that begins at `start`; each lies within the file. What they
/// held was saved before.
pub fn rewrite(parts: &Parts, start: u64, holes: &[Hole]) -> Result<()> {
    let file = start..start + parts.log.files.file_len();
    let passed = parts.tail.lock().position() >= file.end;
    // Behind the look: where the file is passed, all of it is written out.
    parts.write_out()?;
    if passed {
        let copy = copy(parts, &file, file.end, holes)?;
        // A sync of the file that is replaced would tell nothing of the one in its place.
        let _unsynced = parts.flushing.log.lock();
        return replace(parts, &copy, &file, file.end).map(drop);
    }
    parts.dispatcher.pause(|| {
        let mut tail = parts.tail.lock();
        parts.write_out()?;
        let _unsynced = parts.flushing.log.lock();
        parts.health.check()?;
        // It may have been filled up in between.
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

/// The repaired copy of a file whose bytes below `end` are written, durable on return.
fn copy(parts: &Parts, file: &Range<u64>, end: u64, holes: &[Hole]) -> Result<PathBuf> {
    let disk = &*parts.disk;
    let from = parts.log.files.path_of(file.start);
    let directory = salvage::directory(parts)?;
    let to = directory.join(format!("{}.repaired", file_name(file.start)));
    let io = |error| Error::io(Op::Rewrite, &from, error);
    if disk.stat(&to).map_err(io)?.is_some() {
        disk.unlink(&to).map_err(io)?;
    }
    let write = || -> Result<()> {
        disk.create(&to, file.end - file.start).map_err(io)?;
        if disk.stat(&from).map_err(io)?.is_some() {
            salvage::copy(disk, &from, 0..end - file.start, &to).map_err(io)?;
        }
        for hole in holes {
            let len = hole.range.end - hole.range.start;
            let zeros = disk.erase(&to, hole.range.start - file.start, len);
            zeros.map_err(io)?;
            // At the end of a file nothing but its filler may have been damaged.
            let filler =
                hole.lost.is_empty() && hole.range.end == file.end && hole.range.start > file.start;
            let first = first(&hole.range, file).filter(|_| !filler);
            let mut put =
                |at: u64, bytes: &[u8]| disk.write_at(&to, at - file.start, bytes).map_err(io);
            fill(&hole.range, file, first, hole.store_ms, &mut put)?;
        }
        disk.sync_file(&to).map_err(io)
    };
    write().inspect_err(|_| {
        let _ = disk.unlink(&to);
    })?;
    Ok(to)
}

/// Gives the copy the name of the file, and hands it to all who ask for the file from here on.
/// `None` where the file was retired in between.
fn replace(
    parts: &Parts,
    copy: &Path,
    file: &Range<u64>,
    end: u64,
) -> Result<Option<Arc<MappedFile>>> {
    let (disk, files) = (&parts.disk, &parts.log.files);
    let path = files.path_of(file.start);
    let io = |error| Error::io(Op::Replace, &path, error);
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
    parts.log.state.count_exchange();
    let names = [files.directory(), copy.parent().unwrap_or(Path::new("."))];
    for directory in names {
        // What the copy alone holds would be gone with its name, so no append may follow.
        let synced = disk.sync_directory(directory).map_err(io);
        synced.inspect_err(|error| parts.fail(error))?;
    }
    Ok(Some(replaced))
}
