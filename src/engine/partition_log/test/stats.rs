//! Figures of a writer and of the readers beside it.

use super::*;
use crate::engine::{Atomicity, Durability};
use crate::record::Draft;

/// Sends a message to each of the first `queues` queues. Returns their bytes in the log.
fn send(engine: &PartitionLog, topic: &str, queues: u32) -> u64 {
    let topic = engine.topic_for_append(topic).unwrap();
    let mut sent = 0;
    for queue in 0..queues {
        let mut batch = engine.form().batch();
        let draft = Draft {
            body: &[7; 5000],
            ..Draft::default()
        };
        batch.push(&topic.name, queue, &draft, 1000).unwrap();
        sent += batch.encoded_len() as u64;
        let batches = &mut [(&*topic, &mut batch)];
        engine
            .append(batches, Atomicity::Rows, Durability::Written)
            .unwrap();
    }
    sent
}

#[test]
fn writer_and_reader_count_the_bytes_of_all_segments_and_know_the_free_space() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let options = Options {
        segment_bytes: Some(1 << 14),
        default_queues: Some(2),
        ..Options::default()
    };
    let writer = PartitionLog::open(&Machine::real(), &path, &options).unwrap();
    let mut sent = send(&writer, "orders", 2);
    let reader = open(&path, Isolation::ReadUncommitted).unwrap();
    // In one segment, in several, and in a topic that the reader has not seen.
    for (topic, rounds) in [("orders", 1), ("orders", 5), ("bills", 1)] {
        for _ in 0..rounds {
            sent += send(&writer, topic, 2);
        }
        let (written, read) = (writer.stats(), reader.stats());
        assert_eq!((written.log_bytes, read.log_bytes), (sent, sent));
        // The last segments have space reserved, which is no part of the log.
        assert_eq!((read.published, read.durable), (sent, sent));
        assert_eq!(reader.readable_position(), sent);
        assert_eq!(reader.durable_position(), sent);
        assert!(written.disk_free.is_some_and(|free| free > 0));
        assert!(read.disk_free.is_some_and(|free| free > 0));
    }
    assert!(files_of(&path.join("orders-0")) > 2);
    writer.close().unwrap();
    let writer = PartitionLog::open(&Machine::real(), &path, &options).unwrap();
    assert_eq!(writer.stats().log_bytes, sent);
    assert_eq!(reader.stats().log_bytes, sent);
}

fn files_of(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap();
    let names = names.map(|it| it.unwrap().path());
    names
        .filter(|it| it.extension().is_some_and(|it| it == "log"))
        .count()
}
