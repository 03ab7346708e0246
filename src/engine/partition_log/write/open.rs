//! Opening a directory for writing.
//!
//! ```text
//!   may it be opened? --> lock --> the mark of a clean stop goes, durably
//!   --> each partition is opened --> the durable ends are saved --> mark of Forebay
//! ```
//!
//! Nothing else is written before the mark of a clean stop is gone.

use super::ends::{End, Ends};
use super::files::{self, Checkpoint, RECOVERY_POINT};
use super::gone::{self, Gone};
use super::intent;
use super::linger::OpenBatches;
use super::opening::{Known, Opening};
use super::parts::Parts;
use super::recovery::Recovered;
use super::restore::restore_missing;
use super::room::cut_room;
use super::rules::{self, Rules};
use super::services::Services;
use super::shared;
use super::tables;
use super::tail::Tail;
use super::writing::Start;
use crate::disk::{Disk, FileLock, Kind};
use crate::engine::directory::kept_options::Kept;
use crate::engine::directory::member::groups::Groups;
use crate::engine::directory::names::SHARED;
use crate::engine::directory::recognise::Maker;
use crate::engine::directory::writer;
use crate::engine::partition_log::segments::names::{self, CLEAN, LOCK, LOG_START};
use crate::engine::service::append_lock::AppendLock;
use crate::engine::service::condition::Condition;
use crate::engine::topic::initial_queues;
use crate::engine::{Damage, DamageKind, Recovery, RepairStep, Report, Topic, Topics};
use crate::error::{At, Error, Op, Result};
use crate::machine::{Drive, Machine};
use crate::meter::FlushMeter;
use crate::options::{EngineKind, Mode, Options};
use crate::plant::{Bug, planted};
use crate::record::kafka::Codec;
use crate::sync::Mutex;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// About the bytes of a batch beside the body of its record.
const RECORD_OVERHEAD: usize = 1024;
/// If a topic lacks more queues than this, and many more than it has, they are not made unless a
/// call asks for them: one folder with a high number would become thousands.
const LACKING_MAX: usize = 1024;
/// How many times as many as it has.
const LACKING_RATIO: usize = 16;
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
    has_incomplete: AtomicBool,
}

/// A partition that opening found.
pub struct Opened {
    /// The topic.
    pub topic: Arc<Topic>,
    /// Its number in the topic.
    pub queue: u32,
    /// Where it begins and ends.
    pub ends: Arc<Ends>,
}

/// Is called with the topic, number and ends of a partition that was created.
pub type Add<'a> = dyn FnMut(&Arc<Topic>, u32, Arc<Ends>) + 'a;

/// Whether a directory may be opened for writing, and who made it. Nobody, as far as that can be
/// known without the lock: another process may make a store of it at any moment.
pub(super) fn permit(disk: &dyn Disk, root: &Path, options: &Options) -> Result<Maker> {
    let path = || root.to_owned();
    let is_own = || Ok::<bool, Error>(files::read_seed(disk, root)?.is_some());
    let maker = match disk.stat(root)? {
        None => Maker::Nobody,
        Some(entry) if entry.kind != Kind::Directory => {
            return Err(Error::NotAStore {
                path: path(),
                reason: "it is not a directory".to_owned(),
            });
        }
        Some(_) if is_own()? => Maker::Forebay,
        Some(_) => {
            let is_log = names::is_log_directory(disk, root)?;
            if !is_log && disk.list(root)?.iter().all(is_beginning) {
                Maker::Nobody
            } else if is_own()? {
                // The seed is the first file of a store: another process has made these since.
                Maker::Forebay
            } else if is_log {
                Maker::Other
            } else {
                return Err(Error::NotAStore {
                    path: path(),
                    reason: "it has other files, and no folder of a partition".to_owned(),
                });
            }
        }
    };
    match (options.mode, maker) {
        (Mode::Create, Maker::Forebay | Maker::Other) => Err(Error::Exists { path: path() }),
        (_, Maker::Other) if !options.adopt => Err(Error::Foreign { path: path() }),
        _ => Ok(maker),
    }
}

/// Removes the mark of a clean stop, durably. Returns whether there was one.
fn take_clean_mark(disk: &dyn Disk, root: &Path) -> Result<bool> {
    let clean = root.join(CLEAN);
    let is_clean = disk.stat(&clean)?.is_some();
    if is_clean && !planted(Bug::KeepCleanMark) {
        disk.unlink(&clean)?;
    }
    // A process may have removed the mark and died before that was durable.
    disk.sync_directory(root)?;
    Ok(is_clean)
}

/// Whether an entry may exist before a store does: an interrupted creation left it.
fn is_beginning(entry: &crate::disk::Entry) -> bool {
    let name = entry.name.as_deref();
    let page = name.and_then(|name| name.strip_prefix(SHARED));
    name == Some(LOCK)
        || name == Some("forebay.partitionlog.tmp")
        || page.is_some_and(|rest| matches!(rest, "" | ".tmp"))
}

impl Writer {
    /// Opens the directory at `root` for writing, with its topics and partitions.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`], [`Error::Foreign`], [`Error::NotAStore`], [`Error::Locked`];
    /// [`Error::Unsupported`] for an unfinished compaction; those of the disk.
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
        // Another process may have made it, and died, before this one had the lock.
        let maker = permit(&**disk, root, options)?;
        // Processes that shared the directory may have died.
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
        let parts = Arc::new(parts);
        let options = &begun.options;
        let mut writer = Writer::assemble(parts, options, machine.drive, &opened);
        (writer.known_times, writer.lock) = (begun.known_times, Mutex::new(Some(lock)));
        writer.mended = Mutex::new(begun.mended);
        if machine.drive == Drive::Threads
            && let Err(error) = writer.start()
        {
            // The threads that did start would go on without the lock.
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

    /// Creates the partitions of a topic that do not exist yet. Their folders become durable with
    /// the first messages in them, or by [`Parts::sync_folders`]. `add` is called with each.
    pub fn create(
        &self,
        topics: &Topics,
        name: &str,
        queues: Option<u32>,
        mut add: impl FnMut(&Arc<Topic>, u32, Arc<Ends>),
    ) -> Result<Arc<Topic>> {
        let parts = &self.parts;
        if parts.lacks() {
            self.adopt(topics, &mut add)?;
        }
        if let Some(topic) = topics.get(name)
            && topic.write_queues() >= queues.unwrap_or_default()
            && !self.is_incomplete(name)
        {
            return Ok(topic);
        }
        if let Some(shared) = &parts.shared {
            // With no lock held: while it waits for another process, the handler of a signal may
            // create a topic.
            self.make_shared(shared, name, queues)?;
            self.complete(&mut self.incomplete.lock(), name);
            self.adopt(topics, &mut add)?;
            let topic = topics.get(name);
            return topic.ok_or_else(|| Error::closed(&parts.root));
        }
        let mut incomplete = self.incomplete.lock();
        parts.check_open()?;
        let known = topics.get(name);
        let first = known.as_ref().map_or(0, |topic| topic.write_queues());
        let initial = || initial_queues(name, parts.rules.default_queues);
        let asked = queues.unwrap_or_default();
        let queues = match (queues, first) {
            (None, 1..) => first,
            (queues, _) => queues.unwrap_or_else(initial).max(first),
        };
        let queues = parts.gone.queues_of(name, queues);
        let missing = missing(parts, (name, queues), asked)?;
        let topic = self.make(topics, (name, queues), &missing, &mut add)?;
        self.complete(&mut incomplete, name);
        Ok(topic)
    }

    /// Notes that a topic has all of its partitions.
    fn complete(&self, incomplete: &mut HashSet<String>, name: &str) {
        if incomplete.remove(name) {
            let left = !incomplete.is_empty();
            self.has_incomplete.store(left, Ordering::Release);
        }
    }

    /// Creates partitions that do not exist, of a topic that has `queues` queues then.
    fn make(
        &self,
        topics: &Topics,
        (name, queues): (&str, u32),
        numbers: &[u32],
        add: &mut Add<'_>,
    ) -> Result<Arc<Topic>> {
        let parts = &self.parts;
        let folder = |queue: u32| parts.root.join(format!("{name}-{queue}"));
        let id: Arc<str> = match topics.get(name) {
            None => files::topic_id(name, parts.seed).into(),
            Some(_) => files::id_of(&*parts.disk, &folder(0), name, parts.seed)?.into(),
        };
        // The last partition first: its number tells a later opening how many there must be, if
        // this process dies. Most file systems keep the order of names even if the power fails.
        for queue in numbers.iter().rev() {
            // An earlier call may have made some of them.
            if parts.disk.stat(&folder(*queue))?.is_none() {
                parts.disk.create_directory(&folder(*queue))?;
            }
        }
        Ok(topics.get_or_fill(name, queues, |topic| {
            for queue in numbers.iter().copied() {
                let sync = parts.rules.sync;
                let begin = parts.gone.begin_of(name, queue);
                let end = End::without_segments(begin);
                let ends = Arc::new(Ends::new(folder(queue), sync, Vec::new(), (begin, end)));
                ends.know_snapshot(None);
                let start = Start {
                    end,
                    continues: false,
                    id: Some(Arc::clone(&id)),
                };
                parts.add(topic, queue, &ends, start);
                add(topic, queue, ends);
            }
        }))
    }

    fn is_incomplete(&self, name: &str) -> bool {
        self.has_incomplete.load(Ordering::Acquire) && self.incomplete.lock().contains(name)
    }

    /// Whether a record of `len` bytes could be appended to any of these queues at once, about.
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

    /// Closes the directory. Everything is durable, and marked so, unless an error is returned. A
    /// second call does nothing.
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
        self.parts.news.notify();
        let done = self.parts.finish();
        self.parts.folders.release();
        *self.lock.lock() = None;
        done.and(appended)
    }
}

/// The queues that a topic lacks below `queues`, of which the call asks for those below `asked`. A
/// process that died while it made the topic has left the last ones.
///
/// # Errors
///
/// [`Error::Unsupported`] if there are too many that the call does not ask for.
pub(super) fn missing(parts: &Parts, (name, queues): (&str, u32), asked: u32) -> Result<Vec<u32>> {
    let missing: Vec<u32> = (0..queues).filter(|it| !parts.has(name, *it)).collect();
    let unasked = missing.len() - missing.partition_point(|it| *it < asked);
    let there = parts.count_of(name);
    if there == 0 || unasked <= LACKING_MAX.max(there.saturating_mul(LACKING_RATIO)) {
        return Ok(missing);
    }
    let what = format!(
        "sending to {name}: it has {there} of {queues} queues, as if most of them were lost; \
         create_topic with {queues} queues makes the others"
    );
    Err(Error::Unsupported { what })
}

/// A directory that was recovered, and marked as being written.
pub(super) struct Begun {
    pub options: Options,
    pub rules: Rules,
    pub seed: u64,
    pub known_times: Vec<i64>,
    pub mended: Vec<RepairStep>,
    pub opened: Vec<Opened>,
    pub gone: Gone,
    pub recovery: Recovery,
}

/// Recovers a directory that no other process writes, and marks it as being written.
pub(super) fn begin(
    (machine, options, maker): (&Machine, &Options, Maker),
    root: &Path,
    (topics, report): (&Topics, &Report),
    tail: &mut Tail,
) -> Result<Begun> {
    let disk = &machine.disk;
    let is_clean = take_clean_mark(&**disk, root)?;
    let damaged = tables::keep(&**disk, root, report)?;
    let known = files::read_seed(&**disk, root)?;
    let seed = known.unwrap_or_else(|| machine.clock.now_ns());
    if maker == Maker::Nobody {
        files::save_seed(&**disk, root, seed)?;
    }
    let kept = Kept::load(&**disk, root, options, EngineKind::PartitionLog)?;
    kept.damage.iter().for_each(|it| report.add(it.clone()));
    let options = &kept.options;
    let written = modified(&**disk, &root.join(RECOVERY_POINT))?;
    let rules = Rules::new(options);
    let opening = Opening {
        disk,
        rules: &rules,
        report,
        is_clean: is_clean || maker == Maker::Nobody,
        is_own: maker != Maker::Other,
        are_points_known: true,
    };
    let (opened, gone, recovery) = open_partitions(&opening, root, topics, tail)?;
    let line = |it: &'_ Opened| {
        (
            it.topic.name.to_string(),
            it.queue,
            it.ends.next_offset(true),
        )
    };
    let mut lines: Vec<_> = opened.iter().map(line).collect();
    lines.sort();
    let mut lines: Vec<_> = lines.iter().map(|it| (&*it.0, it.1, it.2)).collect();
    gone.add_to(&mut lines);
    files::save_checkpoint(&**disk, root, RECOVERY_POINT, &lines)?;
    if maker == Maker::Other {
        // Written last: until everything is recovered, each opening recovers the directory as a
        // broker does.
        files::save_seed(&**disk, root, seed)?;
    }
    kept.save(&**disk, &report.warnings)?;
    let mut known_times = Vec::from_iter(written);
    if options.retention.is_some() {
        let now_ms = machine.clock.now_ms();
        known_times.extend(files::add_opening(&**disk, root, seed, now_ms)?);
    }
    Ok(Begun {
        options: options.clone(),
        rules,
        seed,
        known_times,
        mended: mended(damaged),
        opened,
        gone,
        recovery,
    })
}

/// What opening has written again of these damaged tables.
fn mended(damaged: Vec<(Damage, Option<PathBuf>)>) -> Vec<RepairStep> {
    let points = damaged.into_iter();
    let points = points.filter(|it| it.0.path.ends_with(RECOVERY_POINT));
    let what = "rewritten with the ends of the queues, when the store was opened";
    let step = |(damage, saved): (Damage, _)| RepairStep::of_file(&damage, what, saved);
    points.map(step).collect()
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

/// When a file was last modified; `None` if it does not exist or has no known time.
pub(super) fn modified(disk: &dyn Disk, path: &Path) -> Result<Option<i64>> {
    match disk.modified_ms(path) {
        Err(error) if error.is_not_found() => Ok(None),
        modified => modified,
    }
}

/// The offsets in a checkpoint; `None` if it is missing or damaged. Reports that it is missing if
/// it `is_due`; damage was reported before.
fn offsets_of(
    opening: &Opening<'_>,
    root: &Path,
    name: &str,
    is_due: bool,
) -> Result<Option<intent::Table>> {
    let path = root.join(name);
    match files::load_checkpoint(&**opening.disk, &path)? {
        Checkpoint::Lines(lines) => {
            let offsets = lines.into_iter();
            let offset = |(topic, queue, at)| ((topic, queue), at);
            return Ok(Some(offsets.map(offset).collect()));
        }
        Checkpoint::Missing if is_due => {
            let damage = Damage::new(DamageKind::Checkpoint, path, 0..0, "the file is missing");
            opening.report.add(damage);
        }
        Checkpoint::Missing | Checkpoint::Damaged => {}
    }
    Ok(None)
}

/// Whether a partition has no log file.
fn has_no_file(found: &Recovered) -> bool {
    found.end.len == 0 && !found.continues && found.ends.complete().0.is_empty()
}

/// Opens all partitions.
fn open_partitions(
    opening: &Opening<'_>,
    root: &Path,
    topics: &Topics,
    tail: &mut Tail,
) -> Result<(Vec<Opened>, Gone, Recovery)> {
    let disk = &**opening.disk;
    let mut named = names::partitions(disk, root)?;
    named.sort();
    // A store of Forebay has one before it has partitions.
    let is_due = opening.is_own && !named.is_empty();
    let points = offsets_of(opening, root, RECOVERY_POINT, is_due)?;
    let opening = &Opening {
        are_points_known: points.is_some(),
        ..*opening
    };
    let mut points = points.unwrap_or_default();
    let lines = points.iter().map(|(key, at)| (key.0.clone(), key.1, *at));
    let gone = Gone::new(lines, &named);
    gone.tell(root, opening.report);
    let mut starts = offsets_of(opening, root, LOG_START, false)?.unwrap_or_default();
    if tables::lacks_starts(disk, root, opening.is_own)? {
        starts = tables::starts_by_epochs(disk, root, &named)?;
    }
    let cut = intent::complete(opening, root, &mut points, &starts)?;
    let mut recovery = Recovery {
        clean: opening.is_clean,
        truncated_bytes: cut,
        ..Recovery::default()
    };
    let mut opened = Vec::with_capacity(named.len());
    for (name, queue) in named {
        let folder = root.join(format!("{name}-{queue}"));
        let (topic, _) = topics.get_or_add(&name, queue.saturating_add(1));
        if topic.write_queues() <= queue {
            let queues = queue.saturating_add(1);
            topic.configure(queues, queues, topic.permissions());
        }
        let key = (name, queue);
        let of = |table: &HashMap<_, u64>| table.get(&key).copied().unwrap_or_default();
        let known = Known {
            point: of(&points),
            start: of(&starts),
            limit: u64::MAX,
            followed: 0,
        };
        let found = opening.open(folder, known)?;
        if !opening.is_clean {
            restore_missing(disk, &found.ends, opening.rules)?;
        }
        cut_room(disk, &found.ends, opening.rules)?;
        if has_no_file(&found) && known.start < known.point {
            let damage = gone::damage(root, (&key.0, key.1), known.point);
            opening.report.add(damage);
        }
        recovery.records_checked += found.checked;
        recovery.truncated_bytes += found.truncated;
        let start = Start {
            end: found.end,
            continues: found.continues,
            id: None,
        };
        tail.add((topic.id, queue), &key.0, &found.ends, start);
        let ends = found.ends;
        opened.push(Opened { topic, queue, ends });
    }
    Ok((opened, gone, recovery))
}
