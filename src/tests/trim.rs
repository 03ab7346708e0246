//! The bytes after the end of a log, and a file of it that was cut short.

use super::append_lock::{engine, send};
use crate::disk::{Call, Disk, HookedDisk, RealDisk};
use crate::engine::Engine;
use crate::engine::commit_log::CommitLog;
use crate::machine::Machine;
use crate::options::AppendLockKind;
use crate::{Draft, Durability, Mode, Options, Store};

#[test]
fn opening_a_closed_log_finds_no_data_after_its_end() {
    for mode in [Mode::Append, Mode::Share] {
        opening_a_log_that_was_closed_finds_no_data_after_its_end(mode);
    }
}

fn opening_a_log_that_was_closed_finds_no_data_after_its_end(writes: Mode) {
    let dir = tempfile::tempdir().unwrap();
    let probe = dir.path().join("probe");
    std::fs::write(&probe, [1; 4096]).unwrap();
    RealDisk.drop_zeros(&probe, 0, 4096);
    if RealDisk.next_data(&probe, 0).unwrap().is_some() {
        return eprintln!("skipped: the file system cannot zero blocks");
    }
    let root = dir.path().join("store");
    let open = |mode| {
        let options = Options {
            mode,
            ..Options::default()
        };
        Store::open(&root, options).unwrap()
    };
    let store = open(writes);
    let producer = store.producer("orders", Some(0)).unwrap();
    // Many small messages, so that pages are faulted in ahead.
    let draft = Draft {
        body: &[7; 700],
        ..Draft::default()
    };
    for _ in 0..500 {
        producer.send(&draft, 0, Durability::Default).unwrap();
    }
    let sent = producer.send(&draft, 0, Durability::Default).unwrap();
    store.close().unwrap();

    let file = root.join("commitlog/00000000000000000000");
    let behind = sent.end.next_multiple_of(4096);
    assert_eq!(RealDisk.next_data(&file, behind).unwrap(), None);
    for mode in [Mode::Read, writes] {
        open(mode).close().unwrap();
        assert_eq!(RealDisk.next_data(&file, behind).unwrap(), None, "{mode:?}");
    }
}

/// A process that was killed after a few messages once left MiBs of zeros behind, which the next
/// opening searched.
#[test]
fn pages_are_faulted_in_only_ahead_of_a_process_that_appends_much() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(&dir, AppendLockKind::Mutex);
    let ahead = || {
        let tail = engine.parts().tail.lock();
        tail.populated().saturating_sub(tail.position())
    };
    send(&engine).unwrap();
    assert_eq!(ahead(), 0);
    while engine.parts().tail.lock().position() < 300 << 10 {
        send(&engine).unwrap();
    }
    assert!(ahead() >= 128 << 10, "{}", ahead());
    let tail = engine.parts().tail.lock();
    assert!(tail.present() >= tail.position(), "{tail:?}");
    drop(tail);
    engine.close().unwrap();
}

/// The error once named the extension of the file, so that it passed for a write that may be
/// retried.
#[test]
fn a_failed_sync_of_a_lengthened_file_is_reported_as_one() {
    let dir = tempfile::tempdir().unwrap();
    Store::open(dir.path(), Options::default())
        .and_then(|store| {
            store.producer("orders", Some(0))?;
            store.close()
        })
        .unwrap();
    let path = dir.path().join("commitlog/00000000000000000000");
    let file = std::fs::File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(&path);
    file.unwrap().set_len(4096).unwrap();
    let disk = HookedDisk::shared(move |call, of| match call == Call::Fsync && of == path {
        true => Err(std::io::Error::from_raw_os_error(libc::ENOSPC)),
        false => Ok(()),
    });
    let machine = Machine::stepped(disk);
    let opened = CommitLog::open(&machine, dir.path(), &Options::default(), Vec::new());
    let error = opened.err().unwrap();
    assert!(error.is_of_sync(), "{error}");
}
