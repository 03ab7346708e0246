//! Directories of stores as tests look at them: copies, listings, and what is in them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a file system knows of a name; two listings are equal if nothing was touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) inode: u64,
    pub(crate) mode: u32,
    pub(crate) len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    pub(crate) crc: u32,
}

/// Every name below `root`, with its facts and a checksum of its bytes.
pub(crate) fn listing(root: &Path) -> BTreeMap<PathBuf, Fact> {
    let mut found = BTreeMap::new();
    collect(root, root, &mut found);
    found
}

fn collect(root: &Path, at: &Path, found: &mut BTreeMap<PathBuf, Fact>) {
    let metadata = fs::symlink_metadata(at).unwrap();
    let crc = match metadata.is_file() {
        true => crc32fast::hash(&fs::read(at).unwrap()),
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
        for entry in fs::read_dir(at).unwrap() {
            collect(root, &entry.unwrap().path(), found);
        }
    }
}

/// Checksums of all files below `root` but those that each opening writes.
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

/// Copies a directory as a whole.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Regular files below `root`, by name.
pub(crate) fn files(root: &Path) -> Vec<PathBuf> {
    let all = listing(root).into_iter();
    all.filter(|(_, fact)| fact.mode & libc::S_IFMT == libc::S_IFREG)
        .map(|(path, _)| root.join(path))
        .collect()
}
