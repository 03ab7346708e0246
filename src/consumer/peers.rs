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
/// After this time without a sign of life, the processes after it are watched as well.
const SILENT: Duration = Duration::from_millis(500);

/// What a process knows of the others.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// By slot: the last beat, and for how long it has been the same.
    silent: BTreeMap<u32, (Option<u64>, Duration)>,
}

impl Watch {
    /// Watches the next processes; `passed` since the last step. Returns whether consumers were
    /// evicted.
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
            let known = self.silent.entry(*slot).or_insert((beat, Duration::ZERO));
            match known.0 == beat {
                true => known.1 += passed.min(STEP_MAX),
                false => *known = (beat, Duration::ZERO),
            }
            let silent = known.1;
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
            // The next step tries again. Consumers meet the same error.
            let _ = it.step_of_peers(&mut watch, passed);
        });
        if stepped.is_none() {
            return;
        }
        table.sleep(seen, STEP);
    }
}
