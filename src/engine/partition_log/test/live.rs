//! A broker appends, rolls, truncates, deletes and replaces segments while they are read.

use super::*;
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
    fs::create_dir(made.root.path().join("t-7")).unwrap();
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
    // An incomplete one does not count, nor what was deleted.
    fs::write(name(".cleaned"), compacted.bytes()).unwrap();
    fs::write(name(".deleted"), compacted.bytes()).unwrap();
    assert_eq!(offsets(&made.open()), [0, 1, 2, 3, 4]);
    fs::rename(name(".cleaned"), name(".swap")).unwrap();
    assert_eq!(offsets(&made.open()), [0, 4]);
    // Of several swaps those from the first incomplete one on do not count.
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
