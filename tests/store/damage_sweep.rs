//! Damage, point by point: every bit of the headers, every length of a file, every number at its
//! limits, pages and files swapped with others.
//!
//! Each test runs in its own process with a limited address space, so that trusting a damaged
//! length ends the process.

use crate::damage::{change, check_all, hit, names, never, open, small, survives};
use crate::draw::Draw;
use crate::world::{Place, World, options};
use forebay::{Draft, Durability, Mode, Options, Store};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Number of points that a test draws in its short form.
const DRAWN: usize = 20;
/// KiB of address space, for a store whose files take less than one MiB.
const ADDRESS_SPACE_KIB: u64 = 2 << 20;
const PAGE: usize = 4096;

/// Runs a test in its own process; `work` runs there with the source of its points.
fn bounded(name: &str, work: impl Fn(&mut Draw)) {
    const CHILD: &str = "FOREBAY_TEST_BOUNDED";
    if std::env::var_os(CHILD).is_some() {
        work(&mut Draw::new());
        return;
    }
    let test = format!("damage_sweep::{name}");
    let run = Command::new("sh")
        .args(["-c", "ulimit -v $0 && exec \"$@\""])
        .arg(ADDRESS_SPACE_KIB.to_string())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{}\n{said}", run.status);
    assert!(said.contains("1 passed"), "{said}");
}

/// A damaged store: the directory and its files before the damage.
struct Damaged {
    place: Place,
}

impl Damaged {
    fn copy_of(place: &Place) -> Damaged {
        Damaged {
            place: Place::fast_copy_of(&place.root()),
        }
    }

    fn root(&self) -> PathBuf {
        self.place.root()
    }

    fn change(&self, name: &Path, how: impl FnOnce(&mut Vec<u8>)) {
        change(&self.root().join(name), how);
    }

    /// For damage outside log files: all messages are found, by offset and by key.
    fn loses_nothing(&self, world: &World) {
        survives(&self.root(), world, &never);
        self.finds_keys(world);
    }

    /// Messages found by key are right, at any time and at their own. If one is missing, a
    /// verification must report damage.
    fn finds_keys(&self, world: &World) {
        let store = open(&self.root(), Mode::Read).unwrap();
        let mut missed = Vec::new();
        for ((topic, ..), sent) in world.sent.iter().step_by(3) {
            for key in &sent.keys {
                for (begin, end) in [(i64::MIN, i64::MAX), (sent.time, sent.time)] {
                    let found = store.query(topic, key, begin, end, 10_000).unwrap();
                    let mut positions = found.iter().map(|m| m.record().position() as u64);
                    if !positions.any(|position| position == sent.position) {
                        missed.push((topic, key, sent.position));
                    }
                    assert!(
                        found
                            .iter()
                            .all(|message| message.keys().contains(&key.into()))
                    );
                }
            }
        }
        let report = store.verify(&mut |_, _| true).unwrap();
        assert!(missed.is_empty() || !report.damage.is_empty(), "{missed:?}");
        store.close().unwrap();
    }
}

fn is_log(name: &Path) -> bool {
    name.starts_with("commitlog")
}

/// Length of the part of a file to damage bit by bit: its header and first entries.
fn head_of(name: &Path, len: usize) -> usize {
    let text = name.to_str().unwrap();
    let head = match text {
        // Header, slots, three entries.
        _ if text.starts_with("index") => 40 + 16 * 4 + 3 * 20,
        _ if text.starts_with("consumequeue") => 3 * 20,
        "checkpoint" => 40,
        "forebay.state" => 392,
        _ => 600,
    };
    head.min(len)
}

fn len_of(place: &Place, name: &Path) -> usize {
    usize::try_from(fs::metadata(place.root().join(name)).unwrap().len()).unwrap()
}

#[test]
fn every_bit_at_the_start_of_a_file_may_flip() {
    bounded("every_bit_at_the_start_of_a_file_may_flip", |sweep| {
        for clean in [true, false] {
            let (place, world) = small(clean, 300);
            let mut points = Vec::new();
            for name in names(&place.root()) {
                let head = head_of(&name, len_of(&place, &name));
                points.extend((0..head * 8).map(|bit| (name.clone(), bit)));
            }
            sweep.each(DRAWN, points, |(name, bit)| {
                let copy = Damaged::copy_of(&place);
                copy.change(name, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
                match is_log(name) {
                    true => {
                        let lost = hit(&world, name, *bit as u64 / 8, 1);
                        survives(&copy.root(), &world, &lost);
                    }
                    false => copy.loses_nothing(&world),
                }
            });
        }
    });
}

#[test]
fn every_file_may_be_truncated_to_any_length() {
    bounded("every_file_may_be_truncated_to_any_length", |sweep| {
        for clean in [true, false] {
            let (place, world) = small(clean, 60);
            let mut points = Vec::new();
            for name in names(&place.root()) {
                // After the last byte a file holds zeros, so all larger lengths are equivalent.
                let bytes = fs::read(place.root().join(&name)).unwrap();
                let used = bytes
                    .iter()
                    .rposition(|byte| *byte != 0)
                    .map_or(0, |at| at + 9);
                let lens = (0..used.min(bytes.len())).chain((used..bytes.len()).step_by(509));
                points.extend(lens.map(|len| (name.clone(), len)));
            }
            sweep.each(DRAWN, points, |(name, len)| {
                let copy = Damaged::copy_of(&place);
                copy.change(name, |bytes| bytes.truncate(*len));
                let lost = hit(&world, name, *len as u64, 1 << 40);
                survives(&copy.root(), &world, &lost);
                if !is_log(name) {
                    copy.finds_keys(&world);
                }
            });
        }
    });
}

#[test]
fn pages_may_be_in_any_other_place() {
    bounded("pages_may_be_in_any_other_place", |sweep| {
        for clean in [true, false] {
            let (place, world) = small(clean, 300);
            let mut pages = Vec::new();
            for name in names(&place.root()) {
                let count = len_of(&place, &name).div_ceil(PAGE);
                pages.extend((0..count).map(|page| (name.clone(), page)));
            }
            let mut points = Vec::new();
            for target in &pages {
                for source in &pages {
                    points.push((target.clone(), source.clone()));
                }
            }
            if sweep.all {
                // All pairs of pages take hours: each page is combined with some.
                let random = &mut sweep.random;
                points.retain(|_| random.below(8) == 0);
            }
            sweep.each(DRAWN, points, |((name, page), (from, other))| {
                let copy = Damaged::copy_of(&place);
                let bytes = fs::read(copy.root().join(from)).unwrap();
                let stray = &bytes[other * PAGE..(other * PAGE + PAGE).min(bytes.len())];
                copy.change(name, |bytes| {
                    let end = (page * PAGE + stray.len()).min(bytes.len());
                    let room = &mut bytes[page * PAGE..end];
                    let len = room.len();
                    room.copy_from_slice(&stray[..len]);
                });
                let lost = hit(&world, name, (page * PAGE) as u64, PAGE as u64);
                survives(&copy.root(), &world, &lost);
            });
        }
    });
}

#[test]
fn files_may_have_the_contents_of_others() {
    bounded("files_may_have_the_contents_of_others", |sweep| {
        for clean in [true, false] {
            let (place, world) = small(clean, 300);
            let all = names(&place.root());
            let pairs = all
                .iter()
                .flat_map(|a| all.iter().map(|b| (a.clone(), b.clone())));
            sweep.each(DRAWN, pairs.collect(), |(one, two)| {
                let copy = Damaged::copy_of(&place);
                let (first, second) = (copy.root().join(one), copy.root().join(two));
                let (a, b) = (fs::read(&first).unwrap(), fs::read(&second).unwrap());
                fs::write(&first, b).unwrap();
                fs::write(&second, a).unwrap();
                let whole = |name| hit(&world, name, 0, 64 << 10);
                let (in_one, in_two) = (whole(one), whole(two));
                let lost = |position| one != two && (in_one(position) || in_two(position));
                survives(&copy.root(), &world, &lost);
            });
        }
    });
}

/// Extreme values of a length, a number or a position that must not be trusted.
fn limits(width: usize, len: u64) -> Vec<u64> {
    let (top, sign) = match width {
        4 => (u64::from(u32::MAX), 1 << 31),
        _ => (u64::MAX, 1 << 63),
    };
    let mut values = vec![0, 1, 2, 7, 90, 91, 4096, 65_536, len - 1, len, len + 1];
    values.extend([
        sign - 1,
        sign - 500,
        sign,
        sign + 1,
        sign + 500,
        top - 500,
        top,
    ]);
    values.extend([1 << 24, 1 << 28, 1 << 30, sign >> 1, sign >> 2]);
    values
}

#[test]
fn numbers_may_be_huge_negative_or_zero() {
    bounded("numbers_may_be_huge_negative_or_zero", |sweep| {
        for clean in [true, false] {
            let (place, world) = small(clean, 300);
            let mut points = Vec::new();
            for name in names(&place.root()) {
                let len = len_of(&place, &name);
                for width in [4, 8] {
                    for at in (0..head_of(&name, len).saturating_sub(width)).step_by(4) {
                        let values = limits(width, len as u64).into_iter();
                        points.extend(values.map(|value| (name.clone(), at, width, value)));
                    }
                }
            }
            // The numbers of the state page are in native byte order, all others are big-endian.
            sweep.each(DRAWN, points, |(name, at, width, value)| {
                let copy = Damaged::copy_of(&place);
                copy.change(name, |bytes| {
                    let number = match name.to_str() {
                        Some("forebay.state") => value.to_le_bytes()[..*width].to_vec(),
                        _ => value.to_be_bytes()[8 - width..].to_vec(),
                    };
                    bytes[*at..at + width].copy_from_slice(&number);
                });
                match is_log(name) {
                    true => {
                        let lost = hit(&world, name, *at as u64, *width as u64);
                        survives(&copy.root(), &world, &lost);
                    }
                    false => copy.loses_nothing(&world),
                }
            });
        }
    });
}

#[test]
fn chains_of_the_index_may_point_anywhere() {
    bounded("chains_of_the_index_may_point_anywhere", |sweep| {
        for clean in [true, false] {
            let (place, world) = small(clean, 300);
            let mut points = Vec::new();
            for name in names(&place.root().join("index")) {
                for entry in 1..100u32 {
                    // To itself, up and down the file, out of it, and back to its origin.
                    let targets = [entry, entry + 1, entry - 1, 127, 128, 1 << 30, u32::MAX];
                    points.extend(targets.map(|target| (name.clone(), entry, target)));
                }
            }
            sweep.each(DRAWN, points, |(name, entry, target)| {
                let copy = Damaged::copy_of(&place);
                copy.change(&Path::new("index").join(name), |bytes| {
                    let at = 40 + 16 * 4 + 20 * *entry as usize + 16;
                    bytes[at..at + 4].copy_from_slice(&target.to_be_bytes());
                    let slot = 40 + 4 * (*entry as usize % 16);
                    bytes[slot..slot + 4].copy_from_slice(&target.to_be_bytes());
                });
                survives(&copy.root(), &world, &never);
            });
        }
    });
}

/// Invalid UTF-8 of each kind: stray, truncated, overlong, a surrogate, too large.
const NO_TEXT: [[u8; 4]; 5] = [
    [0x80, b'a', b'b', b'c'],
    [b'a', b'b', b'c', 0xF0],
    [0xC0, 0x80, b'b', b'c'],
    [0xED, 0xA0, 0x80, b'c'],
    [0xF8, 0xFF, 0xFE, b'c'],
];

#[test]
fn text_may_be_any_bytes() {
    bounded("text_may_be_any_bytes", |sweep| {
        // Without a whole-record checksum nothing protects these bytes.
        let place = Place::fast();
        let plain = Options {
            checksum: Some(false),
            ..options(Mode::Append)
        };
        let store = Store::open(place.root(), plain).unwrap();
        let producer = store.producer("orders", Some(0)).unwrap();
        for _ in 0..5 {
            let draft = Draft {
                body: b"body",
                keys: &["keykey"],
                tags: Some("tagtag"),
                properties: &[("region", "europe")],
                ..Draft::default()
            };
            producer.send(&draft, 0, Durability::Default).unwrap();
        }
        store.close().unwrap();
        let log = Path::new("commitlog/00000000000000000000");
        let bytes = fs::read(place.root().join(log)).unwrap();
        let mut points = Vec::new();
        for word in ["orders", "keykey", "tagtag", "region", "europe"] {
            let found = bytes.windows(6).position(|part| part == word.as_bytes());
            points.extend((0..NO_TEXT.len()).map(|kind| (word, found.unwrap(), kind)));
        }
        let world = World::default();
        sweep.each(DRAWN, points, |(_, at, kind)| {
            for lost_queues in [false, true] {
                let copy = Damaged::copy_of(&place);
                copy.change(log, |bytes| {
                    bytes[*at..at + 4].copy_from_slice(&NO_TEXT[*kind]);
                });
                if lost_queues {
                    fs::remove_dir_all(copy.root().join("consumequeue")).unwrap();
                    fs::remove_dir_all(copy.root().join("index")).unwrap();
                    fs::write(copy.root().join("abort"), b"1").unwrap();
                }
                let store = open(&copy.root(), Mode::Read).unwrap();
                check_all(&store, &world, &never);
                if let Ok(message) = store.message_at(0) {
                    let _ = (message.topic(), message.keys(), message.tags());
                    assert_eq!(message.body().unwrap().as_ref(), b"body");
                }
                for offset in 1..5 {
                    let message = store.get("orders", 0, offset).unwrap();
                    assert_eq!(message.body().unwrap().as_ref(), b"body");
                }
                store.close().unwrap();
                let store = open(&copy.root(), Mode::Append).unwrap();
                check_all(&store, &world, &never);
                store.close().unwrap();
            }
        });
    });
}

/// After a clean close the marks say where the log ends, so opening walks nothing. Without the
/// inventory, only a walk can find that a queue is missing too.
#[test]
fn a_queue_that_is_lost_with_the_inventory_is_rebuilt() {
    let (place, world) = small(true, 300);
    fs::remove_file(place.root().join("forebay.offsets")).unwrap();
    fs::remove_dir_all(place.root().join("consumequeue/orders/0")).unwrap();
    survives(&place.root(), &world, &never);
}

#[test]
fn times_at_their_limits_in_an_index_header_are_reported() {
    let (place, world) = small(true, 300);
    for name in names(&place.root().join("index")) {
        for (at, time) in [(0, i64::MIN), (8, i64::MAX)] {
            let copy = Damaged::copy_of(&place);
            copy.change(&Path::new("index").join(&name), |bytes| {
                bytes[at..at + 8].copy_from_slice(&time.to_be_bytes());
            });
            let store = open(&copy.root(), Mode::Read).unwrap();
            for key in ["key-3", "key-200"] {
                for time in [i64::MIN, 0, i64::MAX] {
                    drop(store.query("orders", key, time, time, 10).unwrap());
                }
            }
            let report = store.verify(&mut |_, _| true).unwrap();
            let told = |damage: &forebay::Damage| damage.reason.contains("the header");
            assert!(report.damage.iter().any(told), "{:?}", report.damage);
            store.close().unwrap();
            copy.loses_nothing(&world);
        }
    }
}
