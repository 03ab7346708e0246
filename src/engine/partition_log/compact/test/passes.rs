//! Passes over logs that are written out.

use super::*;

fn batch(base: u64, rows: Vec<(Bytes, Bytes)>) -> Made {
    Made {
        base,
        rows,
        ..Made::default()
    }
}

fn values(log: &Log) -> Vec<(u64, Bytes)> {
    let rows = log.read().0.into_iter();
    rows.map(|row| (row.offset, row.value)).collect()
}

fn text(value: &str) -> Bytes {
    Some(value.into())
}

#[test]
fn segments_are_merged_and_keep_their_offsets() {
    let segments = [
        vec![batch(0, vec![row("a", "1"), row("b", "1")])],
        vec![batch(2, vec![row("a", "2"), row("c", "1")])],
        vec![batch(4, vec![row("b", "2")])],
        vec![batch(5, vec![row("a", "3")])],
    ];
    let log = Log::new(&segments, &Compaction::default());
    assert_eq!(log.compact(0).unwrap(), 1);
    assert_eq!(log.bases(), [0, 5]);
    let expected = [
        (2, text("2")),
        (3, text("1")),
        (4, text("2")),
        (5, text("3")),
    ];
    assert_eq!(values(&log), expected);
    let (_, headers) = log.read();
    let spans: Vec<_> = headers
        .iter()
        .map(|it| (it.first_offset(), it.last_offset()))
        .collect();
    assert_eq!(spans, [(2, 3), (4, 4), (5, 5)]);
}

#[test]
fn a_batch_that_keeps_all_its_records_is_copied_as_it_is() {
    let first = Made {
        codec: 4,
        ..batch(0, vec![row("a", "1"), row("b", "1")])
    };
    let second = batch(2, vec![row("c", "1")]);
    let segments = [
        vec![first.clone(), second.clone()],
        vec![batch(3, vec![row("d", "1")])],
    ];
    let log = Log::new(&segments, &Compaction::default());
    log.compact(0).unwrap();
    let path = log.folder.path().join("00000000000000000000.log");
    assert_eq!(
        fs::read(path).unwrap(),
        [first.bytes(), second.bytes()].concat()
    );
}

#[test]
fn a_rebuilt_batch_keeps_its_bounds_its_codec_and_its_producer() {
    let made = Made {
        codec: 3,
        producer: Some(9),
        ..batch(
            0,
            vec![row("a", "1"), row("b", "1"), row("a", "2"), row("c", "1")],
        )
    };
    let segments = [
        vec![made, batch(4, vec![row("c", "2")])],
        vec![batch(5, vec![row("d", "1")])],
    ];
    let log = Log::new(&segments, &Compaction::default());
    log.compact(0).unwrap();
    let (rows, headers) = log.read();
    let offsets: Vec<u64> = rows.iter().map(|row| row.offset).collect();
    assert_eq!(offsets, [1, 2, 4, 5]);
    let header = headers[0];
    assert_eq!((header.first_offset(), header.last_offset()), (0, 3));
    assert_eq!(header.producer_id, 9);
    assert_eq!(header.record_count, Some(2));
    assert_eq!(header.codec().unwrap().bits(), 3);
    assert_eq!((header.base_timestamp, header.max_timestamp), (1001, 1002));
}

#[test]
fn the_last_batch_of_a_producer_stays_as_a_header() {
    let made = |base, value| Made {
        producer: Some(9),
        ..batch(base, vec![row("a", value)])
    };
    let segments = [
        vec![made(0, "1"), made(1, "2"), batch(2, vec![row("a", "3")])],
        vec![batch(3, vec![row("b", "1")])],
    ];
    let mut log = Log::new(&segments, &Compaction::default());
    log.compact(0).unwrap();
    let (_, headers) = log.read();
    let spans: Vec<_> = headers
        .iter()
        .map(|it| (it.first_offset(), it.record_count.unwrap()))
        .collect();
    assert_eq!(spans, [(1, 0), (2, 1), (3, 1)]);
    assert_eq!(headers[0].max_timestamp, 1001, "its time is kept");
    // A producer that was silent for a day is forgotten.
    log.now_ms = 1001 + DAY_MS + 1;
    log.compact(3).unwrap();
    assert_eq!(log.read().1.len(), 2);
}

#[test]
fn a_pass_that_merged_segments_still_finds_the_last_batches_of_producers() {
    let filler = |base: u64| batch(base, vec![row(&format!("key {base}"), &"x".repeat(1500))]);
    let sent = |base| Made {
        producer: Some(9),
        ..batch(base, vec![row("a", "1")])
    };
    // The first two segments fit one, and drop nothing of a producer; the third is a group of its
    // own, and the first to ask for the producers.
    let segments = [
        vec![filler(0)],
        vec![filler(1)],
        vec![filler(2), sent(3), sent(4), batch(5, vec![row("a", "2")])],
        vec![batch(6, vec![row("b", "1")])],
    ];
    let log = Log::new(&segments, &Compaction::default());
    log.compact(0).unwrap();
    assert_eq!(log.bases(), [0, 2, 6]);
    let (_, headers) = log.read();
    let offsets: Vec<u64> = headers.iter().map(Header::last_offset).collect();
    assert_eq!(offsets, [0, 1, 2, 4, 5, 6]);
}

#[test]
fn a_pass_that_merged_segments_still_finds_how_transactions_ended() {
    let filler = |base: u64| batch(base, vec![row(&format!("key {base}"), &"x".repeat(1200))]);
    let sent = |base| Made {
        producer: Some(9),
        is_transactional: true,
        ..batch(base, vec![row("a", "1")])
    };
    let aborted = |base| Made {
        base,
        producer: Some(9),
        marker: Some(TransactionMarker::Abort),
        ..Made::default()
    };
    // How the first transaction ended stands in the first segment, so that nothing reads on in
    // the second before both are merged.
    let segments = [
        vec![sent(0), aborted(1), filler(2)],
        vec![filler(3)],
        vec![filler(4), filler(5), sent(6), aborted(7), filler(8)],
        vec![batch(9, vec![row("b", "1")])],
    ];
    let log = Log::new(&segments, &Compaction::default());
    log.compact(0).unwrap();
    assert_eq!(log.bases(), [0, 4, 9]);
    let (rows, _) = log.read();
    let offsets: Vec<u64> = rows.iter().map(|row| row.offset).collect();
    assert_eq!(offsets, [2, 3, 4, 5, 8, 9]);
}

#[test]
fn a_pass_without_survivors_keeps_the_end() {
    let segments = [
        vec![batch(0, vec![(None, text("1"))])],
        vec![batch(1, vec![(None, text("2")), (None, text("3"))])],
        vec![batch(3, vec![row("a", "1")])],
    ];
    let log = Log::new(&segments, &Compaction::default());
    log.compact(0).unwrap();
    assert_eq!(values(&log), [(3, text("1"))]);
    let header = log.read().1[0];
    assert_eq!((header.first_offset(), header.last_offset()), (1, 2));
    assert_eq!(header.record_count, Some(0));
    assert_eq!(header.base_timestamp, -1);
}

#[test]
fn a_map_that_is_full_ends_the_pass_and_another_continues() {
    let rows = (0..40).map(|key| row(&format!("key {key}"), "1")).collect();
    let again = (0..40).map(|key| row(&format!("key {key}"), "2")).collect();
    let segments = [
        vec![batch(0, rows), batch(40, again)],
        vec![batch(80, vec![row("x", "1")])],
    ];
    let compaction = Compaction {
        log_cleaner_dedupe_buffer_size: Some(24 * 20),
        ..Compaction::default()
    };
    let log = Log::new(&segments, &compaction);
    assert_eq!(log.compact(0).unwrap(), 5, "18 keys fit the map");
    let expected: Vec<_> = (40..80).map(|offset| (offset, text("2"))).collect();
    assert_eq!(values(&log)[..40], expected);
}

#[test]
fn a_tombstone_stays_until_its_horizon() {
    let segments = [
        vec![batch(0, vec![row("a", "1"), row("b", "1"), tombstone("a")])],
        vec![batch(3, vec![row("c", "1")])],
    ];
    let mut log = Log::new(&segments, &Compaction::default());
    log.compact(0).unwrap();
    let kept = [(1, text("1")), (2, None), (3, text("1"))];
    assert_eq!(values(&log), kept);
    let horizon = log.now_ms + DAY_MS;
    assert_eq!(log.read().1[0].delete_horizon(), Some(horizon));
    assert_eq!(
        log.read().0[0].timestamp,
        timestamp(1),
        "times count from the horizon"
    );
    log.now_ms = horizon - 1;
    log.compact(3).unwrap();
    assert_eq!(
        values(&log),
        kept,
        "a second pass does not move the horizon"
    );
    log.now_ms = horizon;
    log.compact(3).unwrap();
    assert_eq!(values(&log), [(1, text("1")), (3, text("1"))]);
}

#[test]
fn a_damaged_segment_is_left_alone() {
    let segments = [
        vec![batch(0, vec![row("a", "1")])],
        vec![batch(1, vec![row("a", "2")])],
        vec![batch(2, vec![row("b", "1")])],
    ];
    let log = Log::new(&segments, &Compaction::default());
    let path = log.folder.path().join(format!("{:020}.log", 1));
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = log.compact(0).unwrap_err();
    assert!(
        matches!(error, crate::error::Error::Corrupt { .. }),
        "{error}"
    );
    assert_eq!(log.bases(), [0, 1, 2]);
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let names = fs::read_dir(log.folder.path()).unwrap();
    assert_eq!(names.count(), 3, "the copy was removed");
}
