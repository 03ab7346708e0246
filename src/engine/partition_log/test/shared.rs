//! Processes that share a log: segments that one of them completes for the others.

use super::write::{bodies, send};
use super::*;
use crate::disk::{Call, Disk, HookedDisk, RealDisk};
use crate::engine::{Atomicity, Durability, QueueLogs};
use crate::error::Error;
use crate::record::Draft;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const SEGMENT_BYTES: u64 = 4096;

/// One of the processes that share the store at `root`.
fn join(root: &Path, disk: Arc<dyn Disk>) -> PartitionLog {
    let options = Options {
        mode: Mode::Share,
        default_queues: Some(2),
        segment_bytes: Some(SEGMENT_BYTES),
        ..Options::default()
    };
    let machine = Machine {
        disk,
        ..Machine::real()
    };
    PartitionLog::open(&machine, root, &options).unwrap()
}

/// Length of the first segment of a queue.
fn first_len(root: &Path, queue: u32) -> u64 {
    let log = root.join(format!("orders-{queue}/00000000000000000000.log"));
    fs::metadata(log).unwrap().len()
}

/// Appends a message with this body to each of the queues, in one call that fails.
fn fail_to_append(engine: &PartitionLog, queues: Range<u32>, body: &[u8]) {
    let topic = engine.topic_for_append("orders").unwrap();
    let mut batch = engine.form().batch();
    for queue in queues {
        let draft = Draft {
            body,
            ..Draft::default()
        };
        batch.push(&topic.name, queue, &draft, 1000).unwrap();
    }
    let batches = &mut [(&*topic, &mut batch)];
    let sent = engine.append(batches, Atomicity::Rows, Durability::Written);
    assert!(matches!(sent.unwrap_err(), Error::Io { .. }));
}

/// Closes the processes, and expects that a reader finds these messages and no damage.
fn expect(root: &Path, all: [PartitionLog; 2], queue: u32, expected: &[&[u8]]) {
    all.iter().for_each(|engine| engine.close().unwrap());
    let reader = open(root, Isolation::default()).unwrap();
    assert_eq!(bodies(&reader, "orders", queue), expected);
    assert!(reader.report().damage().is_empty());
}

#[test]
fn a_segment_to_which_others_have_appended_is_cut_to_its_messages_when_it_is_completed() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let all = [(); 2].map(|()| join(root, Arc::new(RealDisk)));
    let [leader, other] = &all;
    send(other, "orders", &[(0, b"one")]);
    assert_eq!(first_len(root, 0), SEGMENT_BYTES);
    assert!(leader.roll().unwrap());
    assert!(first_len(root, 0) < 1000);
    assert_eq!(send(other, "orders", &[(0, b"two")]), [1]);
    expect(root, all, 0, &[b"one", b"two"]);
}

/// The first append to a partition: the zeros after its first segment stayed, which a broker takes
/// for damage.
#[test]
fn every_segment_that_an_append_fills_is_cut_to_its_messages() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let all = [(); 2].map(|()| join(root, Arc::new(RealDisk)));
    let [leader, other] = &all;
    let long: &[u8] = &[b'x'; 1800];
    send(other, "orders", &[(0, long); 5]);
    send(leader, "orders", &[(0, long); 5]);
    assert!(first_len(root, 0) < SEGMENT_BYTES);
    expect(root, all, 0, &[long; 10]);
}

#[test]
fn messages_after_a_roll_that_failed_are_in_the_segment_that_others_have_mapped() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let fails = Arc::new(AtomicBool::new(false));
    let hook = Arc::clone(&fails);
    let disk = HookedDisk::shared(move |call, path| {
        let is_meant = call == Call::Write && path.ends_with("orders-1/00000000000000000000.log");
        match is_meant && hook.swap(false, Ordering::Relaxed) {
            true => Err(std::io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    });
    let all = [join(root, disk), join(root, Arc::new(RealDisk))];
    let [failing, other] = &all;
    let (long, short) = ([b'x'; 1800], [b'y'; 100]);
    send(failing, "orders", &[(0, &long), (1, &long)]);
    send(other, "orders", &[(0, &short), (1, &short)]);
    send(failing, "orders", &[(0, &short), (1, &short)]);

    fails.store(true, Ordering::Relaxed);
    fail_to_append(failing, 0..2, &[b'z'; 2500]);
    assert!(!fails.load(Ordering::Relaxed));
    // The other queue was cut already.
    assert!(first_len(root, 0) < SEGMENT_BYTES);
    assert_eq!(send(other, "orders", &[(0, b"after")]), [3]);
    expect(root, all, 0, &[&long, &short, &short, b"after"]);
}

#[test]
fn an_append_that_fails_before_it_has_cut_a_segment_leaves_the_maps_of_others_alone() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let refusing = HookedDisk::shared(|call, path| {
        let is_meant = call == Call::Create && path.ends_with("orders-0/00000000000000000002.log");
        match is_meant {
            true => Err(std::io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    });
    let maps = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&maps);
    let counting = HookedDisk::shared(move |call, path| {
        let is_meant = call == Call::Map && path.ends_with("orders-0/00000000000000000000.log");
        counted.fetch_add(u32::from(is_meant), Ordering::Relaxed);
        Ok(())
    });
    let all = [join(root, refusing), join(root, counting)];
    let [failing, other] = &all;
    send(failing, "orders", &[(0, b"one")]);
    send(other, "orders", &[(0, b"two")]);
    let before = maps.load(Ordering::Relaxed);
    assert!(before > 0);
    // It needs a segment of its own.
    fail_to_append(failing, 0..1, &[b'z'; 3900]);
    assert_eq!(first_len(root, 0), SEGMENT_BYTES);
    assert_eq!(send(other, "orders", &[(0, b"three")]), [2]);
    assert_eq!(maps.load(Ordering::Relaxed), before);
    expect(root, all, 0, &[b"one", b"two", b"three"]);
}

/// A process completed the first segment of a queue without cutting it. No message is missing.
#[test]
fn room_after_a_complete_segment_is_no_damage_and_is_cut_by_opening() {
    for mode in [Mode::Append, Mode::Share] {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let engine = join(root, Arc::new(RealDisk));
        let long: &[u8] = &[b'x'; 1500];
        send(&engine, "orders", &[(0, long); 6]);
        engine.close().unwrap();
        let cut = first_len(root, 0);
        let log = root.join("orders-0/00000000000000000000.log");
        let file = fs::OpenOptions::new().write(true).open(log).unwrap();
        file.set_len(SEGMENT_BYTES).unwrap();

        let reader = open(root, Isolation::ReadCommitted).unwrap();
        assert_eq!(bodies(&reader, "orders", 0), [long; 6]);
        assert_eq!(reader.report().damage(), []);
        assert_eq!(reader.verify(&mut |_, _| true).unwrap().damage, []);
        let options = Options {
            mode,
            segment_bytes: Some(SEGMENT_BYTES),
            ..Options::default()
        };
        let engine = PartitionLog::open(&Machine::real(), root, &options).unwrap();
        assert_eq!(first_len(root, 0), cut);
        assert_eq!(bodies(&engine, "orders", 0), [long; 6]);
        assert_eq!(bodies(&reader, "orders", 0), [long; 6]);
        assert_eq!(engine.report().damage(), []);
        engine.close().unwrap();
    }
}
