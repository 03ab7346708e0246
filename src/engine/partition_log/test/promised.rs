//! Partitions whose end is gone.

use super::write::{send, writing};
use super::*;
use crate::engine::{Durability, QueueLogs};

/// A closed store with five segments of ten messages each.
fn closed(root: &Path) -> Vec<PathBuf> {
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
