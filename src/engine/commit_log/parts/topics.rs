//! The topics of an open store, and the table that saves them.

use super::Parts;
use crate::engine::topic::initial_queues;
use crate::engine::{Durability, Topic};
use crate::error::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Parts {
    /// Returns the topic. Creates it with the default number of queues if it does not exist.
    pub fn topic_for_append(&self, name: &str) -> Arc<Topic> {
        let queues = initial_queues(name, self.append_rules.default_queues);
        let (topic, added) = self.topics.get_or_add(name, queues);
        if added {
            self.table_dirty.store(true, Ordering::Release);
        }
        topic
    }

    /// Creates a topic, or adds queues to an existing one. Durable on return; with
    /// [`Durability::Written`], soon after.
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

    /// Writes the table of topics if a topic has changed since the last time.
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
