//! Searches by time, with time indexes that lack entries.

use super::retention::{NOW, Stepped};
use super::*;
use crate::engine::partition_log::segments::reader::counted;
use crate::engine::service::durability::Durable;
use std::time::{Duration, UNIX_EPOCH};

impl Made {
    /// Writes the time index of a segment: times, and offsets from its base.
    fn times(&self, base: u64, entries: &[(i64, u32)]) {
        let bytes = entries.iter().flat_map(|(time, offset)| {
            let (time, offset) = (time.to_be_bytes(), offset.to_be_bytes());
            time.into_iter().chain(offset)
        });
        let path = self.file(&format!("{base:020}.timeindex"));
        fs::write(path, bytes.collect::<Vec<u8>>()).unwrap();
    }
}

#[test]
fn a_time_index_that_lacks_its_last_entries_hides_no_message() {
    let made = Made::new();
    for base in [0, 8, 16] {
        let batches: Vec<Vec<u8>> = (base..base + 8).map(|it| batch(it, &[it as i64])).collect();
        made.segment(base, &batches);
    }
    let whole: Vec<(i64, u32)> = (1..8).map(|it| (i64::from(it), it)).collect();
    for count in 0..=whole.len() {
        made.times(0, &whole[..count]);
        let engine = made.open();
        let found: Vec<u64> = (0..24).map(|time| at(&engine, time)).collect();
        assert_eq!(found, (0..24).collect::<Vec<u64>>(), "{count}");
        // With what the first searches have found out.
        let again: Vec<u64> = (0..24).map(|time| at(&engine, time)).collect();
        assert_eq!(again, found, "{count}");
    }
}

/// Between two full passes, the index files of a segment that was completed have what the last pass
/// has written.
#[test]
fn a_segment_is_searched_before_its_time_index_is_written() {
    let store = Stepped::new(Options {
        index_interval_bytes: Some(1),
        ..Options::default()
    });
    store.send("t", [NOW, NOW + 1]);
    store.engine.writer().unwrap().parts.full_pass().unwrap();
    store.send("t", (2..6).map(|it| NOW + it));
    store.engine.flush(&mut || true).unwrap();
    assert_eq!(store.bases("t"), [0, 3]);
    let reader = open(store.root.path(), Isolation::ReadUncommitted).unwrap();
    for engine in [&store.engine, &reader] {
        let found: Vec<u64> = (0..6).map(|it| at(engine, NOW + it)).collect();
        assert_eq!(found, [0, 1, 2, 3, 4, 5]);
    }
}

#[test]
fn a_segment_whose_times_fall_is_searched_once() {
    let made = Made::new();
    let batches = |low: i64| -> Vec<Vec<u8>> {
        let times = (0..100).map(|it| if it == 0 { 200 } else { low });
        times
            .zip(0..)
            .map(|(time, base)| batch(base, &[time]))
            .collect()
    };
    let modified = |seconds: u64| {
        let file = fs::File::options().write(true).open(made.log(0)).unwrap();
        let time = UNIX_EPOCH + Duration::from_secs(seconds);
        file.set_modified(time).unwrap();
    };
    made.segment(0, &batches(1));
    modified(1000);
    made.times(0, &[(200, 0)]);
    made.segment(100, &[batch(100, &[300])]);
    let engine = made.open();
    counted::positions();
    assert_eq!(at(&engine, 250), 100);
    assert!(counted::positions() > 100);
    for time in [201, 250, 300] {
        assert_eq!(at(&engine, time), 100);
    }
    assert!(counted::positions() < 30);
    assert_eq!(at(&engine, 200), 0);
    // A broker has cut the segment and written others.
    made.segment(0, &batches(1 << 8));
    modified(2000);
    assert_eq!(at(&engine, 250), 1);
}
