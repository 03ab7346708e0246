//! The topics of an open store, and the table that keeps them.

use super::Parts;
use crate::engine::topic::initial_queues;
use crate::engine::{Durability, Topic};
use crate::error::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Parts {
    /// The topic, created with the default number of queues where it is not there yet.
    pub fn topic_for_append(&self, name: &str) -> Arc<Topic> {
        let queues = initial_queues(name, self.append_rules.default_queues);
        let (topic, added) = self.topics.get_or_add(name, queues);
        if added {
            self.table_dirty.store(true, Ordering::Release);
        }
        topic
    }

    /// Creates a topic, or gives an existing one more queues. Durable on return, but with
    /// [`Durability::Written`] soon after.
    pub fn create_topic(
        &self,
        name: &str,
        queues: u32,
        durability: Durability,
    ) -> Result<Arc<Topic>> {
        self.health.check()?;
        let (topic, _) = self.topics.get_or_add(name, queues);
        let (write, read) = (
            topic.write_queues().max(queues),
            topic.read_queues().max(queues),
        );
        topic.configure(write, read, topic.permissions());
        match durability {
            Durability::Written => self.table_dirty.store(true, Ordering::Release),
            _ => self.write_table()?,
        }
        Ok(topic)
    }

    /// Writes the table of topics if a topic has changed since it was written.
    pub fn save_table(&self) -> Result<()> {
        if !self.table_dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.write_table().inspect_err(|_| {
            self.table_dirty.store(true, Ordering::Release);
        })
    }

    fn write_table(&self) -> Result<()> {
        let mut table = self.table.lock();
        table.update(&self.topics, self.clock.now_ms());
        table.save(&*self.disk)
    }
}
