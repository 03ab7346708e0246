//! A store on its way to being open: what its files say, before the log is walked.

use super::geometry;
use crate::disk::{self, Disk};
use crate::engine::commit_log::index::Index;
use crate::engine::commit_log::queues::Queues;
use crate::engine::commit_log::queues::queue::QueueStore;
use crate::engine::commit_log::tables::topics::TopicTable;
use crate::engine::directory::names;
use crate::engine::directory::page::{Cache, Geometry, StatePage};
use crate::engine::report::Report;
use crate::engine::{Damage, DamageKind, Recovery, Topics};
use crate::error::Result;
use crate::machine::Machine;
use crate::mapped::queue::{FoundFile, file_name};
use crate::options::Options;
use crate::record::HostBytes;
use crate::region::Access;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A store on its way to being open.
pub struct Opening<'a> {
    pub machine: &'a Machine,
    pub disk: Arc<dyn Disk>,
    pub root: &'a Path,
    pub options: &'a Options,
    pub access: Access,
    pub files: Vec<FoundFile>,
    pub geometry: Geometry,
    pub state: Arc<StatePage>,
    /// What became of the page cache of the last life.
    pub cache: Cache,
    pub topics: Arc<Topics>,
    pub queues: Arc<Queues>,
    pub index: Option<Arc<Index>>,
    pub report: Arc<Report>,
    pub table: TopicTable,
    pub recovery: Recovery,
    /// Whether nobody has written to the log since a writer of ours closed it.
    pub untouched_since_close: bool,
    /// Up to where the log was durable before it was opened.
    pub durable: u64,
    pub last_store_ms: i64,
    pub unindexed: Range<u64>,
}

impl<'a> Opening<'a> {
    /// Loads what the files say by their names and the small tables.
    pub fn new(
        machine: &'a Machine,
        root: &'a Path,
        options: &'a Options,
        access: Access,
        state: Option<StatePage>,
    ) -> Result<Opening<'a>> {
        let disk = &machine.disk;
        let mut files = geometry::log_files(&**disk, root, state.is_some())?;
        let geometry = geometry::geometry(&**disk, root, state.as_ref(), &files, options)?;
        let report = Arc::new(Report::default());
        files.retain(|file| {
            let fits = file.start % geometry.log_file_len == 0;
            if !fits {
                report.add(misplaced(root, file));
            }
            fits
        });
        let topics = Arc::new(Topics::default());
        let table = TopicTable::load(&**disk, root, &topics)?;
        let store = QueueStore {
            disk: Arc::clone(disk),
            directory: root.join(names::QUEUES),
            file_entries: geometry.queue_file_entries,
            access,
            spill: crate::mapped::spill::Spill::default(),
            mapped: AtomicU64::new(0),
        };
        let index = options.index().then(|| {
            let sizes = (geometry.index_slots, geometry.index_entries);
            Arc::new(Index::new(disk, root.join(names::INDEX), sizes, access))
        });
        let state = match (state, access) {
            (Some(state), _) => state,
            (None, Access::Read) => StatePage::in_memory()?,
            (None, Access::ReadWrite) => StatePage::create(&**disk, root)?,
        };
        Ok(Opening {
            machine,
            disk: Arc::clone(disk),
            root,
            options,
            access,
            files,
            geometry,
            cache: state.cache(),
            state: Arc::new(state),
            topics,
            queues: Arc::new(Queues::new(Arc::new(store))),
            index,
            report,
            table,
            recovery: Recovery::default(),
            untouched_since_close: false,
            durable: 0,
            last_store_ms: 0,
            unindexed: 0..0,
        })
    }

    /// The host that records carry: the option's, the one kept from creation, this machine's.
    pub fn host(&self) -> HostBytes {
        let given = self.options.store_host.map(HostBytes::new);
        given
            .or_else(|| self.state.host())
            .unwrap_or_else(|| HostBytes::new(SocketAddr::new(disk::host_address(), 0)))
    }
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
