//! The threads of a store that is written: dispatch, and flush with its checkpoint.
//!
//! Each is a loop around a step that others may run too; a thread is only its driver. They are
//! started with the store and joined on close, and none of them ever waits for a caller.

use super::flush::{self, FlushService};
use super::shared::Shared;
use parking_lot::Mutex;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long dispatch leaves what is new alone. Each look at the end of the log takes a cache line
/// from the sender, whose next append waits for it, and a few records at a time are dearer to
/// dispatch than many. Who reads in this process does not wait: a read dispatches what it needs.
const REST: Duration = Duration::from_micros(100);
/// How often it rests and finds nothing before it waits to be woken.
const RESTS: usize = 100;

/// The threads.
#[derive(Debug, Default)]
pub struct Services {
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Services {
    /// Starts the threads.
    pub fn start(&self, shared: &Arc<Shared>) -> std::io::Result<()> {
        let spawn = |name: &str, run: fn(&Arc<Shared>)| {
            let shared = Arc::clone(shared);
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || run(&shared))
        };
        let mut threads = self.threads.lock();
        threads.push(spawn("forebay-dispatch", run_dispatch)?);
        threads.push(spawn("forebay-flush", run_flush)?);
        // In a synchronous store those who wait for the disk write out.
        if shared.pool.is_some() && !shared.log.sync {
            threads.push(spawn("forebay-write-out", run_write_out)?);
        }
        Ok(())
    }

    /// Waits for the threads, which `Shared::stop` has told to end.
    pub fn join(&self) {
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }
}

fn run_dispatch(shared: &Arc<Shared>) {
    let due = || shared.stopping() || shared.dispatcher.dispatched() < shared.log.readable_end();
    while !shared.stopping() {
        match shared.dispatcher.step() {
            Ok(true) => {}
            Ok(false) => {
                let found = (0..RESTS).any(|_| {
                    std::thread::sleep(REST);
                    due()
                });
                if !found {
                    shared.work.sleep(Duration::from_secs(3600), due);
                }
            }
            Err(error) => {
                // Want of room, memory or descriptors passes; anything else ends the writing.
                // Reads go on either way.
                if error.ends_writing() {
                    shared.fail(&error);
                    return;
                }
                shared
                    .stop_bell
                    .sleep(Duration::from_millis(200), || shared.stopping());
            }
        }
    }
}

fn run_write_out(shared: &Arc<Shared>) {
    let Some(pool) = &shared.pool else { return };
    let mut written = Instant::now();
    while !shared.stopping() && shared.health.check().is_ok() {
        let ready = || shared.stopping() || pool.has_full();
        shared.full.sleep(shared.write_out_rules.interval, ready);
        flush::step_write_out(shared, Instant::now(), &mut written);
    }
}

fn run_flush(shared: &Arc<Shared>) {
    let start = Instant::now();
    let mut service = FlushService::new(&shared.flush_rules, start);
    let mut next = start + shared.flush_rules.interval;
    while !shared.stopping() {
        let pause = next.saturating_duration_since(Instant::now());
        let pause = shared.retention.rest(pause).min(super::intake::LOOK);
        shared.stop_bell.sleep(pause, || shared.stopping());
        if shared.stopping() {
            return;
        }
        super::intake::start(shared);
        crate::mapped::guard::renew();
        if Instant::now() >= next {
            next = service.step(shared, Instant::now());
        }
        let clock_ms = shared.clock.now_ms();
        shared.rolling.step(shared, clock_ms);
        shared.retention.step(shared, clock_ms, Instant::now());
    }
}
