//! Events: what a thread notifies and an event loop watches, as a descriptor.

use super::syscall;
use std::fs::File;
use std::io::{self, Read, Write};

/// A descriptor that is readable from [`Event::notify`] to [`Event::clear`].
#[derive(Debug)]
pub struct Event {
    watched: File,
    /// The end that is written to, where it is another one.
    notified: Option<File>,
}

impl Event {
    /// An event that nobody has notified.
    ///
    /// # Errors
    ///
    /// Those of the system call; `Unsupported` on systems where loops watch no descriptors.
    pub fn new() -> io::Result<Event> {
        let (watched, notified) = syscall::event()?;
        Ok(Event { watched, notified })
    }

    /// Makes the descriptor readable. Never waits if it is called once between two clears.
    pub fn notify(&self) {
        let mut end = self.notified.as_ref().unwrap_or(&self.watched);
        // It fails only if the counter is full, and then the descriptor is readable.
        let _ = end.write(&1_u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable. Call it only after [`Event::notify`].
    pub fn clear(&self) {
        let mut number = [0; 8];
        let _ = (&self.watched).read(&mut number);
    }

    /// The number of the descriptor that a loop watches.
    pub fn descriptor(&self) -> i32 {
        #[cfg(unix)]
        return std::os::fd::AsRawFd::as_raw_fd(&self.watched);
        #[cfg(not(unix))]
        return -1;
    }
}
