//! The state page: which fields are trusted, and which values they may have.

use crate::draw::Draw;
use crate::fuzz_targets::{extremes, with_extreme};
use crate::world::{Place, World, change_mount, open_each_way, options, read, write};
use forebay::{Draft, Durability, Mode, Options, Store};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A size of 0 once caused a division by zero, and one of 4095 a store after the end of a file.
#[test]
fn no_value_of_a_field_causes_a_panic() {
    Draw::new().each(150, extremes(), |extreme| with_extreme(*extreme));
}

/// A device disappears and comes back, a snapshot is mounted, or an image is copied: the boot is
/// the same, but queue entries that were only in the page cache are gone. Messages of topics with
/// few messages were once lost.
#[test]
fn what_the_page_cache_lost_within_a_boot_is_found_in_the_log() {
    let (place, mut world) = (Place::new(), World::default());
    let store = write(&place.root());
    world.send(&store, 50);
    store.close().unwrap();
    let store = write(&place.root());
    let sparse: Vec<String> = (0..20).map(|number| format!("sparse-{number}")).collect();
    for topic in &sparse {
        world.send_to(&store, topic, 0);
    }
    world.check_messages(&store);
    let copy = Place::copy_of(&place.root());
    for topic in &sparse {
        fs::remove_dir_all(copy.root().join("consumequeue").join(topic)).unwrap();
    }
    change_mount(&copy.root());
    open_each_way(&copy.root(), |store| world.check(store));
}

/// Where the kernel reports the identity of a file, the walk after a crash begins at the last full
/// pass, even after a change of the mount and with a page of release 0.1.0. No message is lost.
#[test]
fn a_crash_loses_no_message_whatever_the_mount() {
    let (place, mut world) = (Place::new(), World::default());
    // The first life records the bounds of the queues; without them the whole log is walked.
    let store = write(&place.root());
    world.send(&store, 50);
    store.close().unwrap();
    // No full pass runs, which would move the marks that count after a power loss.
    let seldom = Options {
        queue_flush_interval: Duration::from_secs(3600),
        ..options(Mode::Append)
    };
    let store = Store::open(place.root(), seldom).unwrap();
    world.send(&store, 200);
    world.check_messages(&store);
    store.flush().unwrap();
    let walked = |change: &dyn Fn(&Path)| {
        let copy = Place::copy_of(&place.root());
        change(&copy.root());
        let store = read(&copy.root());
        world.check_messages(&store);
        let recovery = store.recovery();
        recovery.end - recovery.walked_from
    };
    let page = fs::read(place.root().join("forebay.state")).unwrap();
    if page[456..464] == [0; 8] {
        return eprintln!("skipped: this system cannot tell mounts apart");
    }
    let since_full_pass = walked(&|_| {});
    assert!(since_full_pass > 0);
    assert_eq!(walked(&change_mount), since_full_pass);
    let of_old = |root: &Path| {
        let mut page = page.clone();
        page[456..496].fill(0);
        fs::write(root.join("forebay.state"), page).unwrap();
    };
    assert_eq!(walked(&of_old), since_full_pass);
}

/// RocketMQ leaves room for a BLANK after every record; another system may not.
#[test]
fn a_log_file_that_is_full_to_the_last_bytes_is_followed_by_the_next() {
    let sizes = |mode| Options {
        commitlog_file_size: None,
        ..options(mode)
    };
    for left in 0..8 {
        let place = Place::new();
        let made = Options {
            commitlog_file_size: Some(8192),
            ..options(Mode::Append)
        };
        let store = Store::open(place.root(), made).unwrap();
        let send = |store: &Store, len: usize| {
            let body = vec![7; len];
            let draft = Draft {
                body: &body,
                queue: Some(0),
                ..Draft::default()
            };
            let producer = store.producer("orders", None).unwrap();
            producer.send(&draft, 0, Durability::Default).unwrap()
        };
        let overhead = send(&store, 1000).end - 1000;
        let sent = send(&store, 4096 - left - 1000 - 2 * overhead as usize);
        assert_eq!(sent.end, 4096 - left as u64);
        store.close().unwrap();
        let file = place.root().join("commitlog/00000000000000000000");
        fs::OpenOptions::new()
            .write(true)
            .open(file)
            .unwrap()
            .set_len(4096)
            .unwrap();
        fs::remove_file(place.root().join("forebay.state")).unwrap();

        let store = Store::open(place.root(), sizes(Mode::Append)).unwrap();
        assert_eq!(send(&store, 500).place.position, 4096);
        store.close().unwrap();
        let store = Store::open(place.root(), sizes(Mode::Read)).unwrap();
        let verified = store.verify(&mut |_, _| true).unwrap();
        assert_eq!((verified.records, verified.damage), (3, vec![]));
    }
}

/// A reader that was opened without a writer follows a later one, which adds entries to the index.
/// Once the reader reported them as damage.
#[test]
fn a_reader_finds_no_damage_in_what_a_later_writer_adds() {
    let (place, mut world) = (Place::new(), World::default());
    let store = write(&place.root());
    world.send(&store, 20);
    store.close().unwrap();
    let reader = read(&place.root());
    let before = reader.verify(&mut |_, _| true).unwrap();
    assert_eq!(before.damage, []);

    let store = write(&place.root());
    world.send(&store, 20);
    world.check_messages(&store);
    let written = store.verify(&mut |_, _| true).unwrap();
    assert_eq!(written.records, before.records + 20);
    for _ in 0..2 {
        let after = reader.verify(&mut |_, _| true).unwrap();
        assert_eq!(after.damage, []);
        let counts = |found: &forebay::Verification| {
            (found.records, found.queue_entries, found.index_entries)
        };
        assert_eq!(counts(&after), counts(&written));
        store.close().unwrap();
    }
}

/// A writer stores position, time and count of the last index entry one after the other. A
/// concurrent verification once compared the header with the times of other records.
#[test]
fn an_index_entry_that_is_being_written_is_not_damage() {
    let place = Place::new();
    let store = write(&place.root());
    let producer = store.producer("t", Some(0)).unwrap();
    let draft = Draft {
        keys: &["k"],
        ..Draft::default()
    };
    let send = || {
        let sent = producer.send(&draft, 0, Durability::Default).unwrap();
        sent.store_timestamp
    };
    let first = send();
    // Few messages, so that one file of the index holds them all.
    while send() == first {
        let sent = SystemTime::now();
        while sent.elapsed().is_ok_and(|it| it < Duration::from_millis(1)) {}
    }
    assert_eq!(store.verify(&mut |_, _| true).unwrap().damage, []);
    let index = fs::read_dir(place.root().join("index")).unwrap().next();
    let index = index.unwrap().unwrap().path();
    let whole = fs::read(&index).unwrap();
    let count = u32::from_be_bytes(whole[36..40].try_into().unwrap());

    let verify_with = |time: i64, count: u32| {
        let file = fs::OpenOptions::new().write(true).open(&index).unwrap();
        file.write_all_at(&time.to_be_bytes(), 8).unwrap();
        file.write_all_at(&count.to_be_bytes(), 36).unwrap();
        let damage = store.verify(&mut |_, _| true).unwrap().damage;
        file.write_all_at(&whole[..40], 0).unwrap();
        damage.len()
    };
    let last = i64::from_be_bytes(whole[8..16].try_into().unwrap());
    assert_eq!(verify_with(first, count - 1), 0);
    assert_eq!(verify_with(last, count - 1), 0);
    assert_eq!(verify_with(first, count), 1);
    assert_eq!(verify_with(first + 100_000, count - 1), 1);
    store.close().unwrap();
}
