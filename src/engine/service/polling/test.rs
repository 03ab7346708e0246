//! Threads that poll on a host whose clock and load the test sets.

use super::*;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

const fn us(count: u64) -> Duration {
    Duration::from_micros(count)
}

/// A host whose clock stands still, except while a thread gives way.
#[derive(Clone, Debug, Default)]
struct Planted(Arc<State>);

#[derive(Debug, Default)]
struct State {
    now: AtomicU64,
    /// How long a thread that gives way is off its processor.
    off: AtomicU64,
    is_short: AtomicBool,
    looks: AtomicUsize,
    turns: AtomicUsize,
}

impl Host for Planted {
    fn now(&self) -> Duration {
        us(self.0.now.load(Ordering::Relaxed))
    }

    fn give_way(&self) {
        self.0.turns.fetch_add(1, Ordering::Relaxed);
        self.pass(self.0.off.load(Ordering::Relaxed));
    }

    fn is_short(&self) -> bool {
        self.0.looks.fetch_add(1, Ordering::Relaxed);
        self.0.is_short.load(Ordering::Relaxed)
    }
}

impl Planted {
    /// A host, and what polls there, whose last wait was short.
    fn new() -> (Planted, Polling) {
        let (host, polling) = (Planted::default(), Polling::default());
        polling.plant(Box::new(host.clone()));
        // A turn takes a microsecond.
        host.0.off.store(1, Ordering::Relaxed);
        host.pass(1);
        polling.measure(Duration::MAX, || ());
        (host, polling)
    }

    fn pass(&self, micros: u64) {
        self.0.now.fetch_add(micros, Ordering::Relaxed);
    }

    /// Waits for messages that come every 50 us, for so long. Returns how many waits polled.
    fn wait_for(&self, polling: &Polling, time: Duration) -> usize {
        let end = self.now() + time;
        let mut polled = 0;
        while self.now() < end {
            let (comes, before) = (self.now() + us(50), self.0.turns.load(Ordering::Relaxed));
            polling.measure(Duration::MAX, || {
                if !polling.poll(Duration::MAX, &|| self.now() >= comes) {
                    let left = comes.saturating_sub(self.now());
                    self.pass(micros(left));
                }
            });
            let turns = self.0.turns.load(Ordering::Relaxed) - before;
            polled += usize::from(turns > 10);
        }
        polled
    }
}

/// How often a wait is checked that is over at the `last` check, and what the last one said.
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
        polling.measure(timeout, || host.pass(micros(took)));
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
    let other = Cell::new(None);
    polling.poll(Duration::ZERO, &|| {
        // The first check comes before it polls.
        let polls = polling.polls.load(Ordering::Relaxed);
        if polls && other.get().is_none() {
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
    host.0.off.store(21, Ordering::Relaxed);
    assert_eq!(checks(&polling, Duration::MAX, u32::MAX), (2, false));
    host.0.off.store(20, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(checks(&polling, Duration::MAX, 2), (1, false));
        host.pass(1_000);
    }
    assert_eq!(checks(&polling, Duration::MAX, 2), (2, true));
}

/// A reader that tried to poll after a few waits took processor time from the sender.
#[test]
fn on_a_machine_that_stays_busy_a_thread_does_not_poll() {
    let (host, polling) = Planted::new();
    host.0.is_short.store(true, Ordering::Relaxed);
    assert_eq!(host.wait_for(&polling, Duration::from_secs(60)), 0);
    // Rests of 2 ms up to 1 s, and then 59 of 1 s.
    assert_eq!(host.0.turns.load(Ordering::Relaxed), 0);
    assert!(host.0.looks.load(Ordering::Relaxed) < 10 + 60);
}

#[test]
fn a_thread_polls_again_within_a_second_of_a_shortage() {
    let (host, polling) = Planted::new();
    host.0.is_short.store(true, Ordering::Relaxed);
    host.wait_for(&polling, Duration::from_secs(60));
    host.0.is_short.store(false, Ordering::Relaxed);
    host.wait_for(&polling, Duration::from_secs(1));
    assert_eq!(host.wait_for(&polling, Duration::from_secs(1)), 20_000);
    // The longer it goes well, the shorter is the next rest.
    host.wait_for(&polling, Duration::from_secs(600));
    host.0.off.store(21, Ordering::Relaxed);
    polling.poll(Duration::MAX, &|| false);
    host.0.off.store(1, Ordering::Relaxed);
    host.pass(REST_MIN);
    assert_eq!(checks(&polling, Duration::MAX, 2), (2, true));
}

#[test]
fn something_that_runs_for_a_moment_costs_few_polls() {
    let (host, polling) = Planted::new();
    let mut polled = 0;
    for _ in 0..100 {
        polled += host.wait_for(&polling, Duration::from_millis(50));
        host.0.off.store(100, Ordering::Relaxed);
        polling.poll(Duration::MAX, &|| false);
        host.0.off.store(1, Ordering::Relaxed);
    }
    assert!(polled > 95_000, "{polled} of 100,000");
}

#[test]
fn a_thread_that_polls_looks_once_in_a_millisecond() {
    let (host, polling) = Planted::new();
    host.wait_for(&polling, Duration::from_secs(1));
    let looks = host.0.looks.load(Ordering::Relaxed);
    assert!((900..=1_000).contains(&looks), "{looks}");
}
