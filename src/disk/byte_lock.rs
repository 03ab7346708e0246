//! Locks of bytes of a file. They belong to the open file description.

// The casts convert small constants between the widths that the C structures use.
#![allow(
    unsafe_code,
    clippy::cast_possible_truncation,
    clippy::unnecessary_cast
)]

use std::fs::File;
use std::io;

#[cfg(target_os = "linux")]
fn byte_zero() -> libc::flock {
    // SAFETY: the structure is plain integers, for which zero is valid.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = libc::F_WRLCK as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_len = 1;
    range
}

/// Changes the locks of a range, without waiting. They belong to the open file description, so
/// that closing another descriptor in this process does not drop them. Returns whether they were
/// changed; if not, another holder is in the way.
#[cfg(target_os = "linux")]
fn set_lock(file: &File, range: &libc::flock) -> io::Result<bool> {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open while `file` is borrowed, and `range` outlives the call.
    if unsafe {
        libc::fcntl(
            file.as_raw_fd(),
            libc::F_OFD_SETLK,
            std::ptr::from_ref(range),
        )
    } == 0
    {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

/// Returns a lock that another holder has on a range, or that nobody has one.
#[cfg(target_os = "linux")]
fn find_lock(file: &File, mut range: libc::flock) -> io::Result<libc::flock> {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open while `file` is borrowed, and `range` outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut range) } {
        0 => Ok(range),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Tries to take an exclusive lock of byte 0, as [`set_lock`] does. Returns whether it was taken.
#[cfg(target_os = "linux")]
pub fn lock_byte_zero(file: &File) -> io::Result<bool> {
    set_lock(file, &byte_zero())
}

/// Releases the lock of byte 0, even if other processes hold copies of the descriptor.
#[cfg(target_os = "linux")]
pub fn unlock_byte_zero(file: &File) -> io::Result<()> {
    let mut range = byte_zero();
    range.l_type = libc::F_UNLCK as libc::c_short;
    set_lock(file, &range).map(drop)
}

/// Releases all locks of the open file description.
#[cfg(target_os = "linux")]
pub fn unlock_all(file: &File) -> io::Result<()> {
    let mut range = byte_zero();
    range.l_type = libc::F_UNLCK as libc::c_short;
    // To the end of the file, however long it is.
    range.l_len = 0;
    set_lock(file, &range).map(drop)
}

/// As on Linux.
#[cfg(not(target_os = "linux"))]
pub fn unlock_all(file: &File) -> io::Result<()> {
    file.unlock()
}

/// As on Linux.
#[cfg(not(target_os = "linux"))]
pub fn unlock_byte_zero(file: &File) -> io::Result<()> {
    file.unlock()
}

/// The holder of a store's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nobody.
    Nobody,
    /// A Forebay process: the lock belongs to an open file.
    Forebay,
    /// Another system, such as RocketMQ or Kafka: the lock belongs to a process. This is its id; 0
    /// if it cannot be seen from here.
    Other(u32),
}

/// Returns who holds a lock of byte 0. A lock that belongs to an open file reports no process id.
#[cfg(target_os = "linux")]
pub fn holder_of_byte_zero(file: &File) -> io::Result<Holder> {
    let range = find_lock(file, byte_zero())?;
    Ok(match (range.l_type, range.l_pid) {
        (kind, _) if kind == libc::F_UNLCK as libc::c_short => Holder::Nobody,
        (_, -1) => Holder::Forebay,
        (_, pid) => Holder::Other(u32::try_from(pid).unwrap_or_default()),
    })
}

/// As on Linux, but locks the whole file.
#[cfg(not(target_os = "linux"))]
pub fn lock_byte_zero(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(std::fs::TryLockError::WouldBlock) => Ok(false),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

/// As on Linux, but cannot tell Forebay from another holder.
#[cfg(not(target_os = "linux"))]
pub fn holder_of_byte_zero(file: &File) -> io::Result<Holder> {
    if lock_byte_zero(file)? {
        file.unlock()?;
        return Ok(Holder::Nobody);
    }
    Ok(Holder::Forebay)
}

/// How a byte of a file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteLock {
    /// By one holder alone.
    Exclusive,
    /// Beside other shared holders.
    Shared,
    /// Not at all.
    Released,
}

/// Changes the lock of one byte of a file, without waiting. The lock belongs to the open file
/// description. Returns whether it was changed; if not, another holder is in the way.
///
/// # Errors
///
/// Those of the system call; `Unsupported` on systems whose locks belong to processes.
#[cfg(target_os = "linux")]
pub fn lock_byte(file: &File, byte: u32, lock: ByteLock) -> io::Result<bool> {
    let mut range = byte_zero();
    range.l_start = libc::off_t::from(byte);
    range.l_type = match lock {
        ByteLock::Exclusive => libc::F_WRLCK,
        ByteLock::Shared => libc::F_RDLCK,
        ByteLock::Released => libc::F_UNLCK,
    } as libc::c_short;
    set_lock(file, &range)
}

/// Whether another open file description, or a process, holds a lock of this byte.
///
/// # Errors
///
/// As [`lock_byte`].
#[cfg(target_os = "linux")]
pub fn is_byte_locked(file: &File, byte: u32) -> io::Result<bool> {
    let mut range = byte_zero();
    range.l_start = libc::off_t::from(byte);
    let range = find_lock(file, range)?;
    Ok(range.l_type != libc::F_UNLCK as libc::c_short)
}

/// Such locks exist on Linux only.
#[cfg(not(target_os = "linux"))]
pub fn lock_byte(_: &File, _: u32, _: ByteLock) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

/// As [`lock_byte`].
#[cfg(not(target_os = "linux"))]
pub fn is_byte_locked(_: &File, _: u32) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}
