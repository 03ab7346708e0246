//! A store that was closed properly opens its queues when they are first used. Whatever happens to
//! its files while it is closed, the outcome must equal that of an opening that checks all queues
//! first: the same messages, offsets, reports and queue files.

use crate::damage::small;
use crate::draw::{Draw, Random};
use crate::folder;
use crate::world::{Place, options};
use forebay::{Draft, Durability, Mode, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Number of damaged stores in the short form.
const DRAWN: usize = 60;
/// Place of the last record's position in the state page.
const LAST_RECORD: u64 = 648;
const ENTRY: u64 = 20;

/// Topic, queue.
type Queue = (String, u32);

/// The observable state of an open store.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// The position of each message; `None` if it is lost.
    messages: BTreeMap<(Queue, u64), Option<usize>>,
    /// First and next offset.
    bounds: BTreeMap<Queue, (u64, u64)>,
    /// Each place of damage without the store's own path.
    damage: BTreeSet<String>,
    /// Offsets of the next messages.
    sent: BTreeMap<Queue, u64>,
    /// Checksums of the queue files, before those messages.
    files: BTreeMap<PathBuf, u32>,
}

/// Opens a closed store, uses its queues in a random order, and returns its observable state.
fn outcome(root: &Path, queues: &[Queue], random: &mut Random) -> Outcome {
    let store = Store::open(root, options(Mode::Append)).unwrap();
    let mut order = queues.to_vec();
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at + 1));
    }
    // All queues are open before messages are read, since reading reports damage, too.
    let mut bounds = BTreeMap::new();
    for (topic, queue) in order {
        let read = store.read(&topic, queue, 0, 1, None, &forebay::Filter::default());
        let read = read.unwrap();
        bounds.insert((topic, queue), (read.min_offset, read.max_offset));
    }
    let mut messages = BTreeMap::new();
    for ((topic, queue), (min, max)) in &bounds {
        for offset in *min..*max {
            let found = store.get(topic, *queue, offset as i64);
            let position = found.ok().map(|it| it.record().position() as usize);
            messages.insert(((topic.clone(), *queue), offset), position);
        }
    }
    let damage = store.damage().into_iter().map(|it| {
        let path = it.path.strip_prefix(root).unwrap().to_owned();
        let mut lost = it.lost;
        lost.sort();
        let bytes = it.position..it.position + it.length;
        format!("{:?} {path:?} {bytes:?} {} {lost:?}", it.kind, it.reason)
    });
    let damage = damage.collect();
    store.close().unwrap();
    let mut files = folder::contents(root);
    files.retain(|path, _| path.starts_with("consumequeue"));

    let store = Store::open(root, options(Mode::Append)).unwrap();
    let mut sent = BTreeMap::new();
    for (topic, queue) in queues {
        let producer = store.producer(topic, Some(*queue)).unwrap();
        let placed = producer.send(&Draft::default(), 0, Durability::Default);
        sent.insert((topic.clone(), *queue), placed.unwrap().place.offset);
    }
    store.close().unwrap();
    Outcome {
        messages,
        bounds,
        damage,
        sent,
        files,
    }
}

/// Makes the next opening check all queues: it does not know the last record.
fn forget_last_record(root: &Path) {
    let page = fs::OpenOptions::new()
        .write(true)
        .open(root.join("forebay.state"));
    page.unwrap().write_all_at(&[0; 8], LAST_RECORD).unwrap();
}

/// Damages a few places of the queues, and sometimes of the log.
fn damage(root: &Path, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..20 {
        random.next();
    }
    for _ in 0..=random.below(3) {
        let all = folder::contents(root);
        let files: Vec<_> = all
            .keys()
            .filter(|it| it.starts_with("consumequeue"))
            .collect();
        let path = root.join(files[random.below(files.len())]);
        let mut bytes = fs::read(&path).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
        let entry = random.below(used.div_ceil(ENTRY as usize) + 2) * ENTRY as usize;
        let entry = entry.min(bytes.len() - ENTRY as usize);
        match random.below(8) {
            0 => bytes[entry + random.below(ENTRY as usize)] ^= 1 << random.below(8),
            1 => bytes[entry..].fill(0),
            2 => bytes[entry..entry + ENTRY as usize].fill(0),
            3 => bytes.truncate(entry + random.below(ENTRY as usize)),
            4 => bytes.copy_within(0..ENTRY as usize, entry),
            5 => {
                let other = root.join(files[random.below(files.len())]);
                bytes = fs::read(other).unwrap();
            }
            6 => {
                fs::remove_file(&path).unwrap();
                continue;
            }
            _ => {
                fs::remove_dir_all(path.parent().unwrap()).unwrap();
                continue;
            }
        }
        fs::write(&path, bytes).unwrap();
    }
    if random.below(3) == 0 {
        let logs: Vec<_> = folder::contents(root).into_keys().collect();
        let logs: Vec<_> = logs
            .iter()
            .filter(|it| it.starts_with("commitlog"))
            .collect();
        let path = root.join(logs[random.below(logs.len())]);
        let mut bytes = fs::read(&path).unwrap();
        let at = random.below(bytes.len());
        bytes[at] ^= 0x10;
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn queues_that_are_opened_later_have_the_outcome_of_those_that_are_opened_at_once() {
    let (place, world) = small(true, 300);
    let queues: Vec<Queue> = world.next.keys().cloned().collect();
    let mut draw = Draw::new();
    let mut seeds: Vec<u64> = (1..2000).collect();
    let drawn = draw.random.next();
    seeds.extend((0..2000).map(|number| drawn ^ number));
    let mut differ = 0;
    let mut order = Random(draw.random.next() | 1);
    let intact = {
        let copy = Place::fast_copy_of(&place.root());
        outcome(&copy.root(), &queues, &mut order)
    };
    draw.each(DRAWN, seeds, |seed| {
        let (at_once, later) = (
            Place::fast_copy_of(&place.root()),
            Place::fast_copy_of(&place.root()),
        );
        damage(&at_once.root(), *seed);
        damage(&later.root(), *seed);
        forget_last_record(&at_once.root());
        let expected = outcome(&at_once.root(), &queues, &mut order);
        let found = outcome(&later.root(), &queues, &mut order);
        assert_eq!(found, expected);
        differ += usize::from(expected.damage != intact.damage);
    });
    // Some of the compared reports had damage that an intact store does not have.
    assert!(differ > 0);
}

/// The directory of a queue disappears while the store is closed.
#[test]
fn a_queue_that_was_closed_is_rebuilt_when_it_is_used() {
    let (place, world) = small(true, 300);
    let ((topic, queue), next) = world.next.iter().max_by_key(|(_, next)| **next).unwrap();
    let directory = place.root().join(format!("consumequeue/{topic}/{queue}"));
    fs::remove_dir_all(&directory).unwrap();
    let store = Store::open(place.root(), options(Mode::Append)).unwrap();
    assert_eq!(store.recovery().queue_entries_rebuilt, 0);
    assert!(!directory.exists());
    world.check_messages(&store);
    assert!(directory.exists());
    assert_eq!(store.recovery().queue_entries_rebuilt, *next);
    assert_eq!(store.damage(), []);
    assert_eq!(store.verify(&mut |_, _| true).unwrap().damage, []);
    // Rebuilt queue files are durable like everything else.
    store.close().unwrap();
    let store = Store::open(place.root(), options(Mode::Append)).unwrap();
    world.check_messages(&store);
}
