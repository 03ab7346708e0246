//! The next offsets of all queues, as far as the log is dispatched.

use crate::engine::Topic;
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::read::follow;
use crate::engine::commit_log::tables::inventory::Inventory;
use crate::error::Result;
use std::collections::HashMap;
use std::sync::Arc;

/// Topics, queues and their next offsets.
pub type Offsets = Vec<(Arc<Topic>, u32, u64)>;

/// The dispatched mark, and the next offset of each queue there or later.
///
/// Queue files do not show the offsets of messages that were lost with the end of the log: those
/// are in the inventory, which the leader saves once it has found that.
pub fn dispatched(parts: &Parts) -> Result<(u64, Offsets)> {
    // Loaded before the mark is read, which then is not before its position.
    let inventory = Inventory::load(&*parts.disk, &parts.root)?.unwrap_or_default();
    follow::refresh_log(parts)?;
    // Read before the queues, so that their offsets are at least those at this position.
    let begin = parts.log.published();
    follow::refresh(parts)?;
    let mut known = HashMap::new();
    if inventory.position <= begin {
        let queues = inventory.queues.into_iter();
        known.extend(queues.map(|(topic, queue, _, next)| ((topic, queue), next)));
    }
    let mut offsets = Vec::new();
    for (topic, queue) in parts.queues.all(&parts.topics)? {
        follow::extend(parts, &topic, &queue)?;
        let known = known.get(&(topic.name.to_string(), queue.id));
        let next = queue.max().max(known.copied().unwrap_or_default());
        offsets.push((topic, queue.id, next));
    }
    Ok((begin, offsets))
}
