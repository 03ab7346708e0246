//! How the real file system opens and creates files: not through a symbolic link at the end of
//! their path, and for their owner alone.

use super::syscall;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// How to open a file: not through a symbolic link, and without waiting.
pub fn options(read: bool, write: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(read).write(write);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // O_NONBLOCK: opening a FIFO returns at once; it has no effect on files.
        options
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    }
    options
}

/// Opens a regular file.
pub fn open(path: &Path, write: bool) -> io::Result<File> {
    open_with_len(path, write).map(|(file, _)| file)
}

/// Opens a regular file. Returns its length, too.
pub fn open_with_len(path: &Path, write: bool) -> io::Result<(File, u64)> {
    let file = options(true, write).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    Ok((file, metadata.len()))
}

/// Sets the permissions of a new file, whatever the umask is.
pub fn make_private(file: &File, mode: u32) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    #[cfg(not(unix))]
    let _ = (file, mode);
    Ok(())
}

/// Creates a file that gets its length before its name. Needs `O_TMPFILE` support and `/proc`.
pub fn create_unnamed(path: &Path, len: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        options.custom_flags(libc::O_TMPFILE);
        let file = options.open(directory(path.parent().unwrap_or(path)))?;
        make_private(&file, 0o600)?;
        file.set_len(len)?;
        syscall::give_name(&file, path)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (path, len);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A directory path for system calls: the empty path means the current directory.
pub fn directory(path: &Path) -> &Path {
    match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    }
}
