//! Logs with many damaged records.

use crate::disk::{Call, HookedDisk};
use crate::engine::commit_log::CommitLog;
use crate::engine::{Atomicity, Durability, Engine};
use crate::machine::Machine;
use crate::options::{Mode, Options};
use crate::record::Draft;
use std::fs;
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
