//! Partitions that have lost their end, or all of their files.

use super::write::{send, writing};
use super::*;
use crate::engine::{Durability, QueueLogs};
use crate::options::Mode;

/// A closed store with five segments of ten messages each.
pub(super) fn closed(root: &Path) -> Vec<PathBuf> {
    let engine = writing(root, &Options::default()).unwrap();
    engine.create_topic("t", 1, Durability::Written).unwrap();
    for _ in 0..5 {
        for _ in 0..10 {
            send(&engine, "t", &[(0, b"body")]);
        }
        engine.roll().unwrap();
    }
    engine.close().unwrap();
    let mut logs = Vec::new();
    for entry in fs::read_dir(root.join("t-0")).unwrap() {
        let path = entry.unwrap().path();
        let is_log = path.extension().is_some_and(|it| it == "log");
        if is_log && fs::metadata(&path).unwrap().len() > 0 {
            logs.push(path);
        }
    }
    logs.sort();
    logs
}

#[test]
fn readers_and_checks_tell_that_the_end_of_a_partition_is_gone() {
    for how in ["whole", "cut", "gone"] {
        let root = tempfile::tempdir().unwrap();
        let logs = closed(root.path());
        let last = logs.last().unwrap();
        let len = fs::metadata(last).unwrap().len();
        // The empty segment after it, which roll() has begun.
        let next = last.with_file_name(format!("{:020}.log", 50));
        match how {
            "cut" => {
                fs::remove_file(next).unwrap();
                let file = fs::OpenOptions::new().write(true).open(last).unwrap();
                file.set_len(len / 2).unwrap();
            }
            "gone" => {
                fs::remove_file(next).unwrap();
                fs::remove_file(last).unwrap();
            }
            _ => {}
        }
        let lost = usize::from(how != "whole");
        let engine = open(root.path(), Isolation::ReadUncommitted).unwrap();
        let damage = engine.report().damage();
        assert_eq!(damage.len(), lost, "{how}: {damage:?}");
        assert_eq!(engine.verify(&mut |_, _| true).unwrap().damage.len(), lost);
        assert_eq!(engine.report().damage().len(), lost, "told once");
        if let Some(damage) = damage.first() {
            assert!(damage.reason.contains("was durable up to 50"), "{damage:?}");
        }
    }
}

/// A store with two queues of five messages each, which lacks some of their folders.
fn without_folders(root: &Path, gone: &[u32], is_clean: bool) {
    let engine = writing(root, &Options::default()).unwrap();
    engine.create_topic("t", 2, Durability::Written).unwrap();
    for _ in 0..5 {
        send(&engine, "t", &[(0, b"body"), (1, b"body")]);
    }
    engine.close().unwrap();
    for queue in gone {
        fs::remove_dir_all(root.join(format!("t-{queue}"))).unwrap();
    }
    if !is_clean {
        fs::remove_file(root.join(".kafka_cleanshutdown")).unwrap();
    }
}

#[test]
fn a_partition_whose_folder_is_gone_is_told_and_goes_on_where_it_ended() {
    let cases: [&[u32]; 3] = [&[0], &[1], &[0, 1]];
    for (gone, mode) in cases
        .iter()
        .flat_map(|it| [(it, Mode::Append), (it, Mode::Share)])
    {
        for is_clean in [true, false] {
            let root = tempfile::tempdir().unwrap();
            let root = root.path();
            without_folders(root, gone, is_clean);
            let options = Options {
                mode,
                default_queues: Some(1),
                ..Options::default()
            };
            let told = |engine: &PartitionLog| {
                let damage = engine.report().damage();
                assert_eq!(damage.len(), gone.len(), "{gone:?} {mode:?}: {damage:?}");
                assert!(damage[0].reason.contains("durable up to 5"), "{damage:?}");
                assert_eq!(engine.verify(&mut |_, _| true).unwrap().damage, damage);
            };
            told(&open(root, Isolation::ReadUncommitted).unwrap());
            // Until the queue is used, each opening reports it.
            for _ in 0..2 {
                let engine = PartitionLog::open(&Machine::real(), root, &options).unwrap();
                told(&engine);
                engine.close().unwrap();
            }
            let engine = PartitionLog::open(&Machine::real(), root, &options).unwrap();
            assert_eq!(send(&engine, "t", &[(0, b"new"), (1, b"new")]), [5, 5]);
            engine.close().unwrap();
            let engine = writing(root, &Options::default()).unwrap();
            assert_eq!(engine.report().damage(), []);
            assert_eq!(engine.verify(&mut |_, _| true).unwrap().damage, []);
            for queue in 0..2 {
                let start = if gone.contains(&queue) { 5 } else { 0 };
                let found = engine.bounds(&topic(&engine, "t"), queue).unwrap();
                assert_eq!(found, Some(start..6));
            }
        }
    }
}

/// The process that made the folder again may have died before it stored a message.
#[test]
fn a_folder_without_log_files_is_told_when_the_store_is_opened() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    without_folders(root, &[0], false);
    fs::create_dir(root.join("t-0")).unwrap();
    for _ in 0..2 {
        let engine = writing(root, &Options::default()).unwrap();
        assert_eq!(engine.report().damage().len(), 1);
        engine.close().unwrap();
    }
    let engine = writing(root, &Options::default()).unwrap();
    assert_eq!(send(&engine, "t", &[(0, b"new")]), [5]);
}
