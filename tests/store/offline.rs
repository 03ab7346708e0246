//! Queues and index built from ranges of the log equal those that dispatch builds, byte for byte.

use crate::folder;
use crate::golden::Golden;
use crate::world::{Place, World, options, read, write};
use forebay::offline::{Merged, Quarry, StoreLock};
use forebay::{Disk, RealDisk};
use forebay::{Error, Mode, Options, Result, Store};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

fn disk() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

/// Builds everything, the last range first and each twice, as a cluster may do.
fn build(root: &Path, target: &Path) -> Result<Merged> {
    let quarry = Quarry::open(&disk(), root)?;
    let mut laid = Vec::new();
    for range in quarry.ranges().into_iter().rev() {
        let first = quarry.lay(target, range.clone(), true, "one")?;
        let second = quarry.lay(target, range, true, "two")?;
        assert_eq!(first, second);
        laid.insert(0, first);
    }
    let merged = quarry.merge(target, &laid)?;
    let staged: Vec<_> = laid.iter().map(|part| (part.start, part.keys)).collect();
    for plan in merged.index.iter().rev() {
        quarry.index(target, &staged, plan, "one")?;
        quarry.index(target, &staged, plan, "two")?;
    }
    Ok(merged)
}

/// Contents of the queue files by name, and of the index files in order.
fn caches(root: &Path) -> (BTreeMap<String, Vec<u8>>, Vec<Vec<u8>>) {
    let index = below(&root.join("index")).into_values();
    (below(&root.join("consumequeue")), index.collect())
}

fn below(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = match folder.is_dir() {
        true => folder::files(folder),
        false => Vec::new(),
    };
    let named = files.into_iter().map(|path| {
        let name = path.strip_prefix(folder).unwrap();
        (name.display().to_string(), fs::read(&path).unwrap())
    });
    named.collect()
}

/// The store as dispatch builds it when queues and index are missing.
fn dispatched(root: &Path) -> Place {
    let place = Place::fast_copy_of(root);
    for name in ["consumequeue", "index"] {
        if place.root().join(name).is_dir() {
            fs::remove_dir_all(place.root().join(name)).unwrap();
        }
    }
    let _ = fs::remove_file(place.root().join("forebay.offsets"));
    write(&place.root()).close().unwrap();
    place
}

fn store_of(count: usize) -> (Place, World) {
    let (place, mut world) = (Place::fast(), World::default());
    let store = write(&place.root());
    world.send(&store, count);
    store.close().unwrap();
    (place, world)
}

fn assert_same(root: &Path, reference: &Path) -> Merged {
    let target = Place::fast();
    let merged = build(root, &target.root()).unwrap();
    let (built, expected) = (caches(&target.root()), caches(reference));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&built.0), names(&expected.0));
    for (name, bytes) in &built.0 {
        assert!(*bytes == expected.0[name], "{name}");
    }
    assert_eq!(built.1.len(), expected.1.len());
    for (number, (built, expected)) in built.1.iter().zip(&expected.1).enumerate() {
        assert!(built == expected, "index file {number}");
    }
    merged
}

#[test]
fn ranges_give_the_files_that_dispatch_gives() {
    let (place, world) = store_of(3000);
    let merged = assert_same(&place.root(), &place.root());
    assert_eq!(merged.queue_entries as usize, world.sent.len());
    assert_eq!(merged.fillers, 0);
    let end = read(&place.root()).recovery().end;
    assert_eq!(merged.end, end);
    assert!(merged.index.len() > 2);
    assert_same(&place.root(), &dispatched(&place.root()).root());
}

#[test]
fn retired_messages_are_filled_as_dispatch_fills_them() {
    let (place, _) = store_of(3000);
    let logs = folder::files(&place.root().join("commitlog"));
    for path in &logs[..logs.len() / 2] {
        fs::remove_file(path).unwrap();
    }
    let merged = assert_same(&place.root(), &dispatched(&place.root()).root());
    assert!(merged.fillers > 0);
}

#[test]
fn a_hole_is_skipped_as_dispatch_skips_it() {
    let (place, world) = store_of(3000);
    let whole = Place::fast_copy_of(&place.root());
    // In the middle of a log file, and across the end of one.
    for around in [100 << 10, 192 << 10] {
        let last = world.sent.values().map(|sent| sent.position);
        let position = last.filter(|position| *position < around).max().unwrap();
        let start = position - position % (64 << 10);
        let path = place.root().join(format!("commitlog/{start:020}"));
        crate::damage::change(&path, |bytes| {
            let at = usize::try_from(position - start).unwrap();
            bytes[at..].iter_mut().take(300).for_each(|byte| *byte = 0);
        });
    }
    let merged = assert_same(&place.root(), &dispatched(&place.root()).root());
    assert_eq!(merged.holes.len(), 2);
    let lost = caches(&whole.root()).0;
    assert_ne!(lost, caches(&dispatched(&place.root()).root()).0);
    // A repair fills the holes with records, but their messages stay lost.
    let store = write(&place.root());
    store.repair(&mut |_, _| true).unwrap();
    store.close().unwrap();
    let merged = assert_same(&place.root(), &dispatched(&place.root()).root());
    assert_eq!(merged.holes.len(), 0);
    assert!(merged.fillers > 0);
}

#[test]
fn queues_of_the_real_rocketmq_are_built_as_dispatch_builds_them() {
    let names = [
        "big",
        "broker",
        "clean",
        "crashed",
        "lost-queues",
        "propcrc",
        "undispatched",
    ];
    for name in names {
        let golden = Golden::small(name);
        folder::without_delayed_messages(&golden.root);
        let target = Place::fast();
        let quarry = Quarry::open(&disk(), &golden.root).unwrap();
        let lay = |range| quarry.lay(&target.root(), range, false, "one").unwrap();
        let laid: Vec<_> = quarry.ranges().into_iter().map(lay).collect();
        let merged = quarry.merge(&target.root(), &laid).unwrap();
        assert!(merged.queue_entries > 0, "{name}");
        let reference = Place::fast_copy_of(&golden.root);
        let queues = reference.root().join("consumequeue");
        let files = match queues.is_dir() {
            true => folder::files(&queues),
            false => Vec::new(),
        };
        let file_len = files.iter().map(|path| path.metadata().unwrap().len());
        let options = Options {
            mode: Mode::Append,
            adopt: true,
            queue_file_entries: file_len.max().map(|len| len / 20),
            ..Options::default()
        };
        let _ = fs::remove_dir_all(&queues);
        let store = Store::open(reference.root(), options).unwrap();
        store.close().unwrap();
        let (built, expected) = (caches(&target.root()).0, below(&queues));
        assert!(built == expected, "{name}");
    }
}

#[test]
fn damage_in_a_log_of_another_system_is_left_to_opening() {
    let golden = Golden::small("torn-hole");
    let target = Place::fast();
    let found = build(&golden.root, &target.root());
    assert!(matches!(found, Err(Error::Corrupt { .. })), "{found:?}");
}

#[test]
fn a_repeated_offset_is_left_to_opening() {
    let (place, mut world) = (Place::fast(), World::default());
    let plain = Options {
        checksum: Some(false),
        ..options(Mode::Append)
    };
    let store = Store::open(place.root(), plain).unwrap();
    world.send(&store, 3000);
    store.close().unwrap();
    // A copy of the second log file follows the last one, with its own positions.
    let logs = folder::files(&place.root().join("commitlog"));
    let start = (logs.len() as u64) << 16;
    let path = place.root().join(format!("commitlog/{start:020}"));
    fs::copy(&logs[1], &path).unwrap();
    crate::damage::change(&path, |bytes| {
        let mut at = 0;
        while at + 36 < bytes.len() {
            let position = start + at as u64;
            bytes[at + 28..at + 36].copy_from_slice(&position.to_be_bytes());
            at += u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        }
    });
    let target = Place::fast();
    let found = build(&place.root(), &target.root());
    let reason = match found {
        Err(Error::Corrupt { reason, .. }) => reason,
        found => panic!("{found:?}"),
    };
    assert!(reason.contains("comes after"), "{reason}");
}

#[test]
fn a_store_that_is_being_written_or_was_not_closed_is_rejected() {
    let (place, _) = store_of(20);
    let store = write(&place.root());
    let found = Quarry::check_unwritten(&RealDisk, &place.root());
    assert!(matches!(found, Err(Error::Locked { pid: Some(_), .. })));
    let found = StoreLock::take(&disk(), &place.root(), false);
    assert!(matches!(found, Err(Error::Locked { .. })));
    let halted = Place::copy_of(&place.root());
    store.close().unwrap();
    let found = Quarry::open(&disk(), &halted.root());
    assert!(matches!(found, Err(Error::Unsupported { .. })));
    let found = StoreLock::take(&disk(), &halted.root(), false);
    assert!(matches!(found, Err(Error::Unsupported { .. })));
    let found = Quarry::open(&disk(), &place.root().join("nothing"));
    assert!(matches!(found, Err(Error::NotFound { .. })));
}

#[test]
fn the_next_opening_trusts_what_was_installed() {
    let (place, world) = store_of(3000);
    let root = place.root();
    for path in folder::files(&root.join("consumequeue")) {
        crate::damage::change(&path, |bytes| bytes.fill(7));
    }
    let lock = StoreLock::take(&disk(), &root, false).unwrap();
    let opened = Store::open(&root, options(Mode::Append));
    assert!(matches!(opened, Err(Error::Locked { .. })));
    let merged = build(&root, &root.join("new")).unwrap();
    lock.install(&root.join("new"), &root.join("old"), &merged.index)
        .unwrap();
    drop(lock);
    let store = write(&root);
    let recovery = store.recovery();
    assert!(recovery.clean);
    assert_eq!(
        (
            recovery.records_checked,
            recovery.queue_entries_rebuilt,
            recovery.index_entries_rebuilt
        ),
        (0, 0, 0)
    );
    assert_eq!(store.verify(&mut |_, _| true).unwrap().damage, []);
    store.close().unwrap();
    world.check(&read(&root));
}
