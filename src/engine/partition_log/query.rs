//! The newest messages with a key. There is no index of keys: everything within the times is read.

use super::PartitionLog;
use crate::engine::{COPIED_MAX, Check, Engine, Filter, Point, Rows, Topic};
use crate::error::Result;
use crate::record::Message;
use std::ops::RangeInclusive;

/// At most `max` messages of a topic with exactly this key, stored within these times, newest
/// first. Once `go_on` returns false, the search ends.
pub(super) fn newest(
    engine: &PartitionLog,
    (topic, key): (&Topic, &[u8]),
    times: RangeInclusive<i64>,
    max: usize,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Vec<Message>> {
    let filter = Filter {
        key: Some(key.to_owned()),
        ..Filter::default()
    };
    let mut found: Vec<Message> = Vec::new();
    let mut bytes = 0;
    for queue in engine.queues(topic) {
        let first = engine.offset_at(topic, queue, Point::Time(*times.start()))?;
        let mut cursor = engine.cursor(topic, queue, first..u64::MAX, &filter, Check::Full)?;
        let mut rows = Rows::default();
        let mut has_more = true;
        while has_more && go_on() {
            rows.clear();
            has_more = cursor.step(1024, &mut rows)?;
            let messages = rows.rows.iter().filter_map(|row| rows.message(row));
            let mut newest: Vec<Message> = messages
                .filter(|message| times.contains(&message.record().store_timestamp()))
                .collect();
            if newest.is_empty() {
                continue;
            }
            bytes += keep_newest(&mut newest, max);
            // A copy, because the region of the rows holds many others.
            found.extend(Message::from_records(newest.iter().map(Message::record))?);
            if found.len() / 2 > max || bytes / 2 > COPIED_MAX {
                bytes = keep_newest(&mut found, max);
            }
        }
    }
    keep_newest(&mut found, max);
    Ok(found)
}

/// Sorts messages, newest first, and drops those after the first `max`, or after the first
/// [`COPIED_MAX`] bytes. Returns how many bytes are left.
fn keep_newest(messages: &mut Vec<Message>, max: usize) -> u64 {
    messages.sort_by_key(|message| {
        let record = message.record();
        let place = (record.queue_id(), record.queue_offset());
        std::cmp::Reverse((record.store_timestamp(), place))
    });
    messages.truncate(max);
    let mut bytes = 0;
    messages.retain(|message| {
        let after = bytes + u64::from(message.record().layout().total_len());
        let fits = bytes == 0 || after <= COPIED_MAX;
        bytes = match fits {
            true => after,
            // The later ones are left out, too.
            false => COPIED_MAX,
        };
        fits
    });
    bytes
}
