//! Logs with many damaged records.

use crate::disk::{Call, HookedDisk};
use crate::engine::commit_log::CommitLog;
use crate::engine::{Atomicity, Check, Cursor, Durability, Engine, Filter, Rows};
use crate::machine::Machine;
use crate::options::{Mode, Options};
use crate::record::Draft;
use crate::record::rocketmq::layout::MAGIC_V1;
use crate::warning::Warning;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// A file system may check every page of a file to find where its data ends.
#[test]
fn the_end_of_data_is_not_asked_for_at_each_hole() {
    const LEN: usize = 400;
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        commitlog_file_size: Some(1 << 20),
        default_queues: Some(1),
        ..Options::default()
    };
    let engine = CommitLog::open(&Machine::real(), dir.path(), &options, Vec::new()).unwrap();
    let topic = engine.topic_for_append("t").unwrap();
    let mut batch = engine.form().batch();
    for _ in 0..LEN {
        let draft = Draft {
            body: b"a body",
            ..Draft::default()
        };
        batch.push(&topic.name, 0, &draft, 1000).unwrap();
    }
    let batches = &mut [(&*topic, &mut batch)];
    engine
        .append(batches, Atomicity::Rows, Durability::Written)
        .unwrap();
    engine.close().unwrap();
    let log = dir.path().join("commitlog").join(format!("{:020}", 0));
    let mut bytes = fs::read(&log).unwrap();
    let bodies: Vec<usize> = (0..bytes.len() - 6)
        .filter(|at| bytes[*at..].starts_with(b"a body"))
        .collect();
    assert_eq!(bodies.len(), LEN);
    bodies.iter().step_by(2).for_each(|at| bytes[*at] ^= 1);
    fs::write(&log, bytes).unwrap();

    let opened = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&opened);
    let disk = HookedDisk::shared(move |call, _| {
        count.fetch_add(usize::from(call == Call::Open), Ordering::Relaxed);
        Ok(())
    });
    let machine = Machine {
        disk,
        ..Machine::real()
    };
    for mode in [Mode::Read, Mode::Append] {
        let options = Options {
            mode,
            ..options.clone()
        };
        opened.store(0, Ordering::Relaxed);
        let engine = CommitLog::open(&machine, dir.path(), &options, Vec::new()).unwrap();
        let found = engine.verify(&mut |_, _| true).unwrap();
        assert_eq!(found.damage.len(), LEN / 2);
        let opened = opened.load(Ordering::Relaxed);
        assert!(opened < LEN / 4, "{mode:?}: {opened}");
    }
}

/// The damaged part of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Its body: the record still names its message.
    Body,
    /// Its magic: the hole does not show whose message it holds.
    Magic,
}

/// A store with a queue of `t` in which every second message is damaged. After each damaged one
/// come `others` messages of another topic, of 128 KiB each.
struct Damaged {
    dir: tempfile::TempDir,
    options: Options,
}

impl Damaged {
    fn new(others: usize) -> Damaged {
        Damaged::with(1, others, 8 << 20)
    }

    /// With `lost` damaged messages, all in the first file.
    fn with(lost: usize, others: usize, file_size: u64) -> Damaged {
        let damaged = Damaged::left(lost, others, file_size, Part::Magic);
        damaged.recover(lost);
        damaged
    }

    /// Recovery tells of the damage, once.
    fn recover(&self, lost: usize) {
        let engine = self.open(Mode::Append);
        assert_eq!(engine.report().damaged(), lost as u64);
        engine.close().unwrap();
    }

    /// One that was not recovered.
    fn left(lost: usize, others: usize, file_size: u64, part: Part) -> Damaged {
        let damaged = Damaged {
            dir: tempfile::tempdir().unwrap(),
            options: Options {
                commitlog_file_size: Some(file_size),
                queue_file_entries: Some(64),
                default_queues: Some(1),
                index: Some(false),
                ..Options::default()
            },
        };
        let (dying, root) = (tempfile::tempdir().unwrap(), damaged.dir.path());
        let engine = damaged.open_at(dying.path(), Mode::Append);
        append(&engine, "t", b"the first one");
        for number in 0..lost {
            if number > 0 {
                append(&engine, "t", b"one in between");
            }
            append(&engine, "t", b"the second one");
            for _ in 0..others {
                append(&engine, "others", &[7; 128 << 10]);
            }
        }
        append(&engine, "t", b"the third one");
        engine.flush(&mut || true).unwrap();
        engine.refresh(None).unwrap();
        // The copy is what a process that is killed here leaves.
        copy(dying.path(), root);
        engine.close().unwrap();
        let log = root.join("commitlog").join(format!("{:020}", 0));
        let mut bytes = fs::read(&log).unwrap();
        let windows = bytes.windows(10).enumerate();
        let found: Vec<usize> = windows
            .filter_map(|(at, bytes)| (bytes == b"the second").then_some(at))
            .collect();
        assert_eq!(found.len(), lost);
        for at in found {
            let magic = MAGIC_V1.to_be_bytes();
            let magic = bytes[..at].windows(4).rposition(|it| it == magic).unwrap();
            let at = match part {
                Part::Body => at,
                Part::Magic => magic,
            };
            bytes[at] ^= 1;
        }
        fs::write(&log, bytes).unwrap();
        damaged
    }

    fn open(&self, mode: Mode) -> CommitLog {
        self.open_at(self.dir.path(), mode)
    }

    fn open_at(&self, root: &Path, mode: Mode) -> CommitLog {
        self.open_on(&Machine::real(), root, mode)
    }

    fn open_on(&self, machine: &Machine, root: &Path, mode: Mode) -> CommitLog {
        let options = Options {
            mode,
            ..self.options.clone()
        };
        CommitLog::open(machine, root, &options, Vec::new()).unwrap()
    }
}

/// Copies the files of a directory into another one.
pub fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => {
                fs::create_dir(&target).unwrap();
                copy(&entry.path(), &target);
            }
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn append(engine: &CommitLog, name: &str, body: &[u8]) {
    let topic = engine.topic_for_append(name).unwrap();
    let draft = Draft {
        body,
        ..Draft::default()
    };
    let mut batch = engine.form().batch();
    batch.push(name, 0, &draft, 1000).unwrap();
    let batches = &mut [(&*topic, &mut batch)];
    engine
        .append(batches, Atomicity::Rows, Durability::Written)
        .unwrap();
}

/// A cursor over the queue of `t`.
fn cursor(engine: &CommitLog) -> Box<dyn Cursor> {
    engine.refresh(Some("t")).unwrap();
    let topic = engine.topics().get("t").unwrap();
    let all = Filter::default();
    engine.cursor(&topic, 0, 0..3, &all, Check::Full).unwrap()
}

/// Makes a step in the queue of `t`. Returns the offset of the next step.
fn step(engine: &CommitLog, offset: u64, rows: &mut Rows) -> u64 {
    let topic = engine.topics().get("t").unwrap();
    let (all, range) = (Filter::default(), offset..u64::MAX);
    let mut cursor = engine.cursor(&topic, 0, range, &all, Check::Full).unwrap();
    assert!(cursor.step(1, rows).unwrap() || !rows.rows.is_empty());
    cursor.offset()
}

/// Only the opening that recovered the store reported it; later readers passed over it silently.
#[test]
fn each_reader_is_told_of_a_message_that_was_lost_long_ago() {
    let damaged = Damaged::new(1);
    for mode in [Mode::Append, Mode::Read, Mode::Share] {
        let engine = damaged.open(mode);
        let beside = (mode != Mode::Read).then(|| damaged.open(Mode::Read));
        for engine in beside.iter().chain([&engine]) {
            assert_eq!(engine.report().damaged(), 0, "{mode:?}");
            for _ in 0..2 {
                let mut rows = Rows::default();
                cursor(engine).next(10, &mut rows).unwrap();
                assert_eq!(rows.rows.len(), 2);
                let told = engine.report().damage();
                assert_eq!(told.len(), 1, "{mode:?}: {told:?}");
                assert_eq!(told[0].lost, [("t".to_owned(), 0, 1)]);
            }
            let warnings = engine.report().warnings.take().into_iter();
            let of_damage = warnings.filter(|it| matches!(it, Warning::Damage(_)));
            assert_eq!(of_damage.count(), 1, "{mode:?}");
        }
        if let Some(beside) = beside {
            beside.close().unwrap();
        }
        engine.close().unwrap();
    }
}

/// The next message of the queue is far away in the log, and the caller may not want to wait.
#[test]
fn a_long_search_for_a_lost_message_can_be_left_and_goes_on_later() {
    let damaged = Damaged::new(20);
    let engine = damaged.open(Mode::Read);
    let (mut steps, mut rows) = (0, Rows::default());
    // Each step has a cursor of its own, as each call of a consumer has.
    let mut next = 1;
    while next < 2 {
        next = step(&engine, next, &mut rows);
        steps += 1;
    }
    assert!(steps > 2, "{steps}");
    assert_eq!(engine.report().damaged(), 1);
    assert_eq!(rows.rows.len(), 1);
    // The fillers of an ended search are not searched for again.
    rows.clear();
    cursor(&engine).step(10, &mut rows).unwrap();
    assert_eq!(rows.rows.len(), 2);
    engine.close().unwrap();
}

/// Each reader dropped the search of the other, and neither got past its filler.
#[test]
fn readers_that_search_for_different_lost_messages_in_turn_all_get_past_them() {
    // 18 searches are more than a queue keeps.
    for lost in [2, 18] {
        let damaged = Damaged::with(lost, 10, 32 << 20);
        let engine = damaged.open(Mode::Read);
        let mut rows = Rows::default();
        let mut readers: Vec<u64> = (0..lost as u64).map(|number| 2 * number + 1).collect();
        for _ in 0..4 {
            for (number, reader) in (0..).zip(&mut readers) {
                if *reader == 2 * number + 1 {
                    *reader = step(&engine, *reader, &mut rows);
                }
            }
        }
        let ends: Vec<u64> = (1..=lost as u64).map(|number| 2 * number).collect();
        let ends = ends.iter().zip(&readers);
        assert!(ends.clone().all(|(end, reader)| reader >= end), "{ends:?}");
        assert_eq!(engine.report().damaged(), lost as u64);
        engine.close().unwrap();
    }
}

/// The search only serves a report. The messages after the lost one do not wait for a walk over
/// the whole log.
#[test]
fn a_search_for_a_lost_message_ends_after_a_part_of_the_log() {
    // A search walks at most 3 MiB in tests, and a step 1 MiB.
    let damaged = Damaged::new(48);
    let engine = damaged.open(Mode::Read);
    let (mut steps, mut rows, mut next) = (0, Rows::default(), 1);
    while next < 2 {
        next = step(&engine, next, &mut rows);
        steps += 1;
    }
    assert!((2..=4).contains(&steps), "{steps}");
    let told = engine.report().damage();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].lost, [("t".to_owned(), 0, 1)]);
    engine.close().unwrap();
}

/// It went on to the next message of the queue, and the reader with it.
#[test]
fn a_search_for_a_lost_message_ends_once_it_is_found() {
    let damaged = Damaged::left(1, 20, 8 << 20, Part::Body);
    damaged.recover(1);
    let engine = damaged.open(Mode::Read);
    let mut rows = Rows::default();
    assert!(step(&engine, 1, &mut rows) > 1);
    let told = engine.report().damage();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].lost, [("t".to_owned(), 0, 1)]);
    engine.close().unwrap();
}

/// The first reader after a recovery walked the log to report what the opening had reported.
#[test]
fn a_message_that_was_reported_lost_is_not_searched() {
    let damaged = Damaged::left(1, 20, 8 << 20, Part::Magic);
    let engine = damaged.open(Mode::Append);
    let told = engine.report().damage();
    assert_eq!(told[0].lost, [("t".to_owned(), 0, 1)]);
    let mut rows = Rows::default();
    assert!(step(&engine, 1, &mut rows) > 1);
    assert_eq!(engine.report().damage(), told);
    engine.close().unwrap();
}

/// A store with one lost message that is read while maps of a log file fail.
struct Failing {
    engine: CommitLog,
    /// The error that they fail with; 0 for none.
    number: Arc<AtomicI32>,
    /// How many have failed.
    met: Arc<AtomicUsize>,
    _damaged: Damaged,
}

impl Failing {
    /// That log file begins at `start`. The lost message is in the first one, and the next message
    /// of its queue in the third.
    fn new(start: u64) -> Failing {
        let damaged = Damaged::with(1, 20, 1 << 20);
        let (number, met) = (Arc::new(AtomicI32::new(0)), Arc::new(AtomicUsize::new(0)));
        let (failing, count) = (Arc::clone(&number), Arc::clone(&met));
        let name = format!("commitlog/{start:020}");
        let disk = HookedDisk::shared(move |call, path| {
            let number = failing.load(Ordering::Relaxed);
            if call == Call::Map && path.ends_with(&name) && number != 0 {
                count.fetch_add(1, Ordering::Relaxed);
                return Err(io::Error::from_raw_os_error(number));
            }
            Ok(())
        });
        let machine = Machine {
            disk,
            ..Machine::real()
        };
        Failing {
            engine: damaged.open_on(&machine, damaged.dir.path(), Mode::Read),
            number,
            met,
            _damaged: damaged,
        }
    }

    /// Reads past the filler of the lost message. Returns how many maps have failed meanwhile.
    fn pass(&self) -> usize {
        let before = self.met.load(Ordering::Relaxed);
        let topic = self.engine.topics().get("t").unwrap();
        let all = Filter::default();
        let cursor = self.engine.cursor(&topic, 0, 1..2, &all, Check::Full);
        let (mut cursor, mut rows) = (cursor.unwrap(), Rows::default());
        for _ in 0..4 {
            if !cursor.step(1, &mut rows).unwrap() {
                break;
            }
        }
        assert_eq!(cursor.offset(), 2);
        self.met.load(Ordering::Relaxed) - before
    }

    fn close(self) {
        self.engine.close().unwrap();
    }
}

/// A reader does not need the bytes between a lost message and the next one of its queue. A bad
/// sector there made the search begin again at each filler. Later it ended without a report.
#[test]
fn a_search_for_a_lost_message_ends_at_bytes_that_cannot_be_read_and_reports_them() {
    let store = Failing::new(1 << 20);
    store.number.store(libc::EIO, Ordering::Relaxed);
    assert!(store.pass() > 0);
    let told = store.engine.report().damage();
    assert_eq!(told.len(), 2, "{told:?}");
    let name = format!("{:020}", 1 << 20);
    assert!(told[0].path.ends_with(&name) && told[0].position == 1 << 20);
    assert!(told[0].reason.contains("cannot map") && told[0].lost.is_empty());
    assert_eq!(told[1].lost, [("t".to_owned(), 0, 1)]);
    assert_eq!(store.pass(), 0);
    assert_eq!(store.engine.report().damage(), told);
    store.close();
}

/// One lack of descriptors ended the search for good, and the message was never reported.
#[test]
fn a_search_for_a_lost_message_goes_on_after_a_lack_of_descriptors() {
    for start in [0, 1 << 20] {
        let store = Failing::new(start);
        for number in [libc::EMFILE, libc::ENOMEM] {
            store.number.store(number, Ordering::Relaxed);
            // A reader tries a file only a few times.
            assert!((1..=2).contains(&store.pass()));
            assert_eq!(store.engine.report().damaged(), 0);
        }
        store.number.store(0, Ordering::Relaxed);
        assert_eq!(store.pass(), 0);
        let told = store.engine.report().damage();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].lost, [("t".to_owned(), 0, 1)]);
        store.close();
    }
}
