//! A broker appends, rolls, truncates, deletes and replaces segments while they are read.

use super::*;
use crate::engine::partition_log::segments::reader::counted;
use std::time::Duration;

fn wait(engine: &PartitionLog, position: u64, timeout: Duration) -> u64 {
    engine.wait_until(position, timeout, &|| false)
}

#[test]
fn what_is_appended_is_read_and_wakes_who_waits() {
    let made = Made::new();
    made.segment(0, &[batch(0, &[1])]);
    let engine = made.open();
    let seen = engine.readable_position();
    assert_eq!(wait(&engine, seen, Duration::ZERO), seen);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(&engine, seen, Duration::from_secs(600)));
        made.append(0, &batch(1, &[2, 3]));
        assert!(waiting.join().unwrap() > seen);
    });
    assert_eq!(offsets(&engine), [0, 1, 2]);
    // A new segment, and a new partition.
    made.segment(3, &[]);
    assert_eq!(bounds(&engine), 0..3);
    made.append(3, &batch(3, &[4]));
    assert_eq!(offsets(&engine), [0, 1, 2, 3]);
    let other = made.root.path().join("t-7");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("00000000000000000000.log"), []).unwrap();
    engine.refresh(None).unwrap();
    assert_eq!(engine.queues(&topic(&engine, "t")), [0, 7]);
}

#[test]
fn a_thread_that_waits_is_woken_by_a_close() {
    let made = Made::new();
    made.segment(0, &[batch(0, &[1])]);
    let engine = made.open();
    let seen = engine.readable_position();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(&engine, seen, Duration::MAX));
        engine.close().unwrap();
        waiting.join().unwrap();
    });
}

#[test]
fn a_file_of_full_length_grows_inside() {
    let made = Made::new();
    let (one, two) = (batch(0, &[1]), batch(1, &[2]));
    let mut file = one.clone();
    file.resize(4096, 0);
    fs::write(made.log(0), &file).unwrap();
    let engine = made.open();
    assert_eq!(offsets(&engine), [0]);
    let seen = engine.readable_position();
    file[one.len()..one.len() + two.len()].copy_from_slice(&two);
    fs::write(made.log(0), &file).unwrap();
    assert!(wait(&engine, seen, Duration::from_secs(600)) > seen);
    assert_eq!(offsets(&engine), [0, 1]);
}

#[test]
fn a_partition_that_a_broker_removes_hides_nothing_from_who_waits() {
    let made = Made::new();
    made.segment(0, &[batch(0, &[1])]);
    let other = made.root.path().join("u-0");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("00000000000000000000.log"), batch(0, &[7; 99])).unwrap();
    let engine = made.open();
    let seen = engine.readable_position();
    fs::remove_dir_all(other).unwrap();
    engine.refresh(None).unwrap();
    assert_eq!(wait(&engine, seen, Duration::ZERO), seen);
    made.append(0, &batch(1, &[2]));
    assert!(wait(&engine, seen, Duration::ZERO) > seen);
}

#[test]
fn a_reader_that_waits_reads_little_of_a_file_of_full_length_until_it_grows() {
    let made = Made::new();
    let batches: Vec<Vec<u8>> = (0..100).map(|base| batch(base, &[1])).collect();
    let mut file = batches[..99].concat();
    let len = file.len();
    file.resize(1 << 20, 0);
    fs::write(made.log(0), &file).unwrap();
    let engine = made.open();
    assert_eq!(bounds(&engine), 0..99);
    counted::take();
    assert_eq!(bounds(&engine), 0..99);
    assert!(counted::take() < 256);
    file[len..len + batches[99].len()].copy_from_slice(&batches[99]);
    fs::write(made.log(0), &file).unwrap();
    assert_eq!(bounds(&engine), 0..100);
    // Truncated, and as long as before.
    file[len - 10..].fill(0);
    fs::write(made.log(0), &file).unwrap();
    assert_eq!(bounds(&engine), 0..98);
}

#[test]
fn a_log_that_was_truncated_and_written_again_is_read_anew() {
    let made = Made::new();
    made.segment(0, &[batch(0, &[1]), batch(1, &[2, 2, 2]), batch(4, &[3])]);
    let engine = made.open();
    assert_eq!(bounds(&engine), 0..5);
    made.segment(0, &[batch(0, &[1])]);
    assert_eq!(bounds(&engine), 0..1);
    made.segment(0, &[batch(0, &[1]), batch(1, &[2, 2, 2]), batch(4, &[3])]);
    assert_eq!(bounds(&engine), 0..5);
    // Longer than before, with batches that begin elsewhere.
    let times = [7; 40];
    made.segment(0, &[batch(0, &[1]), batch(1, &times), batch(41, &[8])]);
    assert_eq!(bounds(&engine), 0..42);
    assert_eq!(offsets(&engine).len(), 42);
}

#[test]
fn a_cursor_outlives_the_files_and_the_engine() {
    let made = Made::new();
    for base in 0..4 {
        made.segment(base, &[batch(base, &[1])]);
    }
    let engine = made.open();
    let all = Filter::default();
    let topic = topic(&engine, "t");
    let mut cursor = engine.cursor(&topic, 0, 0..4, &all, Check::Full).unwrap();
    let mut rows = Rows::default();
    cursor.next(1, &mut rows).unwrap();
    // The broker retires the first two segments; the first is open.
    fs::remove_file(made.log(0)).unwrap();
    fs::remove_file(made.log(1)).unwrap();
    assert_eq!(bounds(&engine), 2..4);
    engine.close().unwrap();
    drop(engine);
    cursor.next(10, &mut rows).unwrap();
    let found: Vec<i64> = rows
        .rows
        .iter()
        .map(|row| rows.record(row).unwrap().queue_offset())
        .collect();
    assert_eq!(found, [0, 2, 3]);
}

#[test]
fn a_replacement_that_was_interrupted_counts() {
    let made = Made::new();
    made.segment(0, &[batch(0, &[1, 2])]);
    made.segment(2, &[batch(2, &[3, 4])]);
    made.segment(4, &[batch(4, &[5])]);
    let compacted = Spec {
        base: 0,
        times: &[1],
        removed: 3,
        ..Spec::default()
    };
    let name = |state: &str| made.file(&format!("{:020}.log{state}", 0));
    // Incomplete replacements and deleted files do not count.
    fs::write(name(".cleaned"), compacted.bytes()).unwrap();
    fs::write(name(".deleted"), compacted.bytes()).unwrap();
    assert_eq!(offsets(&made.open()), [0, 1, 2, 3, 4]);
    fs::rename(name(".cleaned"), name(".swap")).unwrap();
    assert_eq!(offsets(&made.open()), [0, 4]);
    // If there are several swaps, those from the first incomplete one on do not count.
    let name = made.file(&format!("{:020}.log.cleaned", 0));
    fs::write(name, b"").unwrap();
    assert_eq!(offsets(&made.open()), [0, 1, 2, 3, 4]);
}

#[test]
fn a_folder_that_has_not_changed_for_long_is_listed_once() {
    let made = Made::new();
    made.segment(0, &[batch(0, &[1])]);
    made.segment(1, &[batch(1, &[2])]);
    let folder = fs::File::open(made.root.path().join("t-0")).unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    folder.set_modified(long_ago).unwrap();
    let engine = made.open();
    assert_eq!(bounds(&engine), 0..2);
    // Nobody sees a new segment, as long as the folder has the old time.
    made.segment(2, &[batch(2, &[3])]);
    folder.set_modified(long_ago).unwrap();
    assert_eq!(bounds(&engine), 0..2);
    made.append(1, &batch(2, &[3]));
    assert_eq!(bounds(&engine), 0..3);
    made.segment(3, &[batch(3, &[4])]);
    assert_eq!(bounds(&engine), 0..4);
    fs::remove_file(made.log(3)).unwrap();
    folder.set_modified(long_ago).unwrap();
    fs::remove_file(made.log(2)).unwrap();
    assert_eq!(bounds(&engine), 0..3);
}

#[test]
fn a_directory_that_has_not_changed_for_long_is_listed_once() {
    let made = Made::new();
    made.segment(0, &[batch(0, &[1])]);
    let root = fs::File::open(made.root.path()).unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    root.set_modified(long_ago).unwrap();
    let engine = made.open();
    // Nobody sees a new folder, as long as the directory has the old time.
    fs::create_dir(made.root.path().join("u-0")).unwrap();
    root.set_modified(long_ago).unwrap();
    engine.refresh(None).unwrap();
    assert!(engine.topics().get("u").is_none());
    fs::create_dir(made.root.path().join("v-0")).unwrap();
    engine.refresh(None).unwrap();
    assert!(engine.topics().get("u").is_some() && engine.topics().get("v").is_some());
}

/// A writer makes the folders of a topic one by one, the last one first.
#[test]
fn a_reader_sees_a_topic_once_it_has_all_its_queues() {
    let made = Made::new();
    made.segment(0, &[batch(0, &[1])]);
    let engine = made.open();
    let make = |name: &str| fs::create_dir(made.root.path().join(name)).unwrap();
    let queues = |name: &str| {
        engine.refresh(None).unwrap();
        engine.topics().get(name).map(|it| engine.queues(&it))
    };
    for name in ["u-2", "u-1"] {
        make(name);
        assert_eq!(queues("u"), None);
        assert!(made.open().topics().get("u").is_none());
    }
    make("u-0");
    assert_eq!(queues("u"), Some(vec![0, 1, 2]));
    make("u-4");
    assert_eq!(queues("u"), Some(vec![0, 1, 2]));
    make("u-3");
    assert_eq!(queues("u"), Some(vec![0, 1, 2, 3, 4]));
    // Another broker may have the first one.
    make("v-1");
    fs::write(made.root.path().join("v-1/00000000000000000000.log"), []).unwrap();
    assert_eq!(queues("v"), Some(vec![1]));
}

/// A segment of `count` batches of one message, from `base` on.
fn many(base: u64, count: u64) -> Vec<Vec<u8>> {
    (base..base + count)
        .map(|offset| batch(offset, &[1]))
        .collect()
}

/// The offsets that a cursor returns, one at a time. `between` is called after each.
fn walked(
    engine: &PartitionLog,
    range: std::ops::Range<u64>,
    mut between: impl FnMut(i64),
) -> Vec<i64> {
    let (topic, all) = (topic(engine, "t"), Filter::default());
    let mut cursor = engine.cursor(&topic, 0, range, &all, Check::Full).unwrap();
    let (mut rows, mut found) = (Rows::default(), Vec::new());
    loop {
        rows.clear();
        cursor.next(1, &mut rows).unwrap();
        let Some(row) = rows.rows.first() else {
            return found;
        };
        let offset = rows.record(row).unwrap().queue_offset();
        found.push(offset);
        between(offset);
    }
}

/// Joins these segments as a broker's cleaner does: the new file gets its name with `.swap`, the
/// old ones go, and the new one gets the name of the first.
fn join(made: &Made, bases: &[u64], is_finished: bool) {
    let whole: Vec<u8> = bases
        .iter()
        .flat_map(|base| fs::read(made.log(*base)).unwrap())
        .collect();
    let name = |state: &str| made.file(&format!("{:020}.log{state}", bases[0]));
    fs::write(name(".cleaned"), whole).unwrap();
    fs::rename(name(".cleaned"), name(".swap")).unwrap();
    for base in bases {
        fs::remove_file(made.log(*base)).unwrap();
    }
    if is_finished {
        fs::rename(name(".swap"), name("")).unwrap();
    }
}

/// A reader is within the first of two segments when one file replaces both. Its list names a file
/// that is gone.
#[test]
fn a_reader_loses_no_message_when_segments_are_joined() {
    for is_finished in [false, true] {
        // The reader is in a segment that is joined, in the one before, and before all of them.
        for at in [1, 5, 9, 12] {
            let made = Made::new();
            for base in [0, 4, 8, 12] {
                made.segment(base, &many(base, 4));
            }
            let engine = made.open();
            let found = walked(&engine, 0..16, |offset| {
                if offset == at - 1 {
                    join(&made, &[4, 8], is_finished);
                }
            });
            assert_eq!(found, (0..16).collect::<Vec<_>>(), "{at} {is_finished}");
            assert_eq!(engine.report().damage(), [], "{at} {is_finished}");
            // As long as the cursor lives, the folder may be changed once more.
            let found = walked(&engine, 0..16, |offset| match (offset, is_finished) {
                (0, true) => join(&made, &[0, 4], true),
                (2, true) => join(&made, &[0, 12], false),
                _ => {}
            });
            assert_eq!(found, (0..16).collect::<Vec<_>>(), "{at} {is_finished}");
        }
    }
}

/// A time is searched for while its segment is replaced.
#[test]
fn a_time_is_found_in_segments_that_were_joined() {
    let made = Made::new();
    for base in [0, 4, 8] {
        made.segment(base, &[batch(base, &[base as i64; 4])]);
    }
    let engine = made.open();
    let partition = engine.partition(&topic(&engine, "t"), 0).unwrap();
    let view = engine.view(&partition).unwrap();
    join(&made, &[0, 4], true);
    let at = |time| super::super::time::offset_at(&engine.shared, &partition, &view, time);
    assert_eq!((at(4).unwrap(), at(8).unwrap()), (4, 8));
}

/// A link is not followed, and the file that it has replaced does not count as deleted.
#[test]
fn a_link_in_the_place_of_a_segment_is_an_error() {
    let made = Made::new();
    for base in [0, 4, 8] {
        made.segment(base, &many(base, 4));
    }
    let engine = made.open();
    let (topic, all) = (topic(&engine, "t"), Filter::default());
    let mut cursor = engine.cursor(&topic, 0, 0..12, &all, Check::Full).unwrap();
    fs::remove_file(made.log(4)).unwrap();
    std::os::unix::fs::symlink(made.log(0), made.log(4)).unwrap();
    let failed = cursor.next(100, &mut Rows::default()).unwrap_err();
    assert!(failed.to_string().contains("00004.log"), "{failed}");
}

/// A broker that follows another one cuts off the end of its log. What it writes there later has
/// the same offsets, so the reader has to stay where the log ends.
#[test]
fn a_cursor_stops_where_the_log_was_truncated() {
    let made = Made::new();
    made.segment(0, &[many(0, 2).concat(), batch(2, &[1; 8000])]);
    let engine = made.open();
    let (topic, all) = (topic(&engine, "t"), Filter::default());
    let mut cursor = engine
        .cursor(&topic, 0, 0..8002, &all, Check::Full)
        .unwrap();
    let mut rows = Rows::default();
    cursor.next(1, &mut rows).unwrap();
    made.segment(0, &many(0, 2));
    rows.clear();
    cursor.next(10, &mut rows).unwrap();
    assert_eq!((rows.rows.len(), cursor.offset()), (1, 2));
}

/// Without an index each read began at the first batch of its segment.
#[test]
fn small_reads_of_a_partition_without_indexes_read_it_once() {
    const COUNT: u64 = 4000;
    let made = Made::new();
    made.segment(0, &many(0, COUNT));
    made.segment(COUNT, &many(COUNT, 2));
    let len = fs::metadata(made.log(0)).unwrap().len();
    let engine = made.open();
    let (topic, all) = (topic(&engine, "t"), Filter::default());
    let read = super::super::segments::reader::counted::take();
    assert!(read > 0);
    let mut next = 0;
    let mut reads = 0;
    while next < COUNT {
        let range = next..next + 20;
        let mut cursor = engine.cursor(&topic, 0, range, &all, Check::Full).unwrap();
        let mut rows = Rows::default();
        cursor.next(20, &mut rows).unwrap();
        let first = rows.record(&rows.rows[0]).unwrap().queue_offset();
        assert_eq!((first as u64, rows.rows.len()), (next, 20));
        next = cursor.offset();
        reads += 1;
    }
    // Each read fills a window or two of the file, wherever it begins.
    let most = reads * (3 * (32 << 10)) + len;
    let read = super::super::segments::reader::counted::take();
    assert!(read < most, "{read} bytes of {len}, at most {most}");
    // A read somewhere else begins at a batch that one of them has met.
    let range = COUNT / 2..COUNT / 2 + 1;
    let mut cursor = engine.cursor(&topic, 0, range, &all, Check::Full).unwrap();
    cursor.next(1, &mut Rows::default()).unwrap();
    let read = super::super::segments::reader::counted::take();
    assert!(read < 200 << 10, "{read} bytes of {len}");
}
