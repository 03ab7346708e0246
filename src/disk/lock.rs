//! The lock of a store: byte 0 of the file `lock`, as RocketMQ locks it.

use super::syscall;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct FileLock {
    file: Option<File>,
    generation: u32,
}

#[cfg(test)]
impl FileLock {
    /// The lock of a store on a simulated disk, where nobody else is.
    pub fn simulated() -> FileLock {
        FileLock {
            file: None,
            generation: syscall::fork_generation(),
        }
    }
}

/// What trying to lock found.
#[derive(Debug)]
pub enum LockState {
    /// The lock is ours.
    Held(FileLock),
    /// Another handle, here or in another process, holds it.
    Taken,
}

fn open(path: &Path, write: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(write)
        .create(write)
        .truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    }
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    Ok(file)
}

/// Tries to take the lock at `path`, whose file is created where it is not there.
///
/// The lock belongs to the open file description: no other close in the process drops it, and the
/// real RocketMQ's lock of the same byte conflicts with it.
pub fn lock(path: &Path) -> io::Result<LockState> {
    let file = open(path, true)?;
    if !syscall::lock_byte_zero(&file)? {
        return Ok(LockState::Taken);
    }
    if file.metadata()?.len() == 0 {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        }
        syscall::write_all_at(&file, b"lock", 0)?;
    }
    #[cfg(unix)]
    {
        use std::os::fd::AsRawFd;
        if !syscall::watch_descriptor(file.as_raw_fd()) {
            return Err(io::Error::other(
                "more than 1024 stores are open for writing",
            ));
        }
    }
    let generation = syscall::fork_generation();
    Ok(LockState::Held(FileLock {
        file: Some(file),
        generation,
    }))
}

/// Who holds the lock of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nobody.
    Nobody,
    /// A Forebay: the lock belongs to an open file.
    Forebay,
    /// Another system, as RocketMQ: the lock belongs to a process.
    Other,
}

/// Who holds the lock at `path`; nothing is changed. Nobody does where there is no file.
pub fn probe(path: &Path) -> io::Result<Holder> {
    // A read lock could be tested on a read-only descriptor, but the question is for the write
    // lock, and the kernel answers it for any descriptor.
    match open(path, false) {
        Ok(file) => syscall::holder_of_byte_zero(&file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Holder::Nobody),
        Err(error) => Err(error),
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        if self.generation != syscall::fork_generation() {
            // In a forked child the descriptor is closed already; its number may be another file's.
            std::mem::forget(file);
            return;
        }
        #[cfg(unix)]
        {
            use std::os::fd::AsRawFd;
            syscall::forget_descriptor(file.as_raw_fd());
        }
        // Said, and not left to the close: a process that is just being spawned has a copy of the
        // descriptor until it becomes another program, and a copy keeps the lock.
        let _ = syscall::unlock_byte_zero(&file);
    }
}
