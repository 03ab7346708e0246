//! Retention: which segments go, and what is left of them.

use super::*;
use crate::cleanup::{CleanupPolicy, Compaction, Policy};
use crate::clock::{Clock, ManualClock};
use crate::disk::{Call, HookedDisk, RealDisk};
use crate::engine::{Atomicity, Cursor, DamageKind, Durability, QueueLogs};
use crate::error::Error;
use crate::record::Draft;
use crate::sync::Mutex;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

pub(super) const HOUR_MS: i64 = 3_600_000;
pub(super) const NOW: i64 = 20_000 * 24 * HOUR_MS;

/// A store, stepped by a test.
pub(super) struct Stepped {
    pub(super) root: TempDir,
    pub(super) clock: Arc<ManualClock>,
    pub(super) options: Options,
    pub(super) engine: PartitionLog,
    pub(super) steps: u64,
    pub(super) begin: Instant,
}

pub(super) fn machine(clock: &Arc<ManualClock>) -> Machine {
    Machine {
        clock: Arc::<ManualClock>::clone(clock),
        ..Machine::stepped(Arc::new(RealDisk))
    }
}

impl Stepped {
    pub(super) fn new(options: Options) -> Stepped {
        let root = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(NOW);
        let options = Options {
            segment_bytes: Some(4096),
            default_queues: Some(1),
            ..options
        };
        let engine = PartitionLog::open(&machine(&clock), root.path(), &options).unwrap();
        Stepped {
            root,
            clock,
            options,
            engine,
            steps: 0,
            begin: Instant::now(),
        }
    }

    /// Closes the store, and opens it with other options.
    pub(super) fn again(self, options: Options) -> Stepped {
        self.engine.close().unwrap();
        let options = Options {
            segment_bytes: self.options.segment_bytes,
            default_queues: self.options.default_queues,
            ..options
        };
        let engine = PartitionLog::open(&machine(&self.clock), self.root.path(), &options);
        Stepped {
            engine: engine.unwrap(),
            options,
            ..self
        }
    }

    /// Sends messages of a kilobyte, one a batch, so that three make a segment.
    pub(super) fn send(&self, topic: &str, times: impl IntoIterator<Item = i64>) {
        self.send_keyed(topic, times.into_iter().map(|time| ("key", time)));
    }

    /// As [`Stepped::send`], with a key for each.
    pub(super) fn send_keyed<'a>(
        &self,
        topic: &str,
        rows: impl IntoIterator<Item = (&'a str, i64)>,
    ) {
        let topic = self.engine.topic_for_append(topic).unwrap();
        for (key, time) in rows {
            let mut batch = self.engine.form().batch();
            let draft = Draft {
                body: &[7; 1000],
                keys: &[key],
                born_timestamp: Some(time),
                ..Draft::default()
            };
            batch
                .push(&topic.name, 0, &draft, self.clock.now_ms())
                .unwrap();
            let batches = &mut [(&*topic, &mut batch)];
            let sent = self
                .engine
                .append(batches, Atomicity::Rows, Durability::Written);
            sent.unwrap();
        }
    }

    pub(super) fn step(&mut self) {
        self.engine.flush(&mut || true).unwrap();
        self.steps += 2;
        let now = self.begin + Duration::from_secs(self.steps);
        self.engine.step_retention(self.clock.now_ms(), now);
    }

    pub(super) fn start(&self, topic: &str) -> u64 {
        let topic = self.engine.topics().get(topic).unwrap();
        self.engine.bounds(&topic, 0).unwrap().unwrap().start
    }

    /// Base offsets of the segments that have files.
    pub(super) fn bases(&self, topic: &str) -> Vec<u64> {
        let folder = self.root.path().join(format!("{topic}-0"));
        let mut bases = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if let Some((base, _)) = name.split_once('.')
                && let Ok(base) = base.parse::<u64>()
            {
                bases.push(base);
            }
        }
        bases.sort_unstable();
        bases.dedup();
        bases
    }

    pub(super) fn offsets(&self, topic: &str) -> Vec<u64> {
        offsets(&self.engine, topic)
    }
}

pub(super) fn offsets(engine: &PartitionLog, topic: &str) -> Vec<u64> {
    let found = messages(engine, topic, 100);
    let offsets = found.iter().map(|it| it.record().queue_offset());
    offsets.map(i64::cast_unsigned).collect()
}

pub(super) fn by_bytes(bytes: u64) -> Options {
    Options {
        retention_bytes: Some(bytes),
        ..Options::default()
    }
}

fn by_age(hours: u64) -> Options {
    Options {
        retention: Some(Duration::from_secs(3600 * hours)),
        ..Options::default()
    }
}

#[test]
fn what_is_left_has_at_least_the_bytes_of_the_limit() {
    let mut store = Stepped::new(by_bytes(7000));
    store.send("t", [NOW; 15]);
    store.send("small", [NOW; 4]);
    store.step();
    // Two segments and the one that is written are 9 kB; without the older of the two, 6 kB.
    assert_eq!(store.bases("t"), [6, 9, 12]);
    assert_eq!(store.start("t"), 6);
    assert_eq!(store.offsets("t"), (6..15).collect::<Vec<_>>());
    assert_eq!(store.offsets("small"), [0, 1, 2, 3]);
    store.step();
    assert_eq!(store.start("t"), 6);
    let reader = open(store.root.path(), Isolation::ReadUncommitted).unwrap();
    assert_eq!(offsets(&reader, "t"), (6..15).collect::<Vec<_>>());
}

#[test]
fn the_segment_that_is_written_stays_and_offsets_continue() {
    let mut store = Stepped::new(by_bytes(1));
    store.send("t", [NOW; 7]);
    store.step();
    assert_eq!((store.bases("t"), store.start("t")), (vec![6], 6));
    let store = store.again(Options::default());
    store.send("t", [NOW; 1]);
    assert_eq!(store.offsets("t"), [6, 7]);
}

#[test]
fn a_segment_goes_when_its_latest_message_is_old_and_no_later_one_before_it() {
    let mut store = Stepped::new(by_age(24));
    // The second segment has a message of the future.
    let old = NOW - 30 * HOUR_MS;
    let future = NOW + 100 * HOUR_MS;
    store.send("t", [old, old, old, old, future, old, old, old, old, old]);
    store.send("young", [NOW - HOUR_MS; 7]);
    store.step();
    assert_eq!(store.offsets("t"), (3..10).collect::<Vec<_>>());
    assert_eq!(store.start("young"), 0);
    for hour in 0..24 {
        store.clock.advance(HOUR_MS.cast_unsigned() - 1);
        store.begin += Duration::from_millis(HOUR_MS.cast_unsigned() - 1);
        store.step();
        let is_old = hour >= 23;
        assert_eq!(store.start("young"), if is_old { 6 } else { 0 }, "{hour}");
    }
    assert_eq!(store.start("t"), 3);
}

#[test]
fn a_time_index_that_lies_deletes_nothing() {
    let mut store = Stepped::new(by_age(24));
    store.send("t", [NOW - HOUR_MS; 7]);
    store.engine.flush(&mut || true).unwrap();
    let index = store.root.path().join("t-0/00000000000000000000.timeindex");
    let mut lie = 5_i64.to_be_bytes().to_vec();
    lie.extend([0; 4]);
    store = store.again(by_age(24));
    fs::write(index, lie).unwrap();
    store.step();
    assert_eq!(store.start("t"), 0);
}

#[test]
fn a_clock_that_jumps_is_not_trusted_for_an_hour() {
    let mut store = Stepped::new(by_age(24));
    store.send("t", [NOW; 7]);
    store.step();
    store.clock.advance(400 * 24 * HOUR_MS.cast_unsigned());
    store.step();
    assert_eq!(store.start("t"), 0);
    let damage = store.engine.report().damage();
    assert_eq!(damage[0].kind, DamageKind::Clock);
    // A store that is opened with such a clock, again and again, trusts it no sooner.
    for _ in 0..3 {
        store = store.again(by_age(24));
        store.step();
        assert_eq!(store.start("t"), 0);
    }
    store.begin += Duration::from_secs(3601);
    store.clock.advance(HOUR_MS.cast_unsigned());
    store.step();
    assert_eq!(store.start("t"), 6);
}

/// The clock of a store was compared with a steady clock that no test moves.
#[test]
fn a_clock_that_a_test_moves_is_trusted_however_far_it_moves() {
    let store = Stepped::new(by_age(24));
    store.send("t", [NOW; 7]);
    let mut at = Instant::now();
    let mut start = || {
        store.engine.flush(&mut || true).unwrap();
        at += Duration::from_secs(2);
        store.engine.step_retention_at(at);
        store.start("t")
    };
    assert_eq!(start(), 0);
    store.clock.advance(23 * HOUR_MS.cast_unsigned());
    assert_eq!(start(), 0);
    store.clock.advance(2 * HOUR_MS.cast_unsigned());
    assert_eq!(start(), 6);
    assert_eq!(store.engine.report().damage(), []);
    // One that is set is not.
    store.clock.set(NOW + 400 * 24 * HOUR_MS);
    start();
    assert_eq!(store.engine.report().damage()[0].kind, DamageKind::Clock);
}

#[test]
fn compaction_does_not_trust_a_clock_that_jumps_for_an_hour() {
    let store = Stepped::new(Options {
        compaction: Compaction {
            cleanup_policy: CleanupPolicy {
                default: Policy::Compact,
                ..CleanupPolicy::default()
            },
            min_compaction_lag_ms: Some(24 * HOUR_MS.cast_unsigned()),
            ..Compaction::default()
        },
        ..Options::default()
    });
    store.send("t", [NOW; 7]);
    let compacted = || {
        store.engine.compact(None, &mut |_, _| true).unwrap();
        store.offsets("t")
    };
    assert_eq!(compacted().len(), 7);
    store.clock.set(NOW + 400 * 24 * HOUR_MS);
    assert_eq!(compacted().len(), 7);
    store.clock.advance(HOUR_MS.cast_unsigned() - 1);
    assert_eq!(compacted().len(), 7);
    store.clock.advance(1);
    assert_eq!(compacted(), [5, 6]);
}

#[test]
fn topics_that_are_only_compacted_keep_what_is_old() {
    let policy = |default| Options {
        compaction: Compaction {
            cleanup_policy: CleanupPolicy {
                default,
                ..CleanupPolicy::default()
            },
            ..Compaction::default()
        },
        ..by_age(1)
    };
    let mut store = Stepped::new(policy(Policy::Compact));
    store.send("t", [NOW - 2 * HOUR_MS; 7]);
    store.step();
    assert_eq!(store.start("t"), 0);
    let mut store = store.again(policy(Policy::CompactDelete));
    store.engine.compact(None, &mut |_, _| true).unwrap();
    store.step();
    assert_eq!(store.offsets("t"), [6]);
    assert_eq!(store.start("t"), 6);
}

#[test]
fn a_first_offset_within_a_segment_hides_messages_and_is_durable() {
    let store = Stepped::new(Options::default());
    store.send("t", [NOW; 8]);
    let topic = store.engine.topics().get("t").unwrap();
    let view = store.engine.existing(&topic, 0).unwrap();
    let all = Filter::default();
    let mut before = store.engine.cursor_over(view, 0..8, &all, Check::Full);
    store
        .engine
        .delete_before(&topic, &[(0, 4)], &mut || true)
        .unwrap();
    assert_eq!(store.offsets("t"), [4, 5, 6, 7]);
    assert_eq!(store.bases("t"), [3, 6]);
    let path = store.root.path().join("log-start-offset-checkpoint");
    assert_eq!(fs::read_to_string(path).unwrap(), "0\n1\nt 0 4\n");
    // A cursor that began before passes over what is gone.
    let mut rows = Rows::default();
    before.next(100, &mut rows).unwrap();
    let first = rows.record(&rows.rows[0]).unwrap();
    assert!(first.queue_offset() >= 3);
    let unknown = store.engine.delete_before(&topic, &[(7, 0)], &mut || true);
    assert!(matches!(unknown, Err(Error::UnknownQueue { .. })));
    // It is raised, and never lowered.
    store
        .engine
        .delete_before(&topic, &[(0, 2)], &mut || true)
        .unwrap();
    let store = store.again(Options::default());
    assert_eq!(store.start("t"), 4);
    let topic = store.engine.topics().get("t").unwrap();
    store
        .engine
        .delete_before(&topic, &[(0, 8)], &mut || true)
        .unwrap();
    assert_eq!((store.offsets("t"), store.bases("t")), (vec![], vec![6]));
    let store = store.again(Options::default());
    store.send("t", [NOW]);
    assert_eq!(store.offsets("t"), [8]);
}

/// Raises the first offset of a queue as retention does.
fn begin_at(root: &Path, start: u64) {
    let (epochs, starts) = ("t-0/leader-epoch-checkpoint", "log-start-offset-checkpoint");
    fs::write(root.join(epochs), format!("0\n1\n0 {start}\n")).unwrap();
    fs::write(root.join(starts), format!("0\n1\nt 0 {start}\n")).unwrap();
}

#[test]
fn opening_removes_what_a_dead_process_was_about_to_remove() {
    let store = Stepped::new(Options::default());
    store.send("t", [NOW; 8]);
    let (path, root) = (store.root.path().to_owned(), &store.root);
    store.engine.close().unwrap();
    begin_at(&path, 6);
    fs::remove_file(path.join("t-0/00000000000000000003.index")).unwrap();
    let engine = PartitionLog::open(&machine(&store.clock), root.path(), &store.options).unwrap();
    assert_eq!(offsets(&engine, "t"), [6, 7]);
    assert_eq!(store.bases("t"), [6]);
}

#[test]
fn nothing_is_appended_before_the_first_offset() {
    let store = Stepped::new(Options::default());
    store.send("t", [NOW; 8]);
    store.engine.close().unwrap();
    begin_at(store.root.path(), 20);
    let store = store.again(Options::default());
    assert_eq!(store.engine.report().damaged(), 1);
    store.send("t", [NOW; 2]);
    assert_eq!(store.offsets("t"), [20, 21]);
    let reader = open(store.root.path(), Isolation::ReadUncommitted).unwrap();
    assert_eq!(offsets(&reader, "t"), [20, 21]);
}

#[test]
fn a_close_waits_until_nothing_is_being_deleted() {
    /// A close that does not wait has ended by then.
    const ENOUGH: Duration = Duration::from_millis(100);
    let store = Stepped::new(Options::default());
    store.send("t", [NOW; 9]);
    store.engine.close().unwrap();
    let to_close: Arc<Mutex<Option<Arc<PartitionLog>>>> = Arc::default();
    let disk = HookedDisk::shared({
        let to_close = Arc::clone(&to_close);
        move |call, path| {
            let is_folder = call == Call::Sync && path.ends_with("t-0");
            if let Some(engine) = is_folder.then(|| to_close.lock().take()).flatten() {
                let (ended, has_ended) = mpsc::channel();
                thread::spawn(move || {
                    engine.close().unwrap();
                    let _ = ended.send(());
                });
                assert!(has_ended.recv_timeout(ENOUGH).is_err(), "it did not wait");
            }
            Ok(())
        }
    });
    let machine = Machine {
        disk,
        ..machine(&store.clock)
    };
    let engine = PartitionLog::open(&machine, store.root.path(), &store.options).unwrap();
    let engine = Arc::new(engine);
    *to_close.lock() = Some(Arc::clone(&engine));
    let deleted = engine.delete_before(&topic(&engine, "t"), &[(0, 6)], &mut || true);
    deleted.unwrap();
    assert_eq!(store.bases("t"), [6]);
    engine.close().unwrap();
    let refused = engine.delete_before(&topic(&engine, "t"), &[(0, 7)], &mut || true);
    assert!(matches!(refused, Err(Error::Closed { .. })));
}

#[test]
fn a_quiet_queue_is_emptied_by_age() {
    let mut store = Stepped::new(by_age(1));
    store.send("t", [NOW; 4]);
    assert_eq!(store.bases("t"), [0, 3]);
    store.clock.advance((2 * HOUR_MS).cast_unsigned());
    for _ in 0..4 {
        store.step();
    }
    assert_eq!((store.start("t"), store.bases("t")), (4, vec![4]));
    // An empty segment stays, and messages go on after those that are gone.
    store.step();
    assert_eq!(store.bases("t"), [4]);
    store.send("t", [store.clock.now_ms()]);
    for _ in 0..3 {
        store.step();
    }
    assert_eq!(store.offsets("t"), [4]);
}
