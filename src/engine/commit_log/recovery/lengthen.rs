//! Gives truncated log files their length again.
//!
//! A file that is mapped must have its full length. The walk must see the bytes that every later
//! reader sees: a record whose last bytes are missing in a shorter file may count by its body once
//! zeros follow. So this comes before the walk.

use super::find::Found;
use crate::engine::directory::names;
use crate::error::{Op, Result};
use crate::mapped::queue::file_name;
use crate::region::Access;

/// In a writable store, durably fills truncated log files with zeros up to their full length.
pub fn lengthen(found: &mut Found) -> Result<()> {
    if found.access == Access::Read {
        return Ok(());
    }
    let directory = found.root.join(names::COMMIT_LOG);
    let len = found.geometry.log_file_len;
    for file in found.files.iter_mut().filter(|file| file.len < len) {
        let (disk, path) = (&found.machine.disk, directory.join(file_name(file.start)));
        let longer = disk.write_at(&path, len - 1, &[0]);
        longer.map_err(|error| error.during(Op::Lengthen, &path))?;
        disk.sync_file(&path)?;
        file.len = len;
    }
    Ok(())
}
