//! System calls that the standard library does not offer: the only `unsafe` code of the disk.
//!
//! On Linux each function is the call itself; on other systems it is the closest safe equivalent.

// The casts convert small constants between the widths that the C structures use.
#![allow(
    unsafe_code,
    clippy::cast_possible_truncation,
    clippy::unnecessary_cast
)]

use super::Identity;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

/// Renames a file to an unused name, in one step.
///
/// # Errors
///
/// `AlreadyExists` if the name is taken; `Unsupported` if the file system has no such call.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use std::ffi::CString;
        use std::os::unix::ffi::OsStrExt;
        let from = CString::new(from.as_os_str().as_bytes())?;
        let to = CString::new(to.as_os_str().as_bytes())?;
        let (here, flags) = (libc::AT_FDCWD, libc::RENAME_NOREPLACE);
        let call = libc::SYS_renameat2;
        // SAFETY: both names end in a zero byte and outlive the call.
        let done = unsafe { libc::syscall(call, here, from.as_ptr(), here, to.as_ptr(), flags) };
        if done == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINVAL | libc::ENOSYS) => Err(io::ErrorKind::Unsupported.into()),
            _ => Err(error),
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Writes all of `bytes` at `start`.
pub fn write_all_at(file: &File, bytes: &[u8], start: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::write_all_at(file, bytes, start);
    #[cfg(windows)]
    {
        use std::os::windows::fs::FileExt;
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            done += file.seek_write(rest, start + done as u64)?;
        }
        Ok(())
    }
}

/// Reads at `start`; may return fewer bytes than asked for.
pub fn read_at(file: &File, buffer: &mut [u8], start: u64) -> io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_at(file, buffer, start);
    #[cfg(windows)]
    return std::os::windows::fs::FileExt::seek_read(file, buffer, start);
}

#[cfg(target_os = "linux")]
fn fallocate(file: &File, mode: i32, start: u64, len: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let (start, len) = (start as libc::off_t, len as libc::off_t);
    loop {
        // SAFETY: the descriptor is open while `file` is borrowed; no memory is passed.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, start, len) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => return Err(io::ErrorKind::Unsupported.into()),
            _ => return Err(error),
        }
    }
}

/// Names a file that was created without a name; fails if `path` exists. Needs `/proc`.
#[cfg(target_os = "linux")]
pub fn give_name(file: &File, path: &Path) -> io::Result<()> {
    use std::ffi::CString;
    use std::os::{fd::AsRawFd, unix::ffi::OsStrExt};
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: both names end in a zero byte and outlive the call.
    match unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), follow) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Allocates blocks for a range without changing the file's length. On file systems with shared
/// extents, blocks shared with another file are replaced by the file's own.
pub fn reserve(file: &File, start: u64, len: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let mode = libc::FALLOC_FL_UNSHARE_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        match fallocate(file, mode, start, len) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                fallocate(file, libc::FALLOC_FL_KEEP_SIZE, start, len)
            }
            done => done,
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, start, len);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Zeroes a range and keeps its blocks.
pub fn erase(file: &File, start: u64, len: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return fallocate(
        file,
        libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
        start,
        len,
    );
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, start, len);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Starts writing the dirty pages of a range without waiting.
pub fn write_back(file: &File, start: u64, len: u64) {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        let (start, len) = (start as libc::off64_t, len as libc::off64_t);
        // SAFETY: the descriptor is open while `file` is borrowed; no memory is passed.
        unsafe {
            libc::sync_file_range(file.as_raw_fd(), start, len, libc::SYNC_FILE_RANGE_WRITE);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, start, len);
}

/// First run of bytes at or after `start` that is not in a hole.
pub fn next_data(file: &File, start: u64) -> io::Result<Option<Range<u64>>> {
    #[cfg(target_os = "linux")]
    {
        let Some(data) = seek(file, start, libc::SEEK_DATA)? else {
            return Ok(None);
        };
        Ok(seek(file, data, libc::SEEK_HOLE)?.map(|hole| data..hole.max(data + 1)))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        Ok(Some(start..u64::MAX))
    }
}

/// Where data or a hole begins at or after `start`; `None` after the last.
#[cfg(target_os = "linux")]
fn seek(file: &File, start: u64, what: libc::c_int) -> io::Result<Option<u64>> {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open while `file` is borrowed; no memory is passed.
    let at = unsafe { libc::lseek(file.as_raw_fd(), start as libc::off_t, what) };
    if at >= 0 {
        return Ok(Some(at as u64));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENXIO) => Ok(None),
        // The file system cannot tell: treat everything as data.
        Some(libc::EINVAL) if what == libc::SEEK_DATA => Ok(Some(start)),
        Some(libc::EINVAL) => Ok(Some(u64::MAX)),
        _ => Err(error),
    }
}

/// Whether a file has holes in its first `len` bytes, on a file system where a load from a hole
/// allocates memory: tmpfs.
pub fn has_costly_holes(file: &File, len: u64) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::MetadataExt;
        let is_tmpfs = magic(file)? == libc::TMPFS_MAGIC as u64;
        Ok(is_tmpfs && file.metadata()?.blocks() * 512 < len)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, len);
        Ok(false)
    }
}

/// Makes everything on the file system of an open file durable. Reports write errors since the file
/// was opened or this was last called for it, on some systems only some of them.
pub fn sync_file_system(file: &File) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        // SAFETY: the descriptor is open while `file` is borrowed; no memory is passed.
        match unsafe { libc::syncfs(file.as_raw_fd()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The number that tells the kind of the file system of an open file.
#[cfg(target_os = "linux")]
pub fn magic(file: &File) -> io::Result<u64> {
    use std::os::fd::AsRawFd;
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open while `file` is borrowed, and the result has room for what the
    // call writes.
    if unsafe { libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has filled the structure.
    Ok(unsafe { found.assume_init() }.f_type as u64)
}

/// Usage of a file system, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Bytes that an ordinary user may still write.
    pub free: u64,
    /// Bytes in use. Blocks reserved for the superuser count as neither.
    pub used: u64,
}

/// Usage of the file system of `path`.
pub fn space(path: &Path) -> io::Result<Space> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
        let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the path ends in a zero byte and the result has room for what the call writes.
        if unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so it has filled the structure.
        let found = unsafe { found.assume_init() };
        let taken = found.f_blocks.saturating_sub(found.f_bfree);
        Ok(Space {
            free: found.f_bavail as u64 * found.f_frsize as u64,
            used: taken as u64 * found.f_frsize as u64,
        })
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        let (free, used) = (u64::MAX, 0);
        Ok(Space { free, used })
    }
}

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

/// Name of the file system of a file, if maps of it are not shared between all processes that open
/// it, or its locks may be lost: network file systems, and those in user space.
#[cfg(target_os = "linux")]
pub fn unshared_file_system(file: &File) -> io::Result<Option<&'static str>> {
    use std::os::fd::AsRawFd;
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the descriptor is open while `file` is borrowed, and the call writes to `found`
    // alone, which outlives it.
    if unsafe { libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has filled the structure.
    let kind = unsafe { found.assume_init() }.f_type;
    // The numbers of `linux/magic.h`. The type of the field differs between libraries.
    Ok(match kind as u32 {
        0x6969 => Some("NFS"),
        0xFF53_4D42 | 0xFE53_4D42 | 0x517B => Some("SMB"),
        0x6573_5546 => Some("FUSE"),
        0x0102_1997 => Some("9P"),
        0x00C3_6400 => Some("Ceph"),
        0x5346_414F => Some("AFS"),
        0x0BD0_0BD0 => Some("Lustre"),
        0x7461_636F => Some("OCFS2"),
        0x0116_1970 => Some("GFS2"),
        0x4750_4653 => Some("GPFS"),
        0x7363_6673 => Some("a file system of a virtual machine's host"),
        _ => None,
    })
}

/// Such file systems are told apart on Linux only.
#[cfg(not(target_os = "linux"))]
pub fn unshared_file_system(_: &File) -> io::Result<Option<&'static str>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A descriptor that becomes readable when somebody writes to the other: on Linux an eventfd,
/// which is both, elsewhere a pipe. Whole numbers of 8 bytes are written and read.
pub fn event() -> io::Result<(File, Option<File>)> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::{FromRawFd, OwnedFd};
        // SAFETY: no memory is passed.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call returned this descriptor, and nothing else owns it.
        let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok((File::from(owned), None))
    }
    #[cfg(all(unix, not(target_os = "linux")))]
    {
        use std::os::fd::OwnedFd;
        let (reader, writer) = io::pipe()?;
        let [reader, writer] = [OwnedFd::from(reader), OwnedFd::from(writer)];
        Ok((File::from(reader), Some(File::from(writer))))
    }
    #[cfg(not(unix))]
    Err(io::ErrorKind::Unsupported.into())
}

/// Milliseconds since the epoch by the wall clock at its last tick, 1 to 10 ms ago: a third of the
/// cost of the exact time.
#[inline]
pub fn coarse_ms() -> i64 {
    #[cfg(target_os = "linux")]
    if let Some(time) = wall_clock(libc::CLOCK_REALTIME_COARSE) {
        return time.tv_sec as i64 * 1000 + time.tv_nsec as i64 / 1_000_000;
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

/// Nanoseconds since the epoch by the wall clock; 0 for a time before it. Each send reads it, so it
/// is read without the conversions of [`SystemTime`](std::time::SystemTime).
#[inline]
pub fn now_ns() -> u64 {
    #[cfg(target_os = "linux")]
    if let Some(time) = wall_clock(libc::CLOCK_REALTIME) {
        let nanos = (time.tv_sec as i64).saturating_mul(1_000_000_000);
        return u64::try_from(nanos.saturating_add(time.tv_nsec as i64)).unwrap_or_default();
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(target_os = "linux")]
#[inline]
fn wall_clock(id: libc::clockid_t) -> Option<libc::timespec> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes to `time` alone, which outlives it.
    (unsafe { libc::clock_gettime(id, &raw mut time) } == 0).then_some(time)
}

static GENERATION: AtomicU32 = AtomicU32::new(0);
const NO_DESCRIPTOR: i32 = -1;
static LOCKS: [AtomicI32; 1024] = [const { AtomicI32::new(NO_DESCRIPTOR) }; 1024];

/// A number that grows with each fork between the first process and this one, as a rule by 1. A
/// handle that remembers the number at its creation can tell whether it was inherited.
#[inline]
pub fn fork_generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

#[cfg(unix)]
extern "C" fn after_fork_in_child() {
    // Only async-signal-safe operations: atomics and close.
    GENERATION.fetch_add(1, Ordering::Relaxed);
    for lock in &LOCKS {
        let descriptor = lock.swap(NO_DESCRIPTOR, Ordering::Relaxed);
        if descriptor != NO_DESCRIPTOR {
            // SAFETY: the descriptor was inherited from the parent, where a `FileLock` owns it; the
            // child's copy of that owner never closes it, see `FileLock::drop`.
            unsafe { libc::close(descriptor) };
        }
    }
}

/// Makes [`fork_generation`] count. Every store calls it before it opens anything.
///
/// Threads that call it at the same time may each register the handler, which then counts a fork
/// more than once. A lock would be worse: a child of a process that forks meanwhile would have it
/// in the hands of a thread that does not exist there, and wait for it forever.
pub fn watch_forks() {
    #[cfg(unix)]
    {
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        if !REGISTERED.load(Ordering::Acquire) {
            // SAFETY: the handler is a function of this program that lives as long as it.
            unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
            REGISTERED.store(true, Ordering::Release);
        }
    }
}

/// Records the descriptor of a lock for a forked child to close: the child's copy would keep the
/// lock after the parent releases it. Returns `false` if the table is full.
pub fn watch_descriptor(descriptor: i32) -> bool {
    LOCKS.iter().any(|slot| {
        let order = Ordering::Relaxed;
        slot.compare_exchange(NO_DESCRIPTOR, descriptor, order, order)
            .is_ok()
    })
}

/// Removes a descriptor that is about to be closed.
pub fn forget_descriptor(descriptor: i32) {
    let order = Ordering::Relaxed;
    let _ = LOCKS.iter().any(|slot| {
        slot.compare_exchange(descriptor, NO_DESCRIPTOR, order, order)
            .is_ok()
    });
}

/// An address at which others may reach this host; loopback if there is none.
pub fn host_address() -> IpAddr {
    #[cfg(unix)]
    if let Some(found) = interface_addresses()
        .into_iter()
        .find(|ip| !ip.is_loopback())
    {
        return found;
    }
    IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)
}

/// The IPv4 addresses of all interfaces.
#[cfg(unix)]
fn interface_addresses() -> Vec<IpAddr> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call fills `list` or fails.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: `next` is null or an element of the list, which lives until it is freed below.
    while let Some(interface) = unsafe { next.as_ref() } {
        // SAFETY: the address is null or points to a socket address of some family.
        let family = unsafe { interface.ifa_addr.as_ref() }.map(|address| address.sa_family);
        if family == Some(libc::AF_INET as libc::sa_family_t) {
            // SAFETY: the family says that the address is one of IPv4.
            let address = unsafe { &*interface.ifa_addr.cast::<libc::sockaddr_in>() };
            let bits = u32::from_be(address.sin_addr.s_addr);
            found.push(IpAddr::V4(std::net::Ipv4Addr::from_bits(bits)));
        }
        next = interface.ifa_next;
    }
    // SAFETY: the list came from `getifaddrs` and nothing refers to it after this.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// Identifies this boot of the machine, in 16 bytes. Zeros if the system does not say.
pub fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).map_or([0; 16], u128::to_be_bytes)
}

/// Identity of a file. `None` before Linux 6.8, which reuses mount numbers, and on file systems
/// that do not record when an inode was created.
pub fn identity(path: &Path) -> Option<Identity> {
    #[cfg(all(target_os = "linux", any(target_env = "gnu", target_env = "musl")))]
    {
        use std::os::unix::ffi::OsStrExt;
        const NEEDED: u32 = libc::STATX_INO | libc::STATX_BTIME | libc::STATX_MNT_ID_UNIQUE;
        let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
        let mut found = std::mem::MaybeUninit::<libc::statx>::zeroed();
        // Called by number: C libraries before 2018 have no wrapper.
        // SAFETY: the path ends in a zero byte and the result has room for what the call writes;
        // both outlive the call.
        let done = unsafe {
            libc::syscall(
                libc::SYS_statx,
                libc::AT_FDCWD,
                path.as_ptr(),
                libc::AT_SYMLINK_NOFOLLOW,
                NEEDED | libc::STATX_SUBVOL,
                found.as_mut_ptr(),
            )
        };
        // SAFETY: the structure is plain integers and was zeroed before the call.
        let found = unsafe { found.assume_init() };
        if done != 0 || found.stx_mask & NEEDED != NEEDED {
            return None;
        }
        let (born, has_subvolume) = (found.stx_btime, found.stx_mask & libc::STATX_SUBVOL != 0);
        let born_s = u64::try_from(born.tv_sec).unwrap_or(0);
        Some(Identity {
            mount: found.stx_mnt_id,
            device: u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor),
            subvolume: if has_subvolume { found.stx_subvol } else { 0 },
            inode: found.stx_ino,
            born_ns: born_s.wrapping_mul(1_000_000_000) + u64::from(born.tv_nsec),
        })
    }
    #[cfg(not(all(target_os = "linux", any(target_env = "gnu", target_env = "musl"))))]
    {
        let _ = path;
        None
    }
}
