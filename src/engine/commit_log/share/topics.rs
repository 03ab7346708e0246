//! The topics of a store that processes share: each has the table in memory, and loads it again
//! after another one has written it.

use super::core::Core;
use crate::engine::Topic;
use crate::engine::commit_log::tables::topics::TopicTable;
use crate::engine::topic::initial_queues;
use crate::error::Result;
use crate::plant::{Point, pass};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Core {
    /// The topic, which is created with the default number of queues if it does not exist.
    ///
    /// # Errors
    ///
    /// Those of an append, and of writing the table of topics.
    pub fn topic_for_append(&self, name: &str) -> Result<Arc<Topic>> {
        self.load_topics()?;
        match self.parts.topics.get(name) {
            Some(topic) => Ok(topic),
            None => self.create_topic(name, None),
        }
    }

    /// Loads the table of topics if another process has written it.
    ///
    /// # Errors
    ///
    /// Those of reading it.
    pub fn load_topics(&self) -> Result<()> {
        let version = self.member.page.topics_version();
        if self.topics_version.load(Ordering::Acquire) != version {
            TopicTable::load(&**self.disk(), &self.root, &self.parts.topics)?;
            self.topics_version.store(version, Ordering::Release);
        }
        Ok(())
    }

    /// Creates a topic, or adds queues to it. With `None`, a missing topic gets the default number
    /// of queues, and an existing one is left unchanged. All processes know the topic on return.
    ///
    /// # Errors
    ///
    /// As [`Core::topic_for_append`].
    pub fn create_topic(&self, name: &str, queues: Option<u32>) -> Result<Arc<Topic>> {
        self.with_tail(|_| {
            let disk = &**self.disk();
            let topics = &self.parts.topics;
            let mut table = TopicTable::load(disk, &self.root, topics)?;
            let initial = initial_queues(name, self.rules.default_queues);
            let (topic, _) = topics.get_or_add(name, queues.unwrap_or(initial));
            if let Some(queues) = queues {
                let write = topic.write_queues().max(queues);
                let read = topic.read_queues().max(queues);
                topic.configure(write, read, topic.permissions());
            }
            table.update(topics, self.machine.clock.now_ms());
            table.save(disk)?;
            pass(Point::TopicsWritten);
            let page = &self.member.page;
            page.next_topics_version();
            self.topics_version
                .store(page.topics_version(), Ordering::Release);
            Ok(topic)
        })
    }
}
