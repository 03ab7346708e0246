//! Stores without an index file, either because no message has a key or because the writer built
//! none: what may be concluded from that, and what may not.

use crate::world::{Place, open_each_way, options, write};
use forebay::{Draft, Durability, Mode, Options, Store};
use std::fs;

fn send(store: &Store, count: usize, keys: &[&str]) {
    let producer = store.producer("orders", Some(0)).unwrap();
    for _ in 0..count {
        let draft = Draft {
            body: b"body",
            keys,
            ..Draft::default()
        };
        producer.send(&draft, 0, Durability::Default).unwrap();
    }
}

fn found(store: &Store, key: &str) -> usize {
    let messages = store.query("orders", key, i64::MIN, i64::MAX, 64);
    messages.unwrap().len()
}

#[test]
fn a_store_without_index_file_is_remembered_and_needs_no_walk() {
    let place = Place::new();
    let store = write(&place.root());
    send(&store, 500, &[]);
    store.close().unwrap();
    open_each_way(&place.root(), |store| {
        assert_eq!(store.recovery().records_checked, 0);
        assert_eq!(found(store, "a"), 0);
    });
}

#[test]
fn the_first_keys_of_a_store_are_found_even_if_their_index_is_lost() {
    for keyless in [0, 300] {
        let place = Place::new();
        let store = write(&place.root());
        send(&store, keyless, &[]);
        store.close().unwrap();
        let store = write(&place.root());
        send(&store, 20, &["a"]);
        store.flush().unwrap();
        assert_eq!(found(&store, "a"), 20);
        let died = Place::copy_of(&place.root());
        store.close().unwrap();
        for root in [died.root(), place.root()] {
            fs::remove_dir_all(root.join("index")).unwrap();
            open_each_way(&root, |store| assert_eq!(found(store, "a"), 20));
        }
    }
}

#[test]
fn an_index_left_by_a_writer_without_index_is_not_trusted() {
    for later in [0, 5] {
        let place = Place::new();
        let without = Options {
            index: Some(false),
            ..options(Mode::Append)
        };
        let store = Store::open(place.root(), without).unwrap();
        send(&store, 20, &["a"]);
        store.close().unwrap();
        // The process builds the index, and dies before it has recorded that there is one.
        let with = Options {
            index: Some(true),
            ..options(Mode::Append)
        };
        let store = Store::open(place.root(), with).unwrap();
        send(&store, later, &["a"]);
        assert_eq!(found(&store, "a"), 20 + later);
        let died = Place::copy_of(&place.root());
        fs::remove_dir_all(died.root().join("index")).unwrap();
        open_each_way(&died.root(), |store| {
            assert_eq!(found(store, "a"), 20 + later)
        });
    }
}
