//! The next offsets of all queues, as far as the log is dispatched.

use crate::engine::Topic;
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::read::follow;
use crate::engine::commit_log::tables::inventory::Inventory;
use crate::error::Result;
use std::sync::Arc;

/// Topics, queues and their next offsets.
pub type Offsets = Vec<(Arc<Topic>, u32, u64)>;

/// The dispatched mark, and the next offset of each queue at that position or later.
///
/// Queue files may lack the offsets of messages that were lost with the end of the log, and those
/// of a queue that has no file left. These offsets are in the inventory, which the leader saves
/// before it moves its marks.
pub fn dispatched(parts: &Parts) -> Result<(u64, Offsets)> {
    // Loaded before the mark is read, so that the mark is at or after its position.
    let inventory = Inventory::load(&*parts.disk, &parts.root)?.unwrap_or_default();
    follow::refresh_log(parts)?;
    // Read before the queues, so that their offsets are at least those at this position.
    let begin = parts.log.published();
    follow::refresh(parts)?;
    if inventory.position <= begin {
        for (name, id, min, next) in &inventory.queues {
            let (topic, _) = parts.topics.get_or_add(name, id + 1);
            let queue = parts.queues.get_or_add(&topic, *id)?;
            follow::extend(parts, &topic, &queue)?;
            queue.extend_to(*next);
            queue.raise_min_to(*min);
        }
    }
    let mut offsets = Vec::new();
    for (topic, queue) in parts.queues.all(&parts.topics)? {
        follow::extend(parts, &topic, &queue)?;
        offsets.push((topic, queue.id, queue.max()));
    }
    Ok((begin, offsets))
}
