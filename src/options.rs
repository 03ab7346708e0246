//! How a store is opened. Names are those of the Python options; `docs/` maps them to RocketMQ's.

use crate::error::{Error, Result};
use std::net::SocketAddr;
use std::time::Duration;

/// What the caller may do with the store, and whether it may be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// Write; create the store where there is none.
    #[default]
    Append,
    /// Write; the store must not be there yet.
    Create,
    /// Read; not a byte of the directory changes.
    Read,
}

/// Which files, or none, hold the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// RocketMQ's store.
    CommitLog,
    /// Nothing: messages live as long as the handle.
    Memory,
}

/// When a send returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Flush {
    /// When the message is in the page cache; it becomes durable within the flush interval.
    #[default]
    Async,
    /// When the message is durable.
    Sync,
}

/// All options, with the defaults of [`Options::default`].
#[derive(Clone, Debug)]
pub struct Options {
    /// How the store is opened.
    pub mode: Mode,
    /// The engine; recognised from what is on disk where it is `None`.
    pub engine: Option<EngineKind>,
    /// Whether a directory that Forebay did not create is taken over for writing.
    pub adopt: bool,
    /// Bytes of a commit log file; `None`: 1 GiB for a new store, the file's length for an old one.
    pub commitlog_file_size: Option<u64>,
    /// Entries of a queue file; `None`: 300,000, or what the files have.
    pub queue_file_entries: Option<u64>,
    /// Hash slots of an index file; `None`: 5,000,000, or what the files have.
    pub index_slots: Option<u32>,
    /// Entries of an index file; `None`: 20,000,000, or what the files have.
    pub index_entries: Option<u32>,
    /// Whether keys are indexed.
    pub index: bool,
    /// Queues of a topic that was not created before it was sent to.
    pub default_queues: u32,
    /// Longest body in bytes.
    pub max_message_size: usize,
    /// When a send returns.
    pub flush: Flush,
    /// Between two flushes of an asynchronous store.
    pub flush_interval: Duration,
    /// How long a send waits for its flush.
    pub flush_timeout: Duration,
    /// Between two flushes of queues, index and checkpoint.
    pub queue_flush_interval: Duration,
    /// Write to each page of a log file before use.
    pub warm_up: bool,
    /// Lock the current log file in memory.
    pub lock_memory: bool,
    /// Let the kernel read ahead in log files.
    pub read_ahead: bool,
    /// How long a send waits for the append lock.
    pub busy_timeout: Duration,
    /// Whether records carry the whole-record checksum.
    pub checksum: bool,
    /// Whether each message gets a unique id, as RocketMQ's clients give it.
    pub unique_ids: bool,
    /// Address written into records; `None`: this host's, port 0, kept from creation.
    pub store_host: Option<SocketAddr>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            mode: Mode::Append,
            engine: None,
            adopt: false,
            commitlog_file_size: None,
            queue_file_entries: None,
            index_slots: None,
            index_entries: None,
            index: true,
            default_queues: 8,
            max_message_size: 4 << 20,
            flush: Flush::Async,
            flush_interval: Duration::from_millis(500),
            flush_timeout: Duration::from_secs(5),
            queue_flush_interval: Duration::from_secs(1),
            warm_up: false,
            lock_memory: false,
            read_ahead: true,
            busy_timeout: Duration::from_secs(1),
            checksum: true,
            unique_ids: false,
            store_host: None,
        }
    }
}

impl Options {
    /// Checks every option by itself and those that depend on one another.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] with name, value and rule.
    pub fn check(&self) -> Result<()> {
        const SIZE_MAX: u64 = (2 << 30) - 4096;
        check_range(
            "commitlog_file_size",
            self.commitlog_file_size,
            4096,
            SIZE_MAX,
        )?;
        check_range(
            "queue_file_entries",
            self.queue_file_entries,
            1,
            SIZE_MAX / 20,
        )?;
        check_range("index_slots", self.index_slots.map(u64::from), 1, 1 << 28)?;
        check_range(
            "index_entries",
            self.index_entries.map(u64::from),
            2,
            80_000_000,
        )?;
        check_range(
            "default_queues",
            Some(u64::from(self.default_queues)),
            1,
            65_536,
        )?;
        check_range(
            "max_message_size",
            Some(self.max_message_size as u64),
            1,
            128 << 20,
        )?;
        if self
            .commitlog_file_size
            .is_some_and(|size| size % 4096 != 0)
        {
            let value = self.commitlog_file_size.unwrap_or_default();
            return Err(Error::option(
                "commitlog_file_size",
                value,
                "it is a multiple of 4096",
            ));
        }
        Ok(())
    }
}

fn check_range(name: &str, value: Option<u64>, min: u64, max: u64) -> Result<()> {
    match value {
        Some(value) if value < min || value > max => Err(Error::option(
            name,
            value,
            format!("it lies between {min} and {max}"),
        )),
        _ => Ok(()),
    }
}
