//! Who may write, and what a reader may not do.

use crate::folder;
use crate::world::{Place, World, options, read, write};
use forebay::{Draft, Durability, Error, Mode, Options, Store};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn a_second_writer_in_the_same_process_is_rejected_with_its_own_pid() {
    let place = Place::new();
    let store = write(&place.root());
    for mode in [Mode::Append, Mode::Create] {
        match Store::open(place.root(), options(mode)).err() {
            Some(Error::Locked { pid, path, .. }) => {
                assert_eq!(pid, Some(std::process::id()));
                assert_eq!(path, place.root());
            }
            Some(Error::Exists { .. }) if mode == Mode::Create => {}
            other => panic!("{other:?}"),
        }
    }
    // A reader that opens and closes the store does not release the lock.
    read(&place.root()).close().unwrap();
    let refused = Store::open(place.root(), options(Mode::Append)).err();
    assert!(matches!(refused, Some(Error::Locked { .. })));
    store.close().unwrap();
    write(&place.root()).close().unwrap();
}

#[test]
fn a_second_writer_waits_for_the_lock_up_to_lock_timeout() {
    let place = Place::new();
    let store = write(&place.root());
    let waits = |timeout| Options {
        lock_timeout: timeout,
        ..options(Mode::Append)
    };
    let began = Instant::now();
    let short = Duration::from_millis(30);
    let refused = Store::open(place.root(), waits(short)).err();
    assert!(matches!(refused, Some(Error::Locked { .. })));
    assert!(began.elapsed() >= short);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| Store::open(place.root(), waits(Duration::MAX)).unwrap());
        store.close().unwrap();
        let second = second.join().unwrap();
        assert!(second.recovery().clean);
        second.close().unwrap();
    });
}

#[test]
fn a_dropped_store_can_be_opened_by_the_next_writer() {
    let (place, mut world) = (Place::new(), World::default());
    for _ in 0..20 {
        let store = write(&place.root());
        world.send(&store, 3);
    }
    world.check(&read(&place.root()));
}

#[test]
fn a_reader_refuses_to_write_and_names_the_store() {
    let (place, mut world) = (Place::new(), World::default());
    let store = write(&place.root());
    world.send(&store, 10);
    store.close().unwrap();
    let before = folder::listing(&place.root());
    let store = read(&place.root());
    let name = place.root().display().to_string();
    for error in [
        store.producer("orders", None).err(),
        store.create_topic("new", 1).err(),
    ] {
        match error {
            Some(Error::ReadOnly { what, remedy }) => {
                assert!(what.contains(&name), "{what}");
                assert!(remedy.contains("mode=\"a\""), "{remedy}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        store.flush().unwrap(),
        store.engine().unwrap().durable_position()
    );
    store.close().unwrap();
    assert_eq!(folder::listing(&place.root()), before);
}

#[test]
fn readers_of_a_closed_store_do_not_block_each_other() {
    let (place, mut world) = (Place::new(), World::default());
    let store = write(&place.root());
    world.send(&store, 300);
    store.close().unwrap();
    let readers: Vec<Store> = (0..4).map(|_| read(&place.root())).collect();
    std::thread::scope(|scope| {
        for reader in &readers {
            scope.spawn(|| world.check(reader));
        }
    });
    // A writer may open the store meanwhile; the readers follow it.
    let store = write(&place.root());
    let mut more = world.clone();
    more.send(&store, 300);
    store.flush().unwrap();
    for reader in &readers {
        more.check(reader);
    }
    more.check(&store);
}

#[test]
fn messages_and_cursors_of_a_closed_reader_stay_valid() {
    let (place, mut world) = (Place::new(), World::default());
    let store = write(&place.root());
    world.send(&store, 300);
    store.close().unwrap();
    let reader = read(&place.root());
    let message = reader.get("orders", 0, 5).unwrap();
    let topic = reader.topic("orders").unwrap();
    let engine = reader.engine().unwrap();
    let all = forebay::Filter::default();
    let full = forebay::Check::Full;
    let mut cursor = engine.cursor(&topic, 0, 0..50, &all, full).unwrap();
    let mut rows = forebay::Rows::default();
    cursor.next(10, &mut rows).unwrap();
    reader.close().unwrap();
    cursor.next(10, &mut rows).unwrap();
    assert_eq!(rows.rows.len(), 20);
    drop(reader);
    std::fs::remove_dir_all(place.root()).unwrap();
    for (offset, row) in rows.rows.iter().enumerate() {
        let sent = &world.sent[&("orders".to_owned(), 0, offset as u64)];
        assert_eq!(rows.record(row).unwrap().stored_body(), sent.body);
    }
    let sent = &world.sent[&("orders".to_owned(), 0, 5)];
    assert_eq!(message.body().unwrap(), sent.body);
}

/// The other process of the test below: creates a store under the umask that its shell has set.
#[test]
fn child_that_makes_a_store() {
    let Some(root) = std::env::var_os("FOREBAY_TEST_MASKED") else {
        return;
    };
    let mut world = World::default();
    let store = write(Path::new(&root));
    world.send(&store, 900);
    world.check(&store);
    store.close().unwrap();
    write(Path::new(&root)).close().unwrap();
}

#[test]
fn everything_is_private_under_any_umask() {
    for mask in ["0", "022", "077", "0777"] {
        let place = Place::new();
        let program = std::env::current_exe().unwrap();
        let test = "readonly::child_that_makes_a_store";
        let line = format!("umask {mask}; exec \"$0\" --exact {test} --test-threads=1");
        let root = place.root().join("deep/er");
        let made = Command::new("sh")
            .args(["-c", &line])
            .arg(program)
            .env("FOREBAY_TEST_MASKED", &root)
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stdout)
        );
        let listing = folder::listing(&place.root());
        assert!(listing.len() > 20);
        for (path, fact) in listing {
            let private = match fact.mode & libc::S_IFMT == libc::S_IFDIR {
                true => 0o700,
                false => 0o600,
            };
            assert_eq!(fact.mode & 0o7777, private, "{path:?} under {mask}");
        }
    }
}

#[test]
fn a_delayed_producer_or_sender_finds_the_store_closed() {
    let place = Place::new();
    let store = write(&place.root());
    let producer = store.producer("orders", Some(0)).unwrap();
    let senders = 4;
    let start = std::sync::Barrier::new(senders + 1);
    let sent: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..senders)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    let mut sent = 0;
                    loop {
                        match producer.send(&Draft::default(), 0, Durability::Default) {
                            Ok(_) => sent += 1,
                            Err(Error::Closed { .. }) => return sent,
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        start.wait();
        while store.offset_at("orders", 0, i64::MAX).unwrap() < 2000 {}
        store.close().unwrap();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    // Exactly the acknowledged messages are found.
    let store = write(&place.root());
    assert!(store.recovery().clean);
    assert_eq!(store.offset_at("orders", 0, i64::MAX).unwrap(), sent);
    assert_eq!(store.verify(&mut |_, _| true).unwrap().records, sent);
}

#[test]
fn a_synchronous_store_can_be_closed_with_undurable_messages() {
    let place = Place::new();
    let sync = forebay::Options {
        flush: Some(forebay::Flush::Sync),
        flush_interval: std::time::Duration::from_secs(3600),
        ..options(Mode::Append)
    };
    let store = Store::open(place.root(), sync.clone()).unwrap();
    let producer = store.producer("orders", Some(0)).unwrap();
    for number in 0..50u32 {
        let durability = match number % 2 {
            0 if number < 40 => Durability::Default,
            _ => Durability::Written,
        };
        let draft = Draft {
            keys: &["k"],
            ..Draft::default()
        };
        producer.send(&draft, 0, durability).unwrap();
    }
    // Readers see durable messages.
    assert_eq!(store.offset_at("orders", 0, i64::MAX).unwrap(), 39);
    store.close().unwrap();
    for _ in 0..2 {
        let store = Store::open(place.root(), sync.clone()).unwrap();
        assert!(store.recovery().clean);
        assert_eq!(store.offset_at("orders", 0, i64::MAX).unwrap(), 50);
        let found = store.query("orders", "k", i64::MIN, i64::MAX, 100).unwrap();
        assert_eq!(found.len(), 50);
        store.close().unwrap();
    }
}
