//! Assembles the parts of an open store from the results of the previous steps.

use super::find::Found;
use super::later::Later;
use super::load;
use super::rebuild::Walked;
use super::trim::Trimmed;
use crate::disk::FileLock;
use crate::engine::Recovery;
use crate::engine::commit_log::dispatch::Dispatcher;
use crate::engine::commit_log::index::Index;
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::log::append::Tail;
use crate::engine::commit_log::parts::{AppendRules, Conditions, Flushing, Following, Parts};
use crate::engine::commit_log::queues::Queues;
use crate::engine::commit_log::read::follow::refresh;
use crate::engine::commit_log::tables::checkpoint::Checkpoint;
use crate::engine::commit_log::tables::inventory::Inventory;
use crate::engine::directory::catalogue::Listed;
use crate::engine::directory::names;
use crate::engine::directory::page::{Cache, Mark, StatePage};
use crate::engine::service::append_lock::AppendLock;
use crate::engine::service::health::Health;
use crate::error::{At, Op, Result};
use crate::mapped::queue::FoundFile;
use crate::mapped::{Allocator, Extent, MappedFileQueue, Preparation, TransientPool};
use crate::meter::FlushMeter;
use crate::options::{Flush, Mode, Options};
use crate::plant::{Bug, planted};
use crate::record::RecordStyle;
use crate::region::Access;
use crate::sync::{Mutex, RwLock};
use crossbeam_utils::CachePadded;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Number of buffers between the senders of a synchronous store and its files.
const SYNC_BUFFERS: u32 = 2;

/// Everything that opening returns to the engine.
pub struct Opened {
    /// The parts.
    pub parts: Arc<Parts>,
    /// The options in effect.
    pub options: Options,
    /// The lock, if the store is writable.
    pub lock: Option<FileLock>,
    /// What was found and repaired.
    pub recovery: Recovery,
    /// Log positions whose keys the index lacks; only in a read-only store.
    pub unindexed: Range<u64>,
    /// The state page and its epoch, if the store is read while nobody writes it. `None` also if
    /// there is no page.
    pub page: Option<(Arc<StatePage>, u64)>,
}

/// What the parts are built from.
struct Base {
    log: Log,
    queues: Arc<Queues>,
    index: Option<Arc<Index>>,
    /// Where appends begin; in a read-only store, an impossible position.
    tail_end: u64,
    in_doubt: Option<u64>,
    last: Option<u64>,
    later: Option<u64>,
    recovery: Recovery,
    unindexed: Range<u64>,
}

/// Assembles the parts of a store whose log was trimmed. If it is writable, first saves the
/// options, then durably begins an epoch.
pub fn assemble(found: Found, walked: Walked, trimmed: Trimmed) -> Result<Opened> {
    if let Some(kept) = &found.kept {
        kept.save(&**found.disk(), &found.report.warnings)?;
    }
    let files = mapped(&found, &trimmed.files, walked.end);
    let (state, in_doubt) = marks(&found, &walked)?;
    let base = Base {
        log: Log {
            files,
            state,
            source: None,
            sync: found.options.flush() == Flush::Sync && found.access == Access::ReadWrite,
            ready: AtomicU64::new(0),
            stored_ms: AtomicI64::new(walked.last_store_ms),
            joined: Mutex::new(walked.end),
        },
        queues: walked.queues,
        index: walked.index,
        tail_end: match found.access {
            Access::ReadWrite => walked.end,
            Access::Read => u64::MAX,
        },
        in_doubt,
        last: walked.last,
        later: walked.later,
        recovery: Recovery {
            truncated_bytes: trimmed.bytes,
            ..walked.recovery
        },
        unindexed: walked.unindexed,
    };
    build(found, base)
}

/// Opens a store that another process writes: its marks are followed, and the log is not walked.
pub fn follow(found: Found) -> Result<Opened> {
    let end = found.state.get(Mark::Published);
    let base = Base {
        log: Log {
            files: mapped(&found, &found.files, end),
            state: Arc::new(StatePage::in_memory()?),
            source: Some(Arc::clone(&found.state)),
            sync: false,
            ready: AtomicU64::new(0),
            stored_ms: AtomicI64::new(0),
            joined: Mutex::default(),
        },
        queues: Arc::new(load::queues(&found)),
        index: load::index(&found),
        tail_end: u64::MAX,
        in_doubt: None,
        last: None,
        later: None,
        recovery: Recovery {
            end,
            ..Recovery::default()
        },
        unindexed: 0..0,
    };
    let opened = build(found, base)?;
    refresh(&opened.parts)?;
    Ok(opened)
}

/// The files of a log that ends at `end`.
fn mapped(found: &Found, files: &[FoundFile], end: u64) -> MappedFileQueue {
    let directory = found.root.join(names::COMMIT_LOG);
    let mapped = MappedFileQueue::new(found.disk(), directory, found.geometry.log_file_len);
    mapped.load(files, found.access, |file| {
        match end.saturating_sub(file.start) {
            written if written >= file.len => Extent::Full,
            written => Extent::Part(written),
        }
    });
    mapped
}

/// The page with the marks of a log that was walked. In a writable store it begins an epoch and is
/// durable. Also returns the position from which queues and index were taken over in the page cache
/// of a process that died.
fn marks(found: &Found, walked: &Walked) -> Result<(Arc<StatePage>, Option<u64>)> {
    let (min, end) = (found.min_position(), walked.end);
    if found.access == Access::ReadWrite {
        save_offsets(found, walked)?;
    }
    let state = match found.access {
        Access::ReadWrite => Arc::clone(&found.state),
        // The page of a read-only store holds the writer's marks; those of this process stay in
        // memory.
        Access::Read => Arc::new(StatePage::in_memory()?),
    };
    for mark in [Mark::Published, Mark::Dispatched, Mark::Durable] {
        state.set(mark, end);
    }
    state.set(Mark::Minimum, min);
    if found.access == Access::Read {
        if found.state.is_halted() {
            // The writer died: what it had not flushed is only in the page cache.
            state.set(Mark::Durable, found.state.get(Mark::Durable).min(end));
        }
        return Ok((state, None));
    }
    if !walked.untouched_since_close {
        doubt_caches(found, walked);
    }
    let whole = walked.untouched_since_close && !caches_are_behind(found, walked);
    let in_doubt = state
        .is_halted()
        .then(|| state.get(Mark::FullPass).max(min));
    state.set(Mark::FullPass, if whole { end } else { min });
    state.set_unindexed(walked.index.is_none());
    let now_ns = found.machine.clock.now_ns();
    if state.is_shared() {
        state.set_stored_ms(walked.last_store_ms);
    }
    state.begin_epoch(end, found.options.checksum(), now_ns);
    if walked.recovery.clean || found.cache != Cache::Unknown {
        state.vouch();
    }
    state.sync(&**found.disk())?;
    Ok((state, in_doubt))
}

/// Durably saves the next offsets of the queues if the log does not show them. In another system's
/// store, only the queue files show which offsets were used. In a store of Forebay, the last
/// message of a queue may be lost, and its offset must not be assigned again. Only this opening can
/// tell: once the marks have moved, nothing shows that a message was lost.
fn save_offsets(found: &Found, walked: &Walked) -> Result<()> {
    let is_foreign = found.state.epoch() == 0 && walked.end > found.min_position();
    if is_foreign || walked.ends_unshown && !planted(Bug::OffsetsLate) {
        let (topics, index) = (&found.topics, walked.index.as_deref());
        Inventory::of(walked.end, topics, &walked.queues, index)?
            .save(found.disk(), &found.root)?;
    }
    Ok(())
}

/// Makes the next full pass flush what opening found in queues and index.
fn doubt_caches(found: &Found, walked: &Walked) {
    for (_, queue) in walked.queues.all_opened(&found.topics) {
        queue.doubt();
    }
    walked.index.iter().for_each(|index| index.doubt());
}

/// Whether opening has changed queues or index without making that durable.
fn caches_are_behind(found: &Found, walked: &Walked) -> bool {
    let queues = walked.queues.all_opened(&found.topics);
    let mut queues = queues.into_iter().map(|(_, queue)| queue);
    queues.any(|queue| queue.is_behind())
        || walked.index.as_ref().is_some_and(|index| index.is_behind())
}

fn build(found: Found, base: Base) -> Result<Opened> {
    let (options, clock) = (&found.options, Arc::clone(&found.machine.clock));
    let pool = pool(&found, base.tail_end)?;
    let log = Arc::new(base.log);
    let (queues, index) = (base.queues, base.index);
    let populate = found.access == Access::ReadWrite
        && options.mode != Mode::Share
        && options.flush() == Flush::Async
        && !options.warm_up;
    let stored_ms = log.stored_ms.load(Ordering::Relaxed);
    let mut tail = Tail::new(&log, base.tail_end, stored_ms, populate, pool.is_some())?;
    for (topic, queue, offsets) in queues.offsets(&found.topics) {
        tail.set_next_offset(&topic, queue, offsets.end);
    }
    if let Some(position) = base.later {
        open_later(&found, &queues, &log, position);
    }
    let (topics, report) = (&found.topics, &found.report);
    let dispatcher = Dispatcher::new(&log, topics, &queues, index.as_ref(), report, base.last);
    let checkpoint = match found.access {
        Access::ReadWrite => Some(Checkpoint::open(&**found.disk(), &found.root)?),
        Access::Read => None,
    };
    let tail = AppendLock::new(tail, options.append_lock, Arc::clone(&clock));
    // Differs from the page, so that the first refresh reopens the files.
    let generation = found.state.generation().wrapping_sub(1);
    let page = found.epoch.map(|epoch| (Arc::clone(&found.state), epoch));
    let parts = Parts {
        allocator: Allocator::new(&found.machine, preparation(options), &found.report.warnings),
        append_rules: append_rules(&found),
        flushing: Flushing {
            log: Mutex::new(()),
            full_pass: Mutex::new(()),
            in_doubt: Mutex::new(base.in_doubt),
            checkpoint,
            meter: FlushMeter::new(&found.report.warnings),
        },
        following: Following {
            lock: Mutex::new(()),
            generation: AtomicU32::new(generation),
            listed: Listed::default(),
        },
        root: found.root,
        disk: found.machine.disk,
        clock,
        health: Health::default(),
        log,
        topics: found.topics,
        queues,
        index,
        rebuilding: RwLock::default(),
        raising: Mutex::default(),
        dispatcher,
        tail: CachePadded::new(tail),
        pool,
        table: Mutex::new(found.table),
        table_dirty: AtomicBool::new(false),
        conditions: Conditions::default(),
        report: found.report,
    };
    Ok(Opened {
        parts: Arc::new(parts),
        options: found.options,
        lock: found.lock,
        recovery: base.recovery,
        unindexed: base.unindexed,
        page,
    })
}

/// Makes queues open on first use. The store was closed at `position`.
fn open_later(found: &Found, queues: &Queues, log: &Arc<Log>, position: u64) {
    let opened = found.min_position()..position;
    let later = Later::new(&found.topics, log, &found.report, opened);
    queues.open_with(Arc::new(later));
}

/// The buffers between the senders and the log, which ends at `end`; `None` if there are none.
fn pool(found: &Found, end: u64) -> Result<Option<TransientPool>> {
    let options = &found.options;
    let buffers = match options.flush() {
        // The messages of a group are written at once. That costs a fraction of faulting in their
        // pages one by one and syncing them.
        Flush::Sync => SYNC_BUFFERS,
        Flush::Async => options.transient_pool,
    };
    // Buffers of one process would hide its messages from the others.
    let shared = options.mode == Mode::Share;
    if buffers == 0 || found.access == Access::Read || shared {
        return Ok(None);
    }
    let made = TransientPool::new(buffers as usize, found.geometry.log_file_len, end);
    let pool = made.at(Op::MakePool, &found.root)?;
    if options.transient_pool > 0 {
        pool.lock();
    }
    Ok(Some(pool))
}

pub fn preparation(options: &Options) -> Preparation {
    Preparation {
        warm_up: options.warm_up,
        warm_up_pages: options.warm_up_flush_pages(),
        lock: options.lock_memory,
        random_reads: !options.read_ahead,
    }
}

fn append_rules(found: &Found) -> AppendRules {
    let options = &found.options;
    AppendRules {
        style: RecordStyle {
            host: found.host(),
            checksum: options.checksum(),
            max_message_size: options.max_message_size(),
        },
        default_queues: options.default_queues(),
        busy_timeout: options.busy_timeout,
        pool_fail_fast: options.transient_pool > 0 && options.transient_pool_fail_fast,
    }
}
