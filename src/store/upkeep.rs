//! Verification, compaction and repair.

use super::Store;
use crate::engine::{Compacted, Keyless, Repair, Verification};
use crate::error::Result;
#[cfg(doc)]
use crate::{
    engine::{Engine, QueueLogs},
    error::Error,
};

impl Store {
    /// Checks the whole store; see [`Engine::verify`].
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verification> {
        self.engine()?.verify(progress)
    }

    /// Drops messages that have a later one with the same key; see [`QueueLogs::compact`].
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the engine keeps a log for each queue;
    /// [`Error::InvalidOption`] if the topic, or every topic, is not compacted;
    /// [`Error::UnknownTopic`], [`Error::ReadOnly`], [`Error::Closed`], [`Error::Forked`]; errors
    /// of the disk.
    pub fn compact(
        &self,
        topic: Option<&str>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Compacted> {
        self.compact_with(Keyless::Drop, topic, progress)
    }

    /// [`Store::compact`], and says what happens to messages without a key.
    ///
    /// # Errors
    ///
    /// As [`Store::compact`]; [`Error::InvalidOption`] for a message without a key, if these are
    /// refused.
    pub fn compact_with(
        &self,
        keyless: Keyless,
        topic: Option<&str>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Compacted> {
        let logs = self.queue_logs("compaction")?;
        logs.compact_with(keyless, topic, progress)
    }

    /// Saves damaged bytes and repairs what it can; see [`Repair`].
    ///
    /// Fills holes of the log, so that RocketMQ can also read past them. Rebuilds queues, index and
    /// Forebay's tables from the log; another system's tables are left unchanged. From a partition
    /// log it removes damaged batches, and writes indexes and tables again. Messages can be sent
    /// and read meanwhile. The repairs are durable on return; the next repair completes an
    /// interrupted one.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`], [`Error::Failed`], [`Error::Full`] and [`Error::Io`]. A damaged log
    /// file is rewritten, so the disk needs room for one more.
    pub fn repair(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Repair> {
        let engine = self.writer()?;
        match (engine.files(), engine.queue_logs()) {
            (Some(files), _) => files.repair(progress),
            (None, Some(logs)) => logs.repair(progress),
            // Without files nothing can be repaired: all damage remains.
            (None, None) => Ok(Repair {
                steps: Vec::new(),
                left: engine.verify(progress)?.damage,
            }),
        }
    }
}
