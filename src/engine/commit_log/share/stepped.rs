//! What tests need to step through a process that shares a store.

use super::core::{Core, Role};
use crate::engine::commit_log::parts::Parts;
use crate::error::Result;
use std::sync::Arc;

impl Core {
    /// The parts that the services work on, if this process leads or can take the lead.
    pub fn led_parts(&self) -> Result<Option<Arc<Parts>>> {
        self.try_lead()?;
        Ok(match &*self.role.lock() {
            Role::Leader(leader) => Some(Arc::clone(&leader.parts)),
            Role::Follower | Role::Gone => None,
        })
    }

    /// Takes the append lock; returns the end of the log, and the next offset of a queue, which is
    /// 0 if there is no such topic.
    pub fn mended_end(&self, topic: &str, queue: u32) -> Result<(u64, u64)> {
        self.with_tail(|tail| {
            let topic = self.parts.topics.get(topic);
            let next = topic.map_or(0, |topic| tail.next_offset(&topic, queue));
            Ok((tail.position(), next))
        })
    }
}
