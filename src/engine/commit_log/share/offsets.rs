//! The next offsets of all queues, as far as the log is dispatched.

use crate::engine::Topic;
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::read::follow;
use crate::error::Result;
use std::sync::Arc;

/// Topics, queues and their next offsets.
pub type Offsets = Vec<(Arc<Topic>, u32, u64)>;

/// The dispatched mark, and the next offset of each queue there or later.
pub fn dispatched(parts: &Parts) -> Result<(u64, Offsets)> {
    follow::refresh_log(parts)?;
    // Read before the queues, so that their offsets are at least those at this position.
    let begin = parts.log.published();
    follow::refresh(parts)?;
    let mut offsets = Vec::new();
    for (topic, queue) in parts.queues.all(&parts.topics)? {
        follow::extend(parts, &topic, &queue)?;
        offsets.push((topic, queue.id, queue.max()));
    }
    Ok((begin, offsets))
}
