//! The load: messages with bodies of one length, each with its own key of 8 bytes.

use super::{Clock, Figure, ON_CPU, Scratch, on_cpu_of, run_bytes};
use forebay::{Atomicity, Draft, Durability, EngineKind, Options, Producer, Result, Store};
use std::time::{Duration, Instant};

/// The topic of benches with one topic. [`record_len`] depends on its length.
pub(crate) const TOPIC: &str = "bench";

/// Bytes of a record with a body of this length, a key of 8 bytes and the whole-record checksum.
pub(crate) const fn record_len(body_len: usize) -> usize {
    let keys = "KEYS".len() + 1 + 8 + 1;
    91 + body_len + TOPIC.len() + keys + 20
}

/// Messages in a run. A run is slightly smaller than a log file, so that a sender never waits for
/// the next file.
pub(crate) fn message_count(body_len: usize) -> usize {
    let bytes = run_bytes() as usize;
    (bytes - bytes / 256) / record_len(body_len)
}

/// Keys `00000000`, `00000001` and so on, created before the clock starts.
pub(crate) struct Keys(String);

impl Keys {
    pub(crate) fn new(count: usize) -> Keys {
        use std::fmt::Write;
        let mut text = String::with_capacity(8 * count);
        for number in 0..count {
            write!(text, "{number:08}").unwrap();
        }
        Keys(text)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len() / 8
    }

    #[inline]
    pub(crate) fn get(&self, number: usize) -> &str {
        &self.0[8 * number..8 * number + 8]
    }
}

/// Options of a bench: asynchronous flush, one queue per topic, otherwise the defaults.
pub(crate) fn options() -> Options {
    Options {
        default_queues: Some(1),
        ..Options::default()
    }
}

/// The same for a partition log.
pub(crate) fn partition_log() -> Options {
    Options {
        engine: Some(EngineKind::PartitionLog),
        ..options()
    }
}

/// A new store in its own directory.
///
/// It is *ready* like any store that was just opened: its first log file has its full length and
/// blocks for the first 64 MiB; further blocks, and pages a little ahead, are allocated while it is
/// written.
pub(crate) fn new_store(options: Options) -> (Scratch, Store) {
    let scratch = Scratch::new();
    let store = Store::open(scratch.path().join("store"), options).unwrap();
    // The first message creates the log file, the queue and the index file.
    let first = store.producer(TOPIC, Some(0)).unwrap();
    first
        .send(&Draft::default(), 0, Durability::Default)
        .unwrap();
    wait_dispatched(&store);
    (scratch, store)
}

/// Waits until queues and index have caught up, without helping.
pub(crate) fn wait_dispatched(store: &Store) {
    loop {
        let stats = store.stats().unwrap();
        if stats.dispatched >= stats.published {
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Sends one message per call, one for each key.
pub(crate) fn send_all(producer: &Producer, body: &[u8], keys: &Keys) {
    for number in 0..keys.len() {
        send_one(producer, body, keys.get(number));
    }
}

/// A producer for each of `topics` topics.
pub(crate) fn producers(store: &Store, topics: usize) -> Vec<Producer> {
    let producer = |number| {
        let name = format!("topic-{number:05}");
        store.producer(&name, Some(0)).unwrap()
    };
    (0..topics).map(producer).collect()
}

/// Sends one message per call, one for each key, to each of the topics in turn.
#[inline(never)]
pub(crate) fn send_in_turn(producers: &[Producer], body: &[u8], keys: &Keys) {
    for number in 0..keys.len() {
        send_one(&producers[number % producers.len()], body, keys.get(number));
    }
}

/// Sends one message.
#[inline]
pub(crate) fn send_one(producer: &Producer, body: &[u8], key: &str) {
    let draft = Draft {
        body,
        keys: &[key],
        ..Draft::default()
    };
    producer.send(&draft, 0, Durability::Default).unwrap();
}

/// Sends messages from `senders` threads, one per call, for `run`. Returns how many, and how many a
/// second.
pub(crate) fn send_for(store: &Store, senders: usize, run: Duration) -> (usize, f64) {
    let began = Instant::now();
    let sent: usize = std::thread::scope(|scope| {
        let send = || {
            let producer = store.producer(TOPIC, Some(0)).unwrap();
            let mut sent = 0;
            while began.elapsed() < run {
                send_one(&producer, &[0x5A; 100], "00000000");
                sent += 1;
            }
            sent
        };
        let threads: Vec<_> = (0..senders).map(|_| scope.spawn(send)).collect();
        threads.into_iter().map(|it| it.join().unwrap()).sum()
    });
    (sent, sent as f64 / began.elapsed().as_secs_f64())
}

/// Sends batches of 1,000 messages.
pub(crate) fn send_batches(producer: &Producer, body: &[u8], keys: &Keys) {
    send_batches_of(producer, body, keys, 1000);
}

/// Sends batches of `count` messages.
pub(crate) fn send_batches_of(producer: &Producer, body: &[u8], keys: &Keys, count: usize) {
    let mut block: Vec<[&str; 1]> = Vec::with_capacity(count);
    let mut next = 0;
    while next < keys.len() {
        let end = (next + count).min(keys.len());
        block.clear();
        block.extend((next..end).map(|number| [keys.get(number)]));
        let drafts = block.iter().map(|keys| -> Result<Draft<'_>> {
            Ok(Draft {
                body,
                keys,
                ..Draft::default()
            })
        });
        producer
            .send_batch(drafts, Atomicity::Rows, Durability::Default)
            .unwrap();
        next = end;
    }
}

/// Figures of a run: messages a second until `send` returned, until queues and index had caught up,
/// and the CPU time of the dispatch thread.
pub(crate) fn rates(name: &str, store: &Store, count: usize, send: impl FnOnce()) -> Vec<Figure> {
    const UNIT: &str = "messages/s";
    let dispatch_before = on_cpu_of("forebay-dispatc");
    let clock = Clock::start();
    send();
    let sent = clock.stop();
    wait_dispatched(store);
    let dispatched = clock.stop();
    let dispatch = on_cpu_of("forebay-dispatc") - dispatch_before;
    let count = count as f64;
    let mut figures = sent.rates(&format!("{name}: send"), UNIT, count);
    let caught_up = format!("{name}: until caught up");
    figures.push((caught_up, UNIT, count / dispatched.wall));
    let by_dispatch = format!("{name}: dispatch thread {ON_CPU}");
    figures.push((by_dispatch, UNIT, count / dispatch));
    figures
}
