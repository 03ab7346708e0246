//! A log whose first files are missing, though no retention has removed them.

use crate::recovery::{change_boot, closed, crashed};
use crate::retention;
use crate::world::{Place, World, read, write};
use forebay::{Damage, DamageKind, Store};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const FILE_LEN: u64 = 64 << 10;

fn remove_first(root: &Path, count: u64) {
    for number in 0..count {
        let name = format!("commitlog/{:020}", number * FILE_LEN);
        fs::remove_file(root.join(name)).unwrap();
    }
}

fn lost_below(world: &World, position: u64) -> BTreeSet<(String, u32, u64)> {
    let lost = world.sent.iter();
    let lost = lost.filter(|(_, sent)| sent.position < position);
    lost.map(|(place, _)| place.clone()).collect()
}

/// The one damage that a store reports: the beginning of its log.
fn reported(store: &Store, len: u64) -> Damage {
    let found = store.damage();
    assert_eq!(found.len(), 1, "{found:?}");
    let place = (found[0].kind, found[0].position, found[0].length);
    assert_eq!(place, (DamageKind::Log, 0, len));
    let verified = store.verify(&mut |_, _| true).unwrap();
    assert_eq!(verified.damage, found);
    found[0].clone()
}

/// The store took them for files that retention had removed.
#[test]
fn the_missing_beginning_of_a_log_is_reported_with_its_messages() {
    for count in [1, 3] {
        for lost_too in [None, Some("consumequeue"), Some("index")] {
            let (place, world) = closed(900);
            remove_first(&place.root(), count);
            if let Some(name) = lost_too {
                fs::remove_dir_all(place.root().join(name)).unwrap();
            }
            let lost = lost_below(&world, count * FILE_LEN);
            let mut left = world.clone();
            left.retire(count * FILE_LEN);
            for open in [read, write] {
                let store = open(&place.root());
                let damage = reported(&store, count * FILE_LEN);
                assert_eq!(damage.lost.into_iter().collect::<BTreeSet<_>>(), lost);
                left.check(&store);
                store.close().unwrap();
            }
            // Once the log begins there, nothing is missing from it.
            let store = write(&place.root());
            assert_eq!(store.damage(), []);
            store.close().unwrap();
        }
    }
}

#[test]
fn after_a_halt_it_is_reported_too() {
    for after_power_loss in [false, true] {
        let (place, _) = crashed(900);
        if after_power_loss {
            change_boot(&place.root());
        }
        remove_first(&place.root(), 2);
        for open in [read, write] {
            let store = open(&place.root());
            reported(&store, 2 * FILE_LEN);
            store.close().unwrap();
        }
    }
}

/// A broker removes old files as well. Where it has added messages, or has not closed the store, it
/// may have.
#[test]
fn nothing_is_missing_from_a_log_that_another_system_has_continued() {
    for (abort, count) in [
        (None, 100),
        (Some(""), 100),
        (Some("4711"), 100),
        (Some("4711"), 0),
    ] {
        let (place, mut world) = closed(900);
        let page = fs::read(place.root().join("forebay.state")).unwrap();
        let store = write(&place.root());
        world.send(&store, count);
        store.close().unwrap();
        fs::write(place.root().join("forebay.state"), page).unwrap();
        if let Some(text) = abort {
            fs::write(place.root().join("abort"), text).unwrap();
        }
        remove_first(&place.root(), 1);
        world.retire(FILE_LEN);
        for open in [read, write] {
            let store = open(&place.root());
            assert_eq!(store.damage(), [], "{abort:?}");
            world.check(&store);
            store.close().unwrap();
        }
    }
}

#[test]
fn files_that_retention_has_removed_are_not_missing() {
    for after_power_loss in [None, Some(false), Some(true)] {
        let place = Place::new();
        let store = retention::retiring(&place.root());
        let copy = Place::copy_of(&place.root());
        store.close().unwrap();
        let root = match after_power_loss {
            None => place.root(),
            Some(_) => copy.root(),
        };
        if after_power_loss == Some(true) {
            change_boot(&root);
        }
        assert!(!root.join(format!("commitlog/{:020}", 0)).exists());
        for open in [retention::read, retention::open] {
            let store = open(&root);
            assert_eq!(store.damage(), []);
            store.close().unwrap();
        }
    }
}
