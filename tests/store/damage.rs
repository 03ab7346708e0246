//! Damage anywhere: intact messages are found, damaged ones give a typed error, and nothing panics,
//! hangs or follows a link out of the store.

use crate::draw::{Draw, Random};
use crate::folder;
use crate::world::{Place, Sent, World, options, write};
use forebay::{Error, Finding, Mode, Result, Store, Stretch};
use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// Far longer than any opening here takes: after that, opening hangs.
const HANGS: Duration = Duration::from_secs(60);

/// A small store, closed cleanly or left as by a crash, and all its messages.
pub(crate) fn small(clean: bool, count: usize) -> (Place, World) {
    let (place, mut world) = (Place::fast(), World::default());
    let store = write(&place.root());
    world.send(&store, count);
    world.check_messages(&store);
    if clean {
        store.close().unwrap();
        return (place, world);
    }
    (Place::copy_of(&place.root()), world)
}

pub(crate) fn open(root: &Path, mode: Mode) -> Result<Store> {
    let (sender, receiver) = mpsc::channel();
    let path = root.to_path_buf();
    std::thread::spawn(move || sender.send(Store::open(&path, options(mode))));
    receiver.recv_timeout(HANGS).expect("opening hangs")
}

/// Reads everything in an open store. All messages must be found, except those that `lost` accepts.
pub(crate) fn check_all(store: &Store, world: &World, lost: &dyn Fn(u64) -> bool) {
    let mut missing = 0;
    for ((topic, queue, offset), sent) in &world.sent {
        match store.get(topic, *queue, *offset as i64) {
            Ok(message)
                if message.record().position() as u64 == sent.position
                    && message.body().is_ok_and(|body| body == sent.body) =>
            {
                let by_id = store.message_at(sent.position).unwrap();
                assert_eq!(by_id.record().bytes(), message.record().bytes());
            }
            found => {
                missing += 1;
                let text = format!("{topic} {queue} {offset} at {}", sent.position);
                assert!(lost(sent.position), "{text}: {found:?}");
                let known = matches!(
                    found,
                    Ok(_)
                        | Err(Error::Corrupt { .. }
                            | Error::OffsetOutOfRange { .. }
                            | Error::UnknownTopic { .. }
                            | Error::UnknownQueue { .. })
                );
                assert!(known, "{text}: {found:?}");
            }
        }
    }
    let report = store.verify(&mut |_, _| true).unwrap();
    assert!(report.records as usize + missing >= world.sent.len());
    for topic in ["orders", "bills", "rare"] {
        for key in ["key-3", "eleven", "nothing"] {
            match store.query(topic, key, i64::MIN, i64::MAX, 100) {
                Ok(_) | Err(Error::UnknownTopic { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        if let Ok(found) = store.topic(topic) {
            for queue in store.engine().unwrap().queues(&found) {
                let end = store.offset_at(topic, queue, i64::MAX).unwrap();
                let begin = store.offset_at(topic, queue, i64::MIN).unwrap();
                assert!(begin <= end);
            }
        }
    }
    let count = count_in_log(store, world);
    assert!(count + missing >= world.sent.len());
}

/// Number of rows in a walk over the whole log. A row at the position of a message must be that
/// message.
fn count_in_log(store: &Store, world: &World) -> usize {
    let engine = store.engine().unwrap();
    let mut cursor = engine.log_cursor(forebay::Check::Full).unwrap();
    let by_position: HashMap<u64, &Sent> = world
        .sent
        .values()
        .map(|sent| (sent.position, sent))
        .collect();
    let mut rows = forebay::Rows::default();
    let mut count = 0;
    loop {
        rows.clear();
        cursor.next(100, &mut rows).unwrap();
        for row in &rows.rows {
            let record = rows.record(row).unwrap();
            let sent = by_position.get(&(record.position() as u64));
            // After a cut of the log, other messages have these positions.
            if let Some(sent) = sent.filter(|_| record.topic() != b"more") {
                let same = record.stored_body() == sent.body;
                assert!(same, "another body at {}", sent.position);
            }
        }
        count += rows.rows.len();
        if rows.rows.is_empty() {
            return count;
        }
    }
}

/// The result of a verification in parts: each part alone, and queue entries again if there are
/// holes.
pub(crate) fn in_parts(store: &Store) -> forebay::Verification {
    let files = store.files().unwrap();
    let parts = files.stretches().unwrap();
    let check = |holes: &[Range<u64>]| -> Vec<Finding> {
        // The parts may be checked in any order.
        let each = parts.iter().rev();
        let found = each.map(|part| files.verify_stretches(std::slice::from_ref(part), holes));
        let mut found: Vec<_> = found.flat_map(Result::unwrap).collect();
        found.reverse();
        found
    };
    let mut found = check(&[]);
    let mut holes: Vec<Range<u64>> = Vec::new();
    for (part, finding) in parts.iter().zip(&found) {
        if matches!(part, Stretch::Log(_)) {
            holes.extend(finding.holes.iter().map(|hole| hole.0.clone()));
        }
    }
    holes.sort_by_key(|hole| hole.start);
    holes.dedup_by(|hole, before| hole.start < before.end);
    if !holes.is_empty() {
        found = check(&holes);
    }
    files.join_findings(found).unwrap()
}

/// Opens a damaged store for reading and for writing and reads everything, twice.
pub(crate) fn survives(root: &Path, world: &World, lost: &dyn Fn(u64) -> bool) {
    for mode in [Mode::Read, Mode::Append, Mode::Append] {
        let store = open(root, mode).unwrap();
        check_all(&store, world, lost);
        if mode == Mode::Read {
            // First read-only, before opening for writing repairs what it can.
            let whole = store.verify(&mut |_, _| true).unwrap();
            assert_eq!(in_parts(&store), whole);
        }
        if mode == Mode::Append {
            let producer = store.producer("more", Some(0)).unwrap();
            let draft = forebay::Draft::default();
            producer
                .send(&draft, 0, forebay::Durability::Default)
                .unwrap();
        }
        store.close().unwrap();
    }
}

pub(crate) fn never(_: u64) -> bool {
    false
}

pub(crate) fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Paths of the files of a store, relative to its root.
pub(crate) fn names(root: &Path) -> Vec<PathBuf> {
    let files = folder::files(root).into_iter();
    files
        .map(|path| path.strip_prefix(root).unwrap().to_path_buf())
        .collect()
}

/// Whether the message at a position may be lost by damage to bytes `at..at + len` of a log file:
/// the damage overlaps the bytes from its record to that of the next message.
pub(crate) fn hit(world: &World, name: &Path, at: u64, len: u64) -> impl Fn(u64) -> bool + use<> {
    let start: Option<u64> = name
        .to_str()
        .and_then(|name| name.strip_prefix("commitlog/"))
        .map(|name| name.parse().unwrap());
    let mut positions: Vec<u64> = world.sent.values().map(|sent| sent.position).collect();
    positions.sort_unstable();
    let range = start.map(|start| start + at..start + at + len);
    move |position| {
        let behind = positions.iter().find(|other| **other > position);
        let end = behind.copied().unwrap_or(position + 4300);
        range
            .as_ref()
            .is_some_and(|range| range.start < end && position < range.end)
    }
}

#[test]
fn every_bit_of_the_first_records_may_flip() {
    let mut draw = Draw::new();
    for clean in [true, false] {
        let (place, world) = small(clean, 12);
        let name = Path::new("commitlog/00000000000000000000");
        let first = world.sent.values().map(|sent| sent.position).min().unwrap();
        assert_eq!(first, 0);
        draw.each(100, (0..300 * 8).collect(), |&bit| {
            let copy = Place::fast_copy_of(&place.root());
            change(&copy.root().join(name), |bytes| {
                bytes[bit / 8] ^= 1 << (bit % 8)
            });
            let lost = hit(&world, name, bit as u64 / 8, 1);
            let store = open(&copy.root(), Mode::Read).unwrap();
            check_all(&store, &world, &lost);
            store.close().unwrap();
            if bit % 7 == 0 {
                survives(&copy.root(), &world, &lost);
            }
        });
    }
}

#[test]
fn every_bit_of_the_state_page_may_flip() {
    let mut draw = Draw::new();
    for clean in [true, false] {
        let (place, world) = small(clean, 40);
        let fields = (0..112usize).chain(
            [128, 192, 256, 320, 384]
                .into_iter()
                .flat_map(|at| at..at + 8),
        );
        let bits = fields.flat_map(|byte| (0..8).map(move |bit| (byte, bit)));
        draw.each(75, bits.collect(), |&(byte, bit)| {
            let copy = Place::fast_copy_of(&place.root());
            change(&copy.root().join("forebay.state"), |bytes| {
                bytes[byte] ^= 1 << bit
            });
            let store = open(&copy.root(), Mode::Read).unwrap();
            check_all(&store, &world, &never);
            store.close().unwrap();
            if byte % 3 == 0 {
                survives(&copy.root(), &world, &never);
            }
        });
    }
}

#[test]
fn bits_of_the_other_files_may_flip() {
    let mut draw = Draw::new();
    for clean in [true, false] {
        let (place, world) = small(clean, 60);
        let mut points = Vec::new();
        for name in names(&place.root()) {
            let text = name.to_str().unwrap();
            let len = fs::metadata(place.root().join(&name)).unwrap().len();
            if text.starts_with("commitlog") || text == "forebay.state" || len == 0 {
                continue;
            }
            let len = usize::try_from(len.min(1500)).unwrap();
            let bytes = (0..len).step_by(len / 40 + 1);
            points.extend(bytes.map(|byte| (name.clone(), byte)));
        }
        draw.each(30, points, |(name, byte)| {
            let copy = Place::fast_copy_of(&place.root());
            change(&copy.root().join(name), |bytes| {
                bytes[*byte] ^= 1 << (byte % 8)
            });
            survives(&copy.root(), &world, &never);
        });
    }
}

#[test]
fn files_may_be_truncated_to_any_length() {
    let mut draw = Draw::new();
    for clean in [true, false] {
        let (place, world) = small(clean, 60);
        let mut points = Vec::new();
        for name in names(&place.root()) {
            let path = place.root().join(&name);
            let len = usize::try_from(fs::metadata(&path).unwrap().len()).unwrap();
            let step = len / 24 + 1;
            let cuts = (0..len).step_by(step).chain([len.saturating_sub(1)]);
            points.extend(cuts.map(|cut| (name.clone(), cut)));
        }
        draw.each(30, points, |(name, cut)| {
            let copy = Place::fast_copy_of(&place.root());
            change(&copy.root().join(name), |bytes| bytes.truncate(*cut));
            let lost = hit(&world, name, *cut as u64, 1 << 40);
            survives(&copy.root(), &world, &lost);
        });
    }
}

#[test]
fn pages_may_be_zero_swapped_doubled_or_garbage() {
    const PAGE: usize = 4096;
    let mut draw = Draw::new();
    let mut random = Random(0x5DEE_CE66_D1CE_4E5B);
    for clean in [true, false] {
        let (place, world) = small(clean, 400);
        let mut points = Vec::new();
        for name in names(&place.root()) {
            let len = fs::metadata(place.root().join(&name)).unwrap().len();
            let pages = usize::try_from(len).unwrap().div_ceil(PAGE);
            for kind in 0..4 {
                for page in (0..pages).step_by(pages / 6 + 1) {
                    points.push((name.clone(), kind, page, random.below(pages)));
                }
            }
        }
        draw.each(30, points, |(name, kind, page, other)| {
            let copy = Place::fast_copy_of(&place.root());
            change(&copy.root().join(name), |bytes| {
                damage_page(bytes, *page, *other, *kind, &mut random);
            });
            let hit_page = |page: usize| hit(&world, name, (page * PAGE) as u64, PAGE as u64);
            let (one, two) = (hit_page(*page), hit_page(*other));
            let lost = |position| one(position) || *kind == 1 && two(position);
            survives(&copy.root(), &world, &lost);
        });
    }
}

fn damage_page(bytes: &mut [u8], page: usize, other: usize, kind: usize, random: &mut Random) {
    let range = |page: usize| page * 4096..(page * 4096 + 4096).min(bytes.len());
    let (one, two) = (range(page), range(other));
    match kind {
        0 => bytes[one].fill(0),
        1 if one.len() == two.len() => {
            let copy = bytes[two.clone()].to_vec();
            bytes.copy_within(one.clone(), two.start);
            bytes[one].copy_from_slice(&copy);
        }
        2 if one.len() == two.len() => bytes.copy_within(two, one.start),
        _ => {
            for byte in &mut bytes[one] {
                *byte = random.next() as u8;
            }
        }
    }
}

#[test]
fn whole_files_may_be_garbage() {
    let mut draw = Draw::new();
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    for clean in [true, false] {
        let (place, world) = small(clean, 400);
        let mut points = Vec::new();
        for name in names(&place.root()) {
            let fills = [None, Some(0), Some(0xFF), Some(0xDA)];
            points.extend(fills.map(|fill| (name.clone(), fill)));
        }
        draw.each(16, points, |(name, fill)| {
            let copy = Place::fast_copy_of(&place.root());
            change(&copy.root().join(name), |bytes| match fill {
                Some(value) => bytes.fill(*value),
                None => bytes
                    .iter_mut()
                    .for_each(|byte| *byte = random.next() as u8),
            });
            let lost = hit(&world, name, 0, 64 << 10);
            survives(&copy.root(), &world, &lost);
        });
    }
}

#[test]
fn log_files_may_be_missing_swapped_or_doubled() {
    for clean in [true, false] {
        let (place, world) = small(clean, 900);
        let mut files = names(&place.root().join("commitlog"));
        files.sort();
        assert!(files.len() >= 5);
        let log = |root: &Path, number: usize| root.join("commitlog").join(&files[number]);
        let file = |number: usize| {
            hit(
                &world,
                &Path::new("commitlog").join(&files[number]),
                0,
                64 << 10,
            )
        };
        for number in 0..files.len() - 1 {
            // A missing first file counts as retired.
            let copy = Place::fast_copy_of(&place.root());
            fs::remove_file(log(&copy.root(), number)).unwrap();
            survives(&copy.root(), &world, &file(number));

            let copy = Place::fast_copy_of(&place.root());
            fs::copy(log(&copy.root(), number), log(&copy.root(), number + 1)).unwrap();
            survives(&copy.root(), &world, &file(number + 1));

            let copy = Place::fast_copy_of(&place.root());
            let (a, b) = (log(&copy.root(), number), log(&copy.root(), number + 1));
            fs::rename(&a, copy.root().join("x")).unwrap();
            fs::rename(&b, &a).unwrap();
            fs::rename(copy.root().join("x"), &b).unwrap();
            let (one, two) = (file(number), file(number + 1));
            survives(&copy.root(), &world, &|position| {
                one(position) || two(position)
            });
        }
        for number in 0..files.len() {
            let copy = Place::fast_copy_of(&place.root());
            change(&log(&copy.root(), number), |bytes| bytes.extend([7; 100]));
            survives(&copy.root(), &world, &never);
        }
        for odd in [
            "00000000000000000001",
            "00000000000000070000",
            "18446744073709551615",
        ] {
            let copy = Place::fast_copy_of(&place.root());
            fs::copy(
                log(&copy.root(), 0),
                copy.root().join("commitlog").join(odd),
            )
            .unwrap();
            survives(&copy.root(), &world, &never);
        }
    }
}

#[test]
fn names_that_imply_huge_queues_are_not_trusted() {
    let (place, world) = small(true, 100);
    let queue = |root: &Path| root.join("consumequeue/orders/0/00000000000000000000");
    for odd in [
        "4294967295",
        "4000000000",
        "99999999999999",
        "1048576",
        "+5",
        "007",
        "-1",
        "x",
    ] {
        let copy = Place::fast_copy_of(&place.root());
        let folder = copy.root().join("consumequeue/orders").join(odd);
        fs::create_dir(&folder).unwrap();
        fs::copy(queue(&copy.root()), folder.join("00000000000000000000")).unwrap();
        survives(&copy.root(), &world, &never);
    }
    for odd in [
        "00018446744073709551",
        "09223372036854775800",
        "18446744073709551615",
    ] {
        let copy = Place::fast_copy_of(&place.root());
        let odd = queue(&copy.root()).with_file_name(odd);
        fs::copy(queue(&copy.root()), odd).unwrap();
        survives(&copy.root(), &world, &never);
    }
    let copy = Place::fast_copy_of(&place.root());
    let offsets = copy.root().join("forebay.offsets");
    for line in [
        "queue orders 4294967295 0 1",
        "queue orders 0 0 18446744073709551615",
        "queue ../orders 0 0 5",
        "queue orders 0 7 5",
    ] {
        let text = format!("forebay.offsets 1\nposition 0\n{line}\n");
        let crc = crc32fast::hash(text.as_bytes());
        fs::write(&offsets, format!("{text}crc {crc:08x}\n")).unwrap();
        survives(&copy.root(), &world, &never);
    }
    for table in [
        r#"{"topicConfigTable":{"orders":{"writeQueueNums":99999999999}}}"#,
        r#"{"topicConfigTable":{"../x":{"writeQueueNums":1},"..":{},"":{}}}"#,
        r#"{"topicConfigTable":[1,2]}"#,
        r#"[[[[[[[["#,
    ] {
        let copy = Place::fast_copy_of(&place.root());
        fs::write(copy.root().join("config/topics.json"), table).unwrap();
        survives(&copy.root(), &world, &never);
        assert!(!copy.root().join("x").exists());
    }
}

/// Something in place of a file or folder, and how it is created.
type Impostor = (&'static str, Box<dyn Fn(&Path)>);

/// Things that may be in place of a file or a directory.
fn impostors(copy: &Path) -> Vec<Impostor> {
    let elsewhere = copy.with_file_name("elsewhere");
    let link = move |path: &Path| {
        fs::rename(path, &elsewhere).unwrap();
        symlink(&elsewhere, path).unwrap();
    };
    let remove = |path: &Path| match path.is_dir() {
        true => fs::remove_dir_all(path).unwrap(),
        false => fs::remove_file(path).unwrap(),
    };
    vec![
        ("link", Box::new(link)),
        (
            "broken link",
            Box::new(move |path| {
                remove(path);
                symlink("nowhere", path).unwrap();
            }),
        ),
        (
            "pipe",
            Box::new(move |path| {
                remove(path);
                let made = std::process::Command::new("mkfifo")
                    .arg(path)
                    .status()
                    .unwrap();
                assert!(made.success());
            }),
        ),
        (
            "other kind",
            Box::new(move |path| match path.is_dir() {
                true => {
                    fs::remove_dir_all(path).unwrap();
                    fs::write(path, b"x").unwrap();
                }
                false => {
                    fs::remove_file(path).unwrap();
                    fs::create_dir(path).unwrap();
                }
            }),
        ),
    ]
}

#[test]
fn links_and_pipes_in_place_of_files_are_rejected() {
    let (place, _) = small(true, 200);
    fs::write(place.root().join("abort"), b"1").unwrap();
    let all: Vec<PathBuf> = folder::listing(&place.root()).into_keys().collect();
    for name in all.iter().filter(|name| !name.as_os_str().is_empty()) {
        for number in 0..4 {
            for mode in [Mode::Read, Mode::Append, Mode::Create] {
                let copy = Place::fast_copy_of(&place.root());
                let root = copy.root();
                let (kind, replace) = &impostors(&root)[number];
                let path = root.join(name);
                replace(&path);
                let outside = root.with_file_name("elsewhere");
                let before = outside.exists().then(|| folder::listing(&outside));
                let result = open(&root, mode);
                let backup = name.ends_with("topics.json.bak");
                match result {
                    Err(Error::Unsupported { .. } | Error::NotAStore { .. }) => {}
                    Err(Error::Exists { .. }) if mode == Mode::Create => {}
                    // The backup is read only if the table is bad.
                    Ok(store) if backup => drop(store),
                    other => panic!("{kind} at {name:?}, {mode:?}: {:?}", other.err()),
                }
                if let Some(before) = before.filter(|_| !backup) {
                    assert_eq!(folder::listing(&outside), before, "{kind} at {name:?}");
                }
            }
        }
    }
}

#[test]
fn a_directory_that_is_not_a_store_is_rejected_and_unchanged() {
    let place = Place::fast();
    let root = place.root();
    fs::create_dir(&root).unwrap();
    fs::write(root.join("notes.txt"), b"mine").unwrap();
    let before = folder::listing(&root);
    for mode in [Mode::Read, Mode::Append, Mode::Create] {
        let refused = open(&root, mode).err();
        assert!(
            matches!(refused, Some(Error::NotAStore { .. })),
            "{refused:?}"
        );
        let refused = open(&root.join("notes.txt"), mode).err();
        assert!(
            matches!(refused, Some(Error::NotAStore { .. })),
            "{refused:?}"
        );
        let refused = open(&root.join("notes.txt/below"), mode).err();
        assert!(
            matches!(refused, Some(Error::NotAStore { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(folder::listing(&root), before);
    let refused = open(&root.join("nothing"), Mode::Read).err();
    assert!(
        matches!(refused, Some(Error::NotFound { .. })),
        "{refused:?}"
    );
    assert!(!root.join("nothing").exists());
}

#[test]
fn unsupported_layouts_are_rejected_by_name() {
    type Make = fn(&Path);
    let layouts: [(&str, Make); 3] = [
        ("DLedger", |root| {
            fs::create_dir_all(root.join("dledger-n0/data")).unwrap()
        }),
        ("tiered", |root| {
            fs::write(root.join("tieredStoreMetadata.json"), b"{}").unwrap()
        }),
        ("several directories", |root| {
            for start in [0u64, 131_072, 262_144, 393_216] {
                let name = root.join(format!("commitlog/{start:020}"));
                fs::write(name, vec![0; 65_536]).unwrap();
            }
        }),
    ];
    for (text, make) in layouts {
        let place = Place::fast();
        fs::create_dir_all(place.root().join("commitlog")).unwrap();
        make(&place.root());
        let before = folder::listing(&place.root());
        for mode in [Mode::Read, Mode::Append] {
            match open(&place.root(), mode) {
                Err(Error::Unsupported { what }) => assert!(what.contains(text), "{what}"),
                other => panic!("{text}: {:?}", other.err()),
            }
        }
        assert_eq!(folder::listing(&place.root()), before);
    }
}

#[test]
fn queues_in_a_database_are_read_from_the_log_and_not_written() {
    let (place, world) = small(true, 200);
    let queues = place.root().join("consumequeue");
    fs::remove_dir_all(&queues).unwrap();
    fs::create_dir(&queues).unwrap();
    for name in ["CURRENT", "MANIFEST-000005", "000008.sst", "LOCK"] {
        fs::write(queues.join(name), b"x").unwrap();
    }
    let before = folder::listing(&place.root());
    let store = open(&place.root(), Mode::Read).unwrap();
    world.check(&store);
    store.close().unwrap();
    let refused = open(&place.root(), Mode::Append).err();
    assert!(
        matches!(refused, Some(Error::ReadableOnly { .. })),
        "{refused:?}"
    );
    assert_eq!(folder::listing(&place.root()), before);
}

/// Bytes of a directory, without blocks that are reserved and never written.
fn size_of(root: &Path) -> u64 {
    folder::listing(root).values().map(|fact| fact.len).sum()
}

#[test]
fn a_flipped_bit_in_a_head_without_checksum_loses_no_other_message() {
    // RocketMQ by default writes checksums of bodies only: any field of a head may be wrong.
    let (place, mut world) = (Place::fast(), World::default());
    let plain = forebay::Options {
        checksum: Some(false),
        ..options(Mode::Append)
    };
    let store = Store::open(place.root(), plain).unwrap();
    world.send(&store, 60);
    store.close().unwrap();
    for name in ["forebay.state", "forebay.offsets"] {
        fs::remove_file(place.root().join(name)).unwrap();
    }
    let name = Path::new("commitlog/00000000000000000000");
    let mut positions: Vec<u64> = world.sent.values().map(|sent| sent.position).collect();
    positions.sort_unstable();
    let size = size_of(&place.root());
    let mut points = Vec::new();
    for record in [0, 7, 30, positions.len() - 2] {
        // All bits of lengths, queue, offset and position; one bit of each other byte.
        let bits = (0..48).flat_map(|byte| (0..8).map(move |bit| (byte, bit)));
        let rest = (48..96).map(|byte| (byte, byte % 8));
        points.extend(bits.chain(rest).map(|(byte, bit)| (record, byte, bit)));
    }
    let mut draw = Draw::new();
    for lost_queues in [false, true] {
        draw.each(100, points.clone(), |&(record, byte, bit)| {
            let copy = Place::fast_copy_of(&place.root());
            let at = positions[record] as usize + byte;
            change(&copy.root().join(name), |bytes| bytes[at] ^= 1 << bit);
            if lost_queues {
                fs::remove_dir_all(copy.root().join("consumequeue")).unwrap();
                fs::write(copy.root().join("abort"), b"1").unwrap();
            }
            // Another message may lose its place in a rebuilt queue, if two claim the same one.
            let other = std::cell::Cell::new(None);
            let lost = |position| {
                let hit = position == positions[record];
                let robbed = lost_queues && other.get().is_none_or(|other| other == position);
                if !hit && robbed {
                    other.set(Some(position));
                }
                hit || robbed
            };
            let store = open(&copy.root(), Mode::Read).unwrap();
            check_all(&store, &world, &lost);
            store.close().unwrap();
            if (byte + bit) % 5 == 0 {
                let store = open(&copy.root(), Mode::Append).unwrap();
                check_all(&store, &world, &lost);
                store.close().unwrap();
                assert!(size_of(&copy.root()) < size + (300 << 10));
            }
        });
    }
}

/// A search for the next record reads the log in chunks of a MiB. It must not miss a record on the
/// border of two chunks.
#[test]
fn a_record_on_the_border_of_a_chunk_is_found_again() {
    const MIB: usize = 1 << 20;
    for ahead in (0..=12).chain([100, 200]) {
        let dir = tempfile::tempdir().unwrap();
        let options = forebay::Options {
            commitlog_file_size: Some(4 << 20),
            ..forebay::Options::default()
        };
        let store = Store::open(dir.path().join("s"), options.clone()).unwrap();
        let producer = store.producer("orders", Some(0)).unwrap();
        let send = |body: &[u8]| {
            let draft = forebay::Draft {
                body,
                ..forebay::Draft::default()
            };
            let sent = producer.send(&draft, 0, forebay::Durability::Default);
            usize::try_from(sent.unwrap().place.position).unwrap()
        };
        send(b"");
        let overhead = send(b"");
        send(&vec![0; MIB - ahead - 3 * overhead]);
        assert_eq!(send(b"found"), MIB - ahead);
        store.close().unwrap();
        let log = dir.path().join("s/commitlog/00000000000000000000");
        change(&log, |bytes| bytes[2 * overhead + 4] ^= 1);
        let store = Store::open(dir.path().join("s"), options).unwrap();
        let message = store.get("orders", 0, 3).unwrap();
        assert_eq!(message.body().unwrap().as_ref(), b"found");
        let report = store.verify(&mut |_, _| true).unwrap();
        assert_eq!(report.records, 3, "{ahead} bytes before the border");
    }
}
