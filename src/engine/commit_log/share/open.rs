//! Joining and leaving a shared store.

use super::core::{Core, Role};
use super::leader::Leader;
use super::offsets::dispatched;
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::log::append::Tail;
use crate::engine::commit_log::parts::AppendRules;
use crate::engine::commit_log::parts::given::Given;
use crate::engine::commit_log::recovery::assemble::{Opened, preparation};
use crate::engine::commit_log::recovery::{find, geometry, open};
use crate::engine::directory::agreed::Agreed;
use crate::engine::directory::group_table::GroupTable;
use crate::engine::directory::kept_options::Kept;
use crate::engine::directory::member::groups::Groups;
use crate::engine::directory::member::{Meeting, Member};
use crate::engine::directory::names;
use crate::engine::directory::page::StatePage;
use crate::engine::directory::writer;
use crate::engine::service::append_lock::AppendLock;
use crate::engine::service::durability::Durable;
use crate::engine::service::group_commit::{self, GroupCommit};
use crate::engine::service::health::Health;
use crate::engine::service::hold::Hold;
use crate::engine::service::lead::Lead;
use crate::engine::service::polling::Polling;
use crate::engine::service::shutdown::Shutdown;
use crate::engine::{Recovery, Stats};
use crate::error::{Error, Op, Result};
use crate::machine::{Drive, Machine};
use crate::mapped::{Allocator, Extent, MappedFileQueue};
use crate::options::{EngineKind, Flush, Options};
use crate::plant::{Point, pass};
use crate::record::RecordStyle;
use crate::region::Access;
use crate::sync::Mutex;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// A process in a shared store.
pub struct Share {
    /// Its state, which its threads use too.
    pub core: Arc<Core>,
    /// Senders of this process that wait for the disk.
    pub group: Arc<GroupCommit>,
    /// What consumers of this process need from other processes.
    pub groups: Arc<Groups>,
    watcher: Mutex<Option<JoinHandle<()>>>,
}

impl Share {
    /// Joins the store at `root`, and creates it if there is none. Also returns the parts that
    /// this process reads.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] and [`Error::Unsupported`] for what processes cannot share; those
    /// of [`Member::join`] and of opening a store.
    pub fn open(
        machine: &Machine,
        root: &Path,
        options: &Options,
        holds: Vec<Arc<dyn Hold>>,
    ) -> Result<(Share, Opened)> {
        check(options)?;
        let disk = &*machine.disk;
        let maker = writer::permit(disk, root, options)?;
        find::prepare(disk, root, maker)?;
        let own = Agreed::of(options)?;
        let member = Arc::new(Member::join(
            disk,
            root,
            Meeting::OF_STATE,
            options.lock_timeout,
            &own,
        )?);
        pass(Point::Joined);
        let mut options = options.clone();
        member.page.agreed()?.joined(&own)?.apply(&mut options);
        let options = &options;
        // After a failure no process may lead. Those that have the store open can still read.
        let is_sound = || member.page.failed().is_none();
        let leader = member.lead_or_wait(root, is_sound, || {
            Leader::begin(machine, root, options, &member, holds.clone())
        })?;
        let beside = open_beside(machine, root, options, &member, leader.is_some())
            .and_then(|beside| member.agree(&own).map(|()| beside));
        let (mut opened, end) = match beside {
            Ok(beside) => beside,
            Err(error) => {
                // Services must not continue without the locks of this process.
                leader.iter().for_each(|it| it.leave(&Given::default()));
                return Err(error);
            }
        };
        if let Some(leader) = &leader {
            opened.recovery = Recovery::clone(&leader.recovery);
            leader.tell(&opened.parts);
        }
        let core = Arc::new(assemble(machine, root, member, &opened, holds, end));
        if let Some(leader) = leader {
            *core.role.lock() = Role::Leader(Box::new(leader));
            core.lead.begin();
        }
        let groups = Arc::new(Groups::new(
            &core.machine.disk,
            root,
            &core.member,
            &core.lead,
        ));
        let share = Share {
            group: Arc::new(GroupCommit::new(machine.drive)),
            watcher: Mutex::default(),
            groups,
            core,
        };
        if machine.drive == Drive::Threads
            && let Err(error) = share.begin_watch()
        {
            let _ = share.close();
            return Err(Error::io(Op::StartThreads, root, error));
        }
        Ok((share, opened))
    }

    /// Starts the thread that watches the leader.
    fn begin_watch(&self) -> std::io::Result<()> {
        let core = Arc::clone(&self.core);
        let watcher = std::thread::Builder::new().name("forebay-share".to_owned());
        *self.watcher.lock() = Some(watcher.spawn(move || core.watch())?);
        Ok(())
    }

    /// Waits until the log is durable up to `end`, at most for `timeout`, and only while `go_on`
    /// returns true.
    ///
    /// # Errors
    ///
    /// [`Error::FlushTimeout`] if the leader hangs; [`Error::Failed`].
    pub fn flush_to(
        &self,
        end: u64,
        timeout: Duration,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        group_commit::enlist(&self.group, &self.core, end).wait_while(timeout, go_on)
    }

    /// Completes the figures of a reader with those of this process's appends, and with the
    /// position up to which all processes have published.
    pub fn stats(&self, stats: Stats) -> Stats {
        let (messages_sent, bytes_sent) = self.core.counters();
        Stats {
            messages_sent,
            bytes_sent,
            published: self.core.published(),
            append_held: self.core.tail.held_for(),
            ..stats
        }
    }

    /// Leaves the store: makes everything that was sent durable, and hands the services over. The
    /// last process closes the store.
    ///
    /// # Errors
    ///
    /// The error that keeps messages from being durable, or that has ended this process's writing.
    pub fn close(&self) -> Result<()> {
        let core = &self.core;
        {
            let _tail = core.lock_tail();
            if !core.health.close() {
                return Ok(());
            }
        }
        let flushed = core.flush_to(core.published());
        // The leader may have flushed all that this process has published before it failed.
        let flushed = flushed.and(core.health.check());
        // From here on no thread of this process waits for a leader that hangs.
        core.shutdown.begin();
        self.group.end();
        let watcher = self.watcher.lock().take();
        if let Some(watcher) = watcher {
            let _ = watcher.join();
        }
        pass(Point::Leaving);
        // No thread of this process may pass the gate any more.
        self.groups.end();
        // The allocator must not fault in pages after the last process has dropped them.
        core.allocator.stop();
        let left = self.leave();
        core.member.leave();
        flushed.and(left)
    }

    fn leave(&self) -> Result<()> {
        let core = &self.core;
        let last = core.member.is_last();
        let is_last = matches!(last, Ok(true));
        let mut left = last.map(drop);
        if is_last {
            // The process that ran the services may have left or died a moment ago.
            left = left.and(core.try_lead().map(drop));
            left = left.and(GroupTable::remove(&*core.machine.disk, &core.root));
        }
        core.lead.end();
        // Whatever has failed, no service may continue without the locks of this process.
        let role = {
            let mut role = core.role.lock();
            // No reader of this process dispatches any more.
            if matches!(*role, Role::Leader(_)) {
                core.member.page.set_on_duty(0);
            }
            std::mem::replace(&mut *role, Role::Gone)
        };
        match role {
            Role::Leader(leader) if is_last => {
                let stored_ms = core.member.page.stored_ms();
                let closed = left.and(leader.close(stored_ms, &core.given_offsets()));
                closed.inspect(|()| self.drop_unused_pages())
            }
            Role::Leader(leader) => {
                leader.leave(&core.given_offsets());
                left
            }
            Role::Follower | Role::Gone => left,
        }
    }

    /// Drops pages after the end of the log that this process has faulted in ahead of use. Nobody
    /// appends any more.
    fn drop_unused_pages(&self) {
        let mut tail = self.core.lock_tail();
        if self.core.catch_up(&mut tail).is_ok()
            && let Some((file, range)) = tail.unused_pages()
        {
            let len = range.end - range.start;
            let disk = &self.core.machine.disk;
            disk.drop_zeros(file.path(), range.start, len);
        }
    }
}

/// What processes cannot share.
fn check(options: &Options) -> Result<()> {
    if options.transient_pool == 0 {
        return Ok(());
    }
    let reason = "does not work with mode=\"share\": its buffers belong to one process";
    let given = options.transient_pool;
    Err(Error::option("transient_pool", given, reason))
}

/// Checks that a process that joins writes records as the others do.
fn check_kept(kept: &Kept, page: &StatePage, machine: &Machine) -> Result<()> {
    kept.agree(&*machine.disk)?;
    if kept.options.checksum() != page.checksums_from().is_some() {
        let reason = "differs from the option of the processes that share the store";
        return Err(Error::option("checksum", kept.options.checksum(), reason));
    }
    Ok(())
}

/// The end of the log, for the appends of this process.
struct End {
    log: Arc<Log>,
    tail: Tail,
    /// The version of the table of topics that was loaded before.
    topics_version: u32,
}

/// Opens the store for reading beside its leader, which is this process if `leads`, and finds the
/// end of the log.
fn open_beside(
    machine: &Machine,
    root: &Path,
    options: &Options,
    member: &Member,
    leads: bool,
) -> Result<(Opened, End)> {
    let kept = Kept::load(&*machine.disk, root, options, EngineKind::CommitLog)?;
    if !leads {
        check_kept(&kept, &member.page, machine)?;
    }
    let mut opened = open::open_beside(machine, root, &kept.options)?;
    opened.options = kept.options;
    let end = find_end(machine, root, member, &opened)?;
    Ok((opened, end))
}

/// The end of the log at the dispatched mark, for a process that appends. Its first append walks on
/// from there.
fn find_end(machine: &Machine, root: &Path, member: &Member, opened: &Opened) -> Result<End> {
    let (parts, options) = (&opened.parts, &opened.options);
    let disk = &machine.disk;
    let topics_version = member.page.topics_version();
    let (begin, offsets) = dispatched(parts)?;
    let file_len = parts.log.files.file_len();
    let files = MappedFileQueue::new(disk, root.join(names::COMMIT_LOG), file_len);
    let found = geometry::log_files(&**disk, root, true)?;
    let found: Vec<_> = found
        .into_iter()
        .filter(|file| file.start < begin)
        .collect();
    files.load(&found, Access::ReadWrite, |file| {
        Extent::Part(begin.saturating_sub(file.start).min(file.len))
    });
    let log = Arc::new(Log {
        files,
        state: Arc::clone(&member.page),
        source: None,
        sync: false,
        ready: AtomicU64::new(0),
        stored_ms: AtomicI64::new(0),
        joined: Mutex::new(begin),
    });
    let populate = options.flush() == Flush::Async && !options.warm_up;
    let mut tail = Tail::new(&log, begin, member.page.stored_ms(), populate, false)?;
    for (topic, queue, next) in offsets {
        tail.set_next_offset(&topic, queue, next);
    }
    Ok(End {
        log,
        tail,
        topics_version,
    })
}

/// Assembles the state of this process.
fn assemble(
    machine: &Machine,
    root: &Path,
    member: Arc<Member>,
    opened: &Opened,
    holds: Vec<Arc<dyn Hold>>,
    end: End,
) -> Core {
    let (options, parts) = (&opened.options, &opened.parts);
    let rules = AppendRules {
        style: RecordStyle {
            max_message_size: options.max_message_size(),
            checksum: options.checksum(),
            ..parts.append_rules.style
        },
        default_queues: options.default_queues(),
        busy_timeout: options.busy_timeout,
        pool_fail_fast: false,
    };
    let clock = Arc::clone(&machine.clock);
    Core {
        tail: AppendLock::new(end.tail, options.append_lock, clock),
        allocator: Allocator::new(machine, preparation(options), &parts.report.warnings),
        machine: machine.clone(),
        root: root.to_owned(),
        holds,
        member,
        log: end.log,
        parts: Arc::clone(parts),
        topics_version: AtomicU32::new(end.topics_version),
        rules,
        health: Health::default(),
        role: Mutex::new(Role::Follower),
        lead: Arc::<Lead>::default(),
        rested: AtomicU64::new(0),
        polling: Polling::default(),
        watch: OnceLock::new(),
        meters: OnceLock::new(),
        shutdown: Shutdown::default(),
        options: options.clone(),
    }
}
