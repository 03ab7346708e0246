//! The marks of a store that is being recovered, left before anything else is changed.
//!
//! A process that dies after this leaves a store that the next opening takes for crashed.

use super::begin::Begin;
use super::find::Found;
use crate::engine::commit_log::log::walk::Trust;
use crate::engine::commit_log::tables::abort;
use crate::engine::directory::{names, writer};
use crate::error::{Error, Op, Result};
use crate::region::Access;

/// Leaves `abort` and a running state page, durably, in a store that is written.
pub fn mark_running(found: &Found, begin: &Begin) -> Result<()> {
    if found.access == Access::Read {
        return Ok(());
    }
    let disk = &**found.disk();
    // First the page, which tells what the file says until it is ours.
    found.state.begin_recovery(begin.trust == Trust::Everywhere);
    found.state.set_fixed(&found.geometry, &found.host());
    found.state.sync(&**found.disk())?;
    abort::leave(disk, &found.root)?;
    make_directories(found)?;
    writer::sync_name(disk, &found.root, &found.state)
}

/// Makes the directories that are not there, durably. The names of those that are there became
/// durable with that of `abort`.
fn make_directories(found: &Found) -> Result<()> {
    let disk = found.disk();
    let mut made = false;
    for name in [names::COMMIT_LOG, names::QUEUES, names::CONFIG] {
        let path = found.root.join(name);
        let there = disk.stat(&path);
        if there.map_err(|e| Error::io(Op::Stat, &path, e))?.is_none() {
            let created = disk.create_directory(&path);
            created.map_err(|e| Error::io(Op::Create, &path, e))?;
            made = true;
        }
    }
    if made {
        let synced = disk.sync_directory(&found.root);
        synced.map_err(|e| Error::io(Op::Sync, &found.root, e))?;
    }
    Ok(())
}
