//! What an archive may copy, and what it reads of its blocks.

use super::{Made, batch};
use crate::engine::archive::{SealedSegment, SegmentSurvey};
use crate::engine::partition_log::PartitionLog;
use crate::engine::partition_log::bytes::BatchCursor;
use crate::engine::{Check, Cursor, Filter, QueueLogs, Rows};
use crate::error::Error;
use crate::sync::Mutex;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

fn save_point(made: &Made, offset: u64) {
    let path = made.root.path().join("recovery-point-offset-checkpoint");
    fs::write(path, format!("0\n1\nt 0 {offset}\n")).unwrap();
}

fn sealed(engine: &PartitionLog) -> Vec<(u64, u64)> {
    let found = engine.sealed_segments(None).unwrap();
    found.iter().map(|it| (it.start, it.end)).collect()
}

fn first(engine: &PartitionLog) -> SealedSegment {
    engine.sealed_segments(None).unwrap().remove(0)
}

fn offsets(survey: &SegmentSurvey) -> Range<u64> {
    survey.table.queue_ranges()[0].offsets.clone()
}

#[test]
fn only_segments_that_every_recovery_keeps_are_sealed() {
    let made = Made::new();
    made.segment(0, &[batch(0, &[1, 2])]);
    made.segment(2, &[batch(2, &[3])]);
    made.segment(3, &[batch(3, &[4])]);
    let engine = made.open();
    assert_eq!(sealed(&engine), []);
    save_point(&made, 2);
    assert_eq!(sealed(&engine), [(0, 2)]);
    // The last one is not complete.
    save_point(&made, 4);
    assert_eq!(sealed(&engine), [(0, 2), (2, 3)]);
    // Recovery removes an atomic batch that is not whole.
    let intent = r#"{"version":1,"partitions":[["t",0,2,4]]}"#;
    fs::write(made.root.path().join("forebay.intent"), intent).unwrap();
    assert_eq!(sealed(&engine), [(0, 2)]);
}

#[test]
fn a_copy_has_the_batches_after_those_that_the_archive_has() {
    let made = Made::new();
    let batches = [batch(0, &[1, 2]), batch(4, &[3, 4])];
    made.segment(0, &batches);
    made.segment(10, &[batch(10, &[5])]);
    save_point(&made, 11);
    let engine = made.open();
    let segment = first(&engine);
    let survey = |after| engine.survey_segment(&segment, after).unwrap();
    let whole = survey(None);
    assert_eq!((whole.start, whole.skip, offsets(&whole)), (0, 0, 0..10));
    assert_eq!(whole.table.length, segment.length);
    // A compaction has joined two segments, of which the archive has the first.
    for after in 2..=4 {
        let rest = survey(Some(after));
        assert_eq!((rest.start, rest.skip), (after, batches[0].len() as u64));
        assert_eq!(offsets(&rest), after..10);
        assert_eq!(rest.table.length, batches[1].len() as u64);
    }
    let nothing = survey(Some(6));
    assert!(nothing.table.blocks.is_empty() && nothing.table.length == 0);
}

#[test]
fn a_segment_that_was_replaced_is_not_surveyed() {
    let made = Made::new();
    made.segment(0, &[batch(0, &[1]), batch(1, &[2])]);
    made.segment(2, &[batch(2, &[3])]);
    made.segment(3, &[batch(3, &[4])]);
    save_point(&made, 4);
    let engine = made.open();
    let segment = first(&engine);
    // Compaction joins the first two.
    fs::remove_file(made.file(&format!("{:020}.log", 2))).unwrap();
    made.segment(0, &[batch(1, &[2]), batch(2, &[3])]);
    let error = engine.survey_segment(&segment, None).unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    assert_eq!(sealed(&engine), [(0, 3)]);
    let again = engine.survey_segment(&first(&engine), Some(2)).unwrap();
    assert_eq!((again.start, offsets(&again)), (2, 2..3));
}

#[test]
fn damage_is_copied_in_blocks_of_its_own_and_the_zeros_of_a_crash_are_not() {
    let made = Made::new();
    let mut batches = [
        batch(0, &[1]),
        batch(1, &[2]),
        batch(2, &[3]),
        vec![0; 5000],
    ];
    let lens: Vec<u64> = batches.iter().map(|it| it.len() as u64).collect();
    *batches[1].last_mut().unwrap() ^= 1;
    made.segment(0, &batches);
    made.segment(3, &[batch(3, &[4])]);
    save_point(&made, 4);
    let engine = made.open();
    let survey = engine.survey_segment(&first(&engine), None).unwrap();
    let table = survey.table;
    assert_eq!(table.length, lens[..3].iter().sum::<u64>());
    let blocks: Vec<u64> = table.blocks.iter().map(|it| it.length.into()).collect();
    assert_eq!(blocks, lens[..3]);
    assert_eq!(table.holes.len(), 1);
    assert_eq!(table.holes[0].position, lens[0]);
    let bytes = batches.concat();
    let mut at = 0;
    for block in &table.blocks {
        let end = at + block.length as usize;
        assert_eq!(block.checksum, crc32fast::hash(&bytes[at..end]));
        at = end;
    }
}

#[test]
fn blocks_are_read_past_damage() {
    let batches: Vec<Vec<u8>> = (0..4).map(|n| batch(2 * n, &[1, 2])).collect();
    let read = |bytes: &[u8], check| {
        // Two batches in a block.
        let blocks: Vec<(u32, u32)> = batches
            .chunks(2)
            .map(|it| (it.concat().len() as u32, crc32fast::hash(&it.concat())))
            .collect();
        let damage = Arc::new(Mutex::new(Vec::new()));
        let of = ("t", 0, std::iter::once(1..7).collect());
        let how = (Filter::default(), check);
        let path = (0, Path::new("0.log"));
        let mut cursor = BatchCursor::new(bytes, path, &blocks, of, how, &damage);
        let mut offsets = Vec::new();
        loop {
            let mut rows = Rows::default();
            cursor.next(1, &mut rows).unwrap();
            let Some(row) = rows.rows.first() else { break };
            offsets.push(rows.record(row).unwrap().queue_offset());
        }
        let damage = damage.lock().len();
        (offsets, damage)
    };
    let whole = batches.concat();
    let len = batches[0].len();
    assert_eq!(read(&whole, Check::Full), (vec![1, 2, 3, 4, 5, 6], 0));
    // A value: its batch is skipped, and the block differs.
    let mut bytes = whole.clone();
    bytes[len - 2] ^= 1;
    assert_eq!(read(&bytes, Check::Full), (vec![2, 3, 4, 5, 6], 2));
    // A length: the rest of its block is skipped.
    let mut bytes = whole.clone();
    bytes[11] ^= 1;
    assert_eq!(read(&bytes, Check::Full), (vec![4, 5, 6], 2));
    // The file is shorter than its table says.
    let short = &whole[..2 * len + 10];
    assert_eq!(read(short, Check::Full), (vec![1, 2, 3], 2));
}
