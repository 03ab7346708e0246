//! The lock of a store: byte 0 of the file `lock`, as RocketMQ locks it.

use super::syscall::{self, ByteLock, Holder};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct FileLock {
    file: Option<File>,
    generation: u32,
}

/// Maximum length of a signature: a process id and the end of its line.
pub const SIGNATURE_LEN_MAX: usize = 11;

impl FileLock {
    /// Writes the id of this process at the beginning of the file, where [`signer`] finds it.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub fn sign(&self) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let signature = format!("{}\n", std::process::id());
        syscall::write_all_at(file, signature.as_bytes(), 0)
    }

    /// A lock on a simulated disk, where nothing competes for it.
    #[cfg(test)]
    pub fn simulated() -> FileLock {
        FileLock {
            file: None,
            generation: syscall::fork_generation(),
        }
    }
}

/// The result of trying to lock.
#[derive(Debug)]
pub enum LockState {
    /// The caller has the lock.
    Held(FileLock),
    /// Another handle, in this process or another, holds it.
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

/// Tries to lock the file at `path`, creating it if it is missing.
///
/// The lock belongs to the open file description: closing another descriptor in this process does
/// not drop it, and it conflicts with RocketMQ's lock of the same byte.
pub fn lock(path: &Path) -> io::Result<LockState> {
    let file = open(path, true)?;
    if !syscall::lock_byte_zero(&file)? {
        return Ok(LockState::Taken);
    }
    fill(&file)?;
    watch(&file)?;
    let generation = syscall::fork_generation();
    Ok(LockState::Held(FileLock {
        file: Some(file),
        generation,
    }))
}

/// Writes the contents of the file, if it is empty.
fn fill(file: &File) -> io::Result<()> {
    if file.metadata()?.len() == 0 {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        }
        syscall::write_all_at(file, b"lock", 0)?;
    }
    Ok(())
}

/// Registers the descriptor, so that forked children close it.
fn watch(file: &File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::fd::AsRawFd;
        if !syscall::watch_descriptor(file.as_raw_fd()) {
            return Err(io::Error::other(
                "more than 1024 stores are open for writing",
            ));
        }
    }
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}

/// Returns who holds the lock at `path`, without changing anything. A missing file is not locked.
pub fn probe(path: &Path) -> io::Result<Holder> {
    // Opened read-only: taking a write lock needs a writable descriptor, but the kernel says who
    // holds one for any descriptor.
    match open(path, false) {
        Ok(file) => syscall::holder_of_byte_zero(&file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Holder::Nobody),
        Err(error) => Err(error),
    }
}

/// The process that signed a file with these bytes at its beginning; `None` if none did.
pub fn signer(bytes: &[u8]) -> Option<u32> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let is_whole = line.len() < bytes.len();
    let pid = str::from_utf8(line).ok()?.parse().ok();
    pid.filter(|pid| is_whole && *pid != 0)
}

/// Whether some process holds a byte of the file at `path`. A missing file is not locked.
pub fn is_byte_locked(path: &Path, byte: u32) -> io::Result<bool> {
    match open(path, false) {
        Ok(file) => syscall::is_byte_locked(&file, byte),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The file `lock`, of which bytes are locked one by one. All locks are released when it is
/// dropped, or when the process ends.
#[derive(Debug)]
pub struct ByteLocks {
    file: Option<File>,
    generation: u32,
    #[cfg(test)]
    simulated: Option<Box<dyn SimulatedLocks>>,
}

/// The locks of a simulated process.
#[cfg(test)]
pub trait SimulatedLocks: std::fmt::Debug + Send + Sync {
    /// [`ByteLocks::set`].
    fn set(&self, byte: u32, lock: ByteLock) -> bool;

    /// [`ByteLocks::is_taken`].
    fn is_taken(&self, byte: u32) -> bool;

    /// [`ByteLocks::release`].
    fn release(&self);
}

impl ByteLocks {
    /// The locks of a simulated process.
    #[cfg(test)]
    pub fn simulated(locks: Box<dyn SimulatedLocks>) -> ByteLocks {
        ByteLocks {
            file: None,
            generation: syscall::fork_generation(),
            simulated: Some(locks),
        }
    }

    /// Opens the file at `path`, creating it if it is missing. Nothing is locked.
    ///
    /// # Errors
    ///
    /// Those of opening it; an error if too many stores are open.
    pub fn open(path: &Path) -> io::Result<ByteLocks> {
        let file = open(path, true)?;
        watch(&file)?;
        Ok(ByteLocks {
            file: Some(file),
            generation: syscall::fork_generation(),
            #[cfg(test)]
            simulated: None,
        })
    }

    /// The file; an error in a forked child, which has closed the descriptor.
    fn file(&self) -> io::Result<&File> {
        let own = self.generation == syscall::fork_generation();
        let file = self.file.as_ref().filter(|_| own);
        file.ok_or_else(|| io::Error::other("the lock was inherited through fork"))
    }

    /// Tries to change the lock of a byte. Returns whether it was changed.
    ///
    /// # Errors
    ///
    /// Those of the system call.
    pub fn set(&self, byte: u32, lock: ByteLock) -> io::Result<bool> {
        #[cfg(test)]
        if let Some(simulated) = &self.simulated {
            return Ok(simulated.set(byte, lock));
        }
        syscall::lock_byte(self.file()?, byte, lock)
    }

    /// Whether another handle, in this process or another, holds a byte.
    ///
    /// # Errors
    ///
    /// Those of the system call.
    pub fn is_taken(&self, byte: u32) -> io::Result<bool> {
        #[cfg(test)]
        if let Some(simulated) = &self.simulated {
            return Ok(simulated.is_taken(byte));
        }
        syscall::is_byte_locked(self.file()?, byte)
    }

    /// Name of the file system, if it cannot be shared between processes.
    ///
    /// # Errors
    ///
    /// Those of the system call.
    pub fn unshared_file_system(&self) -> io::Result<Option<&'static str>> {
        #[cfg(test)]
        if self.simulated.is_some() {
            return Ok(None);
        }
        syscall::unshared_file_system(self.file()?)
    }

    /// Releases all bytes.
    ///
    /// # Errors
    ///
    /// Those of the system call.
    pub fn release(&self) -> io::Result<()> {
        #[cfg(test)]
        if let Some(simulated) = &self.simulated {
            simulated.release();
            return Ok(());
        }
        syscall::unlock_all(self.file()?)
    }

    /// Writes what an exclusive lock leaves in an empty file.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub fn fill(&self) -> io::Result<()> {
        #[cfg(test)]
        if self.simulated.is_some() {
            return Ok(());
        }
        fill(self.file()?)
    }
}

impl Drop for ByteLocks {
    fn drop(&mut self) {
        #[cfg(test)]
        if let Some(simulated) = &self.simulated {
            simulated.release();
        }
        release(self.file.take(), self.generation, syscall::unlock_all);
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        release(self.file.take(), self.generation, syscall::unlock_byte_zero);
    }
}

/// Unlocks and closes a file that was opened in this generation of the process.
fn release(file: Option<File>, generation: u32, unlock: fn(&File) -> io::Result<()>) {
    let Some(file) = file else { return };
    if generation != syscall::fork_generation() {
        // A forked child has already closed the descriptor; its number may be another file's.
        std::mem::forget(file);
        return;
    }
    #[cfg(unix)]
    {
        use std::os::fd::AsRawFd;
        syscall::forget_descriptor(file.as_raw_fd());
    }
    // Unlocked explicitly, not by the close: a process that is being spawned holds a copy of the
    // descriptor until its exec, and that copy would keep the lock.
    let _ = unlock(&file);
}
