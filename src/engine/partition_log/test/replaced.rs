//! Replacements of segments that a crash has interrupted, and of which something is damaged.

use super::recovery::{damage, point, recover};
use super::write::send;
use super::*;

const SWAP: &str = "00000000000000000000.log.swap";

/// Segments of two batches each, and a replacement of the first ones.
fn interrupted(bases: &[u64], replacement: &[u8]) -> Made {
    let made = Made::new();
    for base in bases {
        made.segment(*base, &[batch(*base, &[1]), batch(base + 1, &[1])]);
    }
    fs::write(made.file(SWAP), replacement).unwrap();
    made
}

/// The last header of a replacement says which segments it covers. One flipped bit of it took all
/// later ones away.
#[test]
fn a_damaged_replacement_takes_no_segment_away_that_it_does_not_cover() {
    for (at, bits) in [(24, 0x01), (23, 0x10), (65, 0x01)] {
        let mut last = batch(3, &[1]);
        last[at] ^= bits;
        let made = interrupted(&[4, 6], &[batch(0, &[1]), batch(2, &[1]), last].concat());
        let engine = recover(&made, Some(&point(8)));
        let what = format!("byte {at}, {bits:x}");
        assert_eq!(offsets(&engine), [0, 2, 4, 5, 6, 7], "{what}");
        assert_eq!(damage(&engine).len(), 1, "{what}");
    }
}

/// The old segments still have what is damaged in the new one.
#[test]
fn a_damaged_replacement_is_dropped_while_all_old_segments_are_there() {
    // The second one states a wrong offset.
    for (number, at, bits) in [(0, 65, 1), (1, 6, 0x10)] {
        let mut both = [batch(1, &[1]), batch(3, &[1])];
        both[number][at] ^= bits;
        let made = interrupted(&[0, 2, 4], &both.concat());
        for ending in [".index", ".timeindex"] {
            fs::write(made.file(&SWAP.replace(".log", ending)), []).unwrap();
        }
        let engine = recover(&made, Some(&point(6)));
        assert_eq!(offsets(&engine), [0, 1, 2, 3, 4, 5]);
        assert_eq!(damage(&engine), []);
        let left = fs::read_dir(made.root.path().join("t-0")).unwrap();
        let names = left.map(|it| it.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.filter(|name| name.contains("swap")).count(), 0);
    }
    // One that is whole is completed, and so is one that has begun to take the place of the others.
    let whole = [batch(1, &[1]), batch(3, &[1])].concat();
    let made = interrupted(&[0, 2, 4], &whole);
    assert_eq!(offsets(&recover(&made, Some(&point(6)))), [1, 3, 4, 5]);
    let mut damaged = whole;
    damaged[65] ^= 1;
    let made = interrupted(&[0, 2, 4], &damaged);
    fs::rename(made.log(2), made.file("00000000000000000002.log.deleted")).unwrap();
    assert_eq!(offsets(&recover(&made, Some(&point(6)))), [3, 4, 5]);
}

/// No checksum covers the offset of its last batch. Later segments were removed as replaced ones.
#[test]
fn a_replacement_that_states_a_last_offset_too_high_takes_no_later_segment_away() {
    for (bits, is_old_left) in [(0, false), (0, true), (4, false), (4, true), (0x40, true)] {
        let mut last = batch(3, &[1]);
        last[7] ^= bits;
        let bases = if is_old_left { &[2, 4, 6][..] } else { &[4, 6] };
        let made = interrupted(bases, &[batch(0, &[1]), last].concat());
        let engine = recover(&made, Some(&point(8)));
        let what = format!("{bits:x}, {is_old_left}");
        let first: &[i64] = match (bits, is_old_left) {
            (0, _) => &[0, 3],
            (_, true) => &[0, 2, 3],
            (_, false) => &[0],
        };
        assert_eq!(offsets(&engine), [first, &[4, 5, 6, 7]].concat(), "{what}");
        let found = damage(&engine);
        assert_eq!(found.len(), usize::from(bits > 0), "{what}: {found:?}");
        assert_eq!(send(&engine, "t", &[(0, b"8")]), [8], "{what}");
    }
}

/// A replacement that ends at the end of a batch was completed, however much of it was gone.
#[test]
fn a_replacement_that_has_lost_batches_is_dropped_while_all_old_segments_are_there() {
    for replacement in [
        vec![],
        batch(0, &[1]),
        [batch(0, &[1]), batch(2, &[1])].concat(),
    ] {
        let made = interrupted(&[0, 2, 4], &replacement);
        let engine = recover(&made, Some(&point(6)));
        assert_eq!(offsets(&engine), [0, 1, 2, 3, 4, 5]);
        assert_eq!(damage(&engine), []);
    }
}

/// It made the replacement count as one that has begun to take the place of the others.
#[test]
fn a_segment_that_retention_has_removed_does_not_complete_a_damaged_replacement() {
    let made = interrupted(&[2, 4], &[]);
    let mut damaged = batch(3, &[1]);
    damaged[65] ^= 1;
    fs::remove_file(made.file(SWAP)).unwrap();
    let name = |base: u64, suffix: &str| made.file(&format!("{base:020}.log.{suffix}"));
    fs::write(name(2, "swap"), [batch(2, &[1]), damaged].concat()).unwrap();
    fs::write(name(0, "deleted"), batch(0, &[1])).unwrap();
    let engine = recover(&made, Some(&point(6)));
    assert_eq!(offsets(&engine), [2, 3, 4, 5]);
    assert_eq!(damage(&engine), []);
}
