//! A store on its way to being open: what its files say, before the log is walked.

use super::consume_queue::QueueStore;
use super::index::Index;
use super::layout;
use super::queues::Queues;
use super::report::Report;
use super::state::{Cache, Geometry, StatePage};
use super::topic_table::TopicTable;
use crate::disk::{self, Disk};
use crate::engine::directory::names;
use crate::engine::{Damage, DamageKind, Recovery, Topics};
use crate::error::Result;
use crate::machine::Machine;
use crate::mapped::Access;
use crate::mapped::queue::FoundFile;
use crate::options::Options;
use crate::record::HostBytes;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A store on its way to being open.
pub(super) struct Opening<'a> {
    pub(super) machine: &'a Machine,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) root: &'a Path,
    pub(super) options: &'a Options,
    pub(super) access: Access,
    pub(super) files: Vec<FoundFile>,
    pub(super) geometry: Geometry,
    pub(super) state: Arc<StatePage>,
    /// What became of the page cache of the last life.
    pub(super) cache: Cache,
    pub(super) topics: Arc<Topics>,
    pub(super) queues: Arc<Queues>,
    pub(super) index: Option<Arc<Index>>,
    pub(super) report: Arc<Report>,
    pub(super) table: TopicTable,
    pub(super) recovery: Recovery,
    /// Whether nobody has written to the log since a writer of ours closed it.
    pub(super) untouched_since_close: bool,
    /// Up to where the log was durable before it was opened.
    pub(super) durable: u64,
    pub(super) last_store_ms: i64,
    pub(super) unindexed: Range<u64>,
}

impl<'a> Opening<'a> {
    /// Loads what the files say by their names and the small tables.
    pub(super) fn new(
        machine: &'a Machine,
        root: &'a Path,
        options: &'a Options,
        access: Access,
        state: Option<StatePage>,
    ) -> Result<Opening<'a>> {
        let disk = &machine.disk;
        let mut files = layout::log_files(&**disk, root, state.is_some())?;
        let geometry = layout::geometry(&**disk, root, state.as_ref(), &files, options)?;
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
            spill: super::spill::Spill::default(),
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
    pub(super) fn host(&self) -> HostBytes {
        let given = self.options.store_host.map(HostBytes::new);
        given
            .or_else(|| self.state.host())
            .unwrap_or_else(|| HostBytes::new(SocketAddr::new(disk::host_address(), 0)))
    }
}

/// A file whose name says that it begins where no file can.
fn misplaced(root: &Path, file: &FoundFile) -> Damage {
    Damage {
        kind: DamageKind::Log,
        path: root
            .join(names::COMMIT_LOG)
            .join(crate::mapped::queue::file_name(file.start)),
        position: file.start,
        length: file.len,
        reason: "no file of this log begins there".to_owned(),
        lost: Vec::new(),
    }
}
