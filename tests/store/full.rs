//! A full file system in memory: loads from holes fault there, and so do stores.
//!
//! Each test mounts a small tmpfs, which needs a privilege. Without it, the tests print that they
//! are skipped, and pass.

use crate::bed::{small_options, to_queue};
use crate::golden::{Golden, read_all};
use forebay::{Error, Mode, Options, Store};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted tmpfs; unmounted when it is dropped.
struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    fn new(bytes: u64) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "forebay-test"])
            .arg(dir.path())
            .output();
        if mounted.is_ok_and(|done| done.status.success()) {
            fs::write(dir.path().join("ballast"), vec![0; 1 << 20]).unwrap();
            return Some(SmallDisk { dir });
        }
        let required = std::env::var("CI_REQUIRES").unwrap_or_default();
        let required = required.split(',').any(|name| name == "tmpfs");
        assert!(
            !required,
            "CI_REQUIRES names tmpfs, which cannot be mounted"
        );
        eprintln!("skipped: a tmpfs cannot be mounted here");
        None
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// Uses up all free space.
    fn fill(&self) {
        let mut file = fs::File::create(self.dir.path().join("filler")).unwrap();
        let zeros = [0; 4096];
        while file.write_all(&zeros).is_ok() {}
    }

    /// Frees some space: a MiB and the space used by `fill`.
    fn free(&self) {
        for name in ["filler", "ballast"] {
            let _ = fs::remove_file(self.dir.path().join(name));
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a map that a failed test has leaked must not prevent it.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.dir.path())
            .status();
    }
}

/// Copies a file as a sparse one: pages of zeros become holes.
fn copy_sparse(from: &Path, to: &Path) {
    let bytes = fs::read(from).unwrap();
    let file = fs::File::create(to).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (page, part) in bytes.chunks(4096).enumerate() {
        if part.iter().any(|byte| *byte != 0) {
            file.write_all_at(part, page as u64 * 4096).unwrap();
        }
    }
}

fn copy_store(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_store(&entry.path(), &target),
            false => copy_sparse(&entry.path(), &target),
        }
    }
}

fn read_everything(store: &Store) -> usize {
    read_all(store).len()
}

/// A store on a full disk can still be read, and can send again when there is space.
#[test]
fn a_full_disk_only_prevents_sends() {
    let Some(disk) = SmallDisk::new(3 << 20) else {
        return;
    };
    let options = Options {
        // Sparse index files and queue files of the usual sizes.
        commitlog_file_size: Some(1 << 20),
        queue_file_entries: None,
        index_slots: Some(5000),
        index_entries: Some(20_000),
        ..small_options()
    };
    let store = Store::open(disk.root(), options.clone()).unwrap();
    let producer = store.producer("orders", None).unwrap();
    let send = |number: usize| {
        let key = format!("k{number}");
        let draft = forebay::Draft {
            keys: &[&key],
            ..to_queue(0, &[7; 3000])
        };
        producer.send(&draft, 0, forebay::Durability::Default)
    };
    for number in 0..100 {
        send(number).unwrap();
    }
    assert_eq!(read_everything(&store), 100);
    disk.fill();
    // Reserved blocks take some more messages; queues and index may wait for space of their own.
    let (sent, error) = (100..)
        .find_map(|number| send(number).err().map(|error| (number, error)))
        .unwrap();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    let readable = read_everything(&store);
    assert!((100..=sent).contains(&readable), "{readable} of {sent}");
    for key in ["k0", "k99", "no such key"] {
        let found = store.query("orders", key, i64::MIN, i64::MAX, 10).unwrap();
        assert_eq!(found.len(), usize::from(key.starts_with('k')), "{key}");
    }
    store.verify(&mut |_, _| true).unwrap();

    disk.free();
    send(sent).unwrap();
    assert_eq!(read_everything(&store), sent + 1);
    store.close().unwrap();
    let store = Store::open(disk.root(), options).unwrap();
    assert_eq!(read_everything(&store), sent + 1);
}

/// A reader next to the writer, both without free space.
#[test]
fn a_reader_on_a_full_disk_sees_all_messages() {
    let Some(disk) = SmallDisk::new(24 << 20) else {
        return;
    };
    let options = Options {
        queue_file_entries: None,
        index_slots: Some(100_000),
        index_entries: Some(400_000),
        ..small_options()
    };
    let store = Store::open(disk.root(), options).unwrap();
    let producer = store.producer("orders", None).unwrap();
    for number in 0..200 {
        let body = format!("{number}");
        let draft = to_queue(number % 4, body.as_bytes());
        producer
            .send(&draft, 0, forebay::Durability::Default)
            .unwrap();
    }
    disk.fill();
    let read = Options {
        mode: Mode::Read,
        ..Options::default()
    };
    let reader = Store::open(disk.root(), read.clone()).unwrap();
    assert_eq!(read_everything(&reader), 200);
    for key in ["a", "b", "c"] {
        let found = reader.query("orders", key, i64::MIN, i64::MAX, 10).unwrap();
        assert!(found.is_empty());
    }
    drop(reader);
    disk.free();
    store.close().unwrap();
    disk.fill();
    let reader = Store::open(disk.root(), read).unwrap();
    assert_eq!(read_everything(&reader), 200);
}

/// Stores of another system are sparse wherever nothing was written, and can be read without space.
#[test]
fn sparse_stores_are_read_without_space() {
    for name in ["clean", "crashed", "lost-queues", "torn-hole", "torn-tail"] {
        let Some(disk) = SmallDisk::new(256 << 20) else {
            return;
        };
        let golden = Golden::small(name);
        crate::folder::without_delayed_messages(&golden.root);
        let whole = read_everything(&golden.read_only());
        copy_store(&golden.root, &disk.root());
        disk.fill();
        let before = blocks(&disk.root());
        let options = Options {
            mode: Mode::Read,
            ..Options::default()
        };
        let store = Store::open(disk.root(), options).unwrap();
        assert_eq!(read_everything(&store), whole, "{name}");
        for ((topic, ..), _) in golden.listed.iter().step_by(50) {
            let found = store.query(topic, "no such key", i64::MIN, i64::MAX, 10);
            assert!(found.unwrap().is_empty(), "{name}");
        }
        store.verify(&mut |_, _| true).unwrap();
        drop(store);
        assert_eq!(blocks(&disk.root()), before, "{name}");
        // Adopting it needs space, which the error says.
        let options = Options {
            adopt: true,
            ..Options::default()
        };
        match Store::open(disk.root(), options.clone()) {
            Ok(store) => assert_eq!(read_everything(&store), whole, "{name}"),
            Err(error) => assert!(error.to_string().contains("space"), "{name}: {error}"),
        }
        disk.free();
        let store = Store::open(disk.root(), options).unwrap();
        assert_eq!(read_everything(&store), whole, "{name}");
    }
}

/// Blocks in use below a directory.
fn blocks(root: &Path) -> u64 {
    let mut sum = fs::symlink_metadata(root).unwrap().blocks();
    if root.is_dir() {
        for entry in fs::read_dir(root).unwrap() {
            sum += blocks(&entry.unwrap().path());
        }
    }
    sum
}

/// With space, tmpfs behaves like an ordinary disk.
#[test]
fn a_tmpfs_with_space_is_like_any_disk() {
    let Some(disk) = SmallDisk::new(64 << 20) else {
        return;
    };
    let store = Store::open(disk.root(), small_options()).unwrap();
    let producer = store.producer("orders", None).unwrap();
    for number in 0..1000 {
        let body = format!("{number}");
        let draft = to_queue(number % 4, body.as_bytes());
        producer
            .send(&draft, 0, forebay::Durability::Default)
            .unwrap();
    }
    assert_eq!(read_everything(&store), 1000);
    store.close().unwrap();
    let store = Store::open(disk.root(), small_options()).unwrap();
    assert_eq!(read_everything(&store), 1000);
}
