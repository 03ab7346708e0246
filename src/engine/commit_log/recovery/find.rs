//! What is found before the log is walked: who may open the store, its files, and the small tables.
//!
//! In a store of Forebay nothing is changed yet. A new store durably gets its directory, and a
//! store without a state page durably gets one, because a store is recognised by it.

use super::geometry;
use crate::disk::copying::CopyingDisk;
use crate::disk::{self, Disk, FileLock, Holder};
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::tables::topics::TopicTable;
use crate::engine::directory::geometry::Geometry;
use crate::engine::directory::kept_options::Kept;
use crate::engine::directory::names;
use crate::engine::directory::page::{Cache, StatePage};
use crate::engine::directory::recognise::Maker;
use crate::engine::directory::writer;
use crate::engine::report::Report;
use crate::engine::{Damage, DamageKind, Topics};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::mapped::queue::{FoundFile, file_name};
use crate::options::{EngineKind, Mode, Options};
use crate::record::HostBytes;
use crate::region::Access;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A store that may be opened, and the contents of its small files.
pub struct Found {
    /// The machine. For a store that another system is writing, its disk copies files instead of
    /// mapping them.
    pub machine: Machine,
    /// The store's directory.
    pub root: PathBuf,
    /// The options in effect.
    pub options: Options,
    /// Whether the store is opened for writing.
    pub access: Access,
    /// Whether another Forebay process writes it, so that its marks can be followed.
    pub is_live: bool,
    /// Epoch of the state page, if the store has one and nobody writes it.
    pub epoch: Option<u64>,
    /// Files of the log with a valid start.
    pub files: Vec<FoundFile>,
    /// Sizes of the files.
    pub geometry: Geometry,
    /// The state page; in memory for a reader of a store without one.
    pub state: Arc<StatePage>,
    /// State of the page cache that the last writer used.
    pub cache: Cache,
    /// The topics of the table. The walk adds topics that have queues.
    pub topics: Arc<Topics>,
    /// `topics.json`.
    pub table: TopicTable,
    /// Where damage is reported.
    pub report: Arc<Report>,
    /// The saved options, if the store is writable.
    pub kept: Option<Kept>,
    /// The lock, if the store is writable. As the last field it is dropped last.
    pub lock: Option<FileLock>,
}

impl Found {
    /// The disk.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.machine.disk
    }

    /// First position of the log.
    pub fn min_position(&self) -> u64 {
        self.files.first().map_or(0, |file| file.start)
    }

    /// End of the log's last file.
    pub fn files_end(&self) -> u64 {
        self.files.last().map_or(0, |file| file.start + file.len)
    }

    /// The host in new records: from the options, else from the state page, else this machine's
    /// address.
    pub fn host(&self) -> HostBytes {
        let given = self.options.store_host.map(HostBytes::new);
        given
            .or_else(|| self.state.host())
            .unwrap_or_else(|| HostBytes::new(SocketAddr::new(disk::host_address(), 0)))
    }
}

/// Finds the store at `root` and checks that the options allow opening it.
///
/// # Errors
///
/// Those of [`writer::permit`] and [`writer::lock`]; [`Error::Unsupported`] for layouts that cannot
/// be opened in this mode, [`Error::InvalidOption`] if an option contradicts the files.
pub fn find(machine: &Machine, root: &Path, options: &Options) -> Result<Found> {
    let maker = writer::permit(&*machine.disk, root, options)?;
    match options.mode {
        Mode::Read => find_to_read(machine, root, options),
        Mode::Append | Mode::Create | Mode::Share => find_to_write(machine, root, options, maker),
    }
}

fn find_to_write(machine: &Machine, root: &Path, options: &Options, maker: Maker) -> Result<Found> {
    let disk = &*machine.disk;
    prepare(disk, root, maker)?;
    // A process that shares the store has its locks already.
    let lock = match options.mode {
        Mode::Share => None,
        _ => Some(writer::lock(disk, root, names::LOCK, options.lock_timeout)?),
    };
    // Checked again, because another process may have created, written and closed the store before
    // the lock was taken.
    writer::permit(disk, root, options)?;
    let state = StatePage::open(disk, root, Access::ReadWrite)?;
    let kept = Kept::load(disk, root, options, EngineKind::CommitLog)?;
    let options = kept.options.clone();
    let found = load(machine.clone(), root, options, Access::ReadWrite, state)?;
    for damage in kept.damage.iter().cloned() {
        found.report.add(damage);
    }
    Ok(Found {
        kept: Some(kept),
        lock,
        ..found
    })
}

/// Checks that a directory can be opened for writing, and creates it.
///
/// # Errors
///
/// [`Error::ReadableOnly`] for layouts that cannot be written.
pub fn prepare(disk: &dyn Disk, root: &Path, maker: Maker) -> Result<()> {
    if geometry::has_foreign_queues(disk, root)? {
        return Err(Error::ReadableOnly {
            path: root.to_owned(),
            reason: "its queues are kept in RocksDB or in batches".to_owned(),
        });
    }
    // Checked before anything is created in a directory whose log cannot be opened.
    geometry::log_files(disk, root, maker == Maker::Forebay)?;
    writer::make_directory(disk, root, maker)
}

/// Finds a store whose services another process runs; its marks can be followed.
///
/// # Errors
///
/// As [`find`].
pub fn find_beside(machine: &Machine, root: &Path, options: &Options) -> Result<Found> {
    let state = StatePage::open(&*machine.disk, root, Access::Read)?;
    let found = load(machine.clone(), root, options.clone(), Access::Read, state)?;
    Ok(Found {
        is_live: true,
        ..found
    })
}

fn find_to_read(machine: &Machine, root: &Path, options: &Options) -> Result<Found> {
    let (holder, state) = writer::await_writer(&*machine.disk, root)?;
    let is_live = holder == Holder::Forebay && state.as_ref().is_some_and(StatePage::is_written_to);
    // A running RocketMQ may truncate its files, and access to a map would then raise a signal. So
    // files are copied, not mapped.
    let mut machine = machine.clone();
    if holder != Holder::Nobody && !is_live {
        machine.disk = Arc::new(CopyingDisk);
    }
    // Before anything else is read, so that a writer that begins meanwhile is noticed.
    let epoch = state.as_ref().map(StatePage::epoch);
    let found = load(machine, root, options.clone(), Access::Read, state)?;
    Ok(Found {
        is_live,
        epoch,
        ..found
    })
}

/// Finds the store of a writer that came after the store was opened for reading; `None` if no
/// writer has begun an epoch yet. Topics keep the numbers that they have in `opened`, and damage
/// goes to its report.
///
/// # Errors
///
/// As [`find`].
pub fn find_again(
    machine: &Machine,
    root: &Path,
    options: &Options,
    opened: &Parts,
) -> Result<Option<Found>> {
    let disk = &*machine.disk;
    let state = StatePage::open(disk, root, Access::Read)?;
    let Some(state) = state.filter(|state| state.has_begun_since(0)) else {
        return Ok(None);
    };
    let found = load(
        machine.clone(),
        root,
        options.clone(),
        Access::Read,
        Some(state),
    )?;
    let topics = Arc::clone(&opened.topics);
    let table = TopicTable::load(disk, root, &topics)?;
    Ok(Some(Found {
        is_live: true,
        topics,
        table,
        report: Arc::clone(&opened.report),
        ..found
    }))
}

/// Loads the names of the files and the small tables.
fn load(
    machine: Machine,
    root: &Path,
    options: Options,
    access: Access,
    state: Option<StatePage>,
) -> Result<Found> {
    let disk = &*machine.disk;
    let mut files = geometry::log_files(disk, root, state.is_some())?;
    let geometry = geometry::geometry(disk, root, state.as_ref(), &files, &options)?;
    let report = Arc::new(Report::default());
    files.retain(|file| {
        let fits = file.start % geometry.log_file_len == 0;
        if !fits {
            report.add(misplaced(root, file));
        }
        fits
    });
    let topics = Arc::new(Topics::default());
    let table = TopicTable::load(disk, root, &topics)?;
    let state = match (state, access) {
        (Some(state), _) => state,
        (None, Access::Read) => StatePage::in_memory()?,
        (None, Access::ReadWrite) => StatePage::create(disk, root)?,
    };
    let state = match (options.mode, access) {
        (Mode::Share, Access::ReadWrite) => state.shared(),
        _ => state,
    };
    Ok(Found {
        root: root.to_owned(),
        options,
        access,
        is_live: false,
        epoch: None,
        files,
        geometry,
        cache: state.cache(),
        state: Arc::new(state),
        topics,
        table,
        report,
        kept: None,
        lock: None,
        machine,
    })
}

/// Describes a log file whose name is not a valid start.
fn misplaced(root: &Path, file: &FoundFile) -> Damage {
    let path = root.join(names::COMMIT_LOG).join(file_name(file.start));
    let bytes = file.start..file.start.saturating_add(file.len);
    Damage::new(
        DamageKind::Log,
        path,
        bytes,
        "no file of this log can begin there",
    )
}
