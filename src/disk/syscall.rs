//! System calls that the standard library does not offer. With `byte_lock.rs` and `process.rs`, the
//! only `unsafe` code of the disk.
//!
//! On Linux each function is the call itself; on other systems it is the closest safe equivalent.

// The casts convert small constants between the widths that the C structures use.
#![allow(
    unsafe_code,
    clippy::cast_possible_truncation,
    clippy::unnecessary_cast
)]

pub use super::byte_lock::{
    ByteLock, Holder, holder_of_byte_zero, is_byte_locked, lock_byte, lock_byte_zero, unlock_all,
    unlock_byte_zero,
};
pub use super::process::{
    coarse_ms, forget_descriptor, fork_generation, host_address, now_ns, steady_ms, thread_time,
    watch_descriptor, watch_forks,
};

use super::Identity;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

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
