//! Damage in an atomic batch that nothing follows, whose writer died.

use super::recovery::{POINTS, damage, point, recover};
use super::write::{bodies, send, send_whole, torn, writing};
use super::*;
use crate::machine::Drive;
use crate::num::be_u32;
use crate::options::Compression;

const QUEUES: [(&str, u32); 3] = [("a", 0), ("a", 1), ("b", 0)];

/// Copies of a store that ends with rows of an atomic batch in three queues, two of which have an
/// earlier message.
struct Left {
    root: TempDir,
    path: PathBuf,
}

impl Left {
    fn new() -> Left {
        Left::packed(None)
    }

    fn packed(compression: Option<Compression>) -> Left {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("store");
        let options = Options {
            default_queues: Some(2),
            segment_bytes: Some(16 << 10),
            compression,
            ..Options::default()
        };
        // Nothing changes the files while they are copied.
        let machine = Machine {
            drive: Drive::Steps,
            ..Machine::real()
        };
        let engine = PartitionLog::open(&machine, &path, &options).unwrap();
        send(&engine, "a", &[(0, b"before"), (1, b"before")]);
        engine.flush(&mut || true).unwrap();
        let long = [b'1'; 2000];
        let rows = QUEUES.map(|(topic, queue)| (topic, queue, &long[..]));
        send_whole(&engine, &rows).unwrap();
        // It is never closed.
        std::mem::forget(engine);
        Left { root, path }
    }

    fn copy(&self, number: usize) -> PathBuf {
        let copy = self.root.path().join(format!("copy-{number}"));
        fs::create_dir(&copy).unwrap();
        torn(&self.path, &copy, None);
        assert!(copy.join("forebay.intent").exists());
        copy
    }
}

fn log(path: &Path, (topic, queue): (&str, u32)) -> PathBuf {
    path.join(format!("{topic}-{queue}/{:020}.log", 0))
}

/// Where the last batch of a log is.
fn last(bytes: &[u8]) -> std::ops::Range<usize> {
    let mut found = 0..0;
    while be_u32(&bytes[found.end..], 8) > 0 {
        found = found.end..found.end + 12 + be_u32(&bytes[found.end..], 8) as usize;
    }
    found
}

/// Changes the bytes of the last batch of a queue. Returns where it begins.
fn change(path: &Path, of: (&str, u32), how: impl FnOnce(&mut [u8])) -> u64 {
    let log = log(path, of);
    let mut bytes = fs::read(&log).unwrap();
    let batch = last(&bytes);
    how(&mut bytes[batch.clone()]);
    fs::write(log, bytes).unwrap();
    batch.start as u64
}

fn counts(engine: &PartitionLog) -> [usize; 3] {
    QUEUES.map(|(topic, queue)| match engine.topics().get(topic) {
        Some(_) => bodies(engine, topic, queue).len(),
        None => 0,
    })
}

/// The whole batch was silently removed from all queues, as the torn end of a crash.
#[test]
fn damage_in_an_atomic_batch_of_which_no_byte_is_missing_costs_its_rows_alone() {
    let left = Left::new();
    let places = [
        (0, 0x80),
        (7, 1),
        (8, 0x40),
        (9, 0x04),
        (10, 0x10),
        (11, 0x40),
        (16, 1),
        (17, 1),
        (26, 1),
        (65, 1),
        (900, 1),
    ];
    let cases = QUEUES.iter().enumerate();
    let cases = cases.flat_map(|(number, of)| places.map(|place| (number, *of, place)));
    // No checksum covers an offset, and no other batch is next to this one.
    let cases = cases.filter(|(number, _, place)| (*number, place.0) != (2, 7));
    for (case, (number, of, (at, bits))) in cases.enumerate() {
        let what = format!("byte {at}, {bits:x} of {of:?}");
        let (first, second) = (left.copy(2 * case), left.copy(2 * case + 1));
        fs::remove_dir_all(&second).unwrap();
        fs::create_dir(&second).unwrap();
        let begin = change(&first, of, |batch| batch[at] ^= bits);
        let engine = writing(&first, &Options::default()).unwrap();
        // It dies again at once.
        torn(&first, &second, None);
        let mut expected = [2, 2, 1];
        expected[number] -= 1;
        let again = writing(&second, &Options::default()).unwrap();
        for (engine, path) in [(engine, &first), (again, &second)] {
            assert_eq!(counts(&engine), expected, "{what}");
            let found = engine.report().damage();
            assert_eq!(found.len(), 1, "{what}: {found:?}");
            assert_eq!(found[0].path, log(path, of), "{what}");
            assert_eq!(found[0].position, begin, "{what}");
            let offset = [1, 1, 0][number];
            assert_eq!(found[0].lost, [(of.0.to_owned(), of.1, offset)], "{what}");
            assert!(!path.join("forebay.intent").exists(), "{what}");
            assert_eq!(send(&engine, of.0, &[(of.1, b"2")]), [offset + 1], "{what}");
            engine.close().unwrap();
        }
    }
}

/// An lz4 frame ends with four zeros: each damaged batch counted as torn.
#[test]
fn damage_in_a_last_batch_that_is_packed_with_lz4_costs_its_rows_alone() {
    let left = Left::packed(Some(Compression::Lz4));
    // One byte of the attributes, and one of the bytes with which the frame begins.
    for (case, (at, bits)) in [(17, 1), (22, 2), (62, 1), (70, 1)].into_iter().enumerate() {
        for is_atomic in [false, true] {
            let what = format!("byte {at}, {bits:x}, {is_atomic}");
            let copy = left.copy(2 * case + usize::from(is_atomic));
            let of = QUEUES[case % 3];
            let begin = change(&copy, of, |batch| {
                assert_eq!(batch[batch.len() - 4..], [0; 4]);
                batch[at] ^= bits;
            });
            if !is_atomic {
                fs::remove_file(copy.join("forebay.intent")).unwrap();
            }
            let engine = writing(&copy, &Options::default()).unwrap();
            let mut expected = [2, 2, 1];
            expected[case % 3] -= 1;
            assert_eq!(counts(&engine), expected, "{what}");
            let found = engine.report().damage();
            assert_eq!(found.len(), 1, "{what}: {found:?}");
            assert_eq!(found[0].position, begin, "{what}");
            let offset = [1, 1, 0][case % 3];
            assert_eq!(found[0].lost, [(of.0.to_owned(), of.1, offset)], "{what}");
            assert_eq!(send(&engine, of.0, &[(of.1, b"2")]), [offset + 1], "{what}");
            engine.close().unwrap();
        }
    }
}

/// They count as stored: the batch lost nothing with them. It was removed as one without a sector.
#[test]
fn zeros_that_end_an_lz4_frame_in_a_sector_of_their_own_are_not_missing() {
    let left = Left::packed(Some(Compression::Lz4));
    let mut last = Vec::new();
    change(&left.copy(0), QUEUES[0], |batch| last = batch.to_vec());
    assert_eq!(last[..8], [0, 0, 0, 0, 0, 0, 0, 1]);
    last[70] ^= 1;
    for over in [1, 2, 3, 4, 6] {
        let first = |len: usize| {
            let spec = Spec {
                times: &[1],
                key: Some(&vec![7; len]),
                ..Spec::default()
            };
            spec.bytes()
        };
        let fits = |len: &usize| (first(*len).len() + last.len()) % 512 == over;
        let first = first((100..700).find(fits).unwrap());
        let made = Made::new();
        made.segment(0, &[first, last.clone()]);
        made.append(0, &[0; 3000]);
        let engine = recover(&made, Some(&point(0)));
        assert_eq!(offsets(&engine), [0], "{over}");
        let found = damage(&engine);
        assert_eq!(found.len(), 1, "{over}: {found:?}");
        assert_eq!(found[0].lost, [("t".to_owned(), 0, 1)], "{over}");
        assert_eq!(send(&engine, "t", &[(0, b"2")]), [2], "{over}");
    }
}

/// The end of a batch that was never stored holds zeros, and so does a sector that a power loss
/// took. If a length leads elsewhere, nothing but the checksum proves where the batch ends.
#[test]
fn an_atomic_batch_that_may_be_torn_is_absent_without_a_word() {
    type How = fn(&mut [u8]);
    let cases: [How; 6] = [
        |batch| {
            let end = batch.len();
            batch[end - 4..].fill(0);
        },
        |batch| batch[1000..].fill(0),
        |batch| batch[600..1624].fill(0),
        |batch| batch.fill(0),
        |batch| {
            batch[10] ^= 0x10;
            batch[900] ^= 1;
        },
        |batch| {
            batch[11] ^= 0x40;
            batch[1500..].fill(0);
        },
    ];
    let left = Left::new();
    for (number, how) in cases.into_iter().enumerate() {
        let copy = left.copy(number);
        change(&copy, QUEUES[2], how);
        // Damage in another queue changes nothing.
        let at = [900, 10][number % 2];
        change(&copy, QUEUES[0], |batch| batch[at] ^= 1);
        let engine = writing(&copy, &Options::default()).unwrap();
        assert_eq!(counts(&engine), [1, 1, 0], "{number}");
        assert_eq!(engine.report().damage(), [], "{number}");
        assert_eq!(send(&engine, "a", &[(1, b"1")]), [1], "{number}");
        engine.close().unwrap();
    }
}

/// Its rows were removed from the other queues, too, without a report.
#[test]
fn a_queue_whose_folder_is_gone_takes_no_rows_of_an_atomic_batch_with_it() {
    let left = Left::new();
    let ends = [2, 2, 1];
    for (number, of) in QUEUES.into_iter().enumerate() {
        for is_damaged in [false, true] {
            let what = format!("{of:?}, {is_damaged}");
            let copy = left.copy(2 * number + usize::from(is_damaged));
            let folder = copy.join(format!("{}-{}", of.0, of.1));
            fs::remove_dir_all(&folder).unwrap();
            let other = QUEUES[(number + 1) % 3];
            if is_damaged {
                change(&copy, other, |batch| batch[900] ^= 1);
            }
            let engine = writing(&copy, &Options::default()).unwrap();
            for (there, end) in QUEUES.into_iter().zip(ends).filter(|it| it.0 != of) {
                let lost = usize::from(is_damaged && there == other);
                let count = bodies(&engine, there.0, there.1).len();
                assert_eq!(count, end - lost, "{what}: {there:?}");
            }
            let mut found = engine.report().damage();
            found.retain(|it| it.path == folder);
            assert_eq!(found.len(), 1, "{what}: {found:?}");
            let until = format!("durable up to {}", ends[number]);
            assert!(found[0].reason.contains(&until), "{what}: {found:?}");
            // Its offsets are not given again.
            let next = [ends[number] as u64];
            assert_eq!(send(&engine, of.0, &[(of.1, b"2")]), next, "{what}");
            engine.close().unwrap();
        }
    }
}

/// Nothing says that the rows of the queue that is gone were stored if others were not.
#[test]
fn an_atomic_batch_that_may_be_torn_is_absent_if_a_folder_is_gone_too() {
    let left = Left::new();
    let copy = left.copy(0);
    fs::remove_dir_all(copy.join("b-0")).unwrap();
    change(&copy, QUEUES[0], |batch| batch[1000..].fill(0));
    let engine = writing(&copy, &Options::default()).unwrap();
    for queue in 0..2 {
        assert_eq!(bodies(&engine, "a", queue).len(), 1);
    }
    assert_eq!(engine.report().damage(), []);
}

/// The line would have stayed in the recovery points, which a broker cannot read then.
#[test]
fn a_name_in_an_intent_that_no_queue_can_have_gets_no_recovery_point() {
    let left = Left::new();
    let copy = left.copy(0);
    let intent = copy.join("forebay.intent");
    let text = fs::read_to_string(&intent).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let shares = value["partitions"].as_array_mut().unwrap();
    shares.insert(0, serde_json::json!(["x y/z", 0, 0, 5]));
    value.as_object_mut().unwrap().remove("crc32").unwrap();
    fs::write(&intent, value.to_string()).unwrap();
    let engine = writing(&copy, &Options::default()).unwrap();
    assert_eq!(counts(&engine), [2, 2, 1]);
    let points = fs::read_to_string(copy.join(POINTS)).unwrap();
    assert!(!points.contains("x y/z"), "{points}");
}

/// A wrong offset took the rows away, which had been acknowledged.
#[test]
fn a_damaged_digit_in_an_intent_takes_nothing_away() {
    let left = Left::new();
    let text = fs::read(left.path.join("forebay.intent")).unwrap();
    let digits = (0..text.len()).filter(|at| text[*at].is_ascii_digit());
    for at in digits {
        let copy = left.copy(at);
        let mut damaged = text.clone();
        damaged[at] = b'0' + (damaged[at] - b'0' + 1) % 10;
        let what = String::from_utf8_lossy(&damaged).into_owned();
        fs::write(copy.join("forebay.intent"), damaged).unwrap();
        let engine = writing(&copy, &Options::default()).unwrap();
        assert_eq!(counts(&engine), [2, 2, 1], "{what}");
        let found = engine.report().damage();
        // The name of the checksum has digits, too.
        assert_eq!(found.len(), usize::from(what.contains("crc32")), "{what}");
    }
}
