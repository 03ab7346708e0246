//! Repair: intact messages stay, damaged bytes are saved outside the log, and the result is a store
//! without damage, both for Forebay and for a program that walks its log record by record.

use crate::damage;
use crate::folder;
use crate::world::{Place, World, options, read, write};
use forebay::{Damage, Error, Mode, Repair, RepairStep, Store, Verification};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

const FILE_LEN: u64 = 64 << 10;

/// A closed store and all its messages.
fn closed(count: usize) -> (Place, World) {
    let (place, mut world) = (Place::fast(), World::default());
    let store = write(&place.root());
    world.send(&store, count);
    store.close().unwrap();
    (place, world)
}

fn log_file(root: &Path, position: u64) -> PathBuf {
    let start = position - position % FILE_LEN;
    root.join(format!("commitlog/{start:020}"))
}

/// Changes bytes of a file in place: its length stays, because it may be mapped.
fn scratch(path: &Path, at: u64, len: usize) {
    let file = fs::File::options().read(true).write(true).open(path);
    let file = file.unwrap();
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, at).unwrap();
    bytes.iter_mut().for_each(|byte| *byte ^= 0x5A);
    file.write_all_at(&bytes, at).unwrap();
}

/// Damages the header of the record at a position of the log.
fn scratch_record(root: &Path, position: u64) {
    scratch(&log_file(root, position), position % FILE_LEN, 8);
}

fn positions(world: &World) -> Vec<u64> {
    let positions: BTreeSet<u64> = world.sent.values().map(|sent| sent.position).collect();
    positions.into_iter().collect()
}

/// Removes the messages at these positions from the expected ones; returns their places.
fn lose(world: &mut World, lost: &[u64]) -> BTreeSet<(String, u32, u64)> {
    let own = |position: u64| lost.contains(&position);
    let places = world.sent.iter().filter(|(_, sent)| own(sent.position));
    let places = places.map(|(place, _)| place.clone()).collect();
    world.sent.retain(|_, sent| !own(sent.position));
    places
}

fn verify(store: &Store) -> Verification {
    store.verify(&mut |_, _| true).unwrap()
}

fn repair(store: &Store) -> Repair {
    store.repair(&mut |_, _| true).unwrap()
}

fn lost_of(steps: &[RepairStep]) -> BTreeSet<(String, u32, u64)> {
    let lost: Vec<_> = steps.iter().flat_map(|step| step.lost.clone()).collect();
    let places: BTreeSet<_> = lost.iter().cloned().collect();
    assert_eq!(lost.len(), places.len(), "a loss is reported once");
    places
}

/// Walks a log file record by record, like RocketMQ does; every byte must belong to a record.
fn walk_file(root: &Path, start: u64, end: u64) {
    let bytes = fs::read(log_file(root, start)).unwrap();
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut at = 0;
    let stop = (end - start).min(FILE_LEN) as usize;
    while at < stop {
        let len = word(at) as usize;
        match word(at + 4) {
            0xCBD4_3194 => assert_eq!(len, bytes.len() - at, "BLANK at {at} of {start}"),
            _ => {
                let record = forebay::Row::parse(&bytes[at..]).unwrap().rocketmq();
                record.check(start + at as u64).unwrap();
                record.check_body().unwrap();
            }
        }
        at += len;
    }
    assert_eq!(at, stop);
}

/// Checks that nothing is damaged and all expected messages are found, with the existing caches and
/// with caches rebuilt from the log.
fn check_whole(root: &Path, world: &World) {
    let store = read(root);
    let end = store.engine().unwrap().readable_position();
    store.close().unwrap();
    for start in (0..end).step_by(FILE_LEN as usize) {
        walk_file(root, start, end);
    }
    crate::world::open_each_way(root, |store| {
        assert_eq!(store.damage(), []);
        assert_eq!(verify(store).damage, []);
        world.check_messages(store);
        world.check_keys(store);
    });
    let bare = Place::fast_copy_of(root);
    fs::remove_dir_all(bare.root().join("consumequeue")).unwrap();
    fs::remove_dir_all(bare.root().join("index")).unwrap();
    for name in ["forebay.state", "checkpoint"] {
        fs::remove_file(bare.root().join(name)).unwrap();
    }
    let store = read(&bare.root());
    world.check_messages(&store);
    world.check_keys(&store);
    store.close().unwrap();
}

/// Repairs a closed store whose messages at `lost` are damaged, and checks everything.
fn mend(root: &Path, world: &mut World, lost: &[u64]) -> Repair {
    let lost = lose(world, lost);
    let store = write(root);
    let done = repair(&store);
    assert_eq!(done.left, []);
    assert_eq!(lost_of(&done.steps), lost);
    assert_eq!(verify(&store).damage, []);
    assert_eq!(store.damage(), []);
    world.check_messages(&store);
    world.check_keys(&store);
    for (topic, queue, offset) in &lost {
        let found = store.get(topic, *queue, *offset as i64);
        let past = Error::OffsetOutOfRange {
            topic: topic.clone(),
            queue: *queue,
            offset: 0,
            min: 0,
            max: 0,
        };
        match found {
            Err(Error::Corrupt { .. }) => {}
            other => panic!("{:?}, not {past:?}", other.err()),
        }
    }
    assert_eq!(repair(&store), Repair::default(), "a second repair");
    store.close().unwrap();
    check_whole(root, world);
    done
}

#[test]
fn a_hole_is_reported_once_with_its_lost_messages() {
    let (place, mut world) = closed(200);
    let all = positions(&world);
    let hit = &all[50..53];
    for position in hit {
        scratch_record(&place.root(), *position);
    }
    let store = read(&place.root());
    let found = verify(&store);
    let [hole] = &found.damage[..] else {
        panic!("{:#?}", found.damage)
    };
    assert_eq!((hole.position, hole.length), (hit[0], all[53] - hit[0]));
    assert_eq!(hole.path, log_file(&place.root(), hit[0]));
    let lost: BTreeSet<_> = hole.lost.iter().cloned().collect();
    assert_eq!(lost, lose(&mut world, hit));
    assert_eq!(found.records as usize, world.sent.len());
    assert_eq!(found.queue_entries as usize, world.sent.len());
    // Reading into the hole adds nothing to the report.
    for (topic, queue, offset) in &lost {
        assert!(store.get(topic, *queue, *offset as i64).is_err());
    }
    assert_eq!(verify(&store), found);
}

#[test]
fn a_damaged_record_is_saved_and_its_place_filled() {
    let (place, mut world) = closed(200);
    let all = positions(&world);
    scratch_record(&place.root(), all[70]);
    let bytes = fs::read(log_file(&place.root(), all[70])).unwrap();
    let done = mend(&place.root(), &mut world, &[all[70]]);
    let step = &done.steps[0];
    assert_eq!((step.position, step.length), (all[70], all[71] - all[70]));
    let name = format!("{:020}-{}", step.position, step.length);
    let saved = place.root().join("damaged").join(name);
    assert_eq!(step.saved.as_deref(), Some(&*saved));
    let within = (all[70] % FILE_LEN) as usize..(all[71] % FILE_LEN) as usize;
    assert_eq!(fs::read(saved).unwrap(), bytes[within]);
    let kept: Vec<_> = fs::read_dir(place.root().join("damaged"))
        .unwrap()
        .collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
}

#[test]
fn holes_anywhere_in_a_file_are_filled() {
    let (place, world) = closed(900);
    let all = positions(&world);
    let second = all.partition_point(|position| *position < FILE_LEN);
    assert_eq!(all[second], FILE_LEN);
    let cases: [(&str, Vec<usize>); 7] = [
        ("first of the log", vec![0]),
        ("first of a file", vec![second]),
        ("last before the BLANK", vec![second - 1]),
        (
            "on both sides of the end of a file",
            vec![second - 1, second],
        ),
        ("two in a row, and another", vec![30, 31, 60]),
        ("in several files", vec![5, second + 5, all.len() - 5]),
        ("all of a file", (0..second).collect()),
    ];
    for (name, numbers) in cases {
        let copy = Place::fast_copy_of(&place.root());
        let lost: Vec<u64> = numbers.iter().map(|number| all[*number]).collect();
        for position in &lost {
            scratch_record(&copy.root(), *position);
        }
        let done = mend(&copy.root(), &mut world.clone(), &lost);
        assert!(!done.steps.is_empty(), "{name}");
    }
}

#[test]
fn a_damaged_blank_is_rewritten() {
    let (place, mut world) = closed(900);
    let all = positions(&world);
    let second = all.partition_point(|position| *position < FILE_LEN);
    let bytes = fs::read(log_file(&place.root(), 0)).unwrap();
    let last = all[second - 1] as usize;
    let len = u32::from_be_bytes(bytes[last..last + 4].try_into().unwrap());
    scratch(&log_file(&place.root(), 0), last as u64 + u64::from(len), 8);
    mend(&place.root(), &mut world, &[]);
    assert_eq!(fs::read(log_file(&place.root(), 0)).unwrap(), bytes);
    // With the record before it, one hole covers both.
    scratch_record(&place.root(), all[second - 1]);
    scratch(&log_file(&place.root(), 0), last as u64 + u64::from(len), 8);
    mend(&place.root(), &mut world, &[all[second - 1]]);
}

#[test]
fn a_missing_log_file_is_bridged() {
    let (place, mut world) = closed(900);
    let all = positions(&world);
    let lost: Vec<u64> = all.into_iter().filter(|p| p / FILE_LEN == 2).collect();
    fs::remove_file(log_file(&place.root(), 2 * FILE_LEN)).unwrap();
    mend(&place.root(), &mut world, &lost);
}

#[test]
fn a_log_file_cut_in_the_checksum_of_a_record_is_repaired_for_good() {
    // The record counts by its body once zeros follow it, so it must count at the first opening.
    for (clean, record) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        let (place, world) = damage::small(clean, 200);
        let root = place.root();
        let end = positions(&world)[record + 1];
        let first = fs::File::options().write(true).open(log_file(&root, 0));
        first.unwrap().set_len(end - 21).unwrap();
        for opening in 0..3 {
            let store = write(&root);
            if opening == 0 {
                assert_eq!(repair(&store).left, []);
            }
            let found = verify(&store).damage;
            assert_eq!(found, [], "{opening}, clean: {clean}, record {record}");
            store.close().unwrap();
        }
    }
}

#[test]
fn a_log_whose_every_file_was_cut_keeps_the_sizes_of_its_page() {
    let (place, _) = damage::small(true, 400);
    let root = place.root();
    for (start, len) in [(0, 27_126), (FILE_LEN, 35_358)] {
        let file = fs::File::options().write(true).open(log_file(&root, start));
        file.unwrap().set_len(len).unwrap();
    }
    let store = write(&root);
    assert_eq!(repair(&store).left, []);
    store.close().unwrap();
}

#[test]
fn the_current_log_file_is_repaired_under_its_readers() {
    let (place, mut world) = (Place::fast(), World::default());
    let store = write(&place.root());
    world.send(&store, 60);
    world.check_messages(&store);
    let all = positions(&world);
    let held = store.message_at(all[21]).unwrap();
    let before = held.record().bytes().to_vec();
    let damaged = all[20];
    scratch_record(&place.root(), damaged);
    let torn = store.engine().unwrap().log_cursor(forebay::Check::Full);
    let mut torn = torn.unwrap();
    let mut rows = forebay::Rows::default();
    torn.next(10, &mut rows).unwrap();
    let lost = lose(&mut world, &[damaged]);
    let done = repair(&store);
    assert_eq!(lost_of(&done.steps), lost);
    assert_eq!(done.left, []);
    // Appender, dispatch and flush continue in the file that replaced it.
    world.send(&store, 900);
    store.flush().unwrap();
    world.check(&store);
    assert_eq!(verify(&store).damage, []);
    assert_eq!(held.record().bytes(), before);
    // A walk that began before sees the old contents.
    torn.next(10_000, &mut rows).unwrap();
    assert_eq!(rows.rows.len(), all.len() - 1);
    store.close().unwrap();
    check_whole(&place.root(), &world);
}

#[test]
fn a_reader_in_another_handle_follows_the_writer_into_repaired_files() {
    let (place, mut world) = (Place::fast(), World::default());
    let store = write(&place.root());
    world.send(&store, 400);
    store.flush().unwrap();
    let reader = read(&place.root());
    world.check_messages(&reader);
    world.check_keys(&reader);
    // A record of the current log file, and an entry of an index file.
    let damaged = positions(&world)[390];
    scratch_record(&place.root(), damaged);
    let mut files = folder::files(&place.root().join("index"));
    files.sort();
    scratch(&files[0], 40 + 4 * 16 + 20 * 40 + 4, 4);
    let lost = lose(&mut world, &[damaged]);
    assert_eq!(lost_of(&repair(&store).steps), lost);
    world.send(&store, 20);
    store.flush().unwrap();
    store.close().unwrap();
    world.check(&reader);
    assert_eq!(reader.engine().unwrap().report().damage(), []);
}

#[test]
fn senders_and_readers_continue_during_a_repair() {
    let place = Place::fast();
    let root = place.root();
    let store = write(&root);
    let mut world = World::default();
    world.send(&store, 300);
    let (rounds, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let store = &store;
        let sender = scope.spawn(move || {
            let producer = store.producer("others", None).unwrap();
            let mut sent = 0_u64;
            // Each round sends enough messages to fill some log files.
            while told.recv().is_ok() {
                for _ in 0..800 {
                    let body = sent.to_be_bytes();
                    let draft = crate::bed::to_queue(0, &body);
                    let done = producer.send(&draft, 0, forebay::Durability::Default);
                    assert_eq!(done.unwrap().place.offset, sent);
                    let found = store.get("others", 0, sent as i64).unwrap();
                    assert_eq!(found.body().unwrap().as_ref(), body);
                    sent += 1;
                }
            }
            sent
        });
        for round in 0..8 {
            // The newest message is in the current file, or was just before.
            world.send(store, 1);
            let own = *positions(&world).last().unwrap();
            assert!(store.message_at(own).is_ok());
            let dispatched = verify(store).damage;
            assert_eq!(dispatched, [], "round {round}");
            scratch_record(&root, own);
            rounds.send(()).unwrap();
            let done = repair(store);
            assert_eq!(done.left, [], "round {round}");
            assert_eq!(lost_of(&done.steps), lose(&mut world, &[own]));
        }
        drop(rounds);
        let sent = sender.join().unwrap();
        for offset in 0..sent {
            let found = store.get("others", 0, offset as i64).unwrap();
            assert_eq!(found.body().unwrap().as_ref(), offset.to_be_bytes());
        }
    });
    world.check_messages(&store);
    assert_eq!(verify(&store).damage, []);
    store.close().unwrap();
    let store = read(&root);
    assert_eq!(verify(&store).damage, []);
    world.check_messages(&store);
}

#[test]
fn a_batch_that_lost_its_end_record_does_not_end_the_log() {
    // Without its end record an atomic batch is open, and an open batch ends the log. The record
    // that fills the hole must close the batch.
    let (place, mut world) = (Place::fast(), World::default());
    let store = write(&place.root());
    world.send(&store, 10);
    let rows = world.send_batch(&store, 5);
    world.send(&store, 10);
    store.close().unwrap();
    let bytes = fs::read(log_file(&place.root(), 0)).unwrap();
    let last = *rows.last().unwrap() as usize;
    let len = u32::from_be_bytes(bytes[last..last + 4].try_into().unwrap());
    scratch_record(&place.root(), last as u64 + u64::from(len));
    let store = write(&place.root());
    let done = repair(&store);
    let markers = ("rmq_sys_forebay_atomic".to_owned(), 0, 1);
    assert_eq!(lost_of(&done.steps), BTreeSet::from([markers]));
    store.close().unwrap();
    check_whole(&place.root(), &world);
}

#[test]
fn queue_entries_are_repaired_or_marked_as_lost() {
    let (place, mut world) = closed(400);
    let all = positions(&world);
    let queue = place
        .root()
        .join("consumequeue/orders/0/00000000000000000000");
    // Entries 10 to 14 point nowhere, entry 20 has another size, entry 25 another tag.
    scratch(&queue, 10 * 20, 100);
    scratch(&queue, 20 * 20 + 8, 1);
    scratch(&queue, 25 * 20 + 19, 1);
    // The record of entry 30 is lost, and so is its entry.
    let lost = world.sent[&("orders".to_owned(), 0, 30)].position;
    assert!(all.contains(&lost));
    scratch_record(&place.root(), lost);
    scratch(&queue, 30 * 20, 20);
    let found = {
        let store = read(&place.root());
        verify(&store).damage
    };
    let entries: Vec<&Damage> = found.iter().filter(|d| d.path == queue).collect();
    let places: Vec<_> = entries.iter().map(|d| (d.position, d.length)).collect();
    assert_eq!(places, [(200, 100), (400, 20), (500, 20), (600, 20)]);
    let costs: Vec<_> = entries.iter().map(|d| d.lost.len()).collect();
    assert_eq!(costs, [0, 0, 0, 1], "messages in the log are not lost");
    mend(&place.root(), &mut world, &[lost]);
}

#[test]
fn a_queue_that_lost_its_last_entries_regains_them_without_repeating_offsets() {
    let (place, mut world) = (Place::fast(), World::default());
    let store = write(&place.root());
    world.send(&store, 100);
    store.flush().unwrap();
    let queue = place
        .root()
        .join("consumequeue/orders/1/00000000000000000000");
    let next = world.next[&("orders".to_owned(), 1)];
    scratch(&queue, 20 * (next - 3), 60);
    let done = repair(&store);
    assert_eq!(done.left, []);
    assert_eq!(lost_of(&done.steps), BTreeSet::new());
    world.send(&store, 100);
    world.check(&store);
    store.close().unwrap();
    check_whole(&place.root(), &world);
}

#[test]
fn damaged_index_files_are_rebuilt() {
    let (place, mut world) = closed(600);
    let mut files = folder::files(&place.root().join("index"));
    files.sort();
    assert!(files.len() >= 3);
    // An entry, a slot, and the times of the header, in the second file and after it.
    let slots = 40 + 4 * 16;
    for (at, what) in [
        (slots + 20 * 40 + 4, "an entry points elsewhere"),
        (slots + 20 * 40, "an entry has another hash"),
        (slots + 20 * 40 + 16, "an entry points forward"),
        (40, "a slot points elsewhere"),
        (0, "the header has another start time"),
    ] {
        let copy = Place::fast_copy_of(&place.root());
        let file = copy
            .root()
            .join("index")
            .join(files[1].file_name().unwrap());
        scratch(&file, at, 4);
        let store = read(&copy.root());
        let found = verify(&store).damage;
        assert!(found.iter().all(|damage| damage.path == file), "{what}");
        assert!(!found.is_empty(), "{what}");
        store.close().unwrap();
        let first = fs::read(&files[0]).unwrap();
        mend(&copy.root(), &mut world, &[]);
        let kept = copy
            .root()
            .join("index")
            .join(files[0].file_name().unwrap());
        assert_eq!(fs::read(kept).unwrap(), first, "{what}");
    }
}

#[test]
fn our_own_tables_are_rewritten_and_those_of_others_left_alone() {
    let (place, mut world) = closed(100);
    let root = place.root();
    let store = write(&root);
    store.create_topic("empty", 3).unwrap();
    store.close().unwrap();
    fs::write(root.join("config/topics.json.bak"), b"{}").unwrap();
    let names = [
        "config/topics.json",
        "config/consumerOffset.json",
        "checkpoint",
    ];
    // Times far ahead of every record.
    let checkpoint = [0x7F; 4096];
    let garbage: Vec<&[u8]> = vec![b"{\"topicConf", b"\0\0x", &checkpoint];
    for (name, bytes) in names.iter().zip(&garbage) {
        fs::write(root.join(name), bytes).unwrap();
    }
    let lenient = br#"{"offsetTable":{1:5,2:7}}"#;
    fs::write(root.join("config/delayOffset.json"), lenient).unwrap();
    let store = read(&root);
    let found: BTreeSet<_> = verify(&store).damage.into_iter().map(|d| d.path).collect();
    let paths: BTreeSet<_> = names.iter().map(|name| root.join(name)).collect();
    assert_eq!(found, paths);
    store.close().unwrap();
    let store = write(&root);
    let done = repair(&store);
    for (name, bytes) in names.iter().zip(&garbage) {
        let step = done.steps.iter().find(|s| s.path == root.join(name));
        let saved = step.unwrap().saved.clone().unwrap();
        assert_eq!(&fs::read(saved).unwrap(), bytes, "{name}");
    }
    let left: Vec<_> = done.left.iter().map(|damage| damage.path.clone()).collect();
    assert_eq!(left, [root.join(names[1])]);
    assert_eq!(fs::read(root.join(names[1])).unwrap(), garbage[1]);
    assert_eq!(fs::read(root.join("checkpoint")).unwrap().len(), 4096);
    let table = fs::read_to_string(root.join("config/topics.json")).unwrap();
    assert!(
        ["orders", "bills", "rare"]
            .iter()
            .all(|t| table.contains(t)),
        "{table}"
    );
    let backup = fs::read(root.join("config/topics.json.bak")).unwrap();
    assert_eq!(backup, b"{}", "garbage does not replace the backup");
    store.close().unwrap();
    fs::remove_file(root.join(names[1])).unwrap();
    fs::write(
        root.join("forebay.offsets"),
        b"forebay.offsets 1\nposition 7\n",
    )
    .unwrap();
    let store = read(&root);
    assert_eq!(verify(&store).damage[0].path, root.join("forebay.offsets"));
    store.close().unwrap();
    scratch(&root.join("forebay.state"), 80, 8);
    let store = read(&root);
    let found = verify(&store).damage;
    assert!(
        found.iter().any(|d| d.path == root.join("forebay.state")),
        "{found:?}"
    );
    store.close().unwrap();
    mend(&root, &mut world, &[]);
}

#[test]
fn saved_bytes_are_never_overwritten() {
    let (place, mut world) = closed(200);
    let root = place.root();
    let all = positions(&world);
    let name = format!("{:020}-{}", all[70], all[71] - all[70]);
    fs::create_dir(root.join("damaged")).unwrap();
    fs::write(root.join("damaged").join(&name), b"an earlier save").unwrap();
    scratch_record(&root, all[70]);
    let done = mend(&root, &mut world, &[all[70]]);
    let again = root.join("damaged").join(format!("{name}.1"));
    assert_eq!(done.steps[0].saved.as_ref(), Some(&again));
    assert_eq!(
        fs::read(root.join("damaged").join(&name)).unwrap(),
        b"an earlier save"
    );
}

#[test]
fn an_interrupted_repair_is_completed_by_the_next() {
    let (place, mut world) = closed(200);
    let root = place.root();
    let all = positions(&world);
    scratch_record(&root, all[70]);
    let damaged = Place::fast_copy_of(&root);
    mend(&root, &mut world.clone(), &[all[70]]);
    // The process died while it wrote the file: it has left saved bytes and half of a copy.
    let cut = Place::fast_copy_of(&damaged.root());
    folder::copy(&root.join("damaged"), &cut.root().join("damaged"));
    let half = format!("damaged/{:020}.repaired", 0);
    fs::write(cut.root().join(half), vec![7; 5000]).unwrap();
    let done = mend(&cut.root(), &mut world.clone(), &[all[70]]);
    assert_eq!(
        done.steps[0].saved.as_ref().unwrap().extension(),
        None,
        "saved once"
    );
    let kept: Vec<_> = fs::read_dir(cut.root().join("damaged")).unwrap().collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    // The process died after the rename: queues and index point to the record that fills the hole.
    let cut = Place::fast_copy_of(&damaged.root());
    fs::copy(log_file(&root, all[70]), log_file(&cut.root(), all[70])).unwrap();
    mend(&cut.root(), &mut world, &[all[70]]);
}

#[test]
fn a_reader_cannot_repair_and_a_stopped_repair_changes_nothing() {
    let (place, world) = closed(50);
    scratch_record(&place.root(), positions(&world)[20]);
    let before = folder::listing(&place.root());
    let store = read(&place.root());
    let refused = store.repair(&mut |_, _| true).err();
    assert!(
        matches!(refused, Some(Error::ReadOnly { .. })),
        "{refused:?}"
    );
    assert!(!verify(&store).damage.is_empty());
    store.close().unwrap();
    assert_eq!(folder::listing(&place.root()), before);
    let whole = Place::fast();
    let store = write(&whole.root());
    World::default().send(&store, 50);
    assert_eq!(repair(&store), Repair::default());
    assert!(!whole.root().join("damaged").exists());
    store.close().unwrap();
}

#[test]
fn pages_of_garbage_anywhere_are_repaired() {
    let (place, world) = closed(600);
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut random = |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % limit
    };
    let names: Vec<PathBuf> = folder::files(&place.root());
    let names: Vec<&PathBuf> = names
        .iter()
        .filter(|path| !path.ends_with("lock") && fs::metadata(path).unwrap().len() > 0)
        .collect();
    for round in 0..60 {
        let copy = Place::fast_copy_of(&place.root());
        for _ in 0..=random(3) {
            let name = names[random(names.len() as u64) as usize];
            let path = copy.root().join(name.strip_prefix(place.root()).unwrap());
            let len = fs::metadata(&path).unwrap().len();
            let at = random(len);
            scratch(&path, at, random((len - at).min(4096)) as usize + 1);
        }
        let store = Store::open(copy.root(), options(Mode::Append)).unwrap();
        let done = repair(&store);
        assert_eq!(done.left, [], "round {round}: {:#?}", done.steps);
        assert_eq!(verify(&store).damage, [], "round {round}");
        let found = verify(&store).records as usize;
        store.close().unwrap();
        let store = read(&copy.root());
        assert_eq!(verify(&store).damage, [], "round {round}");
        for ((topic, queue, offset), sent) in &world.sent {
            if let Ok(message) = store.get(topic, *queue, *offset as i64) {
                assert_eq!(message.body().unwrap().as_ref(), sent.body);
            }
        }
        assert!(found > 0, "round {round}");
        store.close().unwrap();
    }
}
