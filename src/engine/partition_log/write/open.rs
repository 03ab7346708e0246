//! Opening a directory for writing.
//!
//! ```text
//!   may it be opened? --> lock --> the mark of a clean stop goes, durably
//!   --> each partition is opened --> the durable ends are saved --> mark of Forebay
//! ```
//!
//! Nothing else is written before the mark of a clean stop is gone.

use super::begin::{Opened, begin};
use super::ends::Ends;
use super::gone::Gone;
use super::linger::OpenBatches;
use super::parts::Parts;
use super::permit::permit;
use super::rules;
use super::services::Services;
use super::shared;
use super::tail::Tail;
use crate::disk::FileLock;
use crate::engine::directory::member::groups::Groups;
use crate::engine::directory::writer;
use crate::engine::partition_log::segments::names::LOCK;
use crate::engine::service::append_lock::AppendLock;
use crate::engine::service::condition::Condition;
use crate::engine::{Recovery, RepairStep, Report, Topic, Topics};
use crate::error::{At, Op, Result};
use crate::machine::{Drive, Machine};
use crate::mapped::{Allocator, Preparation};
use crate::meter::FlushMeter;
use crate::options::Options;
use crate::record::kafka::Codec;
use crate::sync::Mutex;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

/// About how many bytes a batch of one record has besides its body.
const RECORD_OVERHEAD: usize = 1024;
/// If there are more queues, they are not checked for readiness: the check would take too long.
const READY_QUEUES_MAX: usize = 32;

/// A directory that is open for writing.
pub struct Writer {
    /// Appends and syncs.
    pub parts: Arc<Parts>,
    /// The thread.
    pub services: Arc<Services>,
    /// The batches of messages that linger, if they do.
    pub open_batches: Option<Arc<OpenBatches>>,
    /// The options in effect.
    pub options: Options,
    /// Times in ms at which the store was opened and written before, as far as they are known.
    pub known_times: Vec<i64>,
    /// What opening has written again because it was damaged.
    pub mended: Mutex<Vec<RepairStep>>,
    /// What consumers of this process need of the others that share the store.
    pub groups: Option<Arc<Groups>>,
    /// The thread that watches the process that leads them.
    pub(super) watcher: Mutex<Option<JoinHandle<()>>>,
    lock: Mutex<Option<FileLock>>,
    /// Topics that lack partitions: a process died while it created them, or another broker has
    /// them. Held while partitions are created, in a store of one process.
    pub(super) incomplete: Mutex<HashSet<String>>,
    /// Whether there are any.
    pub(super) has_incomplete: AtomicBool,
}

/// Is called with the topic, number and ends of a partition that was created.
pub type Add<'a> = dyn FnMut(&Arc<Topic>, u32, Arc<Ends>) + 'a;

impl Writer {
    /// Opens the directory at `root` for writing, with its topics and partitions.
    ///
    /// # Errors
    ///
    /// [`Exists`], [`Foreign`], [`NotAStore`], [`Locked`]; [`Unsupported`] for an unfinished
    /// compaction; those of the disk.
    ///
    /// [`Exists`]: crate::Error::Exists
    /// [`Foreign`]: crate::Error::Foreign
    /// [`NotAStore`]: crate::Error::NotAStore
    /// [`Locked`]: crate::Error::Locked
    /// [`Unsupported`]: crate::Error::Unsupported
    pub fn open(
        machine: &Machine,
        root: &Path,
        options: &Options,
        (topics, report, news): (&Topics, &Report, &Arc<Condition>),
    ) -> Result<(Writer, Vec<Opened>, Recovery)> {
        rules::check(options)?;
        let disk = &machine.disk;
        let maker = permit(&**disk, root, options)?;
        writer::make_directory(&**disk, root, maker)?;
        let lock = writer::lock(&**disk, root, LOCK, options.lock_timeout)?;
        // Under the lock: another process may have made a store here, and died, before this one
        // had it.
        let maker = permit(&**disk, root, options)?;
        // Processes that shared the directory may have died, and left page and table.
        shared::forget(&**disk, root)?;
        let mut tail = Tail::default();
        let with = (machine, options, maker);
        let begun = begin(with, root, (topics, report), &mut tail)?;
        let opened = begun.opened;
        let key = |it: &Opened| (Arc::from(&*it.topic.name), it.queue);
        let all = opened.iter().map(|it| (key(it), Arc::clone(&it.ends)));
        let tail = AppendLock::new(tail, options.append_lock, Arc::clone(&machine.clock));
        let mut parts = Parts::new(
            (root, disk, &machine.clock),
            (begun.rules, begun.seed),
            (tail, all.collect()),
            (Arc::clone(news), FlushMeter::new(&report.warnings), None),
        );
        parts.gone = begun.gone;
        if !parts.rules.sync {
            let allocator = Allocator::new(machine, Preparation::default(), &report.warnings);
            parts.allocator = Some(allocator);
        }
        let parts = Arc::new(parts);
        let options = &begun.options;
        let mut writer = Writer::assemble(parts, options, machine.drive, &opened);
        (writer.known_times, writer.lock) = (begun.known_times, Mutex::new(Some(lock)));
        writer.mended = Mutex::new(begun.mended);
        if machine.drive == Drive::Threads
            && let Err(error) = writer.start()
        {
            // The threads that did start must not go on without the lock.
            let _ = writer.close();
            return Err(error);
        }
        Ok((writer, opened, begun.recovery))
    }

    /// A writer without locks, whose threads do not run yet.
    pub(super) fn assemble(
        parts: Arc<Parts>,
        options: &Options,
        drive: Drive,
        opened: &[Opened],
    ) -> Writer {
        let incomplete = incomplete(opened, &parts.gone);
        let services = Arc::new(Services::new(options, drive));
        Writer {
            open_batches: OpenBatches::new(options, &parts, &services.group),
            parts,
            services,
            options: options.clone(),
            known_times: Vec::new(),
            mended: Mutex::default(),
            groups: None,
            watcher: Mutex::default(),
            lock: Mutex::default(),
            has_incomplete: AtomicBool::new(!incomplete.is_empty()),
            incomplete: Mutex::new(incomplete),
        }
    }

    /// Starts the threads.
    pub(super) fn start(&self) -> Result<()> {
        let parts = &self.parts;
        let started = self.services.start(parts);
        let open_batches = self.open_batches.as_ref();
        let started = started.and_then(|()| open_batches.map_or(Ok(()), OpenBatches::start));
        started.at(Op::StartThreads, &parts.root)
    }

    /// Whether a record of about `len` bytes can probably be appended to each of these queues at
    /// once.
    pub fn is_ready_for<'a>(
        &self,
        queues: impl Iterator<Item = Option<&'a Ends>>,
        len: usize,
    ) -> bool {
        // A sender packs its batch itself, and appends what lingers in its queue.
        if self.parts.rules.form.codec != Codec::None || self.open_batches.is_some() {
            return false;
        }
        let len = (len + RECORD_OVERHEAD) as u64;
        let mut queues = queues.take(READY_QUEUES_MAX + 1);
        let mut count = 0;
        let are_ready = queues.all(|ends| {
            count += 1;
            ends.is_some_and(|ends| ends.ready() >= len)
        });
        are_ready && (1..=READY_QUEUES_MAX).contains(&count) && !self.parts.tail.is_locked()
    }

    /// Closes the directory. Unless an error is returned, everything is durable, and the clean stop
    /// is marked. A second call does nothing.
    pub fn close(&self) -> Result<()> {
        if let Some(shared) = &self.parts.shared {
            return self.leave(shared);
        }
        let appended = self.open_batches.as_ref().map_or(Ok(()), |it| it.end());
        {
            let _tail = self.parts.tail.lock();
            if !self.parts.health.close() {
                return Ok(());
            }
        }
        // Nothing may be created after another process may have opened the directory.
        drop(self.incomplete.lock());
        self.services.end();
        if let Some(allocator) = &self.parts.allocator {
            // It must not fault in pages of files that are cut to their contents.
            allocator.stop();
        }
        self.parts.news.notify();
        let done = self.parts.finish();
        self.parts.folders.release();
        *self.lock.lock() = None;
        done.and(appended)
    }
}

/// The topics without some of their partitions.
fn incomplete(opened: &[Opened], gone: &Gone) -> HashSet<String> {
    let mut counts: HashMap<u32, (u32, &Arc<Topic>)> = HashMap::new();
    for it in opened {
        counts.entry(it.topic.id).or_insert((0, &it.topic)).0 += 1;
    }
    let counts = counts.into_values();
    let of = |topic: &Topic| gone.queues_of(&topic.name, topic.write_queues());
    let lacking = counts.filter(|(count, topic)| *count < of(topic));
    lacking.map(|(_, topic)| topic.name.to_string()).collect()
}
