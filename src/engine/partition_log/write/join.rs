//! Joining and leaving a partition log that processes share.
//!
//! ```text
//!   a slot --> nobody has opened it? recover it, make the table, begin an epoch
//!          --> else wait for the process that does --> join
//! ```
//!
//! The last one to leave writes what a clean stop leaves, and removes page and table.

use super::begin::{Begun, Opened, begin, modified};
use super::ends::Place;
use super::files;
use super::gone::Gone;
use super::open::{Add, Writer};
use super::parts::Parts;
use super::permit::permit;
use super::rules::{self, Rules};
use super::shared::{Role, Shared, forget};
use super::table::Table;
use super::tail::Tail;
use super::writing::Start;
use crate::engine::directory::agreed::Agreed;
use crate::engine::directory::group_table::GroupTable;
use crate::engine::directory::kept_options::Kept;
use crate::engine::directory::member::groups::Groups;
use crate::engine::directory::member::{Meeting, Member};
use crate::engine::directory::page::{Mark, Word};
use crate::engine::directory::writer;
use crate::engine::service::append_lock::AppendLock;
use crate::engine::service::condition::Condition;
use crate::engine::service::durability::Durable;
use crate::engine::{Recovery, Report, Topics};
use crate::error::{At, Error, Op, Result};
use crate::machine::{Drive, Machine};
use crate::meter::FlushMeter;
use crate::options::{EngineKind, Options, TOPIC_QUEUES_MAX};
use crate::plant::{Point, pass};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a process waits for the append lock to recover the store.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

impl Writer {
    /// Joins the processes that share the directory at `root`, or opens it for them.
    ///
    /// # Errors
    ///
    /// As [`Writer::open`]; [`Error::InvalidOption`] and [`Error::Unsupported`] for what processes
    /// cannot share.
    pub fn join(
        machine: &Machine,
        root: &Path,
        options: &Options,
        (topics, report, news): (&Topics, &Report, &Arc<Condition>),
    ) -> Result<(Writer, Vec<Opened>, Recovery)> {
        check(options)?;
        let disk = &machine.disk;
        let maker = permit(&**disk, root, options)?;
        writer::make_directory(&**disk, root, maker)?;
        let own = Agreed::of(options)?;
        writer::await_broker(&**disk, root, options.lock_timeout)?;
        let timeout = options.lock_timeout;
        let member = Member::join(&**disk, root, Meeting::OF_PARTITIONS, timeout, &own)?;
        let member = Arc::new(member);
        pass(Point::Joined);
        let mut agreed = options.clone();
        member.page.agreed()?.joined(&own)?.apply(&mut agreed);
        agreed.disk_reserve = options.disk_reserve;
        let with = (machine, root, &agreed);
        let is_unopened = || !member.page.is_written_to();
        let begun =
            member.lead_or_wait(root, is_unopened, || begin_shared(with, &member, report))?;
        let kept = Kept::load(&**disk, root, &agreed, EngineKind::PartitionLog)?;
        if begun.is_none() {
            kept.agree(&**disk)?;
        }
        member.agree(&own)?;
        let options = &kept.options;
        let rules = Rules::new(options);
        let shared = Shared::open(disk, root, &member, rules.segment_bytes)?;
        let groups = Arc::new(Groups::new(disk, root, &member, &shared.lead));
        let seed = files::read_seed(&**disk, root)?.unwrap_or_default();
        let clock = &machine.clock;
        let tail = AppendLock::new(Tail::default(), options.append_lock, Arc::clone(clock));
        let meter = FlushMeter::new(&report.warnings);
        let mut parts = Parts::new(
            (root, disk, clock),
            (rules, seed),
            (tail, Default::default()),
            (Arc::clone(news), meter, Some(shared)),
        );
        let leads = begun.is_some();
        let (known_times, recovery);
        (parts.gone, known_times, recovery) = match begun {
            Some(begun) => (begun.gone, begun.known_times, begun.recovery),
            None => {
                let gone = Gone::find(&**disk, root)?;
                gone.tell(root, report);
                let written = modified(&**disk, &root.join(files::RECOVERY_POINT))?;
                (gone, Vec::from_iter(written), Recovery::default())
            }
        };
        let parts = Arc::new(parts);
        let mut opened = Vec::new();
        adopt(&parts, topics, &mut |topic, queue, ends| {
            let topic = Arc::clone(topic);
            opened.push(Opened { topic, queue, ends });
        })?;
        let mut writer = Writer::assemble(parts, options, machine.drive, &opened);
        (writer.known_times, writer.groups) = (known_times, Some(groups));
        if let Err(error) = writer.begin_sharing(leads, machine.drive) {
            // The threads that did start must not go on without the locks of this process.
            let _ = writer.close();
            return Err(error);
        }
        Ok((writer, opened, recovery))
    }

    /// Starts the threads, if there are any. `leads`: this process has recovered the store.
    fn begin_sharing(&self, leads: bool, drive: Drive) -> Result<()> {
        let parts = &self.parts;
        if leads && let Some(shared) = &parts.shared {
            *shared.role.lock() = Role::Leader;
            shared.lead.begin();
        }
        if drive != Drive::Threads {
            return Ok(());
        }
        self.start()?;
        let own = Arc::clone(parts);
        let watcher = std::thread::Builder::new().name("forebay-share".to_owned());
        let watcher = watcher.spawn(move || own.watch());
        *self.watcher.lock() = Some(watcher.at(Op::StartThreads, &parts.root)?);
        Ok(())
    }

    /// Adopts the partitions that other processes have added. `add` is called with each.
    ///
    /// # Errors
    ///
    /// Those of the table.
    pub fn adopt(&self, topics: &Topics, add: &mut Add<'_>) -> Result<()> {
        adopt(&self.parts, topics, add)
    }

    /// Makes the partitions of a topic that do not exist yet. On return all processes can find
    /// them.
    pub(super) fn make_shared(
        &self,
        shared: &Shared,
        name: &str,
        queues: Option<u32>,
    ) -> Result<()> {
        let parts = &self.parts;
        let _taken = parts.take(parts.clock.now_ms())?;
        parts.load()?;
        // At most as many as a topic can have.
        let first = parts.queues_of(name).min(TOPIC_QUEUES_MAX);
        let (_, missing) = self.planned(name, first, queues)?;
        // As in a store of one process, the last partition first.
        for queue in missing.iter().rev() {
            let folder = parts.root.join(format!("{name}-{queue}"));
            if parts.disk.stat(&folder)?.is_none() {
                parts.disk.create_directory(&folder)?;
            }
        }
        pass(Point::TopicsWritten);
        parts.add_shared(&shared.table, name, &missing)
    }

    /// Leaves the store: makes everything that was sent durable. The last process closes the store.
    ///
    /// # Errors
    ///
    /// The error that keeps messages from being durable, or that has ended this process's writing.
    pub(super) fn leave(&self, shared: &Shared) -> Result<()> {
        let parts = &self.parts;
        let appended = self.open_batches.as_ref().map_or(Ok(()), |it| it.end());
        {
            let _tail = parts.tail.lock();
            if !parts.health.close() {
                return Ok(());
            }
        }
        drop(self.incomplete.lock());
        let flushed = parts.flush_to(parts.published());
        // The leader may have flushed all that this process has published before it failed.
        let flushed = flushed.and(parts.health.check());
        // From here on no thread of this process waits for a leader that hangs.
        shared.shutdown.begin();
        self.services.end();
        shared.page().notify(Word::Wanted);
        parts.wake();
        let watcher = self.watcher.lock().take();
        if let Some(watcher) = watcher {
            let _ = watcher.join();
        }
        pass(Point::Leaving);
        // No thread of this process may pass the gate any more.
        self.groups.iter().for_each(|groups| groups.end());
        let left = self.hand_over(shared);
        parts.folders.release();
        shared.member.leave();
        appended.and(flushed).and(left)
    }

    fn hand_over(&self, shared: &Shared) -> Result<()> {
        let parts = &self.parts;
        let last = shared.member.is_last();
        let is_last = matches!(last, Ok(true));
        let mut left = last.map(drop);
        if is_last {
            // The process that ran the services may have left or died a moment ago.
            let led = parts.try_lead();
            let finished = led.and_then(|_| parts.finish_shared(shared));
            shared.page().end_epoch(finished.is_ok());
            let disk = &*parts.disk;
            left = left.and(finished);
            left = left.and(GroupTable::remove(disk, &parts.root));
            left = left.and(forget(disk, &parts.root));
        }
        parts.end_lead(shared);
        left
    }
}

/// Refuses options that processes cannot share.
fn check(options: &Options) -> Result<()> {
    rules::check(options)?;
    if options.compaction.cleanup_policy.compacts_any() {
        let what = "mode=\"share\" with compaction: open the store with mode=\"a\" to compact it";
        return Err(Error::Unsupported { what: what.into() });
    }
    Ok(())
}

/// Recovers the store for all processes that share it, and makes the table.
fn begin_shared(
    (machine, root, options): (&Machine, &Path, &Options),
    member: &Member,
    report: &Report,
) -> Result<Begun> {
    let disk = &machine.disk;
    let (held, _) = member.hold(LOCK_TIMEOUT)?;
    held.lengthen();
    // Under the lock, because another process may have made the store meanwhile.
    let maker = permit(&**disk, root, options)?;
    let mut tail = Tail::default();
    let with = (machine, options, maker);
    let begun = begin(with, root, (&Topics::default(), report), &mut tail)?;
    let table = Table::create(disk, root, begun.rules.segment_bytes)?;
    let mut all = Vec::new();
    for Opened { topic, queue, ends } in &begun.opened {
        let place = Place {
            end: ends.end(),
            continues: tail.continues((topic.id, *queue)),
        };
        all.push((&*topic.name, *queue, ends.start(), place));
    }
    table.add(&all)?;
    pass(Point::Recovered);
    let (page, end) = (&member.page, tail.end());
    page.set(Mark::Durable, end);
    page.set(Mark::Published, end);
    page.begin_epoch(end, false, machine.clock.now_ns());
    page.check()?;
    held.clean();
    Ok(begun)
}

/// Adopts the partitions of the table. `add` is called with each that was not known.
fn adopt(parts: &Parts, topics: &Topics, add: &mut Add<'_>) -> Result<()> {
    if !parts.lacks() {
        return Ok(());
    }
    for of_topic in parts.all_ends()?.chunk_by(|one, other| one.0 == other.0) {
        let Some((name, last, _)) = of_topic.last() else {
            continue;
        };
        let mut new = 0;
        topics.get_or_fill(name, last.saturating_add(1), |topic| {
            for (_, queue, ends) in of_topic {
                if !parts.is_adopted((topic.id, *queue)) {
                    add(topic, *queue, Arc::clone(ends));
                    let is_new = parts.add(topic, *queue, ends, Start::default());
                    new += u32::from(is_new);
                }
            }
        });
        // Last, so that a thread that finds nothing lacking finds the topic.
        parts.adopted.fetch_add(new, Ordering::AcqRel);
    }
    Ok(())
}
