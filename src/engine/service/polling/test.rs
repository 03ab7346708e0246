//! Threads that poll on a host whose clock and load the test sets.

use super::*;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

const fn us(count: u64) -> Duration {
    Duration::from_micros(count)
}

/// A host whose clock stands still, except while a thread gives way.
#[derive(Clone, Debug)]
struct Planted(Arc<Planet>);

#[derive(Debug)]
struct Planet {
    began: Instant,
    /// The time since then, in us.
    now: AtomicU64,
    /// How long a thread that gives way is off its processor.
    off: AtomicU64,
    turns: AtomicUsize,
}

impl Host for Planted {
    fn now(&self) -> Instant {
        self.0.began + us(self.0.now.load(Ordering::Relaxed))
    }

    fn give_way(&self) {
        self.0.turns.fetch_add(1, Ordering::Relaxed);
        self.pass(us(self.0.off.load(Ordering::Relaxed)));
    }
}

impl Planted {
    /// A host on which a turn takes a microsecond, and a poller there whose last wait was short.
    fn new() -> (Planted, Polling) {
        let host = Planted(Arc::new(Planet {
            began: Instant::now(),
            now: AtomicU64::new(0),
            off: AtomicU64::new(1),
            turns: AtomicUsize::new(0),
        }));
        let polling = Polling::on(Box::new(host.clone()));
        polling.measure(Duration::MAX, || ());
        (host, polling)
    }

    fn pass(&self, time: Duration) {
        let micros = time.as_micros().try_into().unwrap();
        self.0.now.fetch_add(micros, Ordering::Relaxed);
    }

    /// Makes other threads run for `time` whenever one gives way.
    fn run_others(&self, time: Duration) {
        let micros = time.as_micros().try_into().unwrap();
        self.0.off.store(micros, Ordering::Relaxed);
    }

    /// Waits for messages that come every 50 us, for `time` in all. Returns the number of waits,
    /// and how many of them polled.
    fn wait_for(&self, polling: &Polling, time: Duration) -> (u64, u64) {
        let end = self.now() + time;
        let (mut waits, mut polled) = (0, 0);
        while self.now() < end {
            let comes = self.now() + us(50);
            let is_over = || self.now() >= comes;
            waits += 1;
            polling.measure(Duration::MAX, || match polling.poll(us(1_000), &is_over) {
                true => polled += 1,
                false => self.pass(comes.saturating_duration_since(self.now())),
            });
        }
        (waits, polled)
    }
}

/// Number of checks of a wait that is over at check number `last`, and the result of the last one.
fn checks(polling: &Polling, timeout: Duration, last: u32) -> (u32, bool) {
    let count = Cell::new(0);
    let is_over = || {
        count.set(count.get() + 1);
        count.get() >= last
    };
    let said = polling.poll(timeout, &is_over);
    (count.get(), said)
}

#[test]
fn a_thread_polls_only_if_its_last_wait_was_short() {
    let (host, polling) = Planted::new();
    assert_eq!(checks(&polling, Duration::MAX, 2), (2, true));
    assert_eq!(checks(&polling, Duration::MAX, 1), (1, true));
    for (took, timeout) in [(us(201), Duration::MAX), (us(100), us(100))] {
        polling.measure(Duration::MAX, || ());
        assert_eq!(checks(&polling, Duration::MAX, 2), (2, true));
        polling.measure(timeout, || host.pass(took));
        assert_eq!(checks(&polling, Duration::MAX, 2), (1, false));
    }
}

#[test]
fn polling_ends_with_the_timeout_and_after_a_moment() {
    let (_, polling) = Planted::new();
    assert_eq!(checks(&polling, Duration::ZERO, u32::MAX), (2, false));
    assert_eq!(checks(&polling, us(10), u32::MAX), (11, false));
    assert_eq!(checks(&polling, Duration::MAX, u32::MAX), (201, false));
}

#[test]
fn one_thread_polls_at_a_time() {
    let (_, polling) = Planted::new();
    let (turn, other) = (Cell::new(0), Cell::new(None));
    polling.poll(us(10), &|| {
        turn.set(turn.get() + 1);
        // The first check comes before it polls.
        if turn.get() == 2 {
            other.set(Some(checks(&polling, Duration::MAX, 2)));
        }
        false
    });
    assert_eq!(other.get(), Some((1, false)));
    assert_eq!(checks(&polling, Duration::MAX, 2), (2, true));
}

#[test]
fn a_thread_that_comes_back_late_rests() {
    let (host, polling) = Planted::new();
    host.run_others(OFF_MAX + us(1));
    assert_eq!(checks(&polling, Duration::MAX, u32::MAX), (2, false));
    host.run_others(us(1));
    for _ in 0..2 {
        assert_eq!(checks(&polling, Duration::MAX, 2), (1, false));
        host.pass(REST_MIN / 2);
    }
    assert_eq!(checks(&polling, Duration::MAX, 2), (2, true));
}

/// Two processors, on which the sender, the reader and the thread of dispatch run: one thread too
/// many. The thread of dispatch needs a few microseconds a message, so the reader gets its
/// processor back in time. A rule that counted the threads never polled.
#[test]
fn a_thread_polls_beside_one_that_runs_for_moments() {
    let (host, polling) = Planted::new();
    host.run_others(us(20));
    let (waits, polled) = host.wait_for(&polling, Duration::from_secs(1));
    assert_eq!(waits, polled);
}

/// The same with threads and processors of this machine, which run all the time: the reader finds
/// that out by leaving its processor to them.
#[test]
fn a_thread_polls_on_a_machine_with_as_many_others_as_processors() {
    #[derive(Debug)]
    struct Counted(Arc<AtomicUsize>);
    impl Host for Counted {
        fn now(&self) -> Instant {
            Here.now()
        }

        fn give_way(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            Here.give_way();
        }
    }

    let (turns, is_over) = (Arc::new(AtomicUsize::new(0)), AtomicBool::new(false));
    let polling = Polling::on(Box::new(Counted(Arc::clone(&turns))));
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let began = Instant::now();
        while turns.load(Ordering::Relaxed) == 0 && began.elapsed() < Duration::from_mins(1) {
            polling.measure(Duration::MAX, || ());
            polling.poll(Duration::MAX, &|| false);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(turns.load(Ordering::Relaxed) > 0);
}

/// A reader that tried to poll after a few waits took processor time from the sender.
#[test]
fn on_a_machine_that_stays_busy_a_thread_polls_once_a_second() {
    let (host, polling) = Planted::new();
    host.run_others(us(3_000));
    host.wait_for(&polling, Duration::from_mins(1));
    // Rests of up to 1 s, and then 59 of 1 s.
    let turns = host.0.turns.load(Ordering::Relaxed);
    assert!((59..70).contains(&turns), "{turns}");
}

#[test]
fn a_thread_polls_again_within_a_second_of_a_shortage() {
    let (host, polling) = Planted::new();
    host.run_others(us(3_000));
    host.wait_for(&polling, Duration::from_mins(1));
    host.run_others(us(1));
    host.wait_for(&polling, REST_MAX);
    let (waits, polled) = host.wait_for(&polling, REST_MAX);
    assert_eq!(waits, polled);
    // It has helped for as long as it took, so the next rest is short.
    host.run_others(us(3_000));
    polling.poll(Duration::MAX, &|| false);
    host.run_others(us(1));
    host.pass(REST_MIN);
    assert_eq!(checks(&polling, Duration::MAX, 2), (2, true));
}

#[test]
fn something_that_runs_for_a_moment_costs_few_polls() {
    let (host, polling) = Planted::new();
    let (mut waits, mut polled) = (0, 0);
    for _ in 0..100 {
        let (more, of_them) = host.wait_for(&polling, Duration::from_millis(100));
        (waits, polled) = (waits + more, polled + of_them);
        host.run_others(us(3_000));
        polling.poll(Duration::MAX, &|| false);
        host.run_others(us(1));
    }
    assert!(polled * 10 > waits * 8, "{polled} of {waits}");
}
