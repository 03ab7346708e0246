//! The file `abort`, which exists while a store is open for writing, and after a halt.
//!
//! A Forebay writer stores its process id and the word `forebay` in it, RocketMQ only an id. On
//! close the file is not unlinked but renamed to `forebay.idle`. So a store on a full disk can be
//! opened again, which then needs no room.

use crate::disk::{Disk, Kind, read_small, replace};
use crate::engine::directory::names;
use crate::error::{Error, Op, Result};
use std::path::Path;

const NAME: &str = names::ABORT;
const IDLE: &str = names::IDLE;

/// The end of the text of a Forebay writer.
const OURS: &[u8] = b" forebay";

/// Whether the store was not closed.
pub fn is_there(disk: &dyn Disk, root: &Path) -> Result<bool> {
    Ok(len_of(disk, &root.join(NAME))?.is_some())
}

fn len_of(disk: &dyn Disk, path: &Path) -> Result<Option<u64>> {
    let found = disk.stat(path).map_err(|e| Error::io(Op::Stat, path, e))?;
    Ok(found
        .filter(|entry| entry.kind == Kind::File)
        .map(|entry| entry.len))
}

/// Durably creates the file. An existing one is never missing in between: a halt at that moment
/// would look like a clean close.
pub fn leave(disk: &dyn Disk, root: &Path) -> Result<()> {
    let (path, idle) = (root.join(NAME), root.join(IDLE));
    let io = |error| Error::io(Op::Write, &path, error);
    // The length is fixed, so the text is overwritten in place: the sector is old or new.
    let mut text = format!("{:>10}", std::process::id()).into_bytes();
    text.extend(OURS);
    if len_of(disk, &path)?.is_none() && len_of(disk, &idle)?.is_some() {
        disk.rename(&idle, &path).map_err(io)?;
    }
    if len_of(disk, &path)? != Some(text.len() as u64) {
        return replace(disk, &path, &text).map_err(io);
    }
    // Until this is durable the file has the text of an earlier Forebay writer, which serves as
    // well.
    disk.write_at(&path, 0, &text).map_err(io)?;
    disk.sync_directory(root).map_err(io)
}

/// Durably removes the file: the store is closed.
pub fn take_away(disk: &dyn Disk, root: &Path) -> Result<()> {
    let (path, idle) = (root.join(NAME), root.join(IDLE));
    if len_of(disk, &path)?.is_some() {
        let gone = disk.rename(&path, &idle);
        gone.map_err(|e| Error::io(Op::TakeAway, &path, e))?;
    }
    disk.sync_directory(root)
        .map_err(|e| Error::io(Op::Sync, root, e))
}

/// Whether another system has written since the last Forebay writer that did not close the store:
/// it stored its own text, or removed the file. What it stored counts wherever it is valid.
pub fn is_foreign(disk: &dyn Disk, root: &Path) -> Result<bool> {
    let path = root.join(NAME);
    let text = match read_small(disk, &path, 64) {
        // Too long for a process id: Forebay did not write it.
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => return Ok(true),
        text => text.map_err(|e| Error::io(Op::Read, &path, e))?,
    };
    Ok(!text.is_some_and(|text| text.ends_with(OURS)))
}
