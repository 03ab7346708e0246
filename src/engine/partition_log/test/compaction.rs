//! Compaction of a store: which partitions are compacted when, and what damage means.

use super::removal::hooked;
use super::retention::{HOUR_MS, NOW, Stepped};
use super::*;
use crate::cleanup::{CleanupPolicy, Compaction, Policy};
use crate::clock::Clock;
use crate::disk::Call;
use crate::engine::{Compacted, QueueLogs};
use crate::error::Error;
use crate::warning::Warning;
use std::io::{self, Seek, SeekFrom};
use std::sync::atomic::{AtomicBool, Ordering};

fn compacting(compaction: Compaction) -> Options {
    Options {
        compaction: Compaction {
            cleanup_policy: CleanupPolicy {
                default: Policy::Compact,
                ..CleanupPolicy::default()
            },
            ..compaction
        },
        ..Options::default()
    }
}

fn compact(store: &Stepped) -> Result<Compacted> {
    store.engine.compact(None, &mut |_, _| true)
}

/// A step of the compaction in the background.
fn step(store: &Stepped) -> bool {
    let compactor = store.engine.compactor.as_ref().unwrap();
    compactor.step(&store.engine.writer().unwrap().parts)
}

/// Changes a byte of the first batch of a complete segment. Byte 16 is of the header.
fn damage(store: &Stepped, topic: &str, at: u64) -> PathBuf {
    let path = store.root.path().join(format!("{topic}-0/{:020}.log", 3));
    let file = fs::OpenOptions::new().write(true).open(&path);
    let mut file = file.unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&[0x77]).unwrap();
    path
}

fn is_damage<T>(done: &Result<T>, log: &Path) -> bool {
    matches!(done, Err(Error::Corrupt { path, .. }) if path == log)
}

/// A damaged header ended the first call before any queue was compacted, and the second one
/// reported that everything was compacted.
#[test]
fn each_call_reports_damage_after_all_other_queues_were_compacted() {
    for at in [16, 300] {
        let store = Stepped::new(compacting(Compaction::default()));
        for topic in ["a", "b", "c"] {
            store.send(topic, [NOW; 7]);
        }
        let log = damage(&store, "b", at);
        for call in 0..3 {
            let done = compact(&store);
            assert!(is_damage(&done, &log), "{at}, {call}: {done:?}");
            assert_eq!([store.offsets("a"), store.offsets("c")], [[5, 6], [5, 6]]);
            assert_eq!(store.bases("b"), [0, 3, 6]);
        }
        let done = store.engine.compact(Some("a"), &mut |_, _| true);
        assert!(done.unwrap().is_complete, "the others can be compacted");
    }
}

/// Nothing told a caller that the thread had given the queue up.
#[test]
fn damage_that_the_background_has_met_is_reported_once_there_and_to_each_caller() {
    for at in [16, 300] {
        let store = Stepped::new(compacting(Compaction::default()));
        for topic in ["a", "b"] {
            store.send(topic, [NOW; 7]);
        }
        let log = damage(&store, "a", at);
        while step(&store) {}
        assert!(!step(&store));
        let warnings = store.engine.shared.report.warnings.take();
        let found = warnings.iter().filter_map(|warning| match warning {
            Warning::Damage(damage) => Some(&damage.path),
            _ => None,
        });
        assert_eq!(found.collect::<Vec<_>>(), [&log], "{at}");
        assert_eq!(store.offsets("b"), [5, 6]);
        for call in 0..2 {
            let done = compact(&store);
            assert!(is_damage(&done, &log), "{at}, {call}: {done:?}");
        }
    }
}

/// The queue was left out silently afterwards.
#[test]
fn a_replacement_that_did_not_end_is_reported_until_the_store_is_opened_again() {
    let fails = Arc::new(AtomicBool::new(true));
    let told = Arc::clone(&fails);
    let store = hooked(
        Stepped::new(compacting(Compaction::default())),
        move |call, path| {
            let is_swap = |entry: io::Result<fs::DirEntry>| {
                let name = entry.unwrap().file_name();
                name.to_str().unwrap().ends_with(".swap")
            };
            let is_swapping = || fs::read_dir(path).unwrap().any(is_swap);
            let is_meant = call == Call::Sync && path.ends_with("t-0") && is_swapping();
            match is_meant && told.swap(false, Ordering::Relaxed) {
                true => Err(io::Error::from_raw_os_error(libc::EMFILE)),
                false => Ok(()),
            }
        },
    );
    store.send("t", [NOW; 7]);
    let done = compact(&store);
    assert!(matches!(done, Err(Error::Io { .. })), "{done:?}");
    assert!(!fails.load(Ordering::Relaxed));
    for _ in 0..2 {
        let refused = compact(&store).unwrap_err();
        assert!(matches!(refused, Error::Failed { .. }), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains("replacing segments did not end"), "{text}");
        assert!(!step(&store));
    }
    store.send("t", [NOW; 1]);
    let options = store.options.clone();
    let store = store.again(options);
    assert_eq!(compact(&store).unwrap().partitions, 1);
    assert_eq!(store.offsets("t"), [5, 6, 7]);
}

/// Its queue was given up silently.
#[test]
fn a_segment_that_would_be_too_long_is_warned_of_and_ends_no_writing() {
    let store = Stepped::new(compacting(Compaction::default()));
    let compactor = store.engine.compactor.as_ref().unwrap();
    let error = Error::Unsupported {
        what: "compacting into a file that would be too long".to_owned(),
    };
    compactor.take_error(&store.engine.writer().unwrap().parts, &error);
    let warnings = store.engine.shared.report.warnings.take();
    let is_told = |warning: &Warning| matches!(warning, Warning::NotCompacted { .. });
    assert!(warnings.iter().any(is_told), "{warnings:?}");
    store.send("t", [NOW]);
}

/// Sends distinct keys, which compaction keeps, and then messages with one key. All segments are
/// complete on return.
fn fill(store: &Stepped, topic: &str, clean: usize, dirty: usize) {
    let keys: Vec<String> = (0..clean).map(|number| format!("key {number}")).collect();
    store.send_keyed(topic, keys.iter().map(|key| (&**key, NOW)));
    store.engine.roll().unwrap();
    let compacted = store.engine.compact(Some(topic), &mut |_, _| true);
    assert_eq!(compacted.unwrap().messages_written, clean as u64);
    soil(store, topic, dirty);
}

fn soil(store: &Stepped, topic: &str, dirty: usize) {
    let now = store.clock.now_ms();
    store.send_keyed(topic, (0..dirty).map(|_| ("key x", now)));
    store.engine.roll().unwrap();
}

fn counts<const N: usize>(store: &Stepped, topics: [&str; N]) -> [usize; N] {
    topics.map(|topic| store.offsets(topic).len())
}

#[test]
fn the_dirtiest_partition_is_compacted_first_and_none_below_the_threshold() {
    let store = Stepped::new(compacting(Compaction::default()));
    let topics = ["a", "b", "c", "d"];
    // A quarter, three quarters, two thirds and half of their bytes are dirty.
    let made = [("a", 9), ("b", 3), ("c", 3), ("d", 3)];
    for (topic, clean) in made {
        fill(&store, topic, clean, 0);
    }
    for (topic, dirty) in [("a", 3), ("b", 9), ("c", 6), ("d", 3)] {
        soil(&store, topic, dirty);
    }
    assert_eq!(counts(&store, topics), [12, 12, 9, 6]);
    assert!(step(&store));
    assert_eq!(counts(&store, topics), [12, 4, 9, 6]);
    assert!(step(&store));
    assert_eq!(counts(&store, topics), [12, 4, 4, 6]);
    assert!(!step(&store), "exactly half is not enough");
    assert_eq!(counts(&store, topics), [12, 4, 4, 6]);
    // A lower threshold.
    let store = store.again(compacting(Compaction {
        min_cleanable_dirty_ratio: Some(0.3),
        ..Compaction::default()
    }));
    assert!(step(&store));
    assert!(!step(&store));
    assert_eq!(counts(&store, topics), [12, 4, 4, 4]);
}

#[test]
fn a_message_waits_for_compaction_no_longer_than_the_longest_lag() {
    let hour_ms = HOUR_MS.cast_unsigned();
    let store = Stepped::new(compacting(Compaction {
        max_compaction_lag_ms: Some(hour_ms),
        ..Compaction::default()
    }));
    fill(&store, "a", 9, 3);
    assert!(!step(&store), "a quarter is dirty");
    store.clock.advance(hour_ms);
    assert!(!step(&store));
    // This one is due, but not overdue.
    fill(&store, "b", 3, 9);
    store.clock.advance(1);
    assert_eq!(counts(&store, ["a", "b"]), [12, 12]);
    assert!(step(&store));
    assert_eq!(counts(&store, ["a", "b"]), [10, 12]);
    assert!(step(&store));
    assert_eq!(counts(&store, ["a", "b"]), [10, 4]);
    assert!(!step(&store));
}
