//! Flushes that are requested because of the number of messages.

use super::write::{send, writing};
use super::*;
use crate::disk::RealDisk;
use crate::engine::service::durability::Durable;
use crate::engine::{Appended, Atomicity};
use crate::record::Draft;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// A store whose services the test steps.
fn stepped(root: &Path) -> PartitionLog {
    let machine = Machine::stepped(Arc::new(RealDisk));
    PartitionLog::open(&machine, root, &after(3)).unwrap()
}

fn after(messages: u64) -> Options {
    Options {
        flush_messages: Some(messages),
        default_queues: Some(2),
        flush_interval: HOUR,
        queue_flush_interval: HOUR,
        ..Options::default()
    }
}

/// Appends a message, and returns whether to request a flush.
fn must_flush(engine: &PartitionLog) -> bool {
    let parts = &engine.writer.as_ref().unwrap().parts;
    let topic = engine.topic_for_append("t").unwrap();
    let mut batch = engine.form().batch();
    batch.push("t", 0, &Draft::default(), 1000).unwrap();
    let (batches, mut appended) = (&mut [(&*topic, &mut batch)], Appended::default());
    let appended = parts.append(batches, Atomicity::Rows, &mut appended);
    appended.unwrap()
}

/// Sends each of these batches of messages to a queue, and then runs a step of group commit.
/// Returns whether everything is durable.
fn is_durable_after(engine: &PartitionLog, batches: &[(u32, usize)]) -> bool {
    for (queue, messages) in batches {
        send(engine, "t", &vec![(*queue, &b"x"[..]); *messages]);
    }
    engine.step_group_commit();
    engine.parts().durable() == engine.parts().published()
}

#[test]
fn a_queue_with_so_many_messages_that_are_not_durable_is_flushed() {
    let root = tempfile::tempdir().unwrap();
    let engine = stepped(root.path());
    let is_durable = |batches: &[(u32, usize)]| is_durable_after(&engine, batches);
    assert!(!is_durable(&[(0, 1), (0, 1)]));
    assert!(is_durable(&[(0, 1)]));
    // Each queue counts only its own messages, and not those that a flush for another one has
    // covered.
    assert!(!is_durable(&[(0, 2), (1, 2)]));
    assert!(is_durable(&[(1, 1)]));
    assert!(!is_durable(&[(0, 2)]));
    engine.flush(&mut || true).unwrap();
    assert!(!is_durable(&[(0, 2)]));
    // The messages of a batch count.
    assert!(is_durable(&[(0, 7)]));
    engine.close().unwrap();
    // Messages from before the opening do not count.
    let engine = stepped(root.path());
    assert!(!is_durable_after(&engine, &[(0, 2)]));
    assert!(is_durable_after(&engine, &[(0, 1)]));
    engine.close().unwrap();
}

#[test]
fn one_flush_is_asked_for_until_it_begins() {
    let root = tempfile::tempdir().unwrap();
    let engine = stepped(root.path());
    let asked = (0..10).filter(|_| must_flush(&engine)).count();
    assert_eq!(asked, 3);
    engine.close().unwrap();
}

#[test]
fn processes_that_share_a_log_count_what_none_of_them_has_flushed() {
    let root = tempfile::tempdir().unwrap();
    let options = Options {
        mode: Mode::Share,
        ..after(3)
    };
    let all = [(); 2].map(|()| writing(root.path(), &options).unwrap());
    let [leader, other] = &all;
    assert!(!must_flush(leader) && !must_flush(other));
    assert!(must_flush(other));
    leader.flush(&mut || true).unwrap();
    assert!(!must_flush(leader) && !must_flush(other));
    leader.flush(&mut || true).unwrap();
    assert!(!must_flush(other) && !must_flush(leader));
    assert!(must_flush(leader));
    all.iter().for_each(|engine| engine.close().unwrap());
}
