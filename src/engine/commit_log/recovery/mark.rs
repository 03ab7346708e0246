//! Marks a store as being recovered, before anything else is changed.
//!
//! If the process dies after this, the next opening treats the store as crashed.

use super::begin::Begin;
use super::find::Found;
use crate::engine::commit_log::log::walk::Trust;
use crate::engine::commit_log::tables::abort;
use crate::engine::directory::{names, writer};
use crate::error::Result;
use crate::region::Access;

/// In a writable store, durably creates `abort` and marks the state page as in use.
pub fn mark_running(found: &Found, begin: &Begin) -> Result<()> {
    if found.access == Access::Read {
        return Ok(());
    }
    let disk = &**found.disk();
    // The page is stored first: it records whether another system may have written, which `abort`
    // no longer shows once it has Forebay's text.
    found.state.begin_recovery(begin.trust == Trust::Everywhere);
    found.state.set_fixed(&found.geometry, &found.host());
    found.state.sync(&**found.disk())?;
    abort::leave(disk, &found.root)?;
    make_directories(found)?;
    writer::sync_name(disk, &found.root, &found.state)
}

/// Durably creates missing directories. The names of existing ones became durable with that of
/// `abort`.
fn make_directories(found: &Found) -> Result<()> {
    let disk = found.disk();
    let mut made = false;
    for name in [names::COMMIT_LOG, names::QUEUES, names::CONFIG] {
        let path = found.root.join(name);
        if disk.stat(&path)?.is_none() {
            disk.create_directory(&path)?;
            made = true;
        }
    }
    if made {
        disk.sync_directory(&found.root)?;
    }
    Ok(())
}
