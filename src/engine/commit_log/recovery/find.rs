//! What is found before the log is walked: who may open the store, its files, the small tables.
//!
//! Nothing of a store of ours changes yet. A new one gets its directory, and one without a state
//! page gets that, durably: a store is known by it.

use super::geometry;
use crate::disk::copying::CopyingDisk;
use crate::disk::{self, Disk, FileLock, Holder};
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::tables::kept_options::Kept;
use crate::engine::commit_log::tables::topics::TopicTable;
use crate::engine::directory::names;
use crate::engine::directory::page::{Cache, Geometry, StatePage};
use crate::engine::directory::recognise::Maker;
use crate::engine::directory::writer;
use crate::engine::report::Report;
use crate::engine::{Damage, DamageKind, Topics};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::mapped::queue::{FoundFile, file_name};
use crate::options::{Mode, Options};
use crate::record::HostBytes;
use crate::region::Access;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A store that may be opened, and what its files say.
pub struct Found {
    /// The machine. A store that another system writes is read through a disk that copies.
    pub machine: Machine,
    /// The store's directory.
    pub root: PathBuf,
    /// The options that hold.
    pub options: Options,
    /// Whether the store is written.
    pub access: Access,
    /// Whether another process of ours writes it, so that its marks can be followed.
    pub is_live: bool,
    /// Of a store that has a state page and that nobody writes: the epoch of the page.
    pub epoch: Option<u64>,
    /// Files of the log that begin where a file can.
    pub files: Vec<FoundFile>,
    /// Sizes of the files.
    pub geometry: Geometry,
    /// The state page; one in memory for a reader of a store that has none.
    pub state: Arc<StatePage>,
    /// What became of the page cache of the last life.
    pub cache: Cache,
    /// The topics of the table. The walk adds those that have queues.
    pub topics: Arc<Topics>,
    /// `topics.json`.
    pub table: TopicTable,
    /// Where damage is told.
    pub report: Arc<Report>,
    /// The options that the store keeps, where it is written.
    pub kept: Option<Kept>,
    /// The lock, where the store is written. It is the last field, and so dropped last.
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

    /// The host that records carry: the option's, the one kept from creation, this machine's.
    pub fn host(&self) -> HostBytes {
        let given = self.options.store_host.map(HostBytes::new);
        given
            .or_else(|| self.state.host())
            .unwrap_or_else(|| HostBytes::new(SocketAddr::new(disk::host_address(), 0)))
    }
}

/// Finds the store at `root`, which may be opened as the options say.
///
/// # Errors
///
/// Those of [`writer::permit`] and [`writer::lock`]; [`Error::Unsupported`] for layouts that cannot
/// be opened in this mode, [`Error::InvalidOption`] where an option contradicts what is there.
pub fn find(machine: &Machine, root: &Path, options: &Options) -> Result<Found> {
    let maker = writer::permit(&*machine.disk, root, options)?;
    match options.mode {
        Mode::Read => find_to_read(machine, root, options),
        Mode::Append | Mode::Create => find_to_write(machine, root, options, maker),
    }
}

fn find_to_write(machine: &Machine, root: &Path, options: &Options, maker: Maker) -> Result<Found> {
    let disk = &*machine.disk;
    if geometry::has_foreign_queues(disk, root)? {
        let what = format!(
            "writing to {}: its queues are kept in RocksDB or in batches; mode=\"r\" reads it",
            root.display()
        );
        return Err(Error::Unsupported { what });
    }
    // Before anything is made in a directory whose log cannot be opened.
    geometry::log_files(disk, root, maker == Maker::Forebay)?;
    writer::make_directory(disk, root, maker)?;
    let lock = writer::lock(disk, root, options.lock_timeout)?;
    // Another process may have made, written and closed the store until the lock was ours.
    writer::permit(disk, root, options)?;
    let state = StatePage::open(disk, root, Access::ReadWrite)?;
    let kept = Kept::load(disk, root, options)?;
    let options = kept.options.clone();
    let found = load(machine.clone(), root, options, Access::ReadWrite, state)?;
    for damage in kept.damage.iter().cloned() {
        found.report.add(damage);
    }
    Ok(Found {
        kept: Some(kept),
        lock: Some(lock),
        ..found
    })
}

fn find_to_read(machine: &Machine, root: &Path, options: &Options) -> Result<Found> {
    let (holder, state) = writer::await_writer(&*machine.disk, root)?;
    let is_live = holder == Holder::Forebay && state.as_ref().is_some_and(StatePage::is_written_to);
    // A live RocketMQ may truncate its files, which a map would answer with a signal: copy instead.
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

/// Finds the store of a writer that came after the store was opened for reading; `None` where no
/// writer has begun an epoch yet. Topics keep the numbers that `opened` gave them, and damage is
/// reported where it was.
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

/// Loads what the files say by their names and the small tables.
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

/// A file whose name says that it begins where no file can.
fn misplaced(root: &Path, file: &FoundFile) -> Damage {
    let path = root.join(names::COMMIT_LOG).join(file_name(file.start));
    let bytes = file.start..file.start.saturating_add(file.len);
    Damage::new(
        DamageKind::Log,
        path,
        bytes,
        "no file of this log begins there",
    )
}
