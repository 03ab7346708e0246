//! A store with messages of all kinds, and its expected contents.

use crate::bed::small_options;
use crate::draw::in_proof;
use crate::folder;
use forebay::{Atomicity, Draft, Durability, Filter, Mode, Options, Store};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::UNIX_EPOCH;
use tempfile::TempDir;

/// A message as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) position: u64,
    pub(crate) body: Vec<u8>,
    pub(crate) keys: Vec<String>,
    pub(crate) time: i64,
}

/// All messages of a store by topic, queue and offset.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) sent: BTreeMap<(String, u32, u64), Sent>,
    /// Next offset of each queue.
    pub(crate) next: BTreeMap<(String, u32), u64>,
    count: usize,
}

/// A file system in memory, if the machine has one.
const MEMORY: &str = "/dev/shm";

/// First byte of the file's identity in the state page.
const IDENTITY: usize = 456;
const IDENTITY_END: usize = IDENTITY + 40;

/// Makes a store look as if its last writer had used another mount.
pub(crate) fn change_mount(root: &Path) {
    let path = root.join("forebay.state");
    let mut page = fs::read(&path).unwrap();
    page[IDENTITY] ^= 1;
    fs::write(&path, page).unwrap();
}

/// A directory that is removed at the end of the test.
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// In memory, if possible: for many short openings.
    pub(crate) fn fast() -> Place {
        let memory = Path::new(MEMORY);
        let dir = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        Place { dir: dir.unwrap() }
    }

    /// For the `number`-th of many stores: a few of a short run and all of a long run are on disk.
    pub(crate) fn nth(number: usize) -> Place {
        match in_proof() || number.is_multiple_of(8) {
            true => Place::new(),
            false => Place::fast(),
        }
    }

    /// A copy of a directory that nobody writes to.
    pub(crate) fn fast_copy_of(root: &Path) -> Place {
        let place = Place::fast();
        folder::copy(root, &place.root());
        place.own()
    }

    /// A copy of a store, as a process that dies at this moment would leave it. It is on the same
    /// file system: the saved state about the last opening is valid on no other.
    pub(crate) fn copy_of(root: &Path) -> Place {
        let place = match root.starts_with(MEMORY) {
            true => Place::fast(),
            false => Place::new(),
        };
        folder::snapshot(root, &place.root());
        place.own()
    }

    /// Stores the identity of the copied page in it, so that its marks are trusted like those of
    /// the original.
    fn own(self) -> Place {
        let path = self.root().join("forebay.state");
        if fs::metadata(&path).is_ok_and(|it| it.len() == 4096) {
            let mut page = fs::read(&path).unwrap();
            if page[IDENTITY..IDENTITY_END].iter().any(|byte| *byte != 0) {
                page[IDENTITY..IDENTITY_END].copy_from_slice(&self.identity(&path));
                fs::write(&path, page).unwrap();
            }
        }
        self
    }

    /// The identity of a file on the same mount as these stores, in the form of the page.
    fn identity(&self, path: &Path) -> Vec<u8> {
        static MOUNTS: Mutex<BTreeMap<u64, Vec<u8>>> = Mutex::new(BTreeMap::new());
        let it = fs::metadata(path).unwrap();
        let mut mounts = MOUNTS.lock().unwrap();
        let mount = mounts.entry(it.dev()).or_insert_with(|| {
            let root = self.dir.path().join("probe");
            let store = write(&root);
            let page = fs::read(root.join("forebay.state")).unwrap();
            store.close().unwrap();
            fs::remove_dir_all(root).unwrap();
            page[IDENTITY..IDENTITY + 24].to_vec()
        });
        let born = it.created().unwrap().duration_since(UNIX_EPOCH).unwrap();
        let born_ns = u64::try_from(born.as_nanos()).unwrap();
        [&**mount, &it.ino().to_ne_bytes(), &born_ns.to_ne_bytes()].concat()
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("store")
    }
}

pub(crate) fn options(mode: Mode) -> Options {
    Options {
        mode,
        adopt: true,
        ..small_options()
    }
}

pub(crate) fn write(root: &Path) -> Store {
    Store::open(root, options(Mode::Append)).unwrap()
}

pub(crate) fn read(root: &Path) -> Store {
    Store::open(root, options(Mode::Read)).unwrap()
}

/// A body whose length and bytes depend only on the number.
pub(crate) fn body_of(number: usize) -> Vec<u8> {
    let len = match number % 10 {
        0 => 0,
        9 => 3000 + number % 1000,
        rest => 20 * rest,
    };
    (0..len).map(|at| (at * 31 + number) as u8).collect()
}

impl World {
    /// A world whose messages follow those that a store has.
    pub(crate) fn after(store: &Store) -> World {
        let engine = store.engine().unwrap();
        let mut world = World::default();
        for topic in engine.topics().all() {
            for queue in engine.queues(&topic) {
                let bounds = engine.bounds(&topic, queue).unwrap().unwrap_or(0..0);
                let place = (topic.name.to_string(), queue);
                world.next.insert(place, bounds.end);
            }
        }
        world
    }

    /// Sends `count` messages to three topics, one by one.
    pub(crate) fn send(&mut self, store: &Store, count: usize) {
        for _ in 0..count {
            let number = self.count;
            let topic = ["orders", "bills", "rare"][[0, 0, 0, 1, 1, 0, 2][number % 7]];
            self.send_to(store, topic, (number % 3) as u32);
        }
    }

    pub(crate) fn send_to(&mut self, store: &Store, topic: &str, queue: u32) {
        let number = self.count;
        self.count += 1;
        let keys = keys_of(number);
        let texts: Vec<&str> = keys.iter().map(|key| &**key).collect();
        let body = body_of(number);
        let draft = Draft {
            body: &body,
            keys: &texts,
            tags: number.is_multiple_of(2).then_some("even"),
            queue: Some(queue),
            ..Draft::default()
        };
        let producer = store.producer(topic, None).unwrap();
        let sent = producer.send(&draft, 0, Durability::Default).unwrap();
        let place = sent.place;
        let message = Sent {
            position: place.position,
            body,
            keys,
            time: sent.store_timestamp,
        };
        self.add(topic, place.queue, place.offset, message);
    }

    /// Sends an atomic batch; returns the positions of its rows.
    pub(crate) fn send_batch(&mut self, store: &Store, rows: usize) -> Vec<u64> {
        let first = self.count;
        self.count += rows;
        let all: Vec<(Vec<u8>, Vec<String>)> = (first..first + rows)
            .map(|number| (body_of(number), keys_of(number)))
            .collect();
        let keys: Vec<Vec<&str>> = all
            .iter()
            .map(|(_, keys)| keys.iter().map(|key| &**key).collect())
            .collect();
        let drafts = all.iter().zip(&keys).map(|((body, _), keys)| {
            Ok(Draft {
                body,
                keys,
                queue: Some(1),
                ..Draft::default()
            })
        });
        let producer = store.producer("orders", None).unwrap();
        let sent = producer
            .send_batch(drafts, Atomicity::Whole, Durability::Default)
            .unwrap();
        for (place, (body, keys)) in sent.rows.iter().zip(all) {
            let message = Sent {
                position: place.position,
                body,
                keys,
                time: sent.store_timestamp,
            };
            self.add("orders", place.queue, place.offset, message);
        }
        sent.rows.iter().map(|place| place.position).collect()
    }

    fn add(&mut self, topic: &str, queue: u32, offset: u64, message: Sent) {
        let next = self.next.entry((topic.to_owned(), queue)).or_default();
        assert_eq!(*next, offset, "offsets are consecutive");
        *next += 1;
        self.sent.insert((topic.to_owned(), queue, offset), message);
    }

    /// Forgets messages before a position of the log.
    pub(crate) fn retire(&mut self, min: u64) {
        self.sent.retain(|_, message| message.position >= min);
    }

    /// Checks that exactly these messages are found: by offset, by key, by time, by position.
    pub(crate) fn check(&self, store: &Store) {
        self.check_messages(store);
        self.check_keys(store);
        for ((topic, queue), next) in &self.next {
            let own = |((t, q, _), _): &(&(String, u32, u64), &Sent)| t == topic && q == queue;
            let all: Vec<_> = self.sent.iter().filter(own).collect();
            let Some((_, last)) = all.last() else {
                continue;
            };
            let found = store.offset_at(topic, *queue, last.time + 1).unwrap();
            assert_eq!(found, *next);
            let middle = all[all.len() / 2].1.time;
            let first_at = all.iter().find(|(_, message)| message.time >= middle);
            let found = store.offset_at(topic, *queue, middle).unwrap();
            assert_eq!(found, first_at.unwrap().0.2);
        }
    }

    pub(crate) fn check_messages(&self, store: &Store) {
        let mut found = BTreeMap::new();
        for ((topic, queue), next) in &self.next {
            let mut offset = 0;
            loop {
                let all = Filter::default();
                let batch = store.read(topic, *queue, offset, 100, None, &all).unwrap();
                assert_eq!(
                    batch.max_offset, *next,
                    "{topic} {queue}: {:?}",
                    batch.status
                );
                for message in &batch.messages {
                    let record = message.record();
                    let place = (topic.clone(), *queue, record.queue_offset() as u64);
                    let sent = Sent {
                        position: record.position() as u64,
                        body: message.body().unwrap().into_owned(),
                        keys: message.keys().into_iter().map(|k| k.into_owned()).collect(),
                        time: record.store_timestamp(),
                    };
                    found.insert(place, sent);
                }
                if batch.next_offset as i64 <= offset {
                    break;
                }
                offset = batch.next_offset as i64;
            }
        }
        let (have, want): (Vec<_>, Vec<_>) = (found.keys().collect(), self.sent.keys().collect());
        assert_eq!(have, want);
        for (place, sent) in &self.sent {
            assert_eq!(&found[place], sent, "{place:?}");
        }
    }

    pub(crate) fn check_keys(&self, store: &Store) {
        let mut by_key: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
        for ((topic, ..), message) in &self.sent {
            for key in &message.keys {
                by_key
                    .entry((topic, key))
                    .or_default()
                    .push(message.position);
            }
        }
        for ((topic, key), mut positions) in by_key {
            if key.ends_with('3') || !key.starts_with("key") {
                positions.sort_unstable_by(|a, b| b.cmp(a));
                let found = store.query(topic, key, i64::MIN, i64::MAX, 10_000).unwrap();
                let found: Vec<u64> = found.iter().map(|m| m.record().position() as u64).collect();
                assert_eq!(found, positions, "{topic} {key}");
            }
        }
    }
}

fn keys_of(number: usize) -> Vec<String> {
    let mut keys = vec![format!("key-{number}")];
    if number.is_multiple_of(11) {
        keys.push("eleven".to_owned());
    }
    if number.is_multiple_of(13) {
        keys.clear();
    }
    keys
}

/// Opens a store for reading, which must change nothing, then twice for writing. The second time
/// only the record of the opening may change. `check` runs on each.
pub(crate) fn open_each_way(root: &Path, check: impl Fn(&Store)) {
    let before = folder::listing(root);
    let store = read(root);
    check(&store);
    store.close().unwrap();
    drop(store);
    assert_eq!(
        folder::listing(root),
        before,
        "reading changed the directory"
    );
    let store = write(root);
    check(&store);
    store.close().unwrap();
    drop(store);
    let settled = folder::contents(root);
    let store = write(root);
    check(&store);
    store.close().unwrap();
    drop(store);
    assert_eq!(
        folder::contents(root),
        settled,
        "a second opening changed files"
    );
    let store = read(root);
    check(&store);
    store.close().unwrap();
}
