//! The transient pool: its contents can be read at once, and survive only as documented.

use crate::bed::{Bed, Kind, small_options, to_queue};
use forebay::{Atomicity, Draft, Durability, Error, Flush, Mode, Options, Store};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// A pool that is written out only on demand.
fn pooled(buffers: u32) -> Options {
    Options {
        transient_pool: buffers,
        commit_interval: Duration::from_secs(3600),
        flush_interval: Duration::from_secs(3600),
        ..small_options()
    }
}

fn body(number: u32) -> Vec<u8> {
    format!("message {number:04}").into_bytes()
}

/// Bytes of the first log file that are not zero.
fn bytes_in_file(root: &Path) -> usize {
    let file = root.join("commitlog").join("00000000000000000000");
    let bytes = fs::read(file).unwrap_or_default();
    bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1)
}

#[test]
fn messages_in_the_pool_are_in_no_file_until_they_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), pooled(2)).unwrap();
    let producer = store.producer("orders", None).unwrap();
    for number in 0..50 {
        let sent = producer.send(&to_queue(0, &body(number)), 0, Durability::Default);
        assert_eq!(sent.unwrap().place.offset, u64::from(number));
    }
    assert_eq!(bytes_in_file(dir.path()), 0);
    let found = store.get("orders", 0, 49).unwrap();
    assert_eq!(found.body().unwrap(), body(49));
    assert!(bytes_in_file(dir.path()) > 50 * body(0).len());
}

#[test]
fn flush_and_close_write_out_the_pool() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), pooled(1)).unwrap();
    let producer = store.producer("orders", None).unwrap();
    let sent = producer
        .send(&to_queue(0, b"one"), 0, Durability::Flushed)
        .unwrap();
    assert!(sent.durable);
    assert!(bytes_in_file(dir.path()) > 0);
    producer
        .send(&to_queue(0, b"two"), 0, Durability::Default)
        .unwrap();
    store.close().unwrap();
    let options = Options {
        mode: Mode::Read,
        ..Options::default()
    };
    let store = Store::open(dir.path(), options).unwrap();
    assert_eq!(
        store.get("orders", 0, 1).unwrap().body().unwrap(),
        b"two".as_slice()
    );
    assert!(store.verify(&mut |_, _| true).unwrap().damage.is_empty());
}

#[test]
fn the_pool_is_reused_over_many_files_and_batches_longer_than_itself() {
    let mut bed = Bed::with_options(Kind::CommitLog, pooled(1));
    let producer = bed.store.producer("orders", Some(1)).unwrap();
    let mut count = 0;
    for round in 0..40 {
        // The longest batch has the length of three log files, the pool of one.
        let bodies: Vec<Vec<u8>> = (0..1 + round * 4).map(|n| vec![n as u8; 1000]).collect();
        let drafts = bodies.iter().map(|body| {
            Ok(Draft {
                body,
                ..Draft::default()
            })
        });
        let sent = producer.send_batch(drafts, Atomicity::Rows, Durability::Default);
        count += sent.unwrap().rows.len() as u64;
    }
    for reopened in [false, true] {
        let (last, first) = (count - 1, 0);
        for offset in [first, last] {
            let found = bed.store.get("orders", 1, offset as i64).unwrap();
            assert_eq!(found.body().unwrap().len(), 1000, "{reopened}");
        }
        let verified = bed.store.verify(&mut |_, _| true).unwrap();
        assert_eq!((verified.records, verified.damage), (count, vec![]));
        bed.reopen();
    }
}

#[test]
fn a_full_pool_rejects_or_writes_out_as_configured() {
    for fail_fast in [true, false] {
        let options = Options {
            transient_pool_fail_fast: fail_fast,
            commitlog_file_size: Some(1 << 20),
            max_message_size: Some(1 << 20),
            ..pooled(1)
        };
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), options).unwrap();
        let producer = store.producer("orders", Some(0)).unwrap();
        let body = vec![7; 400 << 10];
        let send = || {
            let draft = Draft {
                body: &body,
                ..Draft::default()
            };
            producer.send(&draft, 0, Durability::Default)
        };
        send().unwrap();
        send().unwrap();
        // The third message goes to the next file and needs a buffer.
        match (send(), fail_fast) {
            (Err(Error::Busy { .. }), true) | (Ok(_), false) => {}
            (other, _) => panic!("{other:?}"),
        }
        store.flush().unwrap();
        assert_eq!(send().unwrap().place.offset, if fail_fast { 2 } else { 3 });
    }
}

#[test]
fn a_synchronous_store_rejects_the_option() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        flush: Some(Flush::Sync),
        ..pooled(1)
    };
    let refused = Store::open(dir.path(), options).err();
    assert!(matches!(
        refused,
        Some(Error::InvalidOption { name, .. }) if name == "transient_pool"
    ));
}

/// Paths of the log files that this process has open.
#[cfg(target_os = "linux")]
fn open_log_files(root: &Path) -> Vec<std::path::PathBuf> {
    let root = root.canonicalize().unwrap().join("commitlog");
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    let names = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    names.filter(|name| name.starts_with(&root)).collect()
}

#[test]
#[cfg(target_os = "linux")]
fn only_the_file_being_written_keeps_a_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        flush: Some(Flush::Sync),
        commitlog_file_size: Some(16 << 10),
        max_message_size: Some(4 << 10),
        ..small_options()
    };
    let store = Store::open(dir.path(), options).unwrap();
    let producer = store.producer("orders", None).unwrap();
    for number in 0..400 {
        let sent = producer.send(&to_queue(0, &body(number)), 0, Durability::Default);
        assert!(sent.unwrap().durable);
    }
    let files = fs::read_dir(dir.path().join("commitlog")).unwrap().count();
    assert!(files > 2, "{files} files");
    let open = open_log_files(dir.path());
    assert!(open.len() <= 1, "{open:?}");
    store.close().unwrap();
    assert!(open_log_files(dir.path()).is_empty());
}
