//! Closing: makes everything durable, sets the marks that shorten the next opening, and releases
//! the lock.

use super::joined::Joined;
use super::services::Services;
use super::wait;
use crate::disk::FileLock;
use crate::engine::directory::page::Mark;
use crate::engine::service::sleepers::Sleepers;
use crate::error::Result;
use crate::sync::Mutex;

/// Closes a store, unless it is already closed. No repair may run meanwhile.
///
/// # Errors
///
/// The error that keeps messages from being durable. The store is closed nevertheless.
pub fn close(
    parts: &Joined,
    sleepers: &Sleepers,
    services: &Services,
    lock: &Mutex<Option<FileLock>>,
) -> Result<()> {
    // From here on no writer is joined, so the parts stay the same.
    parts.end();
    let last_store_ms = {
        let tail = parts.tail.lock();
        if !parts.health.close() {
            return Ok(());
        }
        tail.last_store_ms()
    };
    services.stop(parts);
    if !parts.is_written() {
        wait::wake(parts, sleepers);
        return Ok(());
    }
    services.join();
    let passed = match parts.health.check() {
        Ok(()) => parts.full_pass_for_close(last_store_ms),
        Err(error) => Err(error),
    };
    let unused = parts.tail.lock().take_unused();
    parts.allocator.stop();
    for file in unused {
        let _ = parts.disk.unlink(file.path());
    }
    match passed {
        Ok(()) => parts.drop_unused_pages(),
        Err(_) => parts.log.state.end_epoch(false),
    }
    drop(lock.lock().take());
    let is_durable = parts.log.state.get(Mark::Durable) >= parts.wrote();
    match passed {
        // All messages are durable. If the rest of the close lacks room or descriptors, the next
        // opening recovers the store, as after a halt.
        Err(error) if is_durable && !error.ends_writing() => Ok(()),
        passed => passed,
    }
}
