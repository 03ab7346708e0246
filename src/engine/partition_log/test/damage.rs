//! Damage costs the records that it touches and no others.

use super::super::segments::reader::{Reader, counted};
use super::super::segments::segment::Segment;
use super::super::segments::walk::{Step, Walk};
use super::*;
use crate::engine::DamageKind;
use crate::error::Error;
use crate::record::kafka::Header;

/// A closed segment of three batches and the last one.
fn made() -> Made {
    let made = Made::new();
    made.segment(0, &[batch(0, &[1, 2]), batch(2, &[3, 4]), batch(4, &[5])]);
    made.segment(5, &[batch(5, &[6])]);
    made
}

fn change(path: &Path, at: usize, to: u8) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] = to;
    fs::write(path, bytes).unwrap();
}

/// An offset index of one segment from offset 0 on.
fn index(made: &Made, entries: &[(u32, u32)]) {
    let bytes = entries
        .iter()
        .flat_map(|(offset, position)| [offset.to_be_bytes(), position.to_be_bytes()].concat());
    fs::write(
        made.file(&format!("{:020}.index", 0)),
        bytes.collect::<Vec<u8>>(),
    )
    .unwrap();
}

#[test]
fn a_batch_with_a_wrong_checksum_is_passed_over_and_reported() {
    let made = made();
    let len = batch(0, &[1, 2]).len();
    change(&made.log(0), len + 70, 0xFF);
    let engine = made.open();
    assert_eq!(offsets(&engine), [0, 1, 4, 5]);
    let damage = engine.report().damage();
    assert_eq!(damage.len(), 1);
    assert_eq!(
        (damage[0].kind, damage[0].position),
        (DamageKind::Log, len as u64)
    );
    assert_eq!(damage[0].path, made.log(0));
    let lost = [("t".to_owned(), 0, 2), ("t".to_owned(), 0, 3)];
    assert_eq!(damage[0].lost, lost);
    let lost = engine.get(&topic(&engine, "t"), 0, 3).unwrap_err();
    assert!(matches!(lost, Error::Corrupt { .. }), "{lost}");
    assert_eq!(engine.verify(&mut |_, _| true).unwrap().damage.len(), 1);
    assert_eq!(at(&engine, 3), 4);
}

#[test]
fn after_a_wrong_length_reading_goes_on_where_the_index_knows_a_batch() {
    let made = made();
    let len = batch(0, &[1, 2]).len();
    change(&made.log(0), len + 8, 0x7F);
    // Without an index, the next batch is searched for.
    assert_eq!(offsets(&made.open()), [0, 1, 4, 5]);
    index(&made, &[(3, len as u32), (4, 2 * len as u32)]);
    let engine = made.open();
    assert_eq!(offsets(&engine), [0, 1, 4, 5]);
    let damage = engine.report().damage();
    assert_eq!(
        (damage[0].position, damage[0].length),
        (len as u64, len as u64)
    );
}

#[test]
fn a_torn_tail_ends_the_log() {
    let whole = batch(5, &[6]);
    for torn in [
        &whole[..whole.len() - 1],
        &whole[..20],
        &whole[..5],
        &[0; 300],
    ] {
        let made = made();
        made.append(5, &batch(6, &[7]));
        made.append(5, torn);
        let engine = made.open();
        assert_eq!(bounds(&engine), 0..7);
        assert_eq!(offsets(&engine), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(engine.report().damage(), []);
        assert_eq!(engine.verify(&mut |_, _| true).unwrap().damage, []);
    }
}

#[test]
fn a_last_batch_that_is_not_whole_is_not_read() {
    let made = made();
    made.append(5, &batch(6, &[7, 8]));
    let end = fs::read(made.log(5)).unwrap().len();
    change(&made.log(5), end - 2, 0xFF);
    let engine = made.open();
    assert_eq!(
        (bounds(&engine), offsets(&engine)),
        (0..6, vec![0, 1, 2, 3, 4, 5])
    );
    // If a whole batch follows, it was damaged later.
    made.append(5, &batch(8, &[9]));
    assert_eq!(bounds(&engine), 0..9);
    assert_eq!(offsets(&engine), [0, 1, 2, 3, 4, 5, 8]);
    assert_eq!(engine.report().damage().len(), 1);
}

#[test]
fn offsets_that_go_back_are_damage() {
    let made = Made::new();
    made.segment(0, &[batch(0, &[1, 2]), batch(0, &[1, 2]), batch(2, &[3])]);
    let engine = made.open();
    assert_eq!(offsets(&engine), [0, 1, 2]);
    made.segment(9, &[batch(3, &[1]), batch(9, &[1])]);
    made.append(9, &batch(10, &[1]));
    assert_eq!(bounds(&engine), 0..11);
}

#[test]
fn an_entry_of_an_index_that_leads_nowhere_is_reported_by_a_verification() {
    let made = made();
    index(&made, &[(3, batch(0, &[1, 2]).len() as u32), (4, 7)]);
    let engine = made.open();
    let found = engine.verify(&mut |_, _| true).unwrap();
    assert_eq!((found.records, found.queue_entries), (6, 1));
    assert_eq!(found.damage[0].kind, DamageKind::Index);
    assert_eq!((found.damage[0].position, found.damage[0].length), (8, 8));
    let mut calls = 0;
    let stopped = engine.verify(&mut |_, _| {
        calls += 1;
        false
    });
    assert_eq!((calls, stopped.unwrap().records), (1, 0));
}

#[test]
fn a_damaged_checkpoint_is_reported_and_not_believed() {
    let made = made();
    let checkpoint = made.root.path().join("log-start-offset-checkpoint");
    fs::write(&checkpoint, "0\n1\nt 0 3\n").unwrap();
    let engine = made.open();
    assert_eq!((bounds(&engine), offsets(&engine)), (3..6, vec![3, 4, 5]));
    fs::write(&checkpoint, "0\n7\nt 0 4\n").unwrap();
    let engine = made.open();
    assert_eq!(bounds(&engine), 0..6);
    assert_eq!(engine.report().damage()[0].kind, DamageKind::ForeignTable);
    // A first offset above the end leaves nothing.
    fs::write(&checkpoint, "0\n1\nt 0 99\n").unwrap();
    let engine = made.open();
    assert_eq!((bounds(&engine), offsets(&engine)), (6..6, vec![]));
}

/// A segment of eight batches, every second of which its index names, and an empty segment.
fn indexed() -> (Made, usize) {
    let made = Made::new();
    let batches: Vec<Vec<u8>> = (0..8).map(|n| batch(10 + 2 * n, &[1, 2])).collect();
    let len = batches[0].len();
    made.segment(0, &batches);
    made.segment(100, &[]);
    let entries = (1..8).step_by(2);
    let entries: Vec<(u32, u32)> = entries.map(|n| (11 + 2 * n, n * len as u32)).collect();
    index(&made, &entries);
    (made, len)
}

/// A reader of a log whose writer died sees what the next writer will.
#[test]
fn a_wrong_length_in_the_last_segment_hides_nothing_once_nobody_writes_it() {
    let batches: Vec<Vec<u8>> = (0..40).map(|n| batch(n, &[1])).collect();
    let begin = |number: usize| batches[..number].iter().map(Vec::len).sum::<usize>();
    for is_reserved in [false, true] {
        let made = Made::new();
        made.segment(0, &batches);
        if is_reserved {
            made.append(0, &[0; 5000]);
        }
        for number in [1, 20] {
            change(&made.log(0), begin(number) + 10, 0x41);
        }
        let engine = made.open();
        let whole: Vec<i64> = (0..40).filter(|it| ![1, 20].contains(it)).collect();
        assert_eq!((bounds(&engine), offsets(&engine)), (0..40, whole));
        let damaged: Vec<u64> = engine
            .report()
            .damage()
            .iter()
            .map(|it| it.position)
            .collect();
        assert_eq!(damaged, [1, 20].map(|it| begin(it) as u64));
        assert_eq!(engine.verify(&mut |_, _| true).unwrap().damage.len(), 2);
        // A missing sector ends the log, unless nothing says what was durable.
        let mut bytes = fs::read(made.log(0)).unwrap();
        bytes[1024..1536].fill(0);
        fs::write(made.log(0), bytes).unwrap();
        assert_eq!(bounds(&made.open()), 0..40);
        let points = made.root.path().join("recovery-point-offset-checkpoint");
        fs::write(points, "0\n1\nt 0 10\n").unwrap();
        let engine = made.open();
        let whole = (0..40).rfind(|it| begin(*it) <= 1024).unwrap();
        assert_eq!(bounds(&engine), 0..whole as u64);
        assert_eq!(bounds(&engine), 0..whole as u64);
    }
}

/// The end of a segment is searched for from its index on.
#[test]
fn a_damaged_last_batch_that_the_index_names_hides_no_other() {
    let batches: Vec<Vec<u8>> = (0..4).map(|n| batch(n, &[1])).collect();
    let len = batches[0].len();
    let entries: Vec<(u32, u32)> = (0..4).map(|n| (n, n * len as u32)).collect();
    for damaged in [3..4, 2..4, 0..4] {
        // No checksum covers the offset.
        for at in 8..len {
            let made = Made::new();
            made.segment(0, &batches);
            index(&made, &entries);
            for number in damaged.clone() {
                change(&made.log(0), number * len + at, 0x55);
            }
            let engine = made.open();
            let whole = offsets(&engine).into_iter().take(damaged.start);
            assert!(whole.eq(0..damaged.start as i64), "{damaged:?}, byte {at}");
            assert!(bounds(&engine).end >= damaged.start as u64);
        }
    }
}

/// Whatever a header says, the batches beside it are read. The offset is the one field of a header
/// that no checksum covers: messages may have a wrong one, and no other message is lost for it.
#[test]
fn a_damaged_header_costs_its_batch_alone() {
    check_damaged_headers(true);
}

#[test]
fn a_damaged_header_costs_its_batch_alone_where_there_is_no_index() {
    check_damaged_headers(false);
}

fn check_damaged_headers(is_indexed: bool) {
    for number in [0, 3, 4, 7] {
        let (made, len) = indexed();
        if !is_indexed {
            fs::remove_file(made.file(&format!("{:020}.index", 0))).unwrap();
        }
        let whole = fs::read(made.log(0)).unwrap();
        let own = [10 + 2 * number as i64, 11 + 2 * number as i64];
        for at in 0..len {
            for bits in [0x01, 0x02, 0x04, 0x10, 0x80, 0xFF] {
                let mut bytes = whole.clone();
                bytes[number * len + at] ^= bits;
                fs::write(made.log(0), bytes).unwrap();
                let engine = open(made.root.path(), Isolation::ReadCommitted).unwrap();
                let mut found = messages(&engine, "t", 100);
                found.retain(|it| !own.contains(&it.record().queue_offset()));
                let is_own = |it: &Message| {
                    own.iter()
                        .any(|own| *it.body().unwrap() == *own.to_string().as_bytes())
                };
                let alien = found.iter().filter(|it| is_own(it)).count();
                assert!(
                    alien == 0 || at < 8,
                    "byte {at} of {number}, {bits:x}: a wrong offset"
                );
                found.retain(|it| !is_own(it));
                let found: Vec<i64> = found.iter().map(|it| it.record().queue_offset()).collect();
                let expected: Vec<i64> = (10..26).filter(|it| !own.contains(it)).collect();
                assert_eq!(found, expected, "byte {at} of {number}, {bits:x}");
                // A batch that is lost is reported.
                let is_whole = (12..16).contains(&at) || alien > 0;
                assert_eq!(
                    engine.report().damage().is_empty(),
                    is_whole,
                    "byte {at} of {number}, {bits:x}"
                );
            }
        }
    }
}

/// Without its index, the gap that a missing segment leaves could be one of compaction.
#[test]
fn a_verification_names_a_log_file_that_is_missing() {
    let made = Made::new();
    for base in [0, 1, 2, 4] {
        made.segment(base, &[batch(base, &[1])]);
    }
    let damage = || made.open().verify(&mut |_, _| true).unwrap().damage;
    assert_eq!(damage(), []);
    // Offset 3 was compacted away. These indexes name no segment in the gap.
    fs::write(made.file(&format!("{:020}.index", 2)), []).unwrap();
    fs::write(made.file(&format!("{:020}.timeindex", 9)), []).unwrap();
    assert_eq!(damage(), []);
    fs::write(made.file(&format!("{:020}.index", 1)), []).unwrap();
    fs::write(made.file(&format!("{:020}.timeindex", 1)), []).unwrap();
    fs::rename(made.log(1), made.file(&format!("{:020}.log.deleted", 1))).unwrap();
    assert_eq!(damage(), []);
    fs::remove_file(made.file(&format!("{:020}.log.deleted", 1))).unwrap();
    let found = damage();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].kind, &found[0].path),
        (DamageKind::Log, &made.log(1))
    );
    assert!(found[0].reason.contains("offsets 1 to 1"), "{found:?}");
}

/// The message of a batch whose header cannot be read holds bytes of batches. Nobody sent those.
#[test]
fn a_batch_within_a_message_is_not_taken_for_one_of_the_log() {
    let inner = [batch(2, &[1]), batch(3, &[1])].concat();
    let spec = Spec {
        base: 1,
        times: &[1],
        key: Some(&inner),
        ..Spec::default()
    };
    let made = Made::new();
    let first = batch(0, &[1]);
    made.segment(0, &[first.clone(), spec.bytes(), batch(5, &[1])]);
    made.segment(6, &[batch(6, &[1])]);
    assert_eq!(offsets(&made.open()), [0, 1, 5, 6]);
    change(&made.log(0), first.len() + 8, 0x7F);
    assert_eq!(offsets(&made.open()), [0, 5, 6]);
}

/// A run from any batch between the two damaged places reaches the second one.
#[test]
fn searches_of_a_segment_without_an_index_take_linear_time() {
    // The length, which the checksum proves, and the format.
    for at in [8, 16] {
        check_linear_search(at);
    }
}

fn check_linear_search(at: usize) {
    let made = Made::new();
    let batches: Vec<Vec<u8>> = (0..5000).map(|base| batch(base, &[1])).collect();
    let starts: Vec<usize> = batches
        .iter()
        .scan(0, |end, batch| {
            Some(std::mem::replace(end, *end + batch.len()))
        })
        .collect();
    made.segment(0, &batches);
    made.segment(5000, &[batch(5000, &[1])]);
    for number in [1, 4990] {
        change(&made.log(0), starts[number] + at, 0x7F);
    }
    counted::positions();
    let found = offsets(&made.open());
    let expected: Vec<i64> = (0..=5000).filter(|it| ![1, 4990].contains(it)).collect();
    assert_eq!(found, expected);
    let len = fs::metadata(made.log(0)).unwrap().len();
    let positions = counted::positions();
    assert!(positions < 2 * len, "{positions} positions of {len} bytes");
}

/// The index names batches of 60 MiB, all of them false, at each of many damaged places.
#[test]
fn a_hostile_index_does_not_have_the_segment_checked_again_and_again() {
    const LEN: u64 = 60 << 20;
    let made = Made::new();
    let mut bytes = Vec::new();
    let mut entries = Vec::new();
    for place in 0..40_u32 {
        bytes.extend([9; 40]);
        for number in 0..14 {
            let mut fake = batch(u64::from(16 * place + number), &[1]);
            fake[8..12].copy_from_slice(&(LEN as i32).to_be_bytes());
            entries.push((16 * place + number, bytes.len() as u32));
            bytes.extend(fake);
        }
        entries.push((16 * place + 14, bytes.len() as u32));
        bytes.extend(batch(u64::from(16 * place + 14), &[1]));
    }
    made.segment(0, &[bytes]);
    made.segment(5000, &[batch(5000, &[1])]);
    let file = fs::OpenOptions::new()
        .write(true)
        .open(made.log(0))
        .unwrap();
    file.set_len(LEN + (1 << 20)).unwrap();
    index(&made, &entries);
    let disk = Machine::real().disk;
    let segment = Arc::new(Segment {
        base: 0,
        path: made.log(0),
        len: LEN + (1 << 20),
    });
    let mut walk = Walk::new(Reader::open(&*disk, &segment).unwrap(), 0);
    let mut found = 0;
    loop {
        match walk.next(&*disk).unwrap() {
            Step::Batch(_) => found += 1,
            Step::Damage(..) => {}
            Step::End => break,
        }
    }
    // Three false batches were checked, and every good one.
    assert_eq!(found, 40);
    assert!(walk.left < LEN, "{}", walk.left);
}

/// A link could lead anywhere, and a directory cannot be read.
#[cfg(unix)]
#[test]
fn what_is_no_file_is_no_index_and_no_checkpoint() {
    let made = made();
    let beside = ["index", "timeindex", "snapshot"];
    let paths = beside.map(|ending| made.file(&format!("{:020}.{ending}", 5)));
    let checkpoint = made.root.path().join("log-start-offset-checkpoint");
    let all = [&paths[..], &[checkpoint]].concat();
    for path in &all {
        fs::create_dir(path).unwrap();
    }
    let check = || {
        let engine = open(made.root.path(), Isolation::ReadCommitted).unwrap();
        assert_eq!(offsets(&engine), [0, 1, 2, 3, 4, 5]);
        assert_eq!((at(&engine, 5), at(&engine, 6)), (4, 5));
        assert_eq!(engine.verify(&mut |_, _| true).unwrap().damage, []);
        let damage = engine.report().damage();
        assert_eq!(damage.len(), 1);
        assert_eq!(damage[0].kind, DamageKind::ForeignTable);
    };
    check();
    for path in &all {
        fs::remove_dir(path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path).unwrap();
    }
    check();
}

#[test]
fn folders_that_are_no_partitions_are_left_alone() {
    let made = made();
    for name in [
        "t-1.0123456789abcdef0123456789abcdef-delete",
        "u-future",
        "x-0",
    ] {
        fs::create_dir(made.root.path().join(name)).unwrap();
    }
    let engine = made.open();
    let topics: Vec<String> = engine
        .topics()
        .all()
        .iter()
        .map(|t| t.name.to_string())
        .collect();
    assert!(
        topics.len() == 2 && topics.contains(&"x".to_owned()),
        "{topics:?}"
    );
    assert_eq!(engine.bounds(&topic(&engine, "x"), 0).unwrap(), Some(0..0));
    assert_eq!(engine.bounds(&topic(&engine, "t"), 1).unwrap(), None);
    let one = open(&made.root.path().join("t-0"), Isolation::ReadUncommitted);
    assert!(matches!(one.err(), Some(Error::NotAStore { .. })));
    let none = open(&made.root.path().join("none"), Isolation::ReadUncommitted);
    assert!(matches!(none.err(), Some(Error::NotFound { .. })));
}

/// Zeros that take no space on the disk lie between a damaged batch and the next one that the index
/// knows. Each of them was taken for the possible beginning of a batch.
#[test]
fn a_hole_in_a_file_is_passed_over_at_once() {
    const FAR: u64 = 64 << 20;
    let made = Made::new();
    made.segment(0, &[batch(0, &[1])]);
    let file = fs::OpenOptions::new()
        .write(true)
        .open(made.log(0))
        .unwrap();
    let next = batch(1, &[2]);
    std::os::unix::fs::FileExt::write_all_at(&file, &next, FAR).unwrap();
    let end = FAR as u32 + next.len() as u32;
    let last = batch(2, &[3]);
    std::os::unix::fs::FileExt::write_all_at(&file, &last, end.into()).unwrap();
    index(&made, &[(2, end)]);
    made.segment(3, &[batch(3, &[4])]);
    let engine = made.open();
    super::super::segments::reader::counted::positions();
    // The batch before the one in the index is found too.
    assert_eq!(offsets(&engine), [0, 1, 2, 3]);
    let positions = super::super::segments::reader::counted::positions();
    assert!(positions < 100_000, "{positions}");
    assert_eq!(engine.report().damage().len(), 1);
}

/// A checkpoint may name any number of partitions that do not exist.
#[test]
fn a_checkpoint_is_kept_for_the_partitions_that_exist() {
    let made = made();
    let mut text = "0\n10001\n".to_owned();
    for number in 0..10_000 {
        text.push_str(&format!("other{number} 0 7\n"));
    }
    text.push_str("t 0 2\n");
    fs::write(made.root.path().join("log-start-offset-checkpoint"), text).unwrap();
    let engine = made.open();
    assert_eq!((bounds(&engine), engine.starts.read().len()), (2..6, 1));
}

/// Readers took the zeros for damage, and `verify` did not.
#[test]
fn zeros_after_the_last_batch_of_a_complete_segment_are_no_damage() {
    for (base, damaged) in [(2, 0), (3, 1)] {
        let made = Made::new();
        made.segment(0, &[batch(0, &[1]), batch(1, &[1]), vec![0; 900]]);
        made.segment(base, &[batch(base, &[1])]);
        let engine = made.open();
        assert_eq!(offsets(&engine), [0, 1, base as i64]);
        assert_eq!(engine.report().damage().len(), damaged, "{base}");
        let found = engine.verify(&mut |_, _| true).unwrap();
        assert_eq!(found.damage.len(), damaged, "{base}");
    }
}

/// The zeros of a long file need not be read to know a checksum.
#[test]
fn a_checksum_counts_zeros_that_are_not_read() {
    let spec = Spec {
        base: 3,
        times: &[1],
        key: Some(&[0; 5000]),
        ..Spec::default()
    };
    let mut of_2 = spec.bytes();
    of_2.resize(6000, 0);
    of_2[8..12].copy_from_slice(&5988_u32.to_be_bytes());
    let crc = crc32c::crc32c(&of_2[21..]);
    of_2[17..21].copy_from_slice(&crc.to_be_bytes());
    let mut of_1 = of_2.clone();
    of_1[16] = 1;
    let crc = crc32fast::hash(&of_1[16..]);
    of_1[12..16].copy_from_slice(&crc.to_be_bytes());
    for mut bytes in [of_2, of_1] {
        let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
        for read in [6000 - zeros, 6000 - zeros + 1, 5999, 6000] {
            for flip in [0, 1] {
                bytes[62] ^= flip;
                let header = Header::parse(&bytes).unwrap();
                assert_eq!(header.has_crc_of(&bytes), flip == 0);
                assert_eq!(header.has_crc_with_zeros(&bytes[..read]), flip == 0);
                bytes[62] ^= flip;
            }
        }
    }
}
