//! Processes that share a store: how many messages they send and consume in a second, how long a
//! message takes from one to another, and how long it takes to get the queues of a process that is
//! gone.
//!
//! Groups: `send`, `work`, `latency`, `paced`, `takeover`. The processes are children that run this
//! program, and execute the commands in their input.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench may panic"
)]

mod support;

use forebay::{Consumer, ConsumerOptions, Draft, Durability, EngineKind, Mode, Options, Store};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::load::{TOPIC, message_count, options, partition_log};
use support::{Report, Scratch, is_wanted, rounds};

/// The variable with the role of a child and its arguments.
const ROLE: &str = "FOREBAY_BENCH_ROLE";
/// The variable with the path of the store.
const STORE: &str = "FOREBAY_BENCH_STORE";
const GROUP: &str = "workers";
/// Length of a message.
const BODY_LEN: usize = 100;
/// Messages of all senders of a run with consumers.
const WORK: u64 = 200_000;
/// Processes of each kind in such a run.
const PROCESSES: u32 = 8;
/// Single messages of a busy sender and of one that sleeps in between, and their pauses.
const BUSY: (u64, Duration) = (2_000, Duration::from_micros(100));
const IDLE: (u64, Duration) = (100, Duration::from_millis(20));
/// Messages of a sender that pauses after each, and its pauses in us: the pace at which a reader
/// can poll for the next one.
const PACED: u64 = 50_000;
const PACES: [u64; 3] = [5, 10, 20];
/// The shortest session time-out.
const SESSION: Duration = Duration::from_secs(1);
/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        return act(&role);
    }
    let mut report = Report::new("share");
    if is_wanted("send") {
        send(&mut report);
    }
    if is_wanted("work") {
        let rates: Vec<f64> = (0..rounds()).map(|_| work()).collect();
        let name = "8 senders, 8 consumers, each message acknowledged";
        report.add(name, "messages/s", &rates);
    }
    if is_wanted("latency") {
        for (to, leads) in [("to a poll", true), ("to a poll, a third leads", false)] {
            for (name, (count, pause)) in [("while busy", BUSY), ("from idle", IDLE)] {
                let run = |_| latency(count, pause, leads);
                let runs: Vec<[f64; 2]> = (0..rounds()).map(run).collect();
                for (at, quantile) in ["p50", "p99"].iter().enumerate() {
                    let values: Vec<f64> = runs.iter().map(|run| run[at]).collect();
                    report.add(&format!("{to}, {name}: {quantile}"), "us", &values);
                }
            }
        }
    }
    if is_wanted("paced") {
        for pause in PACES {
            let rates: Vec<f64> = (0..rounds()).map(|_| paced(pause)).collect();
            let name = format!("a sender that pauses for {pause} us, one consumer");
            report.add(&name, "messages/s", &rates);
        }
    }
    if is_wanted("takeover") {
        for (name, hangs) in [("dies", false), ("hangs", true)] {
            let took: Vec<f64> = (0..rounds()).map(|_| takeover(hangs)).collect();
            let name = format!("queues of a process that {name}, after its window");
            report.add(&name, "ms", &took);
        }
    }
}

/// Messages a second of one sender alone, of one with `mode="share"`, and of four together, for
/// each engine.
fn send(report: &mut Report) {
    for (engine, of) in [
        (EngineKind::CommitLog, ""),
        (EngineKind::PartitionLog, " (partition log)"),
    ] {
        let (mut alone, mut one, mut four) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds() {
            alone.push(rate(engine, "a", 1));
            one.push(rate(engine, "share", 1));
            four.push(rate(engine, "share", 4));
        }
        let name = |what: &str| format!("{what}{of}");
        report.add(&name("one sender, alone"), "messages/s", &alone);
        report.add(&name("one sender, shared"), "messages/s", &one);
        report.add(&name("4 senders, shared"), "messages/s", &four);
    }
}

/// Messages a second of `count` processes, which together send as many as one sender does in the
/// other benches. With a quarter of that, the start of four processes would dominate.
fn rate(engine: EngineKind, mode: &str, processes: u32) -> f64 {
    let scratch = Scratch::new();
    let path = scratch.path().join("store");
    let mut senders: Vec<Process> = (0..processes)
        .map(|number| Process::start(&path, &format!("send {} {mode} {number}", engine.word())))
        .collect();
    let each = message_count(BODY_LEN) as u64 / u64::from(processes);
    let began = Instant::now();
    for sender in &mut senders {
        sender.tell(&format!("{each} 0"));
    }
    for sender in &mut senders {
        sender.answer();
    }
    (each * u64::from(processes)) as f64 / began.elapsed().as_secs_f64()
}

fn shared(path: &Path) -> Store {
    Store::open(path, sharing(options())).unwrap()
}

fn sharing(options: Options) -> Options {
    Options {
        mode: Mode::Share,
        default_queues: Some(PROCESSES),
        busy_timeout: LONG,
        ..options
    }
}

/// Messages a second that go through a group of processes while others send them.
fn work() -> f64 {
    let scratch = Scratch::new();
    let path = scratch.path().join("store");
    let store = shared(&path);
    store.create_topic(TOPIC, PROCESSES).unwrap();
    let processes = |role: &str| -> Vec<Process> {
        let started = (0..PROCESSES).map(|it| Process::start(&path, &format!("{role} {it}")));
        started.collect()
    };
    let (mut senders, _consumers) = (processes("send commitlog share"), processes("consume"));
    let each = WORK / u64::from(PROCESSES);
    let began = Instant::now();
    for sender in &mut senders {
        sender.tell(&format!("{each} 0"));
    }
    for sender in &mut senders {
        sender.answer();
    }
    let lag = || -> u64 {
        let groups = store.groups().unwrap();
        let queues = groups.iter().filter(|it| &*it.topic == TOPIC);
        queues.map(|queue| queue.lag).sum()
    };
    while lag() > 0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    WORK as f64 / began.elapsed().as_secs_f64()
}

/// Median and 99th percentile in us from a send in another process to the return of `poll`.
/// Whether this process `leads`; if not, a third one does.
fn latency(count: u64, pause: Duration, leads: bool) -> [f64; 2] {
    let scratch = Scratch::new();
    let path = scratch.path().join("store");
    let _leader = (!leads).then(|| Process::start(&path, "lead"));
    let store = shared(&path);
    store.create_topic(TOPIC, PROCESSES).unwrap();
    let mut sender = Process::start(&path, "send commitlog share 0");
    let consumer = join(&store);
    sender.tell(&format!("{count} {}", pause.as_nanos()));
    let mut took = Vec::new();
    while took.len() < count as usize {
        let messages = consumer.poll(100, LONG).unwrap();
        let now = now_ns();
        for delivery in &messages {
            let body = delivery.message.body().unwrap();
            let sent = u64::from_le_bytes(body[..8].try_into().unwrap());
            took.push(now.saturating_sub(sent) as f64 / 1e3);
        }
        consumer.ack(messages.iter().map(|it| &it.receipt)).unwrap();
    }
    sender.answer();
    took.sort_by(f64::total_cmp);
    [took[took.len() / 2], took[took.len() * 99 / 100]]
}

/// Messages a second of a sender that pauses after each for `pause` us, while this process, which
/// leads, consumes them.
fn paced(pause_us: u64) -> f64 {
    let scratch = Scratch::new();
    let path = scratch.path().join("store");
    let store = shared(&path);
    store.create_topic(TOPIC, PROCESSES).unwrap();
    let mut sender = Process::start(&path, "send commitlog share 0");
    let consumer = join(&store);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                let taken = consumer.poll(100, Duration::from_millis(50)).unwrap();
                consumer.ack(taken.iter().map(|it| &it.receipt)).unwrap();
            }
        });
        let began = Instant::now();
        sender.tell(&format!("{PACED} {}", pause_us * 1_000));
        sender.answer();
        let took = began.elapsed();
        over.store(true, Ordering::Release);
        PACED as f64 / took.as_secs_f64()
    })
}

/// How long it takes in ms until a message of a process that is gone is delivered to another one;
/// of a process that hangs, since its session time-out.
fn takeover(hangs: bool) -> f64 {
    let scratch = Scratch::new();
    let path = scratch.path().join("store");
    let store = shared(&path);
    store.create_topic(TOPIC, 1).unwrap();
    let producer = store.producer(TOPIC, Some(0)).unwrap();
    let draft = Draft::default();
    producer.send(&draft, 0, Durability::Default).unwrap();
    let mut owner = Process::start(&path, "hold");
    assert_eq!(owner.answer(), "1");
    let heir = join(&store);
    assert!(heir.poll(1, Duration::from_millis(50)).unwrap().is_empty());
    let began = Instant::now();
    match hangs {
        true => owner.signal("-STOP"),
        false => owner.child.kill().unwrap(),
    }
    assert_eq!(heir.poll(1, LONG).unwrap().len(), 1);
    let window = if hangs { SESSION } else { Duration::ZERO };
    let took = began.elapsed().saturating_sub(window);
    owner.child.kill().unwrap();
    took.as_secs_f64() * 1e3
}

fn join(store: &Store) -> Consumer {
    let options = ConsumerOptions {
        session_timeout: SESSION,
        ..ConsumerOptions::default()
    };
    store.consumer(&[TOPIC], GROUP, options).unwrap()
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_nanos() as u64
}

/// The child.
fn act(role: &str) {
    let path = std::env::var_os(STORE).unwrap();
    let path = Path::new(&path);
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["send", engine, mode, queue] => {
            let options = match engine {
                "commitlog" => options(),
                _ => partition_log(),
            };
            let options = match mode {
                "share" => sharing(options),
                _ => options,
            };
            let store = Store::open(path, options).unwrap();
            let queue = queue.parse().unwrap();
            store.create_topic(TOPIC, PROCESSES).unwrap();
            send_as_told(&store, queue);
            store.close().unwrap();
        }
        ["consume", _] => consume(&shared(path)),
        ["lead"] => {
            let store = shared(path);
            println!("ready");
            std::io::stdin().lines().for_each(drop);
            store.close().unwrap();
        }
        ["hold"] => {
            let store = shared(path);
            let consumer = join(&store);
            println!("ready");
            println!("{}", consumer.poll(1, LONG).unwrap().len());
            std::io::stdin().lines().for_each(drop);
        }
        _ => panic!("{role}"),
    }
}

/// Sends messages as the input says, one `count pause_ns` per line, and reports when it is done.
fn send_as_told(store: &Store, queue: u32) {
    let producer = store.producer(TOPIC, Some(queue)).unwrap();
    println!("ready");
    let mut body = [0x5A; BODY_LEN];
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (count, pause) = line.split_once(' ').unwrap();
        let (count, pause): (u64, u64) = (count.parse().unwrap(), pause.parse().unwrap());
        let pause = Duration::from_nanos(pause);
        for _ in 0..count {
            let began = Instant::now();
            body[..8].copy_from_slice(&now_ns().to_le_bytes());
            let draft = Draft {
                body: &body,
                ..Draft::default()
            };
            producer.send(&draft, 0, Durability::Default).unwrap();
            if pause >= Duration::from_millis(1) {
                std::thread::sleep(pause);
            } else {
                while began.elapsed() < pause {
                    std::hint::spin_loop();
                }
            }
        }
        println!("done");
    }
}

/// Acknowledges each message by itself, until the input ends.
fn consume(store: &Store) {
    let consumer = join(store);
    let over = AtomicBool::new(false);
    println!("ready");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::io::stdin().lines().for_each(drop);
            over.store(true, Ordering::Release);
            consumer.wake();
        });
        let is_over = || over.load(Ordering::Acquire);
        while !is_over() {
            for delivery in consumer.poll_until(32, LONG, &is_over).unwrap() {
                consumer.ack([&delivery.receipt]).unwrap();
            }
        }
    });
    consumer.close().unwrap();
    store.close().unwrap();
}

/// A child.
struct Process {
    child: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a process and waits until it is ready.
    fn start(path: &Path, role: &str) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(ROLE, role)
            .env(STORE, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut process = Process { child, answers };
        assert_eq!(process.answer(), "ready");
        process
    }

    fn tell(&mut self, what: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{what}").unwrap();
    }

    fn answer(&mut self) -> String {
        self.answers.next().unwrap().unwrap()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
