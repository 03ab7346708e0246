//! Logs on a disk whose maps are copies.

use crate::disk::copying::CopyingDisk;
use crate::disk::{Disk, RealDisk};
use crate::engine::commit_log::log::Log;
use crate::engine::commit_log::log::walker::{Step, Walker};
use crate::mapped::queue::{file_name, list_files};
use crate::mapped::{Extent, MappedFileQueue};
use crate::region::Access;
use crate::{Draft, Durability, Options, Store};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

#[test]
fn a_walk_over_many_files_keeps_few_copies_and_reuses_those_in_use() {
    const LEN: u64 = 1 << 30;
    let dir = tempfile::tempdir().unwrap();
    for number in 0..6 {
        let file = File::create(dir.path().join(file_name(number * LEN))).unwrap();
        file.set_len(LEN).unwrap();
        file.write_all_at(&number.to_ne_bytes(), 9).unwrap();
    }
    let disk: Arc<dyn Disk> = Arc::new(CopyingDisk);
    let files = MappedFileQueue::new(&disk, dir.path().to_owned(), LEN);
    let found = list_files(&*disk, dir.path()).unwrap();
    files.load(&found, Access::Read, |_| Extent::Full);
    let first = files.map(&files.first().unwrap()).unwrap();
    for (number, file) in (0u64..).zip(files.all()) {
        let region = files.map(&file).unwrap();
        let read = region.slice(9, 8).unwrap().unwrap();
        assert_eq!(read, number.to_ne_bytes());
        let kept = files.all().iter().filter(|file| file.is_mapped()).count();
        assert!(kept <= 2, "{kept} copies");
    }
    let again = files.map(&files.first().unwrap()).unwrap();
    assert!(
        Arc::ptr_eq(&first, &again),
        "a file in use was copied twice"
    );
}

#[test]
fn reading_a_record_copies_only_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    let options = Options {
        commitlog_file_size: Some(1 << 20),
        ..Options::default()
    };
    let store = Store::open(&root, options).unwrap();
    let producer = store.producer("orders", Some(0)).unwrap();
    for number in 0..300 {
        let body = vec![7; number * 31];
        let draft = Draft {
            body: &body,
            ..Draft::default()
        };
        producer.send(&draft, 0, Durability::Default).unwrap();
    }
    store.close().unwrap();
    let log_on = |disk: Arc<dyn Disk>| {
        let found = list_files(&*disk, &root.join("commitlog")).unwrap();
        Arc::new(Log::of_files(&disk, &root, &found, 1 << 20).unwrap())
    };
    let (copied, mapped) = (log_on(Arc::new(CopyingDisk)), log_on(Arc::new(RealDisk)));
    let mut walker = Walker::new(&mapped, 0, u64::MAX);
    let mut records = 0;
    loop {
        let position = walker.position();
        match walker.step().unwrap() {
            Step::Record(..) => {}
            Step::Blank => continue,
            Step::Flawed(_) | Step::End => break,
        }
        let (own, meant) = (
            copied.require(position).unwrap(),
            mapped.require(position).unwrap(),
        );
        assert_eq!(own.record().bytes(), meant.record().bytes());
        let inside = copied.record_at(position + 4).unwrap().record();
        assert!(inside.is_none(), "no record begins at {}", position + 4);
        records += 1;
    }
    assert_eq!(records, 300);
    assert!(copied.files.all().iter().all(|file| !file.is_mapped()));
}
