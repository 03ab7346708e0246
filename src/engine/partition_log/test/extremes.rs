//! Offsets and times at the ends of their ranges, in directories that another system left.

use super::super::segments::names::OFFSET_MAX;
use super::write::writing;
use super::*;
use crate::engine::{Atomicity, Durability, QueueLogs};
use crate::error::Error;
use crate::record::Draft;

fn adopt(made: &Made) -> PartitionLog {
    let options = Options {
        adopt: true,
        ..Options::default()
    };
    writing(made.root.path(), &options).unwrap()
}

/// Appends one batch of this many messages.
fn append(engine: &PartitionLog, messages: usize) -> Result<Vec<u64>> {
    let topic = engine.topic_for_append("t")?;
    let mut batch = engine.form().batch();
    for _ in 0..messages {
        let draft = Draft {
            body: b"body",
            ..Draft::default()
        };
        batch.push(&topic.name, 0, &draft, 1000)?;
    }
    let batches = &mut [(&*topic, &mut batch)];
    let sent = engine.append(batches, Atomicity::Rows, Durability::Written)?;
    Ok(sent.rows.iter().map(|place| place.offset).collect())
}

#[test]
fn no_message_gets_an_offset_that_no_segment_may_begin_with() {
    let made = Made::new();
    made.segment(OFFSET_MAX - 5, &[batch(OFFSET_MAX - 5, &[1000])]);
    let engine = adopt(&made);
    assert_eq!(append(&engine, 2).unwrap().len(), 2);
    engine.roll().unwrap();
    for messages in [2, 3] {
        let refused = append(&engine, messages);
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(append(&engine, 1).unwrap(), [OFFSET_MAX - 2]);
    engine.close().unwrap();
    assert_eq!(bounds(&adopt(&made)), OFFSET_MAX - 5..OFFSET_MAX - 1);
}

#[test]
fn a_segment_of_any_times_is_appended_to() {
    for time in [i64::MIN, i64::MAX] {
        let made = Made::new();
        made.segment(0, &[batch(0, &[time])]);
        let engine = adopt(&made);
        assert_eq!(append(&engine, 1).unwrap(), [1]);
    }
}
