//! The file `abort`, which exists while a store is open for writing, and after a halt.
//!
//! A Forebay writer stores its process id and the word `forebay` in it, RocketMQ only an id. On
//! close the file is not unlinked but renamed to `forebay.idle`. So a store on a full disk can be
//! opened again, which then needs no room.

use crate::disk::{Disk, Kind, read_small, replace};
use crate::engine::directory::names;
use crate::error::{Op, Result};
use std::io::ErrorKind;
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
    let found = disk.stat(path)?;
    Ok(found
        .filter(|entry| entry.kind == Kind::File)
        .map(|entry| entry.len))
}

/// Durably creates the file. An existing one is never missing in between: a halt at that moment
/// would look like a clean close.
pub fn leave(disk: &dyn Disk, root: &Path) -> Result<()> {
    let (path, idle) = (root.join(NAME), root.join(IDLE));
    // The length is fixed, so the text is overwritten in place: the sector is old or new.
    let mut text = format!("{:>10}", std::process::id()).into_bytes();
    text.extend(OURS);
    if len_of(disk, &path)?.is_none() && len_of(disk, &idle)?.is_some() {
        let renamed = disk.rename(&idle, &path);
        renamed.map_err(|error| error.during(Op::Write, &path))?;
    }
    if len_of(disk, &path)? != Some(text.len() as u64) {
        return replace(disk, &path, &text);
    }
    // Until this is durable the file has the text of an earlier Forebay writer, which means the
    // same.
    disk.write_at(&path, 0, &text)?;
    disk.sync_directory(root)
}

/// Durably removes the file: the store is closed.
pub fn take_away(disk: &dyn Disk, root: &Path) -> Result<()> {
    let (path, idle) = (root.join(NAME), root.join(IDLE));
    if len_of(disk, &path)?.is_some() {
        let gone = disk.rename(&path, &idle);
        gone.map_err(|error| error.during(Op::TakeAway, &path))?;
    }
    disk.sync_directory(root)
}

/// Whether another system has written since the last Forebay writer that did not close the store:
/// the file has another text, or is gone. Records of that system count wherever they are valid.
pub fn is_foreign(disk: &dyn Disk, root: &Path) -> Result<bool> {
    let path = root.join(NAME);
    let text = match read_small(disk, &path, 64) {
        // Too long for a process id: Forebay did not write it.
        Err(error) if error.kind() == Some(ErrorKind::InvalidData) => return Ok(true),
        text => text?,
    };
    Ok(!text.is_some_and(|text| text.ends_with(OURS)))
}
