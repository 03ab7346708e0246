//! Directories that a broker left are taken over: every file of Kafka's stays as it is, byte for
//! byte, and an index that is lost is rebuilt to what it was.
//!
//! The repository has small copies of the directories; the whole set is also read if the
//! environment or the neighbouring folder has it.

use super::golden::golden;
use super::write::{bodies, files, send, writing};
use super::*;
use std::collections::BTreeMap;

/// Folders of the small set that were cut after a batch in the middle of an index interval. Kafka
/// adds the entry of the newest time when it closes a segment, and nothing closed these.
const CUT_IN_AN_INTERVAL: [&str; 3] = ["gzip-0", "v1gzip-0", "zstd-0"];

/// A copy of the whole set, if it exists.
fn whole_set() -> Option<TempDir> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures");
    let folder = std::env::var_os("FOREBAY_FIXTURES").map_or(beside, PathBuf::from);
    let set = fs::read_dir(folder.join("kafka")).ok()?;
    let root = tempfile::tempdir().unwrap();
    let folders = set.map(|entry| entry.unwrap().path());
    for folder in folders.filter(|path| path.is_dir()) {
        let copy = root.path().join(folder.file_name().unwrap());
        fs::create_dir(&copy).unwrap();
        for file in fs::read_dir(&folder).unwrap() {
            let path = file.unwrap().path();
            // Not `fs::copy`: the set may be read-only.
            let bytes = fs::read(&path).unwrap();
            fs::write(copy.join(path.file_name().unwrap()), bytes).unwrap();
        }
    }
    Some(root)
}

/// Adopts a directory without its indexes, and closes it. Returns the files of its partitions as
/// they were and as they are.
fn adopted(root: &Path) -> [BTreeMap<PathBuf, Vec<u8>>; 2] {
    let known = files(root, "");
    let is_index = |path: &&PathBuf| {
        let kind = path.extension().unwrap_or_default();
        kind == "index" || kind == "timeindex"
    };
    for path in known.keys().filter(is_index) {
        fs::remove_file(root.join(path)).unwrap();
    }
    let adopt = Options {
        adopt: true,
        ..Options::default()
    };
    writing(root, &adopt).unwrap().close().unwrap();
    [known, files(root, "")]
}

/// The entry of a time index for the newest message of a topic, which is the last one.
fn newest_entry(root: &Path, topic: &str) -> Vec<u8> {
    let engine = open(root, Isolation::ReadUncommitted).unwrap();
    let all = messages(&engine, topic, 1000);
    let times = all.iter().map(|it| it.record().store_timestamp());
    let last = all.last().unwrap().record();
    assert_eq!(times.max().unwrap(), last.store_timestamp());
    let offset = u32::try_from(last.queue_offset()).unwrap();
    let entry = [
        &last.store_timestamp().to_be_bytes()[..],
        &offset.to_be_bytes(),
    ];
    entry.concat()
}

#[test]
fn a_directory_that_a_broker_left_is_taken_over_and_its_indexes_rebuilt() {
    let root = golden(&[]);
    let [mut known, found] = adopted(root.path());
    for name in CUT_IN_AN_INTERVAL {
        let path = Path::new(name).join(format!("{:020}.timeindex", 0));
        let entry = newest_entry(root.path(), name.strip_suffix("-0").unwrap());
        known.get_mut(&path).unwrap().extend(entry);
    }
    assert_same(&known, &found);
    // It is a store of Forebay from here on.
    let engine = writing(root.path(), &Options::default()).unwrap();
    let before = bodies(&engine, "lz4", 0).len();
    send(&engine, "lz4", &[(0, b"more")]);
    assert_eq!(bodies(&engine, "lz4", 0).len(), before + 1);
}

#[test]
fn the_whole_set_is_taken_over_if_it_exists() {
    let Some(root) = whole_set() else {
        println!("skipped: the folder of the whole set does not exist");
        return;
    };
    let [known, found] = adopted(root.path());
    assert_same(&known, &found);
}

/// Names the files that differ rather than printing them.
fn assert_same(known: &BTreeMap<PathBuf, Vec<u8>>, found: &BTreeMap<PathBuf, Vec<u8>>) {
    let names = |of: &BTreeMap<PathBuf, Vec<u8>>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(known));
    for (path, bytes) in known {
        assert!(found[path] == *bytes, "{}", path.display());
    }
    let indexes = known
        .keys()
        .filter(|path| path.to_str().unwrap().ends_with("index"));
    assert!(indexes.count() > 40);
}
