//! Directories of stores: copies, listings, and contents.

use crate::world::Place;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Metadata of a file; two listings are equal if nothing was touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) inode: u64,
    pub(crate) mode: u32,
    pub(crate) len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    pub(crate) crc: u32,
}

/// All files below `root`, with metadata and checksum.
pub(crate) fn listing(root: &Path) -> BTreeMap<PathBuf, Fact> {
    try_listing(root).unwrap()
}

fn try_listing(root: &Path) -> io::Result<BTreeMap<PathBuf, Fact>> {
    let mut found = BTreeMap::new();
    collect(root, root, &mut found)?;
    Ok(found)
}

fn collect(root: &Path, at: &Path, found: &mut BTreeMap<PathBuf, Fact>) -> io::Result<()> {
    let metadata = fs::symlink_metadata(at)?;
    let crc = match metadata.is_file() {
        true => crc32fast::hash(&fs::read(at)?),
        false => 0,
    };
    let fact = Fact {
        inode: metadata.ino(),
        mode: metadata.mode(),
        len: if metadata.is_file() {
            metadata.len()
        } else {
            0
        },
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
        crc,
    };
    found.insert(at.strip_prefix(root).unwrap().to_path_buf(), fact);
    if metadata.is_dir() {
        for entry in fs::read_dir(at)? {
            collect(root, &entry?.path(), found)?;
        }
    }
    Ok(())
}

/// Checksums of all files below `root`, except those that each opening writes.
pub(crate) fn contents(root: &Path) -> BTreeMap<PathBuf, u32> {
    const RUNNING: [&str; 7] = [
        "lock",
        "abort",
        "forebay.idle",
        "checkpoint",
        "forebay.state",
        "forebay.offsets",
        "config",
    ];
    let all = listing(root).into_iter();
    all.filter(|(path, fact)| {
        let first = path.components().next();
        let name = first.map_or(String::new(), |c| {
            c.as_os_str().to_string_lossy().into_owned()
        });
        fact.mode & libc::S_IFMT == libc::S_IFREG && !RUNNING.contains(&&*name)
    })
    .map(|(path, fact)| (path, fact.crc))
    .collect()
}

/// Copies a whole directory that nobody writes to.
pub(crate) fn copy(from: &Path, to: &Path) {
    try_copy(from, to).unwrap();
}

fn try_copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            try_copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Names, kinds, lengths and checksums, which a copy has in common with its original.
fn bytes(root: &Path) -> io::Result<BTreeMap<PathBuf, (u32, u64, u32)>> {
    let all = try_listing(root)?.into_iter();
    let facts = all.map(|(path, it)| (path, (it.mode & libc::S_IFMT, it.len, it.crc)));
    Ok(facts.collect())
}

/// Copies the directory of a live store as it is at one moment, like a process that dies then would
/// leave it.
///
/// The threads of the store write, rename and remove files meanwhile. Copies until nothing has
/// changed during a copy; nobody may send to the store.
pub(crate) fn snapshot(from: &Path, to: &Path) {
    const TRIES: usize = 1000;
    let taken = (0..TRIES).any(|_| {
        let same = try_copy(from, to).and_then(|()| Ok(bytes(to)? == bytes(from)?));
        match same {
            Err(error) if error.kind() != io::ErrorKind::NotFound => panic!("{error}"),
            Ok(true) => true,
            // A missing file may have been renamed.
            _ => {
                fs::remove_dir_all(to).unwrap();
                false
            }
        }
    });
    assert!(taken, "{} keeps changing", from.display());
}

/// Two files are replaced one after the other. The second must never be ahead of the first, at any
/// moment and in any copy.
#[test]
fn a_copy_of_a_live_store_shows_one_moment() {
    let (place, copies) = (Place::fast(), Place::fast());
    let root = place.root();
    fs::create_dir(&root).unwrap();
    let replace = |name: &str, number: u64| {
        let temporary = root.join(format!("{name}.tmp"));
        fs::write(&temporary, number.to_string()).unwrap();
        fs::rename(&temporary, root.join(name)).unwrap();
    };
    for round in 0..20 {
        let copy = copies.root().join(round.to_string());
        replace("first", 0);
        replace("second", 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..300 {
                    replace("first", number);
                    replace("second", number);
                }
            });
            snapshot(&root, &copy);
        });
        let number = |name: &str| -> u64 {
            let text = fs::read_to_string(copy.join(name)).unwrap();
            text.parse().unwrap()
        };
        let (first, second) = (number("first"), number("second"));
        assert!(first == second || first == second + 1, "{first} {second}");
    }
}

/// Regular files below `root`, by name.
pub(crate) fn files(root: &Path) -> Vec<PathBuf> {
    let all = listing(root).into_iter();
    all.filter(|(_, fact)| fact.mode & libc::S_IFMT == libc::S_IFREG)
        .map(|(path, _)| root.join(path))
        .collect()
}

/// Records that all delayed messages of a store were delivered. Otherwise opening the store for
/// writing delivers them, and it holds more messages than before.
pub fn without_delayed_messages(root: &Path) {
    let config = root.join("config");
    fs::create_dir_all(&config).unwrap();
    let levels: Vec<String> = (1..=18).map(|level| format!("{level}:1000000")).collect();
    let table = format!("{{\"offsetTable\":{{{}}}}}", levels.join(","));
    fs::write(config.join("delayOffset.json"), table).unwrap();
}
