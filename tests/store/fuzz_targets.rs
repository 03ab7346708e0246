//! Fuzz targets: arbitrary bytes for each decoder, in an otherwise intact store.
//!
//! A target takes bytes and returns. A panic or a hang is a finding; an error is not. This file
//! uses only the crate and `tempfile`: `fuzz/` includes it to run each target under cargo-fuzz, and
//! `fuzz.rs` runs the targets with bytes from proptest.

use forebay::{BlockTable, Blocks, Bound, CleanupPolicy, Compaction, Damages, EngineKind, Policy};
use forebay::{Check, Draft, Durability, Filter, Mode, Options, ScanSpec, Store, Wanted};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tempfile::TempDir;

/// One fuzz target.
type Target = fn(&[u8]);

/// All targets, by name.
pub(crate) const TARGETS: &[(&str, Target)] = &[
    ("record", record),
    ("properties", properties),
    ("log", log),
    ("queue", queue),
    ("index", index),
    ("topics", topics),
    ("checkpoint", checkpoint),
    ("state", state),
    ("state_fields", state_fields),
    ("offsets", offsets),
    ("store", store),
    ("blocks", blocks),
    ("block_scan", block_scan),
    ("kafka", kafka),
    ("kafka_log", kafka_log),
    ("partition_log", partition_log),
];

/// Runs one target.
pub(crate) fn run(name: &str, bytes: &[u8]) {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.unwrap().1(bytes);
}

fn options(mode: Mode) -> Options {
    Options {
        mode,
        commitlog_file_size: Some(16 << 10),
        queue_file_entries: Some(64),
        index_slots: Some(16),
        index_entries: Some(64),
        default_queues: Some(2),
        max_message_size: Some(8 << 10),
        // Without checksums, the decoders must check everything themselves.
        checksum: Some(false),
        ..Options::default()
    }
}

fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    made.unwrap()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// The intact store from which each target begins.
fn good() -> &'static Path {
    static GOOD: OnceLock<TempDir> = OnceLock::new();
    let made = GOOD.get_or_init(|| {
        let folder = folder();
        let store = Store::open(folder.path(), options(Mode::Append)).unwrap();
        for number in 0..60 {
            let key = format!("key-{number}");
            let draft = Draft {
                body: b"a body of some length",
                keys: &[&key],
                tags: Some("tag"),
                properties: &[("region", "eu")],
                ..Draft::default()
            };
            let topic = ["orders", "bills"][number % 2];
            let producer = store.producer(topic, None).unwrap();
            producer.send(&draft, 0, Durability::Default).unwrap();
        }
        store.close().unwrap();
        folder
    });
    made.path()
}

/// Files of the intact store whose names begin with `begin`, in order.
fn named(begin: &str) -> Vec<PathBuf> {
    let mut found = files_below(good());
    found.retain(|name| name.starts_with(begin));
    found
}

/// The files below a directory, by their names in it.
fn files_below(root: &Path) -> Vec<PathBuf> {
    fn collect(root: &Path, at: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => collect(root, &path, found),
                false => found.push(path.strip_prefix(root).unwrap().to_path_buf()),
            }
        }
    }
    let mut found = Vec::new();
    collect(root, root, &mut found);
    found.sort();
    found
}

/// Changes the bytes of a file in a copy of the intact store, and uses the whole store.
fn with_file(name: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let folder = folder();
    copy(good(), folder.path());
    let path = folder.path().join(name);
    let mut bytes = fs::read(&path).unwrap_or_default();
    change(&mut bytes);
    fs::write(&path, bytes).unwrap();
    exercise(folder.path());
}

/// Overwrites the start of a file and keeps its length.
fn over(name: &Path, bytes: &[u8]) {
    with_file(name, |file| {
        let len = bytes.len().min(file.len());
        file[..len].copy_from_slice(&bytes[..len]);
    });
}

fn exercise(root: &Path) {
    let body = [7; 3000];
    for mode in [Mode::Read, Mode::Append, Mode::Read] {
        let Ok(store) = Store::open(root, options(mode)) else {
            continue;
        };
        let _ = store.verify(&mut |_, _| true);
        for number in 0..6 {
            let draft = Draft {
                body: &body,
                keys: &["key-7"],
                queue: Some(number % 2),
                ..Draft::default()
            };
            // Enough to continue in the next file.
            let sent = store.producer("orders", None);
            let _ = sent.and_then(|producer| producer.send(&draft, 0, Durability::Flushed));
        }
        for topic in ["orders", "bills"] {
            let _ = store.query(topic, "key-7", i64::MIN, i64::MAX, 100);
            for queue in 0..2 {
                let _ = store.read(topic, queue, 0, 100, None, &Filter::default());
                let _ = store.offset_at(topic, queue, 1);
            }
        }
        let mut rows = forebay::Rows::default();
        if let Ok(mut cursor) = store.engine().unwrap().log_cursor(Check::Full) {
            let _ = cursor.next(1_000, &mut rows);
        }
        let _ = store.close();
    }
}

/// A single record.
fn record(bytes: &[u8]) {
    let Ok(record) = forebay::Row::parse(bytes).map(forebay::Row::rocketmq) else {
        return;
    };
    let _ = record.check(record.position() as u64);
    let _ = (record.born_host(), record.store_host(), record.check_body());
}

/// A batch in Kafka's form, as it is and with a length that fits and each of the formats.
fn kafka(bytes: &[u8]) {
    let read = |bytes: &[u8]| {
        let Ok(mut batch) = forebay::internals::kafka::Opened::open(bytes.to_vec(), false) else {
            return;
        };
        while let Ok(Some(entry)) = batch.next() {
            let _ = entry.headers.iter().count();
        }
    };
    read(bytes);
    for magic in 0..3 {
        let mut fitting = bytes.to_vec();
        if let Some(len) = fitting.len().checked_sub(12).filter(|len| *len > 14) {
            fitting[0] = 0;
            fitting[8..12].copy_from_slice(&(len as i32).to_be_bytes());
            fitting[16] = magic;
            read(&fitting);
        }
    }
}

/// A partition of Kafka's whose files are arbitrary bytes, all the same or each a part of them.
fn kafka_log(bytes: &[u8]) {
    let root = folder();
    let partition = root.path().join("t-0");
    fs::create_dir(&partition).unwrap();
    let endings = ["log", "index", "timeindex", "snapshot"];
    let part = bytes.len() / endings.len();
    for base in [0, 5] {
        for (number, ending) in endings.iter().enumerate() {
            let own = match base {
                0 => bytes,
                _ => &bytes[number * part..(number + 1) * part],
            };
            fs::write(partition.join(format!("{base:020}.{ending}")), own).unwrap();
        }
    }
    fs::write(root.path().join("log-start-offset-checkpoint"), bytes).unwrap();
    let options = Options {
        mode: Mode::Read,
        isolation: Some(forebay::Isolation::ReadCommitted),
        ..Options::default()
    };
    let Ok(store) = Store::open(root.path(), options) else {
        return;
    };
    let _ = store.verify(&mut |_, _| true);
    let _ = store.offset_at("t", 0, 1);
    let _ = store.read("t", 0, 0, 100, None, &Filter::default());
    let _ = store.get("t", 0, 3);
    let _ = store.query("t", "key", 0, 10, 10);
}

fn log_options(mode: Mode) -> Options {
    Options {
        mode,
        engine: Some(EngineKind::PartitionLog),
        segment_bytes: Some(4096),
        index_interval_bytes: Some(300),
        default_queues: Some(1),
        adopt: true,
        compaction: Compaction {
            cleanup_policy: CleanupPolicy {
                default: Policy::CompactDelete,
                ..CleanupPolicy::default()
            },
            ..Compaction::default()
        },
        ..Options::default()
    }
}

/// The intact partition log that is changed: some segments, an offset before which messages were
/// deleted, and the mark of a clean stop.
fn good_log() -> &'static Path {
    static GOOD: OnceLock<TempDir> = OnceLock::new();
    let made = GOOD.get_or_init(|| {
        let made = folder();
        let store = Store::open(made.path(), log_options(Mode::Append)).unwrap();
        for number in 0..14 {
            send_to_log(&store, number).unwrap();
        }
        let first = [(0, 2)].into();
        store.delete_before("t", &Bound::Offsets(first)).unwrap();
        store.close().unwrap();
        made
    });
    made.path()
}

/// Sends a kilobyte, and returns its offset.
fn send_to_log(store: &Store, number: u8) -> forebay::Result<i64> {
    let draft = Draft {
        body: &[number; 1000],
        keys: &[["a", "b", "c"][usize::from(number % 3)]],
        ..Draft::default()
    };
    let sent = store
        .producer("t", None)?
        .send(&draft, 0, Durability::Default)?;
    Ok(sent.place.offset.cast_signed())
}

/// Arbitrary changes to a partition log, which is then opened for writing, sent to, compacted and
/// cut. All messages that it holds when it is closed without an error must be there when it is
/// opened again.
fn partition_log(bytes: &[u8]) {
    let root = folder();
    copy(good_log(), root.path());
    let Some((how, changes)) = bytes.split_first() else {
        return;
    };
    for (bit, name) in [".kafka_cleanshutdown", "forebay.partitionlog"]
        .iter()
        .enumerate()
    {
        if how & (1 << bit) != 0 {
            fs::remove_file(root.path().join(name)).unwrap();
        }
    }
    let files = files_below(good_log());
    for change in changes.chunks_exact(4) {
        let path = root
            .path()
            .join(&files[usize::from(change[0]) % files.len()]);
        let Ok(mut file) = fs::read(&path) else {
            continue;
        };
        let at = usize::from(u16::from_be_bytes([change[1], change[2]]));
        match file.len() {
            0 => continue,
            len if change[1] % 8 == 7 => file.truncate(at % len),
            len => file[at % len] = change[3],
        }
        fs::write(&path, file).unwrap();
    }
    let Ok(store) = Store::open(root.path(), log_options(Mode::Append)) else {
        return;
    };
    let _ = store.verify(&mut |_, _| true);
    let offset = send_to_log(&store, 77);
    let _ = store.compact(None, &mut |_, _| true);
    if how & 4 != 0
        && let Ok(offset) = offset
    {
        let to = [(0, offset.cast_unsigned())].into();
        let _ = store.delete_before("t", &Bound::Offsets(to));
    }
    let sent: Vec<_> = (80..88)
        .map(|number| (number, send_to_log(&store, number)))
        .collect();
    let closed = store.close();
    let Ok(reader) = Store::open(root.path(), log_options(Mode::Read)) else {
        assert!(closed.is_err(), "what was closed cannot be opened");
        return;
    };
    for (number, offset) in sent {
        let (Ok(offset), Ok(())) = (offset, &closed) else {
            continue;
        };
        let found = reader.get("t", 0, offset).unwrap();
        assert_eq!(found.body().unwrap(), &[number; 1000][..]);
    }
}

/// The properties of the first record, with correct lengths.
fn properties(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(0x7FFF)];
    let name = &named("commitlog")[0];
    with_file(name, |file| {
        let total = u32::from_be_bytes(file[..4].try_into().unwrap()) as usize;
        let body = u32::from_be_bytes(file[84..88].try_into().unwrap()) as usize;
        let topic_at = 88 + body;
        let at = topic_at + 1 + usize::from(file[topic_at]);
        let mut made = file[..at].to_vec();
        made.extend((bytes.len() as u16).to_be_bytes());
        made.extend(bytes);
        let len = made.len() as u32;
        made[..4].copy_from_slice(&len.to_be_bytes());
        made.extend(&file[total..]);
        made.truncate(file.len());
        *file = made;
    });
}

fn log(bytes: &[u8]) {
    over(&named("commitlog")[0], bytes);
}

fn queue(bytes: &[u8]) {
    over(&named("consumequeue")[0], bytes);
}

fn index(bytes: &[u8]) {
    over(&named("index")[0], bytes);
}

fn topics(bytes: &[u8]) {
    with_file(Path::new("config/topics.json"), |file| {
        *file = bytes.to_vec()
    });
}

fn checkpoint(bytes: &[u8]) {
    over(Path::new("checkpoint"), bytes);
}

fn state(bytes: &[u8]) {
    over(Path::new("forebay.state"), bytes);
}

/// Fields of the state page: first byte and width.
const STATE_FIELDS: [(usize, usize); 26] = [
    (8, 4),    // version
    (12, 4),   // clean
    (16, 8),   // boot id
    (32, 8),   // epoch
    (40, 8),   // start of the epoch
    (48, 8),   // process id
    (56, 4),   // store host
    (80, 8),   // bytes of a log file
    (88, 8),   // entries of a queue file
    (96, 4),   // slots of an index file
    (100, 4),  // entries of an index file
    (108, 4),  // checksums
    (112, 4),  // foreign
    (116, 4),  // unindexed
    (120, 4),  // generation
    (128, 8),  // published
    (192, 8),  // dispatched
    (256, 8),  // durable
    (320, 8),  // minimum
    (384, 8),  // settled
    (448, 4),  // commits left
    (456, 8),  // mount
    (480, 8),  // inode
    (512, 4),  // commits taken
    (2048, 8), // an epoch: time of its beginning
    (2056, 8), // end of the log at that time
];

/// Extreme values of fields.
const EDGES: [u64; 18] = [
    0,
    1,
    2,
    3,
    127,
    128,
    4095,
    4096,
    8192,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 40,
    u64::MAX / 20 + 1,
    1 << 62,
    1 << 63,
    u64::MAX,
];

/// How the last writer left the store of the state page.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left {
    Closed,
    Halted,
    /// Closed, then all files removed except the page and the tables.
    Bare,
}

/// Sets fields of the state page to extreme values, with a correct checksum, and uses the store.
fn with_fields(fields: &[(usize, u64)], left: Left) {
    let folder = folder();
    copy(good(), folder.path());
    let path = folder.path().join("forebay.state");
    let mut page = fs::read(&path).unwrap();
    if matches!(left, Left::Halted) {
        page[12..16].fill(0);
        let names = ["forebay.idle", "abort"].map(|name| folder.path().join(name));
        fs::rename(&names[0], &names[1]).unwrap();
    }
    for (field, value) in fields {
        let (at, width) = STATE_FIELDS[field % STATE_FIELDS.len()];
        match width {
            4 => page[at..at + 4].copy_from_slice(&(*value as u32).to_ne_bytes()),
            _ => page[at..at + 8].copy_from_slice(&value.to_ne_bytes()),
        }
    }
    let crc = crc32fast::hash(&page[56..104]);
    page[104..108].copy_from_slice(&crc.to_ne_bytes());
    // In place, as a process with a map of the page leaves it.
    fs::write(&path, page).unwrap();
    if matches!(left, Left::Bare) {
        for name in ["commitlog", "consumequeue", "index"] {
            fs::remove_dir_all(folder.path().join(name)).unwrap();
        }
    }
    exercise(folder.path());
}

/// A field of the state page, an extreme value of it, and how the store was left.
pub(crate) type Extreme = (usize, u64, Left);

/// Each field of the state page with each extreme value.
pub(crate) fn extremes() -> Vec<Extreme> {
    let lefts = [Left::Closed, Left::Halted, Left::Bare];
    let mut extremes = Vec::new();
    for field in 0..STATE_FIELDS.len() {
        for value in EDGES {
            extremes.extend(lefts.map(|left| (field, value, left)));
        }
    }
    extremes
}

/// Uses a store whose state page has an extreme value.
pub(crate) fn with_extreme((field, value, left): Extreme) {
    with_fields(&[(field, value)], left);
}

/// Some fields of the state page at or near extreme values. Field, value and distance take three of
/// the bytes each; the first byte says how the store was left.
fn state_fields(bytes: &[u8]) {
    let (left, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let left = [Left::Closed, Left::Halted, Left::Bare][usize::from(*left) % 3];
    let fields = rest.chunks_exact(3).map(|chunk| {
        let edge = EDGES[usize::from(chunk[1]) % EDGES.len()];
        let value = edge.wrapping_add_signed(i64::from(chunk[2].cast_signed()));
        (usize::from(chunk[0]), value)
    });
    with_fields(&fields.collect::<Vec<_>>(), left);
}

/// The inventory, with a correct checksum.
fn offsets(bytes: &[u8]) {
    with_file(Path::new("forebay.offsets"), |file| {
        *file = [b"forebay.offsets 1\n", bytes, b"\n"].concat();
        let crc = crc32fast::hash(file);
        file.extend(format!("crc {crc:08x}\n").bytes());
    });
}

/// Damage to an intact store: file, place and value of each change take four of the bytes.
fn store(bytes: &[u8]) {
    let folder = folder();
    copy(good(), folder.path());
    let files = named("");
    for change in bytes.chunks_exact(4) {
        let path = folder
            .path()
            .join(&files[usize::from(change[0]) % files.len()]);
        let mut file = fs::read(&path).unwrap();
        let at = usize::from(u16::from_be_bytes([change[1], change[2]]));
        match file.len() {
            0 => continue,
            // The start of a file is more interesting than the rest.
            len if change[1] % 8 == 7 => file.truncate(at % len),
            len => file[at % len.min(600)] = change[3],
        }
        fs::write(&path, file).unwrap();
    }
    exercise(folder.path());
}

/// Arbitrary bytes as the block table of an archive, and the same after a valid head with checksum.
fn blocks(bytes: &[u8]) {
    let decode = |bytes: &[u8]| {
        let Ok(table) = BlockTable::decode(bytes, Path::new("blocks")) else {
            return;
        };
        let wanted = wanted();
        let _ = (table.queue_ranges(), table.weights(&wanted));
        for block in table.select(&wanted) {
            let _ = table.ends_before(block);
        }
        let range = table.key_range(b"orders", b"key");
        assert!(range.start <= range.end);
        let _ = table.key_blocks(b"orders", b"key", bytes, Path::new("keys"));
    };
    decode(bytes);
    let mut whole = b"FBBLOCKS\0\0\0\x01".to_vec();
    whole.extend_from_slice(&crc32fast::hash(bytes).to_be_bytes());
    whole.extend_from_slice(bytes);
    decode(&whole);
}

/// Arbitrary bytes as blocks that were read from an archive.
fn block_scan(bytes: &[u8]) {
    for queue in [None, Some(("orders", 0))] {
        let blocks = Blocks {
            bytes,
            position: 0,
            path: Path::new("log"),
            expected: &[(100, 0), (u32::MAX, 0)],
            queue,
        };
        let damage = Damages::default();
        let rows = blocks
            .scan(&ScanSpec::default(), wanted(), &damage)
            .unwrap();
        let rows: usize = rows.map(|batch| batch.unwrap().num_rows()).sum();
        // Batches may be packed.
        assert!(queue.is_some() || rows <= bytes.len() / 91);
        assert!(!damage.all().is_empty());
        let _ = blocks.offset_at(wanted(), 0);
    }
}

fn wanted() -> Wanted {
    let mut wanted = Wanted::default();
    let queues = wanted.entry(b"orders".to_vec()).or_default();
    queues.entry(0).or_default().push(0..u64::MAX);
    wanted
}
