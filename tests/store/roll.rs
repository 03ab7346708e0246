//! Log files that are sealed before they are full: on demand, and by age.

use crate::bed::{body, small_options, to_queue};
use crate::folder::copy;
use forebay::{Durability, Error, Filter, Mode, Options, Repair, Store};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const FILE_LEN: u64 = 64 << 10;

fn options() -> Options {
    Options {
        flush_interval: Duration::from_millis(10),
        disk_reserve: Some(0),
        ..small_options()
    }
}

fn open(root: &Path, change: impl FnOnce(&mut Options)) -> Store {
    let mut options = options();
    change(&mut options);
    Store::open(root, options).unwrap()
}

fn send(store: &Store, text: &str) -> (u64, u64) {
    let producer = store.producer("orders", None).unwrap();
    let draft = to_queue(0, text.as_bytes());
    let place = producer.send(&draft, 0, Durability::Default).unwrap().place;
    (place.offset, place.position)
}

fn bodies(store: &Store) -> Vec<String> {
    let all = Filter::default();
    let batch = store.read("orders", 0, 0, 32, None, &all).unwrap();
    let start = batch.min_offset as i64;
    let batch = store.read("orders", 0, start, 32, None, &all).unwrap();
    let text = |message: &forebay::Message| {
        String::from_utf8(message.body().unwrap().into_owned()).unwrap()
    };
    batch.messages.iter().map(text).collect()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn check_whole(store: &Store, expected: &[&str]) {
    assert_eq!(bodies(store), expected);
    let found = store.verify(&mut |_, _| true).unwrap();
    assert_eq!(found.damage, []);
    assert_eq!(store.damage(), []);
}

#[test]
fn a_sealed_file_ends_in_a_blank_and_the_log_continues_in_the_next() {
    for (pool, dies) in [(0, false), (0, true), (2, false), (2, true)] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("store");
        let store = open(&root, |options| options.transient_pool = pool);
        assert_eq!(store.roll().unwrap(), None, "there is no file");
        send(&store, "a");
        send(&store, "b");
        store.flush().unwrap();
        let end = store.stats().unwrap().published;
        assert_eq!(store.roll().unwrap(), Some(FILE_LEN));
        assert_eq!(store.roll().unwrap(), None, "the next file is empty");
        let stats = store.stats().unwrap();
        assert_eq!(
            (stats.published, stats.dispatched, stats.durable),
            (FILE_LEN, FILE_LEN, FILE_LEN)
        );
        let log = fs::read(root.join(format!("commitlog/{:020}", 0))).unwrap();
        let blank = &log[end as usize..][..8];
        let len = (FILE_LEN - end) as u32;
        assert_eq!(blank[..4], len.to_be_bytes());
        assert_eq!(blank[4..], [0xcb, 0xd4, 0x31, 0x94]);
        assert_eq!(store.sealed_files().unwrap().len(), 1);
        check_whole(&store, &["a", "b"]);

        let other = dir.path().join("copy");
        let store = match dies {
            true => {
                copy(&root, &other);
                open(&other, |options| options.transient_pool = pool)
            }
            false => {
                store.close().unwrap();
                open(&root, |options| options.transient_pool = pool)
            }
        };
        check_whole(&store, &["a", "b"]);
        assert_eq!(
            store.roll().unwrap(),
            None,
            "it is empty after opening, too"
        );
        assert_eq!(send(&store, "c"), (2, FILE_LEN));
        assert_eq!(store.roll().unwrap(), Some(2 * FILE_LEN));
        assert_eq!(send(&store, "d"), (3, 2 * FILE_LEN));
        check_whole(&store, &["a", "b", "c", "d"]);
    }
}

#[test]
fn readers_in_other_handles_see_messages_after_a_sealed_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), |_| ());
    send(&store, "a");
    store.flush().unwrap();
    let reader = open(dir.path(), |options| options.mode = Mode::Read);
    assert_eq!(bodies(&reader), ["a"]);
    store.roll().unwrap();
    check_whole(&reader, &["a"]);
    send(&store, "b");
    store.flush().unwrap();
    check_whole(&reader, &["a", "b"]);
    assert!(matches!(reader.roll(), Err(Error::ReadOnly { .. })));
}

#[test]
fn retention_empties_a_quiet_store_whose_file_was_sealed() {
    let retire = |options: &mut Options| {
        options.retention = Some(Duration::from_millis(1));
        options.roll_after = Some(Duration::from_millis(1));
    };
    for dies in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("store");
        let store = open(&root, retire);
        for number in 0..5 {
            send(&store, &number.to_string());
        }
        until("nothing was retired", || {
            store.stats().unwrap().min_position >= FILE_LEN && bodies(&store).is_empty()
        });
        let first = root.join(format!("commitlog/{:020}", 0));
        until("the file stays", || !first.exists());
        let other = dir.path().join("copy");
        let store = match dies {
            true => {
                // A running step of retention replaces the table of bounds.
                let table = root.join("forebay.offsets");
                let stamp = || {
                    fs::metadata(&table)
                        .map(|facts| facts.modified().unwrap())
                        .ok()
                };
                let (mut last, mut quiet) = (stamp(), 0);
                while quiet < 50 {
                    std::thread::sleep(Duration::from_millis(2));
                    let next = stamp();
                    quiet = if next == last { quiet + 1 } else { 0 };
                    last = next;
                }
                copy(&root, &other);
                open(&other, |_| ())
            }
            false => {
                store.close().unwrap();
                open(&root, |_| ())
            }
        };
        assert_eq!(send(&store, "next").0, 5, "offsets continue");
        check_whole(&store, &["next"]);
    }
}

#[test]
fn a_file_is_sealed_by_the_age_of_its_first_message() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), |options| {
        options.roll_after = Some(Duration::from_secs(3600));
    });
    send(&store, "a");
    store.close().unwrap();
    let store = open(dir.path(), |options| {
        options.roll_after = Some(Duration::from_millis(1));
    });
    until("nothing was sealed", || {
        store.stats().unwrap().published == FILE_LEN
    });
    check_whole(&store, &["a"]);
    assert_eq!(send(&store, "b").1 % FILE_LEN, 0);
}

#[test]
fn a_store_in_memory_has_no_file_to_seal() {
    let store = Store::open(":memory:", Options::default()).unwrap();
    let producer = store.producer("orders", None).unwrap();
    producer.send(&body(b"x"), 0, Durability::Default).unwrap();
    assert_eq!(store.roll().unwrap(), None);
}

#[test]
fn zero_age_and_zero_pages_are_rejected() {
    let mut given = options();
    given.roll_after = Some(Duration::ZERO);
    assert!(
        matches!(given.check(), Err(Error::InvalidOption { name, .. }) if name == "roll_after")
    );
    let mut given = options();
    given.warm_up_flush_pages = Some(0);
    assert!(given.check().is_err());
}

#[test]
fn files_are_warmed_up_in_steps_of_any_number_of_pages() {
    for pages in [1, 3, 1 << 19] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), |options| {
            options.warm_up = true;
            options.warm_up_flush_pages = Some(pages);
        });
        send(&store, "a");
        store.roll().unwrap();
        send(&store, "b");
        check_whole(&store, &["a", "b"]);
    }
}

#[test]
fn a_store_in_memory_has_no_files_to_seal_archive_or_repair() {
    let store = Store::open(":memory:", options()).unwrap();
    send(&store, "a");
    assert_eq!(store.roll().unwrap(), None);
    assert_eq!(store.repair(&mut |_, _| true).unwrap(), Repair::default());
    assert!(matches!(store.files(), Err(Error::Unsupported { .. })));
    assert!(matches!(
        store.sealed_files(),
        Err(Error::Unsupported { .. })
    ));
    assert!(matches!(store.survey(0), Err(Error::Unsupported { .. })));
    store.close().unwrap();
    assert!(matches!(store.files(), Err(Error::Closed { .. })));
}
