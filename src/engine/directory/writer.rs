//! Permission to open a store, and the lock of the one process that writes it.
//!
//! A writer locks byte 0 of the file `lock`. The lock ends with its process. A reader takes no
//! lock. It asks who holds the lock, and follows a writer that is Forebay.

use super::names;
use super::page::StatePage;
use super::recognise::{Maker, recognise};
use crate::disk::{Disk, FileLock, Holder, LockState, SIGNATURE_LEN_MAX, signer};
use crate::error::{Error, Result};
use crate::options::{Mode, Options};
use crate::region::Access;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a reader waits for a writer that is opening the store.
const WRITER_OPENS_MAX: Duration = Duration::from_secs(2);

/// Pause between attempts to take the lock.
const LOCK_RETRY: Duration = Duration::from_millis(10);

/// Finds out who created the store at `root`, and whether the options allow opening it.
///
/// # Errors
///
/// [`Error::NotFound`] if there is nothing to read, [`Error::Exists`] if a store is to be created
/// and one exists, [`Error::Foreign`] for another system's store without permission to adopt it;
/// those of [`recognise`].
pub fn permit(disk: &dyn Disk, root: &Path, options: &Options) -> Result<Maker> {
    let path = || root.to_owned();
    match (options.mode, recognise(disk, root)?) {
        (Mode::Read, Maker::Nobody) => Err(Error::NotFound { path: path() }),
        (Mode::Create, Maker::Forebay | Maker::Other) => Err(Error::Exists { path: path() }),
        (Mode::Append | Mode::Share, Maker::Other) if !options.adopt => {
            Err(Error::Foreign { path: path() })
        }
        (_, maker) => Ok(maker),
    }
}

/// Takes the writer's lock, on the file `name`. The directory must exist. Waits up to `timeout`
/// while another process holds it, and tries again at intervals: no call of the kernel waits for
/// such a lock with a time limit.
///
/// # Errors
///
/// [`Error::Locked`] if another process still holds it after `timeout`.
pub fn lock(disk: &dyn Disk, root: &Path, name: &str, timeout: Duration) -> Result<FileLock> {
    let began = Instant::now();
    let path = root.join(name);
    loop {
        if let LockState::Held(lock) = disk.lock(&path)? {
            if name != names::LOCK {
                // The process id is stored in the file, which a broker locks but neither reads nor
                // writes. If the disk is full, the process stays unnamed.
                let _ = lock.sign();
            }
            return Ok(lock);
        }
        let left = timeout.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(locked(disk, root, name)?);
        }
        std::thread::sleep(left.min(LOCK_RETRY));
    }
}

/// Waits up to `timeout` while a broker holds the lock of a partition log, which covers the bytes
/// that processes lock to share it.
///
/// # Errors
///
/// [`Error::Locked`] if the broker still holds it then.
pub fn await_broker(disk: &dyn Disk, root: &Path, timeout: Duration) -> Result<()> {
    let began = Instant::now();
    while let Holder::Other(_) = disk.probe(&root.join(names::BROKER_LOCK))? {
        let left = timeout.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(locked(disk, root, names::BROKER_LOCK)?);
        }
        std::thread::sleep(left.min(LOCK_RETRY));
    }
    Ok(())
}

/// Fails if a process writes the store.
///
/// # Errors
///
/// [`Error::Locked`].
pub fn check_unwritten(disk: &dyn Disk, root: &Path) -> Result<()> {
    match holder(disk, root)? {
        Holder::Nobody => Ok(()),
        _ => Err(locked(disk, root, names::LOCK)?),
    }
}

/// The error for a store that another process writes.
fn locked(disk: &dyn Disk, root: &Path, name: &str) -> Result<Error> {
    let holder = disk.probe(&root.join(name))?;
    Ok(Error::Locked {
        path: root.to_owned(),
        pid: pid_of(disk, root, name, holder)?,
        shareable: !matches!(holder, Holder::Other(_)),
    })
}

/// The process that holds the writer's lock on the file `name`, as far as it is known.
///
/// # Errors
///
/// Those of reading.
pub fn pid_of_writer(disk: &dyn Disk, root: &Path, name: &str) -> Result<Option<u32>> {
    let holder = disk.probe(&root.join(name))?;
    pid_of(disk, root, name, holder)
}

/// The process of a holder. The kernel knows that of RocketMQ and Kafka, but not that of Forebay,
/// whose lock belongs to an open file: Forebay writes it to the state page, or without one to the
/// file.
fn pid_of(disk: &dyn Disk, root: &Path, name: &str, holder: Holder) -> Result<Option<u32>> {
    match holder {
        Holder::Other(pid) => Ok(Some(pid).filter(|pid| *pid != 0)),
        _ if name == names::LOCK => {
            let state = StatePage::open(disk, root, Access::Read)?;
            Ok(state.and_then(|state| state.pid()))
        }
        Holder::Nobody => Ok(None),
        Holder::Forebay => {
            // Processes that share a partition log have a page.
            let page = StatePage::open_marks(disk, &root.join(names::SHARED), Access::Read)?;
            if let Some(page) = page.filter(StatePage::is_written_to) {
                return Ok(page.pid());
            }
            let mut start = [0; SIGNATURE_LEN_MAX];
            let len = disk.read_at(&root.join(name), 0, &mut start)?;
            Ok(signer(start.get(..len).unwrap_or_default()))
        }
    }
}

fn holder(disk: &dyn Disk, root: &Path) -> Result<Holder> {
    let path = root.join(names::LOCK);
    disk.probe(&path)
}

/// The holder of the lock, and the state page. Waits a moment for a Forebay writer that is still
/// opening the store: once it writes, its marks can be followed.
pub fn await_writer(disk: &dyn Disk, root: &Path) -> Result<(Holder, Option<StatePage>)> {
    let deadline = Instant::now() + WRITER_OPENS_MAX;
    loop {
        let holder = holder(disk, root)?;
        let state = StatePage::open(disk, root, Access::Read)?;
        let ready = state.as_ref().is_some_and(StatePage::is_written_to);
        if holder != Holder::Forebay || ready || Instant::now() > deadline {
            return Ok((holder, state));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Creates the directory of a store. For a new store, also makes the path to it durable.
pub fn make_directory(disk: &dyn Disk, root: &Path, maker: Maker) -> Result<()> {
    disk.create_directory(root)?;
    match maker {
        Maker::Nobody => sync_path(disk, root),
        Maker::Forebay | Maker::Other => Ok(()),
    }
}

/// Makes the path to the directory of a new store durable. The directories above may have been
/// created by a process that died before it synced them, so all are synced.
fn sync_path(disk: &dyn Disk, root: &Path) -> Result<()> {
    for above in root.ancestors().skip(1) {
        match disk.sync_directory(above) {
            // The file system does not support syncing a directory.
            Err(error) if cannot_be_synced(&error) => break,
            Err(error) if is_forbidden(&error) => {
                return sync_names(disk, root);
            }
            synced => synced?,
        }
    }
    Ok(())
}

/// Makes the name of the directory durable. `state` is the page of the store.
pub fn sync_name(disk: &dyn Disk, root: &Path, state: &StatePage) -> Result<()> {
    let Some(parent) = root.parent() else {
        return Ok(());
    };
    match disk.sync_directory(parent) {
        // The name of a store that was opened before was made durable then.
        Err(error) if is_forbidden(&error) && state.epoch() > 0 => Ok(()),
        Err(error) if is_forbidden(&error) => sync_names(disk, root),
        synced => synced,
    }
}

/// Makes the path of the store durable if a directory above it cannot be opened for reading, which
/// syncing it requires.
fn sync_names(disk: &dyn Disk, root: &Path) -> Result<()> {
    match disk.sync_file_system(root) {
        Err(error) if cannot_be_synced(&error) => Ok(()),
        synced => synced,
    }
}

fn is_forbidden(error: &Error) -> bool {
    error.kind() == Some(ErrorKind::PermissionDenied)
}

fn cannot_be_synced(error: &Error) -> bool {
    matches!(
        error.kind(),
        Some(ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::ReadOnlyFilesystem)
    )
}
