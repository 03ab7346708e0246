//! A file system that can be made durable as a whole.

use super::syscall;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A file system that reports write errors reliably. Its sync reports every write error since this
/// was opened, even one that the sync of another process has already reported.
#[derive(Debug)]
pub struct Volume {
    path: PathBuf,
    /// The descriptor that remembers which errors were reported; `None` if the file system is
    /// simulated.
    held: Option<File>,
}

impl Volume {
    /// The file system of a directory; `None` unless its sync is known to store everything and to
    /// report all errors.
    pub fn open(path: &Path) -> io::Result<Option<Volume>> {
        let file = File::open(path)?;
        Ok(reports_errors(&file)?.then(|| Volume {
            path: path.to_owned(),
            held: Some(file),
        }))
    }

    /// A simulated file system.
    #[cfg(test)]
    pub fn simulated(path: &Path) -> Volume {
        Volume {
            path: path.to_owned(),
            held: None,
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes everything on it durable.
    pub fn sync(&self) -> io::Result<()> {
        match &self.held {
            Some(file) => syscall::sync_file_system(file),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Whether the sync of a file system is known to report all errors: the kernel must pass them on,
/// and the file system must be one of those that do.
fn reports_errors(file: &File) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    {
        const KNOWN: [u64; 5] = [
            libc::EXT4_SUPER_MAGIC as u64,
            libc::XFS_SUPER_MAGIC as u64,
            libc::BTRFS_SUPER_MAGIC as u64,
            libc::F2FS_SUPER_MAGIC as u64,
            libc::TMPFS_MAGIC as u64,
        ];
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
        Ok(passes_errors_on(&release) && KNOWN.contains(&syscall::magic(file)?))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        Ok(false)
    }
}

/// Whether `syncfs` of a kernel returns the errors of writing pages (since 5.8), and those of the
/// file system's own sync (since 5.17).
#[cfg(target_os = "linux")]
fn passes_errors_on(release: &str) -> bool {
    let mut numbers = release.split(|it: char| !it.is_ascii_digit());
    let mut next = || numbers.next().and_then(|it| it.parse::<u32>().ok());
    match (next(), next()) {
        (Some(major), Some(minor)) => (major, minor) >= (5, 17),
        _ => false,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod test {
    use super::*;

    #[test]
    fn kernels_that_keep_errors_to_themselves_are_known() {
        for release in ["5.17.0", "5.100", "6.1-rc2", "6.18.44-fc-v595\n"] {
            assert!(passes_errors_on(release), "{release}");
        }
        for release in ["", "6", "4.18.0-553.el8", "5.7.19", "5.16.20", "a.b"] {
            assert!(!passes_errors_on(release), "{release}");
        }
    }
}
