//! Logs with many damaged records.

use crate::disk::{Call, HookedDisk};
use crate::engine::commit_log::CommitLog;
use crate::engine::{Atomicity, Check, Cursor, Durability, Engine, Filter, Rows};
use crate::machine::Machine;
use crate::options::{Mode, Options};
use crate::record::Draft;
use crate::warning::Warning;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A file system may look at every page of a file to tell where its data ends.
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

/// A store with a queue of `t` whose second message is damaged, and `others` of another topic in
/// between.
struct Damaged {
    dir: tempfile::TempDir,
    options: Options,
}

impl Damaged {
    fn new(others: usize) -> Damaged {
        let damaged = Damaged {
            dir: tempfile::tempdir().unwrap(),
            options: Options {
                commitlog_file_size: Some(4 << 20),
                queue_file_entries: Some(64),
                default_queues: Some(1),
                index: Some(false),
                ..Options::default()
            },
        };
        let (dying, root) = (tempfile::tempdir().unwrap(), damaged.dir.path());
        let engine = damaged.open_at(dying.path(), Mode::Append);
        append(&engine, "t", b"the first one");
        append(&engine, "t", b"the second one");
        for _ in 0..others {
            append(&engine, "others", &[7; 128 << 10]);
        }
        append(&engine, "t", b"the third one");
        engine.flush(&mut || true).unwrap();
        engine.refresh(None).unwrap();
        // What a process leaves that is killed here.
        copy(dying.path(), root);
        engine.close().unwrap();
        let log = root.join("commitlog").join(format!("{:020}", 0));
        let mut bytes = fs::read(&log).unwrap();
        let at = bytes.windows(10).position(|at| at == b"the second");
        bytes[at.unwrap()] ^= 1;
        fs::write(&log, bytes).unwrap();
        // Recovery tells of it, once.
        let engine = damaged.open(Mode::Append);
        assert_eq!(engine.report().damaged(), 1);
        engine.close().unwrap();
        damaged
    }

    fn open(&self, mode: Mode) -> CommitLog {
        self.open_at(self.dir.path(), mode)
    }

    fn open_at(&self, root: &Path, mode: Mode) -> CommitLog {
        let options = Options {
            mode,
            ..self.options.clone()
        };
        CommitLog::open(&Machine::real(), root, &options, Vec::new()).unwrap()
    }
}

/// Copies the files of a directory into another one.
fn copy(from: &Path, to: &Path) {
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
        let topic = engine.topics().get("t").unwrap();
        let all = Filter::default();
        let mut cursor = engine
            .cursor(&topic, 0, next..3, &all, Check::Full)
            .unwrap();
        assert!(cursor.step(1, &mut rows).unwrap() || !rows.rows.is_empty());
        next = cursor.offset();
        steps += 1;
    }
    assert!(steps > 2, "{steps}");
    assert_eq!(engine.report().damaged(), 1);
    assert_eq!(rows.rows.len(), 1);
    // What was looked into is not searched again.
    rows.clear();
    cursor(&engine).step(10, &mut rows).unwrap();
    assert_eq!(rows.rows.len(), 2);
    engine.close().unwrap();
}
