//! Queues of a store that was closed properly are opened when they are first used.

use crate::disk::{Call, HookedDisk};
use crate::engine::commit_log::CommitLog;
use crate::engine::{Atomicity, Durability, Engine};
use crate::error::Error;
use crate::machine::Machine;
use crate::options::Options;
use crate::record::Draft;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const TOPICS: usize = 100;

/// The queue files that were mapped or read, and whether that fails.
#[derive(Clone, Default)]
struct Watched {
    files: Arc<Mutex<BTreeSet<String>>>,
    fails: Arc<AtomicBool>,
}

impl Watched {
    fn open(&self, root: &Path) -> CommitLog {
        let (files, fails) = (Arc::clone(&self.files), Arc::clone(&self.fails));
        let disk = HookedDisk::shared(move |call, path| {
            let path = path.to_str().unwrap();
            if let Some((_, file)) = path.split_once("consumequeue/")
                && matches!(call, Call::Map | Call::Read)
            {
                if fails.load(Ordering::Relaxed) {
                    return Err(io::Error::from_raw_os_error(libc::EMFILE));
                }
                let topic = file.split('/').next().unwrap();
                files.lock().unwrap().insert(topic.to_owned());
            }
            Ok(())
        });
        let options = Options {
            commitlog_file_size: Some(64 << 10),
            queue_file_entries: Some(64),
            index_slots: Some(16),
            index_entries: Some(1024),
            default_queues: Some(1),
            ..Options::default()
        };
        CommitLog::open(&Machine::stepped(disk), root, &options, Vec::new()).unwrap()
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.files.lock().unwrap())
            .into_iter()
            .collect()
    }
}

fn name(number: usize) -> String {
    format!("topic-{number:03}")
}

fn send(engine: &CommitLog, number: usize) -> u64 {
    let topic = engine.topic_for_append(&name(number)).unwrap();
    let mut batch = engine.form().batch();
    let draft = Draft {
        body: b"body",
        keys: &["key"],
        ..Draft::default()
    };
    let clock_ms = engine.parts().clock.now_ms();
    batch.push(&topic.name, 0, &draft, clock_ms).unwrap();
    let mut batches = [(&*topic, &mut batch)];
    let sent = engine.append(&mut batches, Atomicity::Rows, Durability::Written);
    sent.unwrap().rows[0].offset
}

fn bounds(engine: &CommitLog, number: usize) -> crate::Result<std::ops::Range<u64>> {
    let topic = engine.topics().get(&name(number)).unwrap();
    Ok(engine.bounds(&topic, 0)?.unwrap())
}

/// Opening a store of 10,000 queues once took half a second, all of it for files that nobody used.
#[test]
fn a_closed_store_opens_without_its_queues_and_each_when_it_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let watched = Watched::default();
    let engine = watched.open(dir.path());
    for _ in 0..2 {
        for number in 0..TOPICS {
            send(&engine, number);
        }
    }
    engine.close().unwrap();
    watched.take();

    // Neither opening nor closing reads the queue files.
    for _ in 0..2 {
        let engine = watched.open(dir.path());
        assert!(engine.report().recovery().clean);
        engine.close().unwrap();
        assert_eq!(watched.take(), [""; 0]);
    }
    let engine = watched.open(dir.path());
    assert_eq!(bounds(&engine, 7).unwrap(), 0..2);
    assert_eq!(watched.take(), [name(7)]);
    assert_eq!(send(&engine, 31), 2);
    assert_eq!(watched.take(), [""; 0], "the next offset is known");
    while engine.parts().dispatcher.step().unwrap() {}
    assert_eq!(watched.take(), [name(31)]);
    assert_eq!(send(&engine, TOPICS), 0, "a new topic");
    engine.close().unwrap();
    watched.take();

    let engine = watched.open(dir.path());
    for number in 0..=TOPICS {
        let expected = match number {
            31 => 3,
            TOPICS => 1,
            _ => 2,
        };
        assert_eq!(bounds(&engine, number).unwrap(), 0..expected, "{number}");
    }
    assert_eq!(watched.take().len(), TOPICS + 1);
    assert_eq!(engine.verify(&mut |_, _| true).unwrap().damage, []);
}

/// A queue that cannot be opened for lack of a descriptor is not taken for one without messages.
#[test]
fn want_of_descriptors_keeps_a_queue_closed_and_passes() {
    let dir = tempfile::tempdir().unwrap();
    let watched = Watched::default();
    let engine = watched.open(dir.path());
    for number in 0..3 {
        send(&engine, number);
    }
    engine.close().unwrap();

    let engine = watched.open(dir.path());
    watched.fails.store(true, Ordering::Relaxed);
    assert!(matches!(bounds(&engine, 1), Err(Error::Io { .. })));
    assert_eq!(send(&engine, 2), 1);
    assert!(engine.parts().dispatcher.step().is_err());
    watched.fails.store(false, Ordering::Relaxed);
    assert_eq!(bounds(&engine, 1).unwrap(), 0..1);
    assert_eq!(bounds(&engine, 2).unwrap(), 0..2);
    engine.close().unwrap();
    let engine = watched.open(dir.path());
    assert_eq!(engine.verify(&mut |_, _| true).unwrap().damage, []);
}
