//! A long backlog, whose entries are put queue by queue.

use crate::disk::{Call, HookedDisk};
use crate::engine::commit_log::CommitLog;
use crate::engine::{Appended, Atomicity, Durability, Engine};
use crate::machine::Machine;
use crate::options::Options;
use crate::record::{Draft, Message};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const TOPICS: usize = 11;

fn send(engine: &CommitLog, topic: &str, key: &str) -> Appended {
    let topic = engine.topic_for_append(topic).unwrap();
    let mut batch = engine.form().batch();
    let draft = Draft {
        body: &[7; 100],
        keys: &[key],
        ..Draft::default()
    };
    let clock_ms = engine.parts().clock.now_ms();
    batch.push(&topic.name, 0, &draft, clock_ms).unwrap();
    let batches = &mut [(&*topic, &mut batch)];
    let sent = engine.append(batches, Atomicity::Rows, Durability::Written);
    sent.unwrap()
}

/// The files of one queue cannot be created for a moment, so a batch is dispatched in part, and
/// then again.
#[test]
fn a_long_backlog_is_dispatched_like_a_short_one() {
    let dir = tempfile::tempdir().unwrap();
    let is_short = Arc::new(AtomicBool::new(false));
    let short = Arc::clone(&is_short);
    let disk = HookedDisk::shared(move |call, path| {
        let is_of_queue = path.to_string_lossy().contains("consumequeue/t7");
        match call == Call::Create && is_of_queue && short.load(Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(libc::ENFILE)),
            false => Ok(()),
        }
    });
    let options = Options {
        index_slots: Some(64),
        index_entries: Some(100),
        ..Options::default()
    };
    let machine = Machine::stepped(disk);
    let engine = CommitLog::open(&machine, dir.path(), &options, Vec::new()).unwrap();
    let dispatcher = &engine.parts().dispatcher;
    let mut sent = Vec::new();
    for turn in 0..1000 {
        let topic = format!("t{}", (turn % 7 + turn / 300 * 4) % TOPICS);
        let key = format!("k{turn}");
        sent.push((topic.clone(), key.clone(), send(&engine, &topic, &key)));
        if turn == 20 {
            // Batches of a backlog are long once there are several queues.
            while dispatcher.step().unwrap() {}
            is_short.store(true, Ordering::Relaxed);
        }
    }
    assert!((0..10).any(|_| dispatcher.step().is_err()));
    is_short.store(false, Ordering::Relaxed);
    while dispatcher.step().unwrap() {}
    assert_eq!(dispatcher.dispatched(), sent.last().unwrap().2.end);

    for (topic, key, appended) in &sent {
        let (name, topic) = (topic, engine.topics().get(topic).unwrap());
        let queue = engine.parts().queues.get(&topic, 0).unwrap().unwrap();
        let place = appended.rows[0];
        let entry = queue.entry(place.offset).unwrap().unwrap();
        assert_eq!(entry.position, place.position, "{name}, {}", place.offset);
        let found = engine.query(&topic, key.as_bytes(), 0, i64::MAX, 10, &mut || true);
        let found = found.unwrap();
        let offset = |message: &Message| message.record().queue_offset().cast_unsigned();
        let offsets: Vec<_> = found.iter().map(offset).collect();
        assert_eq!(offsets, [place.offset], "{name}, {key}");
    }
    let topics = engine.topics().all();
    let queues = topics.iter().flat_map(|it| engine.parts().queues.of(it));
    let entries: u64 = queues.flatten().map(|queue| queue.max()).sum();
    assert_eq!(entries, sent.len() as u64);
    engine.close().unwrap();
}
