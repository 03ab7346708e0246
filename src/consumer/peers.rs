//! The thread that keeps a process among those that consume from a shared store.
//!
//! ```text
//!   each step:  show a sign of life
//!               watch the next process, in the order of slots: evict its consumers if it is dead,
//!               or has shown no sign of life for their session time-out
//!               give queues to their heirs where nothing is unsettled
//! ```
//!
//! Each process watches one other, and those after it only while that one shows no sign of life. So
//! every process is watched as long as one lives, and the cost does not grow with their number. A
//! step comes ten times a second, and at once when the table changes. A dead process is recognised
//! with certainty: its lock is gone. The time without a sign of life is counted in steps of the
//! watching process, so that no process is evicted because the machine slept.

use super::Consumers;
use super::loan::Loan;
use super::occupation::Occupation;
use crate::engine::directory::group_table::GroupTable;
use crate::error::Result;
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause between two steps.
const STEP: Duration = Duration::from_millis(100);
/// The most that one step adds to the time for which a process has shown no sign of life.
const STEP_MAX: Duration = Duration::from_millis(200);
/// After this time without a sign of life of a process, the one after it is watched too.
const SILENT: Duration = Duration::from_millis(500);

/// The other processes, as this process sees them.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// By slot: the last beat, and for how long it has been the same.
    silent: BTreeMap<u32, (Option<u64>, Duration)>,
}

impl Watch {
    /// Watches the next processes; `passed` is the time since the last step. Returns whether
    /// consumers were evicted.
    ///
    /// # Errors
    ///
    /// Those of the table.
    pub(super) fn step(
        &mut self,
        occupation: &Occupation,
        passed: Duration,
        now: i64,
    ) -> Result<bool> {
        let table = occupation.table();
        let own = table.own_slot();
        // The shortest session time-out of the consumers of each other process.
        let mut others: BTreeMap<u32, u32> = BTreeMap::new();
        for member in table.members().filter(|member| member.slot != own) {
            let session = others.entry(member.slot).or_insert(member.session_ms);
            *session = member.session_ms.min(*session);
        }
        table.check()?;
        self.silent.retain(|slot, _| others.contains_key(slot));
        let next = others.range(own..).chain(others.range(..own));
        let mut has_evicted = false;
        for (slot, session_ms) in next {
            let beat = table.beat(*slot);
            let silent = match self.silent.get(slot) {
                Some((seen, silent)) if *seen == beat => *silent + passed.min(STEP_MAX),
                // A new beat: it may have come at any time since the last step.
                _ => Duration::ZERO,
            };
            self.silent.insert(*slot, (beat, silent));
            // Without a beat, the slot belongs to a process that has no consumers.
            let is_gone = beat.is_none() || !table.is_alive(*slot);
            if is_gone || silent >= Duration::from_millis(u64::from(*session_ms)) {
                has_evicted |= occupation.evict(*slot, now)? > 0;
                self.silent.remove(slot);
            } else if silent < SILENT {
                break;
            }
        }
        Ok(has_evicted)
    }
}

/// The thread.
#[derive(Debug, Default)]
pub(super) struct Peers {
    ended: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Peers {
    /// Starts the thread, unless it runs or has ended.
    pub(super) fn start(
        &self,
        consumers: &Arc<Loan<Consumers>>,
        occupation: &Arc<Occupation>,
    ) -> std::io::Result<()> {
        let mut thread = self.thread.lock();
        if thread.is_none() && !self.ended.load(Ordering::Acquire) {
            let consumers = Arc::clone(consumers);
            let (ended, table) = (Arc::clone(&self.ended), Arc::clone(occupation.table()));
            let named = std::thread::Builder::new().name("forebay-peers".to_owned());
            *thread = Some(named.spawn(move || run(&consumers, &ended, &table))?);
        }
        Ok(())
    }

    /// Ends the thread and waits for it.
    pub(super) fn end(&self, table: &GroupTable) {
        self.ended.store(true, Ordering::Release);
        table.notify();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn run(consumers: &Loan<Consumers>, ended: &AtomicBool, table: &GroupTable) {
    let mut watch = Watch::default();
    let mut last = Instant::now();
    while !ended.load(Ordering::Acquire) {
        let seen = table.changes();
        let stepped = consumers.borrow(|it| {
            table.show_beat();
            let passed = last.elapsed();
            last = Instant::now();
            // The next step tries again. Consumers get the same error from their own calls.
            let _ = it.step_of_peers(&mut watch, passed);
        });
        if stepped.is_none() {
            return;
        }
        table.sleep(seen, STEP);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::consumer::group_index::PRODUCERS;
    use crate::consumer::patience::{Threads, is_locked};
    use crate::disk::{Disk, RealDisk};
    use crate::engine::directory::group_table;
    use std::collections::BTreeSet;
    use tempfile::TempDir;

    /// The processes of a test, by slot; those that are not dead live.
    struct Slot(u32, Arc<Mutex<BTreeSet<u32>>>);

    impl group_table::Peers for Slot {
        fn slot(&self) -> u32 {
            self.0
        }

        fn is_alive(&self, slot: u32) -> bool {
            !self.1.lock().contains(&slot)
        }
    }

    /// Processes of slots 1, 2 and 3 with a consumer each. The first one watches, with a clock
    /// that the test moves: no test waits.
    struct Bed {
        processes: Vec<Occupation>,
        dead: Arc<Mutex<BTreeSet<u32>>>,
        watch: Watch,
        _dir: TempDir,
    }

    impl Bed {
        fn new(sessions_ms: [u32; 3]) -> Bed {
            let dir = tempfile::tempdir().unwrap();
            let disk: Arc<dyn Disk> = Arc::new(RealDisk);
            let dead = Arc::<Mutex<BTreeSet<u32>>>::default();
            let mut processes = Vec::new();
            for (slot, session_ms) in (1..).zip(sessions_ms) {
                let peers = Arc::new(Slot(slot, Arc::clone(&dead)));
                let table = match slot {
                    1 => GroupTable::create(&disk, dir.path(), peers).unwrap(),
                    _ => GroupTable::open(&disk, dir.path(), peers).unwrap().unwrap(),
                };
                table.show_beat();
                let process = Occupation::new(Arc::new(table));
                let topics = BTreeSet::from(["orders".into()]);
                let session = (session_ms, None);
                process.join("workers", &topics, &[], session, 0).unwrap();
                processes.push(process);
            }
            Bed {
                processes,
                dead,
                watch: Watch::default(),
                _dir: dir,
            }
        }

        fn table(&self) -> &GroupTable {
            self.processes.first().unwrap().table()
        }

        fn show_beat_of(&self, slot: usize) {
            self.processes.get(slot - 1).unwrap().table().show_beat();
        }

        /// A step after `passed_ms`. Returns whether it has evicted.
        fn step(&mut self, passed_ms: u64) -> bool {
            let process = self.processes.first().unwrap();
            let passed = Duration::from_millis(passed_ms);
            self.watch.step(process, passed, 0).unwrap()
        }

        fn left(&self) -> Vec<u32> {
            let mut left: Vec<u32> = self.table().members().map(|it| it.slot).collect();
            left.sort_unstable();
            left
        }
    }

    /// The process that holds the lock of the table may have been stopped.
    #[test]
    fn a_thread_that_waits_for_the_table_holds_up_no_other() {
        let bed = Bed::new([1_000; 3]);
        let [holder, waiter, _] = &bed.processes[..] else {
            panic!("there are three processes");
        };
        let held = holder.lock().unwrap();
        assert!(waiter.lock().is_err_and(|error| is_locked(&error)));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| waiter.patiently(|| waiter.lock().map(drop)));
            // A thread that sleeps marks the lock as awaited.
            while !waiter.table().is_awaited() {
                std::thread::yield_now();
            }
            assert!(waiter.knows("workers", "orders").is_ok());
            // The waiter holds its turn for a moment at each attempt.
            while !waiter.turn_is_free() {
                std::thread::yield_now();
            }
            assert!(!waits.is_finished());
            drop(held);
            waits.join().unwrap().unwrap();
        });
    }

    /// Each call once waited for five seconds, and several threads did so one after another.
    #[test]
    fn a_queue_is_handed_over_and_begun_once_the_table_is_free() {
        let bed = Bed::new([1_000; 3]);
        let [holder, owner, _] = &bed.processes[..] else {
            panic!("there are three processes");
        };
        let held = holder.lock().unwrap();
        let adopted = owner.adopt(0, Threads::Await);
        assert!(adopted.is_err_and(|error| is_locked(&error)));
        assert!(
            owner
                .hand_over(0, 0, (0, Threads::Await))
                .is_err_and(|error| is_locked(&error))
        );
        assert!(owner.evict(3, 0).is_err_and(|error| is_locked(&error)));
        let number = owner
            .table()
            .members()
            .find(|it| it.slot == 2)
            .unwrap()
            .number;
        owner.note_left(number);
        assert!(owner.remove_left(0).is_err_and(|error| is_locked(&error)));
        assert_eq!(bed.left(), [1, 2, 3]);
        drop(held);
        owner.remove_left(0).unwrap();
        assert_eq!(bed.left(), [1, 3]);
    }

    /// The thread of an event loop may close a producer, or drop one.
    #[test]
    fn who_gives_a_queue_up_waits_for_no_thread_that_changes_the_table() {
        let bed = Bed::new([1_000; 3]);
        let process = bed.processes.first().unwrap();
        let mut locked = process.lock().unwrap();
        let owner = locked.own_member(1_000, 0).unwrap();
        let owned = locked.assign(PRODUCERS, "orders", 0, (owner, 0));
        let (row, epoch) = owned.unwrap();
        process.give_up(row, epoch);
        assert_eq!(bed.table().row(row).owner(), Some(owner));
        drop(locked);
        process.remove_left(0).unwrap();
        assert_eq!(bed.table().row(row).owner(), None);
    }

    #[test]
    fn who_is_interrupted_waits_for_the_table_no_longer() {
        let bed = Bed::new([1_000; 3]);
        let [holder, waiter, _] = &bed.processes[..] else {
            panic!("there are three processes");
        };
        let _held = holder.lock().unwrap();
        let wait = || waiter.patiently(|| waiter.lock().map(drop));
        let ended = crate::interrupt::allow(|| true, wait);
        assert!(ended.is_err_and(|error| !is_locked(&error)));
    }

    #[test]
    fn a_process_is_evicted_once_it_was_silent_for_its_session_timeout() {
        let mut bed = Bed::new([60_000, 1_000, 60_000]);
        assert!(!bed.step(0));
        for silent in 1..10 {
            bed.show_beat_of(3);
            assert!(!bed.step(100), "{silent}");
        }
        assert_eq!(bed.left(), [1, 2, 3]);
        assert!(bed.step(100));
        assert_eq!(bed.left(), [1, 3]);
        // Its slot counts from zero when it comes back.
        assert!(bed.watch.silent.keys().all(|slot| *slot != 2));
    }

    #[test]
    fn a_sign_of_life_starts_the_time_again() {
        let mut bed = Bed::new([60_000, 1_000, 60_000]);
        assert!(!bed.step(0));
        for _ in 0..3 {
            for _ in 0..9 {
                assert!(!bed.step(100));
            }
            bed.show_beat_of(2);
            assert!(!bed.step(100));
        }
        assert_eq!(bed.left(), [1, 2, 3]);
    }

    /// The machine, and thus all processes, may have slept; or this process was stopped and watched
    /// nobody.
    #[test]
    fn a_step_that_comes_late_counts_as_a_short_one() {
        let mut bed = Bed::new([60_000, 1_000, 60_000]);
        assert!(!bed.step(0));
        for _ in 0..4 {
            assert!(!bed.step(3_600_000));
        }
        assert_eq!(bed.left(), [1, 2, 3]);
        let most = u64::try_from(STEP_MAX.as_millis()).unwrap();
        assert_eq!(most * 5, 1_000);
        assert!(bed.step(3_600_000));
        assert_eq!(bed.left(), [1, 3]);
    }

    #[test]
    fn those_after_the_next_are_watched_while_it_is_silent() {
        let mut bed = Bed::new([60_000, 60_000, 1_000]);
        let silent = u64::try_from(SILENT.as_millis()).unwrap();
        assert!(!bed.step(0));
        for _ in 0..silent / 100 - 1 {
            assert!(!bed.step(100));
            // The second lives, so it watches the third.
            assert!(!bed.watch.silent.contains_key(&3));
        }
        assert!(!bed.step(100));
        assert!(bed.watch.silent.contains_key(&3));
        for _ in 0..9 {
            assert!(!bed.step(100));
        }
        assert!(bed.step(100));
        assert_eq!(bed.left(), [1, 2]);
    }

    #[test]
    fn a_dead_process_is_evicted_at_once_and_so_is_the_dead_one_after_it() {
        let mut bed = Bed::new([60_000; 3]);
        assert!(!bed.step(0));
        bed.dead.lock().extend([2, 3]);
        assert!(bed.step(0));
        assert_eq!(bed.left(), [1]);
        assert!(!bed.step(0));
    }

    /// A new process that has taken the slot of a dead one holds its lock, and has no consumers.
    #[test]
    fn consumers_of_a_slot_without_a_beat_are_evicted() {
        let mut bed = Bed::new([60_000; 3]);
        bed.processes.get(1).unwrap().table().clear_beat();
        assert!(bed.step(0));
        assert_eq!(bed.left(), [1, 3]);
    }
}
