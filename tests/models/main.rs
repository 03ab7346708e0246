//! Models of how threads of a store interact, in every order that the memory model allows.
//!
//! The modules below are sources of the store, compiled a second time with loom's primitives in
//! place of `src/sync.rs`, and with stand-ins for the code that they use. They are the lists of
//! group commit and their waiters, the append locks of a process and of a shared store, the mark
//! below which bytes are readable, the conditions that wake sleepers in the same and in other
//! processes, the choice of the dispatching thread in a shared store, the owners of a shared queue,
//! and the row of files that retirement shortens under its readers. Each model is also run with a
//! planted mistake, which loom must find.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic, and no model uses all that a module has"
)]

mod surroundings;
mod sync;

#[path = "../../src/engine/service/condition.rs"]
mod condition;
#[path = "../../src/engine/service/durability.rs"]
mod durability;
#[path = "../../src/engine/service/duty.rs"]
mod duty;
#[path = "../../src/engine/service/fence.rs"]
mod fence;
#[path = "../../src/engine/service/group_commit.rs"]
mod group_commit;
#[path = "../../src/region/mark.rs"]
mod mark;
#[path = "../../src/plant.rs"]
mod plant;
#[path = "../../src/mapped/queue.rs"]
mod queue;
#[path = "../../src/engine/service/shared_condition.rs"]
mod shared_condition;
#[path = "../../src/engine/service/shared_lock.rs"]
mod shared_lock;
#[path = "../../src/engine/service/sleepers.rs"]
mod sleepers;
#[path = "../../src/sync/timed_lock.rs"]
mod timed_lock;
#[path = "../../src/engine/waiter.rs"]
mod waiter;

// The names by which the sources above import one another and the rest of the store.
mod engine {
    pub(crate) use crate::waiter;
}
mod region {
    pub(crate) use crate::surroundings::{Access, Region};
}
use forebay::internals::{disk, error, machine};
use region::Access;
use surroundings::{Extent, MappedFile};

use condition::Condition;
use disk::{Disk, RealDisk};
use duty::{Desk, Lead};
use fence::Fence;
use mark::ReadableMark;
use plant::{Bug, plant};
use queue::{FoundFile, MappedFileQueue};
use shared_condition::{SharedCondition, SharedWord};
use shared_lock::Taken;
use sleepers::Sleepers;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use surroundings::{Bytes, Marked, Office, Owned, Process, Senders, Shared, Word};
use sync::{AtomicBool, AtomicUsize, Ordering, Weakness, thread, weaken};
use timed_lock::TimedLock;

/// Runs a model in every order with 3 preemptions, which is where mistakes of this kind show.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_within(3, model);
}

/// Runs a model in every order with up to `preemptions` preemptions.
fn explore_within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Whether loom finds an order in which the model breaks.
fn breaks(model: impl Fn() + Sync + Send + 'static) -> bool {
    catch_unwind(AssertUnwindSafe(|| explore(model))).is_err()
}

/// Two senders enlist; the thread of the store exchanges the lists, syncs once and acknowledges.
fn group_commit() {
    let senders = Senders::new();
    let other = senders.clone();
    let sender = thread::spawn(move || other.send());
    senders.send();
    sender.join().unwrap();
    senders.group.end();
}

#[test]
fn a_sender_is_acknowledged_by_a_sync_that_began_after_it_enlisted() {
    explore(group_commit);
    for bug in [Bug::SwapLate, Bug::AcknowledgeEarly] {
        plant(Some(bug));
        let found = breaks(group_commit);
        plant(None);
        assert!(found, "{bug:?}");
    }
}

/// An appender stores bytes and moves the mark; a reader that sees the mark reads the bytes.
fn published(alone: bool) {
    let shared = Arc::new((ReadableMark::default(), Bytes(Default::default())));
    let appender = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let (mark, bytes) = &*shared;
            for at in 0..2 {
                bytes.0[at].store(at + 1, Ordering::Relaxed);
                match alone {
                    true => mark.raise_alone(at + 1),
                    false => mark.raise(at + 1),
                }
            }
        })
    };
    let (mark, bytes) = &*shared;
    for at in 0..mark.get() {
        let byte = bytes.0[at].load(Ordering::Relaxed);
        assert_eq!(byte, at + 1, "read before it was there");
    }
    appender.join().unwrap();
}

#[test]
fn below_the_readable_mark_all_bytes_are_there() {
    for alone in [true, false] {
        explore(move || published(alone));
        weaken(Some(Weakness::RelaxedStore));
        let found = breaks(move || published(alone));
        weaken(None);
        assert!(found, "a mark without order");
    }
}

/// A sender stores a value and notifies if somebody sleeps; the other thread sleeps unless there is
/// a value.
fn condition() {
    let shared = Arc::new((Condition::default(), AtomicBool::new(false)));
    let sender = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            shared.1.store(true, Ordering::Relaxed);
            condition::notify_all(&[&shared.0]);
        })
    };
    let (condition, news) = &*shared;
    condition.sleep(Duration::MAX, || news.load(Ordering::Relaxed));
    sender.join().unwrap();
}

#[test]
fn nobody_sleeps_over_news() {
    explore(condition);
    weaken(Some(Weakness::NoFence));
    let found = breaks(condition);
    weaken(None);
    assert!(found, "a condition without fences");
}

/// Two threads count under the lock, each as often as it takes it. One of them, and the thread that
/// began them, wait without limit; the other gives up if the lock is held.
fn timed_lock() {
    let shared = Arc::new((TimedLock::default(), AtomicUsize::default()));
    let count = |shared: &(TimedLock, AtomicUsize), timeout| {
        let (lock, counter) = shared;
        let is_taken = lock.try_lock() || lock.wait(timeout);
        if is_taken {
            // Two holders at once, or a holder that does not see the stores of the previous one,
            // would lose a count.
            let counted = counter.load(Ordering::Relaxed);
            counter.store(counted + 1, Ordering::Relaxed);
            lock.unlock();
        }
        usize::from(is_taken)
    };
    let others = [None, Some(Duration::ZERO)].map(|timeout| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || count(&shared, timeout))
    });
    let mine = count(&shared, None);
    let theirs = others.map(|other| other.join().unwrap());
    let counted = shared.1.load(Ordering::Relaxed);
    assert_eq!(counted, mine + theirs.iter().sum::<usize>());
}

#[test]
fn one_thread_holds_the_lock_and_none_sleeps_while_it_is_free() {
    explore(timed_lock);
    plant(Some(Bug::SleepUnchecked));
    let found = breaks(timed_lock);
    plant(None);
    assert!(found, "a thread that sleeps unchecked");
}

/// Processes that share a store: each takes the lock and counts. `None` waits without limit.
fn count(process: &Process) {
    let taken = shared_lock::acquire(process, process.slot, None);
    let shared = &process.shared;
    match taken.unwrap() {
        // An error may keep a holder from erasing what the dead one left; then the next one must.
        Taken::Dirty if process.fails => {}
        Taken::Dirty => {
            shared.torn.store(0, Ordering::Relaxed);
            shared_lock::clean(process);
        }
        Taken::Clean => {
            let torn = shared.torn.load(Ordering::Relaxed);
            assert_eq!(torn, 0, "appends behind what a dead process has left");
        }
    }
    // Two holders at once, or a holder that does not see the stores of the previous one, would lose
    // a count.
    let counted = shared.counter.load(Ordering::Relaxed);
    shared.counter.store(counted + 1, Ordering::Relaxed);
    assert!(shared_lock::release(process, process.slot));
}

/// When a process dies inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dies {
    /// While another one waits.
    Meanwhile,
    /// Before, and an earlier process has died inside as well.
    Before,
}

/// One process dies inside. Another one joins with its slot, and a third has a slot of its own.
fn shared_lock_outlives_its_holder(dies: Dies, fails: bool) {
    let shared = Arc::new(Shared::default());
    let process = |slot, fails| Process {
        shared: Arc::clone(&shared),
        slot,
        fails,
    };
    shared.live(1);
    shared.live(2);
    let die = |process: &Process| {
        shared_lock::acquire(process, 1, None).unwrap();
        process.shared.torn.store(1, Ordering::Relaxed);
        process.shared.die(1);
    };
    let first = process(1, false);
    if dies == Dies::Before {
        shared.make_dirty();
        die(&first);
    }
    let joined = thread::spawn(move || {
        if dies == Dies::Meanwhile {
            die(&first);
        }
        first.shared.live(1);
        count(&first);
    });
    count(&process(2, fails));
    joined.join().unwrap();
    assert_eq!(shared.counter.load(Ordering::Relaxed), 2);
}

#[test]
fn a_lock_that_processes_share_outlives_its_holder() {
    for dies in [Dies::Meanwhile, Dies::Before] {
        for fails in [false, true] {
            explore(move || shared_lock_outlives_its_holder(dies, fails));
        }
    }
    for (bug, dies) in [
        (Bug::KeepGeneration, Dies::Before),
        (Bug::WakeNobody, Dies::Meanwhile),
        (Bug::ForgetDirt, Dies::Meanwhile),
    ] {
        plant(Some(bug));
        let found = breaks(move || shared_lock_outlives_its_holder(dies, true));
        plant(None);
        assert!(found, "{bug:?}");
    }
}

/// Settles what is left of the queue, message by message, for as long as the process owns it.
fn settle(owned: &Owned) {
    while let Some(adopted) = fence::adopt(owned, || owned.lock()).unwrap() {
        let Fence {
            epoch,
            mut committed,
        } = adopted;
        while committed < Owned::MESSAGES {
            if !fence::advance(owned, epoch, committed + 1) {
                break;
            }
            owned.accept(committed);
            committed += 1;
        }
        if committed == Owned::MESSAGES {
            return;
        }
    }
}

/// One process consumes a queue; another one takes the queue from it, and consumes what is left.
fn hand_over() {
    let first = Owned::new(1);
    let second = first.of(2);
    let other = thread::spawn(move || {
        {
            let _held = second.lock().unwrap();
            fence::revoke(&second);
            second.own();
        }
        settle(&second);
    });
    settle(&first);
    other.join().unwrap();
    first.check();
}

#[test]
fn a_queue_that_changes_owners_has_each_message_settled_by_one_of_them() {
    explore(hand_over);
    for bug in [Bug::AdvanceBlindly, Bug::KeepEpoch, Bug::AdoptUnlocked] {
        plant(Some(bug));
        let found = breaks(hand_over);
        plant(None);
        assert!(found, "{bug:?}");
    }
}

/// The writer moves the mark and notifies, twice; a reader in another process sleeps until it has
/// seen both.
fn shared_condition() {
    let shared = Arc::new((
        SharedCondition::default(),
        Word::default(),
        AtomicUsize::default(),
    ));
    let dispatch = |shared: &(SharedCondition, Word, AtomicUsize), end| {
        shared.2.fetch_max(end, Ordering::Release);
        shared.0.notify(&shared.1);
    };
    let writer = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            dispatch(&shared, 1);
            dispatch(&shared, 2);
        })
    };
    let (_, word, mark) = &*shared;
    for end in 1..3 {
        while mark.load(Ordering::Acquire) < end {
            let ready = || mark.load(Ordering::Acquire) >= end;
            shared_condition::sleep(word, Duration::MAX, ready);
        }
    }
    writer.join().unwrap();
}

#[test]
fn no_reader_in_another_process_sleeps_over_news() {
    explore(shared_condition);
    plant(Some(Bug::LookLate));
    let found = breaks(shared_condition);
    plant(None);
    assert!(found, "a reader that looks at the word last");
}

/// A sender publishes twice, and wakes readers if the word is marked; others sleep until they have
/// seen both.
fn marked_word(readers: usize) {
    let shared = Arc::new((Marked::default(), AtomicUsize::default()));
    let read = |(word, mark): &(Marked, AtomicUsize)| {
        for end in 1..3 {
            while mark.load(Ordering::Acquire) < end {
                let ready = || mark.load(Ordering::Acquire) >= end;
                shared_condition::sleep_marked(word, Duration::MAX, ready);
            }
        }
    };
    let others: Vec<_> = (0..readers)
        .map(|_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || read(&shared))
        })
        .collect();
    let (word, mark) = &*shared;
    for end in 1..3 {
        mark.store(end, Ordering::Release);
        shared_condition::notify_marked(word);
    }
    for other in others {
        other.join().unwrap();
    }
}

/// Two senders publish once each, and a reader sleeps until it has seen both.
fn marked_by_one() {
    let shared = Arc::new((Marked::default(), AtomicUsize::default()));
    let send = |(word, mark): &(Marked, AtomicUsize), end| {
        mark.fetch_max(end, Ordering::Release);
        shared_condition::notify_marked(word);
    };
    let other = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || send(&shared, 2))
    };
    let reader = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let ready = || shared.1.load(Ordering::Acquire) == 2;
            while !ready() {
                shared_condition::sleep_marked(&shared.0, Duration::MAX, ready);
            }
        })
    };
    send(&shared, 1);
    other.join().unwrap();
    reader.join().unwrap();
}

#[test]
fn no_reader_sleeps_over_news_that_are_told_to_a_marked_word_alone() {
    explore(|| marked_word(1));
    explore_within(2, marked_by_one);
    // Three threads have more orders than two.
    explore_within(2, || marked_word(2));
    plant(Some(Bug::ClearLate));
    let found = breaks(|| marked_word(1));
    plant(None);
    assert!(found, "a mark that is cleared late");
    weaken(Some(Weakness::NoFence));
    let found = breaks(|| marked_word(1));
    weaken(None);
    assert!(found, "a marked word without fences");
}

/// A sender publishes a message. A reader of the process that leads takes over the dispatch and
/// gives it back: at once if it `leaves` for another reason, else when the message is dispatched.
/// The dispatch thread dispatches the rest.
fn duty(leaves: bool) {
    let office = Arc::new(Office::default());
    let reader = {
        let office = Arc::clone(&office);
        thread::spawn(move || {
            let ready = || leaves || office.is_dispatched();
            duty::serve(&*office, Duration::MAX, ready);
        })
    };
    let dispatcher = {
        let office = Arc::clone(&office);
        thread::spawn(move || {
            while !office.is_dispatched() {
                office.dispatch();
                let ready = || office.is_due() || office.is_dispatched();
                duty::sleep(&*office, Duration::MAX, ready);
            }
        })
    };
    office.publish();
    duty::call(&*office);
    reader.join().unwrap();
    dispatcher.join().unwrap();
}

#[test]
fn what_is_sent_is_dispatched_by_a_reader_on_duty_or_by_the_thread() {
    for leaves in [false, true] {
        // Three threads have more orders than two.
        explore_within(2, move || duty(leaves));
    }
    plant(Some(Bug::LeaveBlindly));
    let found = breaks(|| duty(true));
    plant(None);
    assert!(found, "a reader that goes off duty blindly");
    weaken(Some(Weakness::NoFence));
    let found = breaks(|| duty(true));
    weaken(None);
    assert!(found, "duty without fences");
}

/// A reader in another process sleeps until its own process closes it. The writer does not notify.
fn closing() {
    let shared = Arc::new((Sleepers::default(), Word::default(), AtomicBool::new(false)));
    let reader = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let (sleepers, word, closed) = &*shared;
            while !closed.load(Ordering::Acquire) {
                let ready = || closed.load(Ordering::Acquire);
                sleepers.sleep(|| shared_condition::sleep(word, Duration::MAX, ready));
            }
        })
    };
    let (sleepers, word, closed) = &*shared;
    closed.store(true, Ordering::Release);
    sleepers.wake(|| {
        word.wake();
        thread::yield_now();
    });
    reader.join().unwrap();
}

#[test]
fn no_reader_sleeps_over_the_close_of_its_store() {
    explore(closing);
    plant(Some(Bug::WakeOnce));
    let found = breaks(closing);
    plant(None);
    assert!(found, "a reader that is woken once");
}

/// A word that wakes the given number of sleepers when it is notified.
struct Woken(usize);

impl SharedWord for Woken {
    fn load(&self) -> u32 {
        0
    }

    fn sleep_on(&self, _seen: u32, _timeout: Duration) {}

    fn notify(&self) -> usize {
        self.0
    }
}

#[test]
fn senders_notify_while_somebody_is_woken_and_a_few_times_after() {
    explore(|| {
        let shared_condition = SharedCondition::default();
        shared_condition.notify(&Woken(0));
        assert!(!shared_condition.is_followed());
        for _ in 0..3 {
            shared_condition.notify(&Woken(2));
            let idle = std::iter::from_fn(|| {
                shared_condition.notify(&Woken(0));
                shared_condition.is_followed().then_some(())
            });
            assert_eq!(idle.count(), 3);
        }
    });
}

/// The first of two files leaves the row, and a third is added, while a reader looks files up and
/// reads from their maps.
fn retire(disk: &Arc<dyn Disk>, directory: &std::path::Path) {
    const LEN: u64 = 100;
    let found = [0, LEN].map(|start| FoundFile { start, len: LEN });
    let row = MappedFileQueue::new(disk, directory.to_owned(), LEN);
    row.load(&found, Access::Read, |_| Extent::Full);
    let row = Arc::new(row);
    let retirement = {
        let (row, disk) = (Arc::clone(&row), Arc::clone(disk));
        thread::spawn(move || {
            assert!(row.retire_first(LEN).unwrap().is_some());
            let path = row.path_of(2 * LEN);
            let file = MappedFile::open(&disk, path, 2 * LEN, LEN, Access::Read, Extent::Full);
            row.push(Arc::new(file));
            assert!(row.retire_first(LEN).unwrap().is_none(), "one lies below");
        })
    };
    let map_of = |position: u64| {
        let file = row.find(position)?;
        assert!((file.start()..file.end()).contains(&position));
        Some(row.map(&file).unwrap())
    };
    let first = map_of(LEN - 1);
    let second = map_of(LEN).unwrap();
    assert_eq!(second.start(), LEN);
    if let Some(first) = first {
        assert_eq!(first.start(), 0);
    }
    retirement.join().unwrap();
    assert!(map_of(LEN - 1).is_none());
    assert_eq!(map_of(2 * LEN).unwrap().start(), 2 * LEN);
}

#[test]
fn a_retired_file_stays_mapped_for_its_readers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let model = move || retire(&disk, &path);
    explore(model.clone());
    surroundings::pull_maps(true);
    let found = breaks(model);
    surroundings::pull_maps(false);
    assert!(found, "a map that is pulled away");
}
