//! How long a message takes from `send` in one process to the tail of a reader in another, and how
//! much that slows the sender. The limit is a channel between two threads.
//!
//! Groups: `latency`, `rate`. The writer is this program again, as a child. Both read the clock of
//! the machine; a message carries the time at which its send began.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench may panic"
)]

mod support;

use forebay::{AtEnd, Bound, Draft, Durability, Mode, Options, Step, Store, Tail};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::load::{TOPIC, options};
use support::{Report, Scratch, is_wanted, rounds};

/// The variable with the path of the store that the child writes.
const CHILD: &str = "FOREBAY_BENCH_WRITER";
/// Messages of a run of single ones, and of one at full speed.
const PACED: u64 = 2000;
const IDLE: u64 = 100;
const FAST: u64 = 2_000_000;
/// Pause between two messages of a busy writer, and of one that has gone to sleep in between.
const BUSY_PAUSE: Duration = Duration::from_micros(100);
const IDLE_PAUSE: Duration = Duration::from_millis(20);
const BODY_LEN: usize = 100;

fn main() {
    if let Some(path) = std::env::var_os(CHILD) {
        return write(Path::new(&path));
    }
    let mut report = Report::new("wait");
    if is_wanted("latency") {
        let mut writer = Writer::start();
        for (name, count, pause) in [
            ("while busy", PACED, BUSY_PAUSE),
            ("from idle", IDLE, IDLE_PAUSE),
        ] {
            let (mut runs, mut limits) = (Vec::new(), Vec::new());
            for _ in 0..rounds() {
                runs.push(writer.latency(count, pause));
                limits.push(channel_latency(count, pause));
            }
            for (what, runs) in [("", runs), ("limit, ", limits)] {
                for (at, quantile) in ["p50", "p99"].iter().enumerate() {
                    let values: Vec<f64> = runs.iter().map(|run| run[at]).collect();
                    report.add(&format!("{name}: {what}{quantile}"), "us", &values);
                }
            }
        }
    }
    if is_wanted("rate") {
        let mut writer = Writer::start();
        let (mut alone, mut followed) = (Vec::new(), Vec::new());
        for _ in 0..rounds() {
            alone.push(writer.rate());
            followed.push(writer.rate_followed());
        }
        report.add("sends, nobody reads", "messages/s", &alone);
        report.add("sends, a reader follows", "messages/s", &followed);
    }
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_nanos() as u64
}

/// The child: sends messages as its input says, one `count pause_ns` per line, and answers with the
/// seconds that it took.
fn write(path: &Path) {
    let store = Store::open(path, options()).unwrap();
    let producer = store.producer(TOPIC, Some(0)).unwrap();
    let mut body = [0x5A; BODY_LEN];
    let mut send = || {
        body[..8].copy_from_slice(&now_ns().to_le_bytes());
        let draft = Draft {
            body: &body,
            ..Draft::default()
        };
        producer.send(&draft, 0, Durability::Default).unwrap();
    };
    send();
    println!("ready");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (count, pause) = line.split_once(' ').unwrap();
        let (count, pause): (u64, u64) = (count.parse().unwrap(), pause.parse().unwrap());
        let pause = Duration::from_nanos(pause);
        let began = Instant::now();
        for _ in 0..count {
            let sent = Instant::now();
            send();
            rest(sent, pause);
        }
        println!("{}", began.elapsed().as_secs_f64());
    }
    store.close().unwrap();
}

/// Waits after a send that began at `sent`.
fn rest(sent: Instant, pause: Duration) {
    if pause >= Duration::from_millis(1) {
        std::thread::sleep(pause);
    } else if !pause.is_zero() {
        while sent.elapsed() < pause {
            std::hint::spin_loop();
        }
    }
}

/// As `Writer::latency`, from one thread to another that sleeps until something is in a channel.
fn channel_latency(count: u64, pause: Duration) -> [f64; 2] {
    let (sender, receiver) = std::sync::mpsc::channel::<u64>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..count {
                let sent = Instant::now();
                sender.send(now_ns()).unwrap();
                rest(sent, pause);
            }
        });
        let took = receiver
            .iter()
            .map(|sent| now_ns().saturating_sub(sent) as f64 / 1e3);
        quantiles(took.collect())
    })
}

/// Median and 99th percentile.
fn quantiles(mut took: Vec<f64>) -> [f64; 2] {
    took.sort_by(f64::total_cmp);
    [took[took.len() / 2], took[took.len() * 99 / 100]]
}

/// The process that writes, and its store.
struct Writer {
    scratch: Scratch,
    child: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Writer {
    fn start() -> Writer {
        let scratch = Scratch::new();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(CHILD, scratch.path().join("store"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(answers.next().unwrap().unwrap(), "ready");
        Writer {
            scratch,
            child,
            answers,
        }
    }

    fn tell(&mut self, count: u64, pause: Duration) {
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "{count} {}", pause.as_nanos()).unwrap();
    }

    fn answer(&mut self) -> f64 {
        self.answers.next().unwrap().unwrap().parse().unwrap()
    }

    fn tail(&self) -> Tail {
        let reader = Options {
            mode: Mode::Read,
            ..options()
        };
        let store = Store::open(self.scratch.path().join("store"), reader).unwrap();
        Tail::new(&store, TOPIC, &Bound::Latest, AtEnd::Follow).unwrap()
    }

    /// Median and 99th percentile in microseconds from the start of a send to the arrival of its
    /// message here.
    fn latency(&mut self, count: u64, pause: Duration) -> [f64; 2] {
        let mut tail = self.tail();
        self.tell(count, pause);
        let mut took = Vec::new();
        while took.len() < count as usize {
            if let Step::Message(message) = tail.next(Duration::MAX).unwrap() {
                let now = now_ns();
                let body = message.body().unwrap();
                let sent = u64::from_le_bytes(body[..8].try_into().unwrap());
                took.push(now.saturating_sub(sent) as f64 / 1e3);
            }
        }
        self.answer();
        quantiles(took)
    }

    /// Messages a second of one thread.
    fn rate(&mut self) -> f64 {
        self.tell(FAST, Duration::ZERO);
        FAST as f64 / self.answer()
    }

    /// The same while a tail takes the messages.
    fn rate_followed(&mut self) -> f64 {
        let (mut tail, done) = (self.tail(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = tail.next(Duration::from_millis(10)).unwrap();
                }
            });
            let rate = self.rate();
            done.store(true, Ordering::Relaxed);
            rate
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
