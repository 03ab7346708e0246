//! Minimal stand-ins for code that the modelled code uses and that is not modelled itself.

use crate::durability::Durable;
use crate::duty::{self, Desk, Lead};
use crate::fence::Fenced;
use crate::group_commit::{self, GroupCommit};
use crate::shared_condition::{MarkedWord, SharedWord};
use crate::shared_lock::LockWord;
use crate::sync::{AtomicBool, AtomicU32, AtomicUsize, Condvar, Mutex, Ordering, thread};
use forebay::Disk;
use forebay::internals::Drive;
use forebay::internals::error::{Error, Op};
use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use forebay::internals::{Access, Extent};

/// Stands for the parts of a store: a log whose records are one byte long.
pub(crate) struct Log {
    published: loom::sync::atomic::AtomicUsize,
    durable: loom::sync::atomic::AtomicUsize,
}

impl Durable for Log {
    fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire) as u64
    }

    fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire) as u64
    }

    /// A sync covers what is published when it begins.
    fn flush_to(&self, end: u64) -> forebay::Result<()> {
        if self.durable() < end {
            let covered = self.published.load(Ordering::Acquire);
            thread::yield_now();
            self.durable.fetch_max(covered, Ordering::AcqRel);
        }
        Ok(())
    }

    fn count_wait(&self, _: Duration) {}

    fn full_pass(&self) -> forebay::Result<()> {
        Ok(())
    }

    fn tidy(&self) {}

    fn unmap_unused(&self) {}
}

/// A log and the senders' group.
#[derive(Clone)]
pub(crate) struct Senders {
    pub(crate) group: Arc<GroupCommit>,
    log: Arc<Log>,
}

impl Senders {
    pub(crate) fn new() -> Senders {
        let number = || loom::sync::atomic::AtomicUsize::new(0);
        Senders {
            group: Arc::new(GroupCommit::new(Drive::Threads)),
            log: Arc::new(Log {
                published: number(),
                durable: number(),
            }),
        }
    }

    /// Publishes a message and waits until it is durable, as a synchronous send does.
    pub(crate) fn send(&self) {
        let end = self.log.published.fetch_add(1, Ordering::AcqRel) as u64 + 1;
        let waiter = group_commit::enlist(&self.group, &self.log, end);
        waiter.wait_or_fail(Duration::MAX).unwrap();
        assert!(end <= self.log.durable(), "acknowledged too early");
    }
}

thread_local! {
    /// Planted mistake: a file that leaves its row is unmapped although readers use the map.
    static PULLS_MAPS: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn pull_maps(pulls: bool) {
    PULLS_MAPS.set(pulls);
}

/// Stands for `region/mod.rs`.
#[derive(Debug)]
pub(crate) struct Region {
    start: u64,
    is_mapped: Arc<AtomicBool>,
}

impl Region {
    /// Returns the number of the mapped file; reads its bytes.
    pub(crate) fn start(&self) -> u64 {
        thread::yield_now();
        assert!(self.is_mapped.load(Ordering::Acquire), "the map is gone");
        self.start
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.is_mapped.store(false, Ordering::Release);
    }
}

/// Stands for `mapped/file.rs`: a file that is mapped from the beginning.
#[derive(Debug)]
pub(crate) struct MappedFile {
    path: PathBuf,
    start: u64,
    len: u64,
    region: Mutex<Option<Arc<Region>>>,
    is_mapped: Arc<AtomicBool>,
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if PULLS_MAPS.get() {
            self.is_mapped.store(false, Ordering::Release);
        }
    }
}

impl MappedFile {
    pub(crate) fn open(
        _disk: &Arc<dyn Disk>,
        path: PathBuf,
        start: u64,
        len: u64,
        _access: Access,
        _extent: Extent,
    ) -> MappedFile {
        let is_mapped = Arc::new(AtomicBool::new(true));
        let region = Region {
            start,
            is_mapped: Arc::clone(&is_mapped),
        };
        MappedFile {
            path,
            start,
            len,
            region: Mutex::new(Some(Arc::new(region))),
            is_mapped,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn end(&self) -> u64 {
        self.start + self.len
    }

    pub(crate) fn region(&self) -> forebay::Result<Arc<Region>> {
        let region = self.region.lock().clone();
        region.ok_or_else(|| Error::io(Op::Map, &self.path, io::ErrorKind::NotFound.into()))
    }

    pub(crate) fn unmap_idle(&self) -> bool {
        false
    }

    pub(crate) fn unmap_unused(&self) {}

    pub(crate) fn flush(&self, _start: u64, _end: u64) -> forebay::Result<()> {
        Ok(())
    }
}

/// Bytes below a mark, each stored as an atomic that orders nothing.
pub(crate) struct Bytes(pub(crate) [AtomicUsize; 2]);

/// Stands for a word that processes share, and for the kernel's list of the threads that sleep on
/// it. Comparing the word and adding the sleeper to the list is one step.
#[derive(Default)]
pub(crate) struct Word {
    value: AtomicU32,
    sleepers: Mutex<usize>,
    woken: Condvar,
}

impl Word {
    /// Wakes those on the list, and leaves the word as it is.
    pub(crate) fn wake(&self) -> usize {
        let woken = std::mem::take(&mut *self.sleepers.lock());
        self.woken.notify_all();
        woken
    }
}

impl SharedWord for Word {
    fn load(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    fn sleep_on(&self, seen: u32, timeout: Duration) {
        let mut sleepers = self.sleepers.lock();
        if self.value.load(Ordering::Relaxed) == seen {
            *sleepers += 1;
            drop(self.woken.wait_for(sleepers, timeout));
        }
    }

    fn notify(&self) -> usize {
        self.value.fetch_add(1, Ordering::AcqRel);
        self.wake()
    }
}

/// A word that its sleepers mark.
#[derive(Default)]
pub(crate) struct Marked {
    word: Word,
    marked: AtomicBool,
}

impl SharedWord for Marked {
    fn load(&self) -> u32 {
        self.word.load()
    }

    fn sleep_on(&self, seen: u32, timeout: Duration) {
        self.word.sleep_on(seen, timeout);
    }

    fn notify(&self) -> usize {
        self.word.notify()
    }
}

impl MarkedWord for Marked {
    fn is_marked(&self) -> bool {
        self.marked.load(Ordering::Relaxed)
    }

    fn set_marked(&self, marked: bool) {
        self.marked.store(marked, Ordering::Relaxed);
    }
}

/// The process that leads a shared store, in which one message is sent.
#[derive(Default)]
pub(crate) struct Office {
    published: AtomicBool,
    dispatched: AtomicBool,
    work: Word,
    sleeps: AtomicBool,
    duty: Word,
    on_duty: AtomicU32,
}

impl Office {
    pub(crate) fn publish(&self) {
        self.published.store(true, Ordering::Release);
    }

    pub(crate) fn is_dispatched(&self) -> bool {
        self.dispatched.load(Ordering::Acquire)
    }
}

impl Desk for Office {
    fn is_due(&self) -> bool {
        !self.is_dispatched() && self.published.load(Ordering::Acquire)
    }

    fn load_work(&self) -> u32 {
        self.work.load()
    }

    fn notify_work(&self) {
        self.work.notify();
    }

    fn sleep_on_work(&self, seen: u32, timeout: Duration) {
        self.work.sleep_on(seen, timeout);
    }

    fn sleeps(&self) -> bool {
        self.sleeps.load(Ordering::Relaxed)
    }

    fn set_sleeps(&self, sleeps: bool) {
        self.sleeps.store(sleeps, Ordering::Relaxed);
    }

    fn load_duty(&self) -> u32 {
        self.duty.load()
    }

    fn notify_duty(&self) -> usize {
        self.duty.notify()
    }

    fn sleep_on_duty(&self, seen: u32, timeout: Duration) {
        self.duty.sleep_on(seen, timeout);
    }

    fn on_duty(&self) -> u32 {
        self.on_duty.load(Ordering::Relaxed)
    }
}

impl Lead for Office {
    type Desk = Office;

    fn desk(&self) -> &Office {
        self
    }

    fn begin_duty(&self) -> bool {
        self.on_duty.store(1, Ordering::Relaxed);
        true
    }

    fn end_duty(&self) {
        self.on_duty.store(0, Ordering::Relaxed);
    }

    fn poll(&self, _timeout: Duration, is_over: &dyn Fn() -> bool) -> bool {
        is_over()
    }

    /// The thread, which has no more to do, is woken as by a close.
    fn dispatch(&self) -> bool {
        if self.is_due() {
            self.dispatched.store(true, Ordering::Release);
            self.notify_work();
            duty::tell(self);
        }
        true
    }
}

/// The state that processes share: the word of their lock, which of them are alive, and the data
/// that the lock guards.
#[derive(Default)]
pub(crate) struct Shared {
    word: loom::sync::atomic::AtomicU64,
    alive: [AtomicBool; 3],
    sleepers: Mutex<()>,
    woken: Condvar,
    /// The remains of a process that died inside.
    pub(crate) torn: AtomicUsize,
    pub(crate) counter: AtomicUsize,
}

impl Shared {
    pub(crate) fn make_dirty(&self) {
        self.word.store(1 << 10, Ordering::SeqCst);
    }

    pub(crate) fn live(&self, slot: usize) {
        self.alive[slot].store(true, Ordering::SeqCst);
    }

    /// In the store, sleepers check again after some milliseconds; here they are woken.
    pub(crate) fn die(&self, slot: usize) {
        self.alive[slot].store(false, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        drop(self.sleepers.lock());
        self.woken.notify_all();
    }
}

/// A process that shares a store.
pub(crate) struct Process {
    pub(crate) shared: Arc<Shared>,
    pub(crate) slot: u32,
    /// Whether it fails to erase the remains of another process.
    pub(crate) fails: bool,
}

impl LockWord for Process {
    const SPINS: u32 = 1;

    fn load(&self) -> u64 {
        self.shared.word.load(Ordering::Acquire)
    }

    fn exchange(&self, old: u64, new: u64) -> bool {
        let (done, failed) = (Ordering::AcqRel, Ordering::Acquire);
        let word = &self.shared.word;
        word.compare_exchange(old, new, done, failed).is_ok()
    }

    fn sleep(&self, seen: u64, _: Duration) {
        let guard = self.shared.sleepers.lock();
        let holder = (seen & 0x1FF) as u32;
        if self.load() == seen && self.is_alive(holder) {
            drop(self.shared.woken.wait(guard));
        }
    }

    fn wake(&self) {
        self.shared.wake();
    }

    fn is_alive(&self, slot: u32) -> bool {
        slot != self.slot && self.shared.alive[slot as usize].load(Ordering::SeqCst)
    }
}

/// A queue that processes share, as one of them sees it.
pub(crate) struct Owned {
    queue: Arc<OwnedQueue>,
    process: u32,
}

struct OwnedQueue {
    fence: loom::sync::atomic::AtomicU64,
    owner: AtomicU32,
    lock: loom::sync::Mutex<()>,
    /// How often each message was settled.
    accepted: [AtomicUsize; 2],
}

impl Owned {
    pub(crate) const MESSAGES: u64 = 2;

    /// A queue of which nothing is settled, for its owner.
    pub(crate) fn new(process: u32) -> Owned {
        let queue = Arc::new(OwnedQueue {
            fence: loom::sync::atomic::AtomicU64::new(0),
            owner: AtomicU32::new(process),
            lock: loom::sync::Mutex::new(()),
            accepted: Default::default(),
        });
        Owned { queue, process }
    }

    /// The queue as another process sees it.
    pub(crate) fn of(&self, process: u32) -> Owned {
        Owned {
            queue: Arc::clone(&self.queue),
            process,
        }
    }

    /// Stores that the process owns the queue.
    pub(crate) fn own(&self) {
        self.queue.owner.store(self.process, Ordering::Release);
    }

    pub(crate) fn lock(&self) -> Result<loom::sync::MutexGuard<'_, ()>, ()> {
        self.queue.lock.lock().map_err(|_| ())
    }

    /// Counts that a message was settled.
    pub(crate) fn accept(&self, offset: u64) {
        let counter = &self.queue.accepted[usize::try_from(offset).unwrap()];
        assert_eq!(counter.load(Ordering::Relaxed), 0, "settled by two owners");
        counter.store(1, Ordering::Relaxed);
    }

    /// Checks that all messages were settled.
    pub(crate) fn check(&self) {
        let counts = self.queue.accepted.iter();
        assert!(counts.map(|it| it.load(Ordering::Relaxed)).eq([1, 1]));
    }
}

impl Fenced for Owned {
    fn load(&self) -> u64 {
        self.queue.fence.load(Ordering::Acquire)
    }

    fn exchange(&self, old: u64, new: u64) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let found = self
            .queue
            .fence
            .compare_exchange(old, new, success, failure);
        found.is_ok()
    }

    fn is_mine(&self) -> bool {
        self.queue.owner.load(Ordering::Acquire) == self.process
    }
}
