//! The services of a writable store and their threads: dispatch, write-out, and flush, which also
//! runs rolling and retention.
//!
//! Each service is a loop around a step that other threads may run too. The threads start with the
//! store and are joined on close, and none of them waits for a caller. Group commit starts its
//! thread itself when it is first needed.

use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::parts::write_out::WriteOutRules;
use crate::engine::commit_log::retention::Retention;
use crate::engine::commit_log::roll::Rolling;
use crate::engine::directory::page::{Mark, Word};
use crate::engine::service::duty;
use crate::engine::service::flush::{FlushRules, FlushService};
use crate::engine::service::group_commit::GroupCommit;
use crate::engine::service::hold::Hold;
use crate::engine::service::retention::Now;
use crate::engine::service::shutdown::Shutdown;
use crate::engine::service::watch::Watch;
use crate::error::Result;
use crate::machine::Drive;
use crate::meter::{Meters, WriterStats};
use crate::options::Options;
use crate::region::guard;
use crate::sync::Mutex;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long dispatch pauses when it has caught up. Each read of the end of the log takes a cache
/// line from the sender, whose next append waits for it, and dispatching records a few at a time
/// costs more than many at once. A reader in this process does not wait: it dispatches what it
/// needs.
const REST: Duration = Duration::from_micros(100);
/// Number of pauses without work after which dispatch waits to be woken.
const RESTS: usize = 100;
/// If at least this many bytes came between two pauses, dispatch keeps pausing: that costs less
/// than many wakes.
pub const BUSY_LEN: u64 = 2 << 10;
/// How often the thread checks for work before it sleeps.
const SPINS: usize = 200;
/// Longest pause of the flush thread, which calls the watch after each pause.
const PAUSE: Duration = Duration::from_secs(1);

/// Longest sleep on a word of the state page. It bounds the delay if a process dies between moving
/// its mark and changing the word.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Longest sleep of the thread that flushes for other processes. It can be long: a process that
/// dies before it notifies the thread no longer waits for the flush.
const UNWANTED_MAX: Duration = Duration::from_secs(1);

/// The services for the parts of a store.
#[derive(Debug)]
pub struct Services {
    /// When the log is flushed.
    pub flush_rules: FlushRules,
    /// When the transient pool is written out.
    write_out_rules: WriteOutRules,
    /// Senders that wait for a sync.
    pub group: Arc<GroupCommit>,
    /// When the current file is sealed.
    pub rolling: Rolling,
    /// Deletes old files.
    pub retention: Retention,
    /// A layer above the engine that checks from time to time whether it is needed.
    watch: OnceLock<Arc<dyn Watch>>,
    /// What readers in other processes are shown, in a store that this process has for itself.
    meters: OnceLock<Arc<Meters>>,
    shutdown: Shutdown,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Services {
    /// The services of a store with these options. No thread runs yet.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`](crate::error::Error::InvalidOption) for invalid hours of deletion.
    pub fn new(
        options: &Options,
        parts: &Arc<Parts>,
        drive: Drive,
        holds: Vec<Arc<dyn Hold>>,
    ) -> Result<Services> {
        Ok(Services {
            flush_rules: FlushRules::new(options),
            write_out_rules: WriteOutRules::new(options),
            group: Arc::new(GroupCommit::new(drive)),
            rolling: Rolling::new(options),
            retention: Retention::new(options, parts, holds)?,
            watch: OnceLock::new(),
            meters: OnceLock::new(),
            shutdown: Shutdown::default(),
            threads: Mutex::default(),
        })
    }

    /// Applies these options to retention and rolling, from their next steps on.
    ///
    /// # Errors
    ///
    /// As [`Services::new`].
    pub fn change(&self, options: &Options, parts: &Arc<Parts>) -> Result<()> {
        self.retention.change(options, parts)?;
        self.rolling.change(options);
        Ok(())
    }

    /// Sets the watch that is called about once a second.
    pub fn set_watch(&self, watch: Arc<dyn Watch>) {
        let _ = self.watch.set(watch);
    }

    /// Shows these measurements to readers in other processes, about once a second.
    pub fn show_meters(&self, meters: &Arc<Meters>) {
        let _ = self.meters.set(Arc::clone(meters));
    }

    /// Starts the threads.
    pub fn start(self: &Arc<Services>, parts: &Arc<Parts>) -> std::io::Result<()> {
        let spawn = |name: &str, run: fn(&Services, &Arc<Parts>)| {
            let (services, parts) = (Arc::clone(self), Arc::clone(parts));
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || run(&services, &parts))
        };
        let mut threads = self.threads.lock();
        threads.push(spawn("forebay-dispatch", Services::run_dispatch)?);
        threads.push(spawn("forebay-flush", Services::run_flush)?);
        if parts.log.state.is_shared() {
            threads.push(spawn("forebay-wanted", Services::run_wanted)?);
        }
        // In a synchronous store the threads that wait for the disk write out.
        if parts.pool.is_some() && !parts.log.sync {
            threads.push(spawn("forebay-write-out", Services::run_write_out)?);
        }
        Ok(())
    }

    /// Tells the threads to end.
    pub fn stop(&self, parts: &Parts) {
        self.shutdown.begin();
        parts.wake_all();
        if parts.log.state.is_shared() {
            parts.log.state.notify(Word::Work);
            parts.log.state.notify(Word::Wanted);
        }
    }

    /// Waits for the threads, which [`Services::stop`] has told to end, then completes all waiters.
    pub fn join(&self) {
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
        self.group.end();
    }

    fn run_dispatch(&self, parts: &Arc<Parts>) {
        let (shutdown, dispatcher) = (&self.shutdown, &parts.dispatcher);
        let mut rested = dispatcher.dispatched();
        let due = || shutdown.has_begun() || dispatcher.dispatched() < parts.log.readable_end();
        // Whether there was work since the last sleep. A reader on duty may have done it.
        let mut worked = false;
        while !shutdown.has_begun() {
            match dispatcher.step() {
                Ok(true) => worked = true,
                Ok(false) => {
                    let dispatched = dispatcher.dispatched();
                    let moved =
                        dispatched.saturating_sub(std::mem::replace(&mut rested, dispatched));
                    let found = match wakes_at_once(parts, moved) {
                        true => spin(due),
                        false => {
                            worked
                                && (0..RESTS).any(|_| {
                                    std::thread::sleep(REST);
                                    due()
                                })
                        }
                    };
                    if !found && parts.log.state.is_shared() {
                        worked = duty::sleep(&*parts.log.state, SLEEP_MAX, due);
                    } else if !found {
                        worked = true;
                        parts.conditions.work.sleep(Duration::from_secs(3600), due);
                    }
                }
                Err(error) => {
                    // A lack of room, memory or descriptors is temporary; any other error ends
                    // writing. Reads continue in both cases.
                    if error.ends_writing() {
                        parts.fail(&error);
                        return;
                    }
                    shutdown.sleep(Duration::from_millis(200));
                }
            }
        }
    }

    fn run_write_out(&self, parts: &Arc<Parts>) {
        let Some(pool) = &parts.pool else { return };
        let (shutdown, rules) = (&self.shutdown, &self.write_out_rules);
        let mut written = Instant::now();
        while !shutdown.has_begun() && parts.health.check().is_ok() {
            let ready = || shutdown.has_begun() || pool.has_full();
            parts.conditions.full.sleep(rules.interval, ready);
            rules.step(parts, Instant::now(), &mut written);
        }
    }

    fn run_flush(&self, parts: &Arc<Parts>) {
        let start = Instant::now();
        let mut service = FlushService::new(self.flush_rules, start);
        let mut next = start + self.flush_rules.interval;
        let mut shown = start;
        while !self.shutdown.has_begun() {
            let pause = next.saturating_duration_since(Instant::now());
            let pause = self.retention.rest(pause).min(PAUSE);
            self.shutdown.sleep(pause);
            if self.shutdown.has_begun() {
                return;
            }
            if let Some(watch) = self.watch.get() {
                watch.check();
            }
            guard::renew();
            if Instant::now() >= next {
                next = service.step(&**parts, Instant::now());
            }
            let clock_ms = parts.clock.now_ms();
            if !parts.log.state.is_shared() {
                self.rolling.step(parts, clock_ms);
            }
            self.retain(parts, self.retention.now(parts));
            if shown.elapsed() >= PAUSE
                && let Some(meters) = self.meters.get()
            {
                show(parts, parts.tail.counters(), meters);
                shown = Instant::now();
            }
        }
    }

    /// Flushes what processes of a shared store want to be durable.
    fn run_wanted(&self, parts: &Arc<Parts>) {
        let state = &parts.log.state;
        while !self.shutdown.has_begun() && parts.health.check().is_ok() {
            let seen = state.read_word(Word::Wanted);
            let wanted = state.wanted().min(parts.log.published());
            if wanted <= state.get(Mark::Durable) {
                if !self.shutdown.has_begun() {
                    state.sleep_on(Word::Wanted, seen, UNWANTED_MAX);
                }
            } else if parts.flush_to(wanted).is_err() {
                // Writing has failed, or the next attempt may succeed.
                self.shutdown.sleep(Duration::from_millis(100));
            }
        }
    }

    /// One step of retention.
    pub fn retain(&self, parts: &Parts, now: Now) {
        self.retention.step(parts, now);
    }
}

/// Shows readers in other processes what this process has measured. `counters`: messages and bytes
/// that it has appended. `parts`: those that its services work on.
pub fn show(parts: &Parts, counters: (u64, u64), meters: &Meters) {
    let stats = WriterStats::measure(counters, meters, &parts.flushing.meter.read());
    let now_ns = parts.clock.now_ns();
    parts.log.state.show_writer(&stats, now_ns);
}

/// Whether each sender should wake dispatch of a shared store, which otherwise rests: true if
/// readers in other processes wait and few bytes (`moved`) came since the last pause.
fn wakes_at_once(parts: &Parts, moved: u64) -> bool {
    parts.log.state.is_shared() && parts.dispatcher.is_followed() && moved < BUSY_LEN
}

/// Checks for some microseconds whether there is work. A sleep would take as long.
fn spin(due: impl Fn() -> bool) -> bool {
    (0..SPINS).any(|_| {
        std::hint::spin_loop();
        due()
    })
}
