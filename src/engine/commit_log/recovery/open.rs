//! Opening: lock, load, recover, erase what lies after the end, catch up queues and index, serve.

use super::begin::Begin;
use super::geometry;
use super::opening::Opening;
use crate::disk::{Disk, FileLock, Holder, LockState};
use crate::engine::Recovery;
use crate::engine::commit_log::dispatch::Dispatcher;
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::log::append::Tail;
use crate::engine::commit_log::log::walk::{Outcome, Trust};
use crate::engine::commit_log::parts::{AppendRules, Bells, Flushing, Following, Parts};
use crate::engine::commit_log::tables::abort;
use crate::engine::commit_log::tables::checkpoint::Checkpoint;
use crate::engine::commit_log::tables::inventory::Inventory;
use crate::engine::commit_log::tables::kept_options::Kept;
use crate::engine::directory::names;
use crate::engine::directory::page::{Cache, Mark, StatePage};
use crate::engine::directory::recognise::{Maker, recognise};
use crate::engine::service::append_lock::AppendLock;
use crate::engine::service::health::Health;
use crate::error::{Error, Op, Result};
use crate::machine::Machine;
use crate::mapped::{Allocator, Extent, MappedFileQueue, Preparation, TransientPool};
use crate::meter::FlushMeter;
use crate::options::{Flush, Mode, Options};
use crate::record::RecordStyle;
use crate::region::Access;
use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, RwLock};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

/// Everything that opening hands to the engine.
pub struct Opened {
    /// The parts.
    pub parts: Arc<Parts>,
    /// The options that hold.
    pub options: Options,
    /// The lock, where the store is written.
    pub lock: Option<FileLock>,
    /// What was found and done.
    pub recovery: Recovery,
    /// Log positions whose keys the index does not have, in a store that may not be written.
    pub unindexed: Range<u64>,
    /// Whether another process writes the store.
    pub live: bool,
}

/// Buffers between the senders of a synchronous store and its files.
const SYNC_BUFFERS: u32 = 2;

/// Opens the store at `root` as the options say.
pub fn open(machine: &Machine, root: &Path, options: &Options) -> Result<Opened> {
    let started = Instant::now();
    let maker = recognise(&*machine.disk, root)?;
    permit(root, options, maker)?;
    let mut opened = match options.mode {
        Mode::Read => open_read_only(machine, root, options),
        _ => open_for_writing(machine, root, options),
    }?;
    opened.recovery.elapsed = started.elapsed();
    Ok(opened)
}

/// Whether what is on the disk may be opened in this mode.
fn permit(root: &Path, options: &Options, maker: Maker) -> Result<()> {
    let path = || root.to_owned();
    match (options.mode, maker) {
        (Mode::Read, Maker::Nobody) => Err(Error::NotFound { path: path() }),
        (Mode::Create, Maker::Forebay | Maker::Other) => Err(Error::Exists { path: path() }),
        (Mode::Append, Maker::Other) if !options.adopt => Err(Error::Foreign { path: path() }),
        _ => Ok(()),
    }
}

fn open_for_writing(machine: &Machine, root: &Path, options: &Options) -> Result<Opened> {
    let disk = &machine.disk;
    if geometry::has_foreign_queues(&**disk, root)? {
        let what = format!(
            "writing to {}: its queues are kept in RocksDB or in batches; mode=\"r\" reads it",
            root.display()
        );
        return Err(Error::Unsupported { what });
    }
    let maker = recognise(&**disk, root)?;
    geometry::log_files(&**disk, root, maker == Maker::Forebay)?;
    disk.create_directory(root)
        .map_err(|e| Error::io(Op::Create, root, e))?;
    if maker == Maker::Nobody {
        settle_path(&**disk, root)?;
    }
    let lock_path = root.join(names::LOCK);
    let taken = disk
        .lock(&lock_path)
        .map_err(|e| Error::io(Op::Lock, &lock_path, e))?;
    let LockState::Held(lock) = taken else {
        let state = StatePage::open(&**disk, root, Access::Read)?;
        return Err(Error::Locked {
            path: root.to_owned(),
            pid: state.and_then(|state| state.pid()),
        });
    };
    // Another process may have made, written and closed the store until the lock was ours.
    permit(root, options, recognise(&**disk, root)?)?;
    let state = StatePage::open(&**disk, root, Access::ReadWrite)?;
    let kept = Kept::load(&**disk, root, options)?;
    let mut opening = Opening::new(machine, root, &kept.options, Access::ReadWrite, state)?;
    for damage in kept.damage.iter().cloned() {
        opening.report.add(damage);
    }
    let begin = opening.mark_running()?;
    let outcome = opening.recover(begin)?;
    opening.settle_end(&outcome)?;
    kept.save(&**disk, &opening.report.warnings)?;
    let parts = opening.finish(&outcome)?;
    let recovery = parts.1;
    Ok(Opened {
        options: kept.options,
        parts: parts.0,
        lock: Some(lock),
        recovery,
        unindexed: 0..0,
        live: false,
    })
}

/// Makes the path to the directory of a new store durable. Who made the directories above it does
/// not tell whether they are, and may have died before they were.
fn settle_path(disk: &dyn Disk, root: &Path) -> Result<()> {
    for above in root.ancestors().skip(1) {
        match disk.sync_directory(above) {
            // A file system that has no sync for it.
            Err(error) if cannot_be_synced(&error) => break,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return settle_names(disk, root);
            }
            synced => synced.map_err(|e| Error::io(Op::Sync, above, e))?,
        }
    }
    Ok(())
}

/// Makes the names that lead to the store durable where a directory above it may be passed through
/// and not be read, which a sync of it takes.
fn settle_names(disk: &dyn Disk, root: &Path) -> Result<()> {
    match disk.sync_file_system(root) {
        Err(error) if cannot_be_synced(&error) => Ok(()),
        synced => synced.map_err(|e| Error::io(Op::SyncFileSystem, root, e)),
    }
}

fn cannot_be_synced(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::ReadOnlyFilesystem
    )
}

fn open_read_only(machine: &Machine, root: &Path, options: &Options) -> Result<Opened> {
    let (holder, state) = look_at_writer(&*machine.disk, root)?;
    let live = holder == Holder::Forebay && state.as_ref().is_some_and(StatePage::is_written_to);
    // A live RocketMQ may truncate its files, which a map would answer with a signal: copy instead.
    let mut machine = machine.clone();
    if holder != Holder::Nobody && !live {
        machine.disk = Arc::new(crate::disk::copying::CopyingDisk);
    }
    let mut opening = Opening::new(&machine, root, options, Access::Read, state)?;
    if live {
        return opening.follow();
    }
    let begin = opening.begin(abort::is_there(&*opening.disk, root)?)?;
    let closed_at = (begin.clean && begin.marked).then_some(begin.from);
    let outcome = opening.recover(begin)?;
    if closed_at != Some(outcome.end) {
        opening.count_stale(&outcome)?;
    }
    let unindexed = opening.unindexed.clone();
    let (parts, recovery) = opening.finish(&outcome)?;
    Ok(Opened {
        options: options.clone(),
        parts,
        lock: None,
        recovery,
        unindexed,
        live: false,
    })
}

/// How long a reader waits for a writer that is about to open the store.
const WRITER_OPENS_MAX: Duration = Duration::from_secs(2);

/// Who holds the lock, and the state page. A writer of ours that is still opening the store is
/// waited for a moment: once it writes, its marks can be followed.
fn look_at_writer(disk: &dyn Disk, root: &Path) -> Result<(Holder, Option<StatePage>)> {
    let lock = root.join(names::LOCK);
    let deadline = Instant::now() + WRITER_OPENS_MAX;
    loop {
        let holder = disk
            .probe(&lock)
            .map_err(|e| Error::io(Op::Stat, &lock, e))?;
        let state = StatePage::open(disk, root, Access::Read)?;
        let ready = state.as_ref().is_some_and(StatePage::is_written_to);
        if holder != Holder::Forebay || ready || Instant::now() > deadline {
            return Ok((holder, state));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Opening<'_> {
    /// Leaves `abort` and a running state page, durably, before anything else is changed. Returns
    /// where recovery begins, by what was there before.
    fn mark_running(&mut self) -> Result<Begin> {
        let begin = self.begin(abort::is_there(&*self.disk, self.root)?)?;
        // First the page, which tells what the file says until it is ours.
        self.state.begin_recovery(begin.trust == Trust::Everywhere);
        self.state.set_fixed(&self.geometry, &self.host());
        self.state.sync(&*self.disk)?;
        abort::leave(&*self.disk, self.root)?;
        self.make_directories()?;
        if let Some(parent) = self.root.parent() {
            match self.disk.sync_directory(parent) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    // A store that was open before had its name made durable then.
                    if self.state.epoch() == 0 {
                        settle_names(&*self.disk, self.root)?;
                    }
                }
                synced => synced.map_err(|e| Error::io(Op::Sync, parent, e))?,
            }
        }
        Ok(begin)
    }

    /// Makes the directories that are not there, durably. The names of those that are there became
    /// durable with that of `abort`.
    fn make_directories(&self) -> Result<()> {
        let mut made = false;
        for name in [names::COMMIT_LOG, names::QUEUES, names::CONFIG] {
            let path = self.root.join(name);
            let there = self.disk.stat(&path);
            if there.map_err(|e| Error::io(Op::Stat, &path, e))?.is_none() {
                let created = self.disk.create_directory(&path);
                created.map_err(|e| Error::io(Op::Create, &path, e))?;
                made = true;
            }
        }
        if made {
            let synced = self.disk.sync_directory(self.root);
            synced.map_err(|e| Error::io(Op::Sync, self.root, e))?;
        }
        Ok(())
    }

    /// Puts the parts together.
    fn finish(self, outcome: &Outcome) -> Result<(Arc<Parts>, Recovery)> {
        let end = outcome.end;
        let directory = self.root.join(names::COMMIT_LOG);
        let files = MappedFileQueue::new(&self.disk, directory, self.geometry.log_file_len);
        files.load(&self.files, self.access, |file| {
            match end.saturating_sub(file.start) {
                written if written >= file.len => Extent::Full,
                written => Extent::Part(written),
            }
        });
        let state = match self.access {
            Access::ReadWrite => Arc::clone(&self.state),
            // A page that may not be written tells of another's marks; ours are kept in memory.
            Access::Read => Arc::new(StatePage::in_memory()?),
        };
        for mark in [Mark::Published, Mark::Dispatched, Mark::Durable] {
            state.set(mark, end);
        }
        if self.access == Access::Read && self.state.is_halted() {
            // Its writer died: what it had not flushed is in the page cache alone.
            state.set(Mark::Durable, self.state.get(Mark::Durable).min(end));
        }
        let min = self.files.first().map_or(0, |file| file.start);
        state.set(Mark::Minimum, min);
        let mut in_doubt = None;
        if self.access == Access::ReadWrite {
            if !self.untouched_since_close {
                self.doubt_caches();
            }
            let settled = self.untouched_since_close && !self.caches_are_behind();
            if state.is_halted() {
                in_doubt = Some(state.get(Mark::Settled).max(min));
            }
            state.set(Mark::Settled, if settled { end } else { min });
            if state.epoch() == 0 && outcome.end > min {
                // Another system's store: what its queues have used up stands in their files alone.
                let index = self.index.as_deref();
                Inventory::of(end, &self.topics, &self.queues, index)?
                    .save(&self.disk, self.root)?;
            }
            state.set_unindexed(self.index.is_none());
            let now_ns = self.machine.clock.now_ns();
            state.begin_epoch(end, self.options.checksum(), now_ns);
            if self.recovery.clean || self.cache != Cache::Unknown {
                state.vouch();
            }
            state.sync(&*self.disk)?;
        }
        let sync = self.options.flush() == Flush::Sync && self.access == Access::ReadWrite;
        let ready = AtomicU64::new(0);
        let log = Arc::new(Log {
            files,
            state,
            source: None,
            sync,
            ready,
            stored_ms: AtomicI64::new(self.last_store_ms),
        });
        let recovery = self.recovery.clone();
        let parts = self.parts(log, end)?;
        *parts.flushing.in_doubt.lock() = in_doubt;
        Ok((Arc::new(parts), recovery))
    }

    /// Has the next full pass make durable what opening found in queues and index.
    fn doubt_caches(&self) {
        for (_, queue) in self.queues.all(&self.topics) {
            queue.doubt();
        }
        self.index.iter().for_each(|index| index.doubt());
    }

    /// Whether opening has changed something in queues or index that is not durable yet.
    fn caches_are_behind(&self) -> bool {
        let queues = self.queues.all(&self.topics);
        let mut queues = queues.into_iter().map(|(_, queue)| queue);
        queues.any(|queue| queue.is_behind())
            || self.index.as_ref().is_some_and(|index| index.is_behind())
    }

    /// The buffers between the senders and the log, which ends at `end`, where there are any.
    fn pool(&self, end: u64) -> Result<Option<TransientPool>> {
        let buffers = match self.options.flush() {
            // What a group has gathered is written at once: a fraction of what it takes to fault
            // its pages in, one by one, and to sync them.
            Flush::Sync => SYNC_BUFFERS,
            Flush::Async => self.options.transient_pool,
        };
        if buffers == 0 || self.access == Access::Read {
            return Ok(None);
        }
        let made = TransientPool::new(buffers as usize, self.geometry.log_file_len, end);
        let pool = made.map_err(|e| Error::io(Op::MakePool, self.root, e))?;
        if self.options.transient_pool > 0 {
            pool.lock();
        }
        Ok(Some(pool))
    }

    fn append_rules(&self) -> AppendRules {
        AppendRules {
            style: RecordStyle {
                host: self.host(),
                checksum: self.options.checksum(),
                max_message_size: self.options.max_message_size(),
            },
            default_queues: self.options.default_queues(),
            busy_timeout: self.options.busy_timeout,
            unique_ids: self.options.unique_ids(),
            pool_fail_fast: self.options.transient_pool > 0
                && self.options.transient_pool_fail_fast,
        }
    }

    fn parts(self, log: Arc<Log>, end: u64) -> Result<Parts> {
        let preparation = Preparation {
            warm_up: self.options.warm_up,
            warm_up_pages: self.options.warm_up_flush_pages,
            lock: self.options.lock_memory,
            random_reads: !self.options.read_ahead,
        };
        let populate = self.options.flush() == Flush::Async && !self.options.warm_up;
        let (tail_end, populate) = match self.access {
            Access::ReadWrite => (end, populate),
            Access::Read => (u64::MAX, false),
        };
        let pool = self.pool(tail_end)?;
        let pooled = pool.is_some();
        let mut tail = Tail::new(&log, tail_end, self.last_store_ms, populate, pooled)?;
        for (topic, queue) in self.queues.all(&self.topics) {
            tail.set_next_offset(&topic, queue.id, queue.max());
        }
        let (topics, queues, index) = (&self.topics, &self.queues, self.index.as_ref());
        let dispatcher = Dispatcher::new(&log, topics, queues, index, &self.report);
        let checkpoint = match self.access {
            Access::ReadWrite => Some(Checkpoint::open(&*self.disk, self.root)?),
            Access::Read => None,
        };
        Ok(Parts {
            root: self.root.to_owned(),
            allocator: Allocator::new(self.machine, preparation, &self.report.warnings),
            append_rules: self.append_rules(),
            disk: self.disk,
            clock: Arc::clone(&self.machine.clock),
            health: Health::default(),
            log,
            topics: self.topics,
            queues: self.queues,
            index: self.index,
            rebuilding: RwLock::default(),
            dispatcher,
            tail: CachePadded::new(AppendLock::new(
                tail,
                self.options.append_lock,
                Arc::clone(&self.machine.clock),
            )),
            pool,
            table: Mutex::new(self.table),
            table_dirty: AtomicBool::new(false),
            flushing: Flushing {
                log: Mutex::new(()),
                full_pass: Mutex::new(()),
                in_doubt: Mutex::new(None),
                checkpoint,
                meter: FlushMeter::new(&self.report.warnings),
            },
            following: Following {
                lock: Mutex::new(()),
                // Other than it is, so that the first look opens the files of that moment.
                exchanges: AtomicU32::new(self.state.exchanges().wrapping_sub(1)),
            },
            bells: Bells::default(),
            report: self.report,
        })
    }

    /// Joins a store that another process writes: its marks are followed, nothing is walked.
    fn follow(mut self) -> Result<Opened> {
        let end = self.state.get(Mark::Published);
        self.recovery.end = end;
        let directory = self.root.join(names::COMMIT_LOG);
        let files = MappedFileQueue::new(&self.disk, directory, self.geometry.log_file_len);
        files.load(&self.files, Access::Read, |file| {
            match end.saturating_sub(file.start) {
                written if written >= file.len => Extent::Full,
                written => Extent::Part(written),
            }
        });
        let state = Arc::new(StatePage::in_memory()?);
        let log = Arc::new(Log {
            files,
            state,
            source: Some(Arc::clone(&self.state)),
            sync: false,
            ready: AtomicU64::new(0),
            stored_ms: AtomicI64::new(0),
        });
        let (recovery, options) = (self.recovery.clone(), self.options.clone());
        let parts = Arc::new(self.parts(log, u64::MAX)?);
        crate::engine::commit_log::read::follow::refresh(&parts)?;
        Ok(Opened {
            options,
            parts,
            lock: None,
            recovery,
            unindexed: 0..0,
            live: true,
        })
    }
}
