//! Messages that linger.

use super::*;
use crate::disk::{Call, HookedDisk, RealDisk};
use crate::engine::{Atomicity, Durability, Lingering, QueueLogs};
use crate::error::Error;
use crate::options::{Flush, TimestampType};
use crate::record::Draft;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// A store whose services the test steps.
fn stepped(root: &Path, options: Options) -> PartitionLog {
    let machine = Machine::stepped(Arc::new(RealDisk));
    PartitionLog::open(&machine, root, &options).unwrap()
}

fn lingering(batch_bytes: u64) -> Options {
    Options {
        linger: HOUR,
        batch_bytes: Some(batch_bytes),
        default_queues: Some(2),
        ..Options::default()
    }
}

fn draft(body: &[u8]) -> Draft<'_> {
    Draft {
        body,
        ..Draft::default()
    }
}

fn push(engine: &PartitionLog, queue: u32, body: &[u8]) -> Result<Lingering> {
    let topic = engine.topic_for_append("t").unwrap();
    let linger = engine.linger().unwrap();
    linger.push(&topic, queue, &draft(body), 1000)
}

/// Appends a message at once; returns its offset.
fn send(engine: &PartitionLog, queue: u32, body: &[u8]) -> u64 {
    let topic = engine.topic_for_append("t").unwrap();
    let mut batch = engine.form().batch();
    batch.push("t", queue, &draft(body), 1000).unwrap();
    let batches = &mut [(&*topic, &mut batch)];
    let sent = engine.append(batches, Atomicity::Rows, Durability::Written);
    sent.unwrap().rows[0].offset
}

fn bodies(engine: &PartitionLog, queue: u32) -> Vec<Vec<u8>> {
    let found = messages_of(engine, ("t", queue), 100);
    let bodies = found.iter().map(|message| message.body().unwrap());
    bodies.map(|body| body.to_vec()).collect()
}

/// Length and number of records of each batch of queue 0.
fn batches(root: &Path) -> Vec<(usize, u32)> {
    let log = fs::read(root.join("t-0/00000000000000000000.log")).unwrap();
    let number = |at: usize| u32::from_be_bytes(*log[at..].first_chunk().unwrap());
    let (mut at, mut found) = (0, Vec::new());
    while at < log.len() {
        let len = number(at + 8) as usize + 12;
        found.push((len, number(at + 57)));
        at += len;
    }
    found
}

#[test]
fn messages_that_linger_become_one_batch_of_each_queue() {
    let root = tempfile::tempdir().unwrap();
    let engine = stepped(root.path(), lingering(16_384));
    let rows: [(u32, &[u8]); 4] = [(0, b"a"), (1, b"b"), (0, b"c"), (0, b"d")];
    let tickets = rows.map(|(queue, body)| push(&engine, queue, body).unwrap());
    assert!(tickets.iter().all(|it| it.appended().is_none()));
    assert!(bodies(&engine, 0).is_empty());
    engine.step_linger();
    let places = tickets.clone().map(|it| it.appended().unwrap().0);
    let found = places.map(|place| (place.queue, place.offset, place.position));
    assert_eq!(found, [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 2, 0)]);
    assert_eq!(bodies(&engine, 0), [b"a", b"c", b"d"]);
    assert!(!tickets[0].waiter.is_done());
    engine.step_group_commit();
    for ticket in &tickets {
        assert!(matches!(ticket.waiter.wait(Duration::ZERO), Some(Ok(()))));
    }
    engine.close().unwrap();
    assert_eq!(
        batches(root.path())
            .iter()
            .map(|it| it.1)
            .collect::<Vec<_>>(),
        [3]
    );
}

#[test]
fn a_batch_is_appended_when_the_next_message_would_make_it_too_long() {
    let root = tempfile::tempdir().unwrap();
    let engine = stepped(root.path(), lingering(200));
    // 61 bytes of a header, and 37 of each record.
    let tickets: Vec<Lingering> = (0..7)
        .map(|it| push(&engine, 0, &[it; 30]).unwrap())
        .collect();
    let appended = |it: &Lingering| it.appended().is_some();
    assert_eq!(tickets.iter().filter(|it| appended(it)).count(), 6);
    // This message is longer than a batch may be, so it has a batch of its own.
    assert!(appended(&push(&engine, 0, &[7; 300]).unwrap()));
    engine.close().unwrap();
    let (one, three, long) = (61 + 37, 61 + 3 * 37, 61 + 309);
    let found = batches(root.path());
    assert_eq!(found, [(three, 3), (three, 3), (one, 1), (long, 1)]);
}

#[test]
fn without_room_for_others_each_message_is_appended_at_once() {
    let root = tempfile::tempdir().unwrap();
    let engine = stepped(root.path(), lingering(0));
    for offset in 0..3 {
        let ticket = push(&engine, 0, b"x").unwrap();
        assert_eq!(ticket.appended().unwrap().0.offset, offset);
    }
}

#[test]
fn an_append_to_a_queue_comes_after_what_lingers_there() {
    let root = tempfile::tempdir().unwrap();
    let engine = stepped(root.path(), lingering(16_384));
    push(&engine, 0, b"first").unwrap();
    let other = push(&engine, 1, b"other").unwrap();
    assert_eq!(send(&engine, 0, b"second"), 1);
    push(&engine, 0, b"third").unwrap();
    assert!(other.appended().is_none());
    engine.flush(&mut || true).unwrap();
    assert!(other.appended().is_some());
    let all: [&[u8]; 3] = [b"first", b"second", b"third"];
    assert_eq!(bodies(&engine, 0), all);
}

#[test]
fn a_flush_a_roll_and_a_close_append_what_lingers() {
    let root = tempfile::tempdir().unwrap();
    let engine = stepped(root.path(), lingering(16_384));
    let flushed = push(&engine, 0, b"a").unwrap();
    let durable = engine.flush(&mut || true).unwrap();
    assert!(flushed.appended().unwrap().1.end <= durable);
    let rolled = push(&engine, 0, b"b").unwrap();
    assert!(engine.roll().unwrap());
    assert!(rolled.appended().is_some());
    let closed = push(&engine, 0, b"c").unwrap();
    engine.close().unwrap();
    assert!(closed.appended().is_some());
    let late = engine.linger().unwrap();
    let late = late.push(&topic(&engine, "t"), 0, &draft(b"d"), 1000);
    assert!(matches!(late, Err(Error::Closed { .. })));
    let again = open(root.path(), Isolation::ReadUncommitted).unwrap();
    assert_eq!(bodies(&again, 0), [b"a", b"b", b"c"]);
}

#[test]
fn a_message_that_cannot_be_encoded_leaves_the_others_as_they_are() {
    let root = tempfile::tempdir().unwrap();
    let options = Options {
        max_message_size: Some(10),
        ..lingering(16_384)
    };
    let engine = stepped(root.path(), options);
    let refused = push(&engine, 0, &[0; 11]);
    assert!(matches!(refused, Err(Error::TooLarge { .. })));
    push(&engine, 0, b"a").unwrap();
    let refused = push(&engine, 0, &[0; 11]);
    assert!(matches!(refused, Err(Error::TooLarge { .. })));
    let topic = engine.topic_for_append("t").unwrap();
    let draft = Draft {
        born_timestamp: Some(i64::MIN),
        ..draft(b"b")
    };
    let refused = engine.linger().unwrap().push(&topic, 0, &draft, 1000);
    assert!(matches!(refused, Err(Error::InvalidOption { .. })));
    engine.flush(&mut || true).unwrap();
    assert_eq!(bodies(&engine, 0), [b"a"]);
}

#[test]
fn messages_that_were_not_appended_are_reported_by_their_tickets_and_the_next_flush() {
    let root = tempfile::tempdir().unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let hook = Arc::clone(&fails);
    let disk = HookedDisk::shared(move |call, path| {
        let is_log = path.to_str().is_some_and(|path| path.ends_with(".log"));
        match is_log && call == Call::Create && hook.load(Ordering::Relaxed) {
            true => Err(std::io::Error::from_raw_os_error(libc::EMFILE)),
            false => Ok(()),
        }
    });
    let options = lingering(16_384);
    let engine = PartitionLog::open(&Machine::stepped(disk), root.path(), &options).unwrap();
    fails.store(true, Ordering::Relaxed);
    let tickets = [b"a", b"b"].map(|body| push(&engine, 0, body).unwrap());
    engine.step_linger();
    for ticket in &tickets {
        assert!(ticket.appended().is_none());
        let outcome = ticket.waiter.wait(Duration::ZERO).unwrap();
        assert!(matches!(&*outcome.unwrap_err(), Error::Io { .. }));
    }
    fails.store(false, Ordering::Relaxed);
    push(&engine, 0, b"c").unwrap();
    let reported = engine.flush(&mut || true).unwrap_err();
    assert!(
        matches!(reported, Error::NotAppended { count: 2, .. }),
        "{reported}"
    );
    engine.flush(&mut || true).unwrap();
    assert_eq!(bodies(&engine, 0), [b"c"]);
    assert_eq!(engine.stats().sends_failed, 1);
    fails.store(true, Ordering::Relaxed);
    push(&engine, 1, b"d").unwrap();
    assert!(matches!(
        engine.close(),
        Err(Error::NotAppended { count: 1, .. })
    ));
    engine.close().unwrap();
}

#[test]
fn in_a_synchronous_store_a_message_that_lingered_is_read_when_it_is_durable() {
    let root = tempfile::tempdir().unwrap();
    let options = Options {
        flush: Some(Flush::Sync),
        message_timestamp_type: Some(TimestampType::LogAppendTime),
        ..lingering(16_384)
    };
    let engine = stepped(root.path(), options);
    let ticket = push(&engine, 0, b"a").unwrap();
    engine.step_linger();
    let (_, appended) = ticket.appended().unwrap();
    assert!(appended.store_timestamp > 1000);
    assert!(bodies(&engine, 0).is_empty());
    engine.step_group_commit();
    assert_eq!(bodies(&engine, 0), [b"a"]);
}

#[test]
fn a_thread_appends_messages_that_have_lingered() {
    let root = tempfile::tempdir().unwrap();
    let options = Options {
        linger: Duration::from_millis(1),
        ..lingering(16_384)
    };
    let engine = PartitionLog::open(&Machine::real(), root.path(), &options).unwrap();
    for offset in 0..3 {
        let ticket = push(&engine, 0, b"x").unwrap();
        assert!(matches!(ticket.waiter.wait(HOUR), Some(Ok(()))));
        assert_eq!(ticket.appended().unwrap().0.offset, offset);
    }
}

#[test]
fn the_messages_of_each_thread_stay_in_their_order() {
    const EACH: u32 = 400;
    let root = tempfile::tempdir().unwrap();
    let options = Options {
        linger: Duration::from_millis(1),
        ..lingering(300)
    };
    let engine = PartitionLog::open(&Machine::real(), root.path(), &options).unwrap();
    thread::scope(|scope| {
        for sender in 0..4_u32 {
            let engine = &engine;
            scope.spawn(move || {
                for number in 0..EACH {
                    let body = [sender.to_be_bytes(), number.to_be_bytes()].concat();
                    match number % 7 {
                        3 => drop(send(engine, 0, &body)),
                        _ => drop(push(engine, 0, &body).unwrap()),
                    }
                    if number % 50 == 0 {
                        engine.flush(&mut || true).unwrap();
                    }
                }
            });
        }
    });
    engine.close().unwrap();
    let again = open(root.path(), Isolation::ReadUncommitted).unwrap();
    let mut next = [0; 4];
    for body in bodies(&again, 0) {
        let number = |at: usize| u32::from_be_bytes(*body[at..].first_chunk().unwrap());
        let next = &mut next[number(0) as usize];
        assert_eq!(number(4), *next);
        *next += 1;
    }
    assert_eq!(next, [EACH; 4]);
}
