//! Producers that own queues.

use super::consumer::Bed;
use crate::engine::{Atomicity, Durability};
use crate::error::Awaited;
use crate::interrupt;
use crate::{Draft, Error, Mode, Options, Producer, Store};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

fn own(bed: &Bed, name: &str) -> Producer {
    bed.store.owning_producer("orders", name).unwrap()
}

fn queue(producer: &Producer) -> u32 {
    producer.owned().unwrap().1
}

/// Sends a message; returns its queue.
fn send(producer: &Producer, queue: Option<u32>) -> crate::Result<u32> {
    let draft = Draft {
        keys: &["a-key-that-would-choose-another"],
        queue,
        ..Draft::default()
    };
    let sent = producer.send(&draft, 0, Durability::Default)?;
    Ok(sent.place.queue)
}

#[test]
fn each_name_has_a_queue_of_its_own_and_the_newest_producer_of_a_name_has_it() {
    super::consumer::on_each(|bed| {
        bed.store.create_topic("orders", 3).unwrap();
        let (one, two) = (own(&bed, "one"), own(&bed, "two"));
        assert_eq!((queue(&one), queue(&two)), (0, 1));
        assert_eq!(send(&one, None).unwrap(), 0);
        assert_eq!(send(&two, Some(1)).unwrap(), 1);
        let error = send(&two, Some(0)).unwrap_err();
        assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
        let again = own(&bed, "one");
        assert_eq!(send(&again, None).unwrap(), 0);
        let lost = send(&one, None).unwrap_err();
        assert!(matches!(lost, Error::Replaced { queue: 0, .. }), "{lost}");
        let lost = one.send_batch(
            [Ok(Draft::default())].into_iter(),
            Atomicity::Rows,
            Durability::Default,
        );
        assert!(matches!(lost, Err(Error::Row { .. })), "{lost:?}");
        // Dropping a producer that has lost its queue frees nothing.
        drop(one);
        assert_eq!(queue(&own(&bed, "three")), 2);
        assert_eq!(send(&again, None).unwrap(), 0);
    });
}

#[test]
fn a_queue_that_is_given_up_goes_to_another_name_once_no_queue_is_new() {
    super::consumer::on_each(|bed| {
        bed.store.create_topic("orders", 2).unwrap();
        let one = own(&bed, "one");
        bed.clock.advance(1);
        let two = own(&bed, "two");
        let full = bed.store.owning_producer("orders", "three").err().unwrap();
        assert!(full.to_string().contains("one, two"), "{full}");
        one.give_up();
        assert!(matches!(send(&one, None), Err(Error::Replaced { .. })));
        drop(two);
        let three = own(&bed, "three");
        assert_eq!(
            queue(&three),
            0,
            "the owner that began first is the first to be replaced"
        );
        assert_eq!(queue(&own(&bed, "two")), 1);
        bed.store.create_topic("orders", 3).unwrap();
        assert_eq!(
            queue(&own(&bed, "one")),
            2,
            "a new queue comes before one that was owned"
        );
    });
}

#[test]
fn a_name_has_its_queue_after_a_restart_too() {
    let mut bed = Bed::new("store");
    bed.store.create_topic("orders", 4).unwrap();
    drop((own(&bed, "one"), own(&bed, "two")));
    bed.reopen();
    assert_eq!(queue(&own(&bed, "two")), 1);
    assert_eq!(queue(&own(&bed, "three")), 2);
    let table = bed.path.join("forebay.producers");
    fs::write(&table, "{\"orders\":7}").unwrap();
    bed.reopen();
    let error = bed.store.owning_producer("orders", "two").err().unwrap();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert_eq!(fs::read(&table).unwrap(), b"{\"orders\":7}");
    for name in ["", "a\nb", &"x".repeat(256)] {
        let error = bed.store.owning_producer("orders", name).err().unwrap();
        assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
    }
}

/// Two handles of a shared store are like two processes.
fn shared(path: &std::path::Path) -> Store {
    let options = Options {
        mode: Mode::Share,
        ..Options::default()
    };
    Store::open(path, options).unwrap()
}

fn own_in(store: &Store, name: &str) -> Producer {
    store.owning_producer("orders", name).unwrap()
}

#[test]
fn a_queue_has_one_owner_in_all_processes_that_share_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let (first, second) = (shared(&path), shared(&path));
    first.create_topic("orders", 3).unwrap();
    let one = own_in(&first, "one");
    let two = own_in(&second, "two");
    assert_eq!((queue(&one), queue(&two)), (0, 1));
    assert_eq!(send(&one, None).unwrap(), 0);
    assert_eq!(send(&two, None).unwrap(), 1);
    // The newest producer of a name owns its queue, in whichever process it is.
    let again = own_in(&second, "one");
    assert_eq!(send(&again, None).unwrap(), 0);
    let lost = send(&one, None).unwrap_err();
    assert!(matches!(lost, Error::Replaced { queue: 0, .. }), "{lost}");
    drop(one);
    assert_eq!(send(&again, None).unwrap(), 0);
    let three = own_in(&first, "three");
    assert_eq!(queue(&three), 2);
    let full = first.owning_producer("orders", "four").err().unwrap();
    assert!(full.to_string().contains("one, two, three"), "{full}");
    two.give_up();
    assert_eq!(queue(&own_in(&first, "four")), 1);
    assert!(matches!(send(&two, None), Err(Error::Replaced { .. })));
    // Owning producers are not listed as a group of consumers.
    assert!(first.groups().unwrap().is_empty());
    let group = crate::ConsumerOptions::default();
    let refused = first.consumer(&["orders"], "%PRODUCERS%", group);
    assert!(matches!(refused, Err(Error::InvalidOption { .. })));
    second.close().unwrap();
    assert_eq!(queue(&own_in(&first, "one")), 0);
    first.close().unwrap();
    let alone = Store::open(&path, Options::default()).unwrap();
    assert_eq!(queue(&own_in(&alone, "three")), 2);
}

/// The table of owners identifies a process by a place in the table, which the next process may
/// get.
#[test]
fn the_queue_of_a_process_that_left_is_free_although_another_has_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let (first, second) = (shared(&path), shared(&path));
    first.create_topic("orders", 2).unwrap();
    let one = own_in(&second, "one");
    second.close().unwrap();
    let two = own_in(&first, "two");
    let three = own_in(&first, "three");
    assert_eq!((queue(&one), queue(&two), queue(&three)), (0, 1, 0));
    first.close().unwrap();
}

/// The process that changes the owners may have been stopped. A thread waited for it with a lock,
/// and could not be interrupted.
#[test]
fn who_waits_for_the_owners_can_be_interrupted_and_who_gives_a_queue_up_does_not_wait() {
    static ASKED: AtomicBool = AtomicBool::new(false);
    fn ask() -> bool {
        ASKED.store(true, Ordering::Release);
        true
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let (first, second) = (shared(&path), shared(&path));
    first.create_topic("orders", 1).unwrap();
    let one = own_in(&first, "one");
    let meanwhile = || {
        let again = interrupt::allow(ask, || first.owning_producer("orders", "one"));
        let what = Awaited::Groups;
        assert!(again.is_err_and(|it| matches!(it, Error::Busy { what: of, .. } if of == what)));
        assert!(ASKED.load(Ordering::Acquire));
        assert_eq!(send(&one, None).unwrap(), 0);
        one.give_up();
    };
    second.while_owners_are_locked(meanwhile).unwrap();
    assert_eq!(queue(&own_in(&first, "two")), 0);
    second.close().unwrap();
    first.close().unwrap();
}

/// The program of a process that dies as the owner of a queue. In an ordinary run of the tests it
/// does nothing.
#[test]
fn a_process_that_owns_a_queue() {
    let Ok(path) = std::env::var("FOREBAY_OWNED") else {
        return;
    };
    let store = shared(std::path::Path::new(&path));
    let one = own_in(&store, "one");
    send(&one, None).unwrap();
    std::process::abort();
}

#[test]
fn the_queue_of_a_producer_whose_process_died_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = shared(&path);
    store.create_topic("orders", 2).unwrap();
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::claims::a_process_that_owns_a_queue"])
        .env("FOREBAY_OWNED", &path)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(!status.success());
    assert_eq!(
        store
            .engine()
            .unwrap()
            .bounds(&store.topic("orders").unwrap(), 0)
            .unwrap(),
        Some(0..1)
    );
    let two = own_in(&store, "two");
    assert_eq!(queue(&two), 1, "a queue that nobody had comes first");
    let three = own_in(&store, "three");
    assert_eq!(queue(&three), 0);
    let full = store.owning_producer("orders", "one").err().unwrap();
    assert!(full.to_string().contains("three, two"), "{full}");
    store.close().unwrap();
}
