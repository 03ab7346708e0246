//! File systems that are full, or that cannot reserve blocks. They are mounted for a test, which
//! takes the rights of the administrator; without them the tests say so and pass.

use crate::world::{World, open_each_way, options, read, write};
use forebay::{Draft, Durability, Error, Mode, Store};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A file system of its own, until it is dropped.
struct Mount {
    dir: TempDir,
}

impl Mount {
    fn new(kind: &str, size: u64) -> Option<Mount> {
        let dir = tempfile::tempdir().unwrap();
        let done = Command::new("mount")
            .args(["-t", kind, "-o", &format!("size={size}"), "none"])
            .arg(dir.path())
            .stderr(Stdio::null())
            .status();
        if done.is_ok_and(|status| status.success()) {
            return Some(Mount { dir });
        }
        println!("skipped: {kind} cannot be mounted here");
        None
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// Takes up all room but `left` bytes.
    fn fill(&self, left: u64) {
        let mut ballast = fs::File::create(self.dir.path().join("ballast")).unwrap();
        // The store may take blocks at the same time.
        while free(self.dir.path()) > left && ballast.write_all(&[1; 4096]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.dir.path().join("ballast")).unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.dir.path())
            .status();
    }
}

fn free(path: &Path) -> u64 {
    use forebay::disk::Disk;
    forebay::disk::RealDisk.free_space(path).unwrap()
}

fn body(store: &Store, number: usize) -> forebay::Result<forebay::Sent> {
    let key = format!("key-{number}");
    let body = vec![7; 500 + number % 900];
    let draft = Draft {
        body: &body,
        keys: &[&key],
        ..Draft::default()
    };
    let topic = format!("topic-{}", number % 3);
    store
        .producer(&topic, None)?
        .send(&draft, 0, Durability::Default)
}

fn check(store: &Store, sent: &[(usize, forebay::Sent)]) {
    for (number, sent) in sent {
        let (topic, place) = (format!("topic-{}", number % 3), sent.place);
        let message = store.get(&topic, place.queue, place.offset as i64).unwrap();
        assert_eq!(message.body().unwrap().len(), 500 + number % 900);
        let key = format!("key-{number}");
        let found = store.query(&topic, &key, i64::MIN, i64::MAX, 10).unwrap();
        assert_eq!(found.len(), 1, "{key}");
        assert_eq!(found[0].record().position() as u64, place.position);
    }
}

#[test]
fn a_full_disk_is_an_error_before_the_append_and_passes() {
    let Some(mount) = Mount::new("tmpfs", 1200 << 10) else {
        return;
    };
    for round in 0..24u64 {
        let store = write(&mount.root());
        let mut sent: Vec<(usize, forebay::Sent)> = Vec::new();
        // Full from the first message on, or in the middle of files, queues and index.
        let mut number = 0;
        for _ in 0..round * 5 {
            sent.push((number, body(&store, number).unwrap()));
            number += 1;
        }
        mount.fill((round % 12) * 4096);
        let mut refused = 0;
        for _ in 0..300 {
            match body(&store, number) {
                Ok(one) => sent.push((number, one)),
                Err(Error::Full { needed, path, .. }) => {
                    assert!(needed > 0 && path.starts_with(mount.root()));
                    refused += 1;
                }
                Err(error) => panic!("{error}"),
            }
            number += 1;
        }
        assert!(refused > 0);
        mount.make_room();
        for _ in 0..40 {
            sent.push((number, body(&store, number).unwrap()));
            number += 1;
        }
        check(&store, &sent);
        store.close().unwrap();
        let store = write(&mount.root());
        assert!(store.recovery().clean);
        check(&store, &sent);
        assert_eq!(store.damage(), []);
        store.close().unwrap();
        drop(store);
        fs::remove_dir_all(mount.root()).unwrap();
    }
}

#[test]
fn closing_on_a_full_disk_loses_nothing() {
    let Some(mount) = Mount::new("tmpfs", 1200 << 10) else {
        return;
    };
    for left in [0, 4096, 8192, 16_384] {
        let store = write(&mount.root());
        let mut sent = Vec::new();
        for number in 0..60 {
            sent.push((number, body(&store, number).unwrap()));
        }
        mount.fill(left);
        for number in 60..200 {
            if let Ok(one) = body(&store, number) {
                sent.push((number, one));
            }
        }
        let closed = store.close();
        drop(store);
        // What reads needs no room.
        let store = read(&mount.root());
        check(&store, &sent);
        store.close().unwrap();
        match Store::open(mount.root(), options(Mode::Append)) {
            Ok(store) => {
                check(&store, &sent);
                let _ = store.close();
            }
            Err(error) => assert!(
                closed.is_err() || matches!(error, Error::Io { .. }),
                "{error}"
            ),
        }
        mount.make_room();
        let store = write(&mount.root());
        check(&store, &sent);
        store.close().unwrap();
        fs::remove_dir_all(mount.root()).unwrap();
    }
}

#[test]
fn a_file_system_that_reserves_no_blocks_keeps_what_was_written() {
    let Some(mount) = Mount::new("ramfs", 64 << 20) else {
        return;
    };
    let mut world = World::default();
    for _ in 0..4 {
        let store = write(&mount.root());
        world.check(&store);
        world.send(&store, 150);
        world.check(&store);
        store.close().unwrap();
    }
    open_each_way(&mount.root(), |store| world.check(store));
}
