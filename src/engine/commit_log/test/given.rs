//! Offsets of messages that are damaged before they are dispatched, or seen by other processes.

use super::holes::copy;
use crate::engine::commit_log::CommitLog;
use crate::engine::{Atomicity, Durability, Engine, Place};
use crate::error::{Error, Result};
use crate::machine::{Drive, Machine};
use crate::options::{Mode, Options};
use crate::record::Draft;
use crate::record::rocketmq::layout::{AT_QUEUE_ID, AT_QUEUE_OFFSET, AT_SYS_FLAG, sys_flag};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

fn open(root: &Path, mode: Mode) -> CommitLog {
    let options = Options {
        mode,
        commitlog_file_size: Some(1 << 20),
        default_queues: Some(1),
        index: Some(false),
        ..Options::default()
    };
    let machine = Machine {
        drive: Drive::Steps,
        ..Machine::real()
    };
    CommitLog::open(&machine, root, &options, Vec::new()).unwrap()
}

fn send(engine: &CommitLog, name: &str) -> Result<Place> {
    let topic = engine.topic_for_append(name)?;
    let draft = Draft {
        body: b"a body",
        ..Draft::default()
    };
    let mut batch = engine.form().batch();
    batch.push(name, 0, &draft, 1000)?;
    let batches = &mut [(&*topic, &mut batch)];
    let sent = engine.append(batches, Atomicity::Rows, Durability::Written)?;
    Ok(sent.rows[0])
}

/// Replaces bytes of the record at a position.
fn damage(root: &Path, position: u64, at: usize, bytes: &[u8]) {
    let path = root.join("commitlog").join(format!("{:020}", 0));
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, position + at as u64).unwrap();
}

/// Sends messages, and damages the last one of `orders` and the only one of `bills` before they are
/// dispatched. The next offsets are then 3 and 1.
fn send_and_damage(root: &Path, engine: &CommitLog) {
    for _ in 0..2 {
        send(engine, "orders").unwrap();
    }
    let lost = [
        send(engine, "orders").unwrap(),
        send(engine, "bills").unwrap(),
    ];
    send(engine, "others").unwrap();
    for place in lost {
        // The magic follows the length.
        damage(root, place.position, 4, &[0]);
    }
}

/// Sends a message to each queue that has lost its last one.
fn next_offsets(engine: &CommitLog) -> [u64; 2] {
    ["orders", "bills"].map(|name| send(engine, name).unwrap().offset)
}

/// Full passes saved the ends of the queues, which dispatch had counted without these messages.
#[test]
fn the_offset_of_a_message_that_is_damaged_before_it_is_dispatched_is_not_given_again() {
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(dir.path(), Mode::Append);
    send_and_damage(dir.path(), &engine);
    engine.step_dispatch();
    assert_eq!(engine.report().damaged(), 1);
    engine.parts().save_table().unwrap();
    engine.parts().full_pass().unwrap();
    // The copy is what a process that is killed here leaves.
    copy(dir.path(), killed.path());
    engine.close().unwrap();
    for root in [dir.path(), killed.path()] {
        let engine = open(root, Mode::Append);
        assert_eq!(next_offsets(&engine), [3, 1]);
        engine.close().unwrap();
    }
}

/// No full pass came between the damage and the close.
#[test]
fn a_close_knows_the_offsets_of_messages_that_it_dispatches_damaged() {
    for mode in [Mode::Append, Mode::Share] {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path(), mode);
        send_and_damage(dir.path(), &engine);
        if mode == Mode::Share {
            // No thread makes the messages durable, for which the close waits.
            let led = engine.led_parts().unwrap().unwrap();
            led.flush_to(led.wrote()).unwrap();
        }
        engine.close().unwrap();
        let engine = open(dir.path(), Mode::Append);
        assert_eq!(next_offsets(&engine), [3, 1], "{mode:?}");
        engine.close().unwrap();
    }
}

/// Dispatch put an entry wherever the damaged record claimed to be: in place of that of another
/// message, in a queue that does not exist, or so far after the others that writing ended.
#[test]
fn a_message_whose_place_is_damaged_before_it_is_dispatched_hides_no_other() {
    let places: [(usize, &[u8]); 5] = [
        (AT_QUEUE_OFFSET, &(1_u64 << 40).to_be_bytes()),
        (AT_QUEUE_OFFSET, &9_u64.to_be_bytes()),
        (AT_QUEUE_OFFSET, &0_u64.to_be_bytes()),
        (AT_QUEUE_ID, &7_u32.to_be_bytes()),
        (AT_SYS_FLAG, &sys_flag::ROLLBACK.to_be_bytes()),
    ];
    for (at, bytes) in places {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path(), Mode::Append);
        let mut sent = vec![send(&engine, "orders").unwrap()];
        sent.push(send(&engine, "orders").unwrap());
        engine.step_dispatch();
        let damaged = send(&engine, "orders").unwrap();
        damage(dir.path(), damaged.position, at, bytes);
        engine.step_dispatch();
        assert_eq!(engine.report().damaged(), 1, "{at}");
        sent.push(send(&engine, "orders").unwrap());
        engine.step_dispatch();
        let topic = engine.topics().get("orders").unwrap();
        assert_eq!(engine.queues(&topic), [0], "{at}");
        for place in &sent {
            let found = engine.get(&topic, 0, place.offset).unwrap().unwrap();
            assert_eq!(found.record().position(), place.position.cast_signed());
        }
        engine.close().unwrap();
        let engine = open(dir.path(), Mode::Append);
        assert_eq!(send(&engine, "orders").unwrap().offset, 4, "{at}");
        engine.close().unwrap();
    }
}

/// Another process gave the next message of this queue an offset after that of the damaged record.
/// Dispatch took no entry so far after the others, and ended writing for all.
#[test]
fn a_damaged_offset_of_another_process_is_not_continued() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (open(dir.path(), Mode::Share), open(dir.path(), Mode::Share));
    send(&first, "orders").unwrap();
    assert_eq!(send(&second, "orders").unwrap().offset, 1);
    let damaged = send(&first, "orders").unwrap();
    let offset = (1_u64 << 40).to_be_bytes();
    damage(dir.path(), damaged.position, AT_QUEUE_OFFSET, &offset);
    let refused = send(&second, "orders").unwrap_err();
    assert!(matches!(refused, Error::Corrupt { .. }), "{refused}");
    drop((first, second));
}
