//! How a store is opened. Names are those of the Python options; `docs/` maps them to RocketMQ's.

use crate::error::{Error, Result};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
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

impl Flush {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Flush::Async => "async",
            Flush::Sync => "sync",
        }
    }

    /// What a word stands for.
    pub fn of(word: &str) -> Option<Flush> {
        match word {
            "async" => Some(Flush::Async),
            "sync" => Some(Flush::Sync),
            _ => None,
        }
    }
}

/// How a sender waits for the append lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AppendLockKind {
    /// It spins briefly, then sleeps until it is woken.
    #[default]
    Mutex,
    /// It spins, and lets others run now and then: for senders that have a processor each.
    Spin,
}

/// All options, with the defaults of [`Options::default`].
///
/// Six of them are the store's own and not the process's: `index`, `default_queues`,
/// `max_message_size`, `flush`, `checksum` and `unique_ids`. A store keeps those that an opening
/// for writing gives, and each opening for writing uses what is kept for those that are `None`.
/// Where nothing is kept either, the default holds that is named with each.
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
    /// Whether keys are indexed; by default they are.
    pub index: Option<bool>,
    /// Queues of a topic that was not created before it was sent to; by default 8.
    pub default_queues: Option<u32>,
    /// Longest body in bytes; by default 4 MiB.
    pub max_message_size: Option<usize>,
    /// When a send returns; by default [`Flush::Async`].
    pub flush: Option<Flush>,
    /// Between two flushes of an asynchronous store.
    pub flush_interval: Duration,
    /// In an asynchronous store fewer written pages of 4 KiB than this wait for
    /// `flush_thorough_interval`.
    pub flush_least_pages: u32,
    /// How long written pages wait at most for a flush, however few they are.
    pub flush_thorough_interval: Duration,
    /// How long a send waits for its flush.
    pub flush_timeout: Duration,
    /// Between two flushes of queues, index and checkpoint.
    pub queue_flush_interval: Duration,
    /// Buffers of the transient pool; 0: appends go to the map of the file at once.
    pub transient_pool: u32,
    /// Whether a send that finds the pool full fails instead of writing out itself.
    pub transient_pool_fail_fast: bool,
    /// Between two looks of the write-out at the pool.
    pub commit_interval: Duration,
    /// Fewer pages of 4 KiB than this may wait in the pool for one more look.
    pub commit_least_pages: u32,
    /// A log file is sealed when this time has passed since its first record was stored; `None`:
    /// when it is full.
    pub roll_after: Option<Duration>,
    /// Write to each page of a log file before use.
    pub warm_up: bool,
    /// Pages of 4 KiB between two syncs while a file is warmed up.
    pub warm_up_flush_pages: u32,
    /// Lock the log file in use and the next one in memory; a warning where the system refuses.
    pub lock_memory: bool,
    /// Handle SIGBUS, so that a load or store in a map that fails is an error. A handler that is
    /// installed stays: `false` in one store takes it from no other of the process.
    pub guard_maps: bool,
    /// Let the kernel read ahead in log files.
    pub read_ahead: bool,
    /// How a sender waits for the append lock.
    pub append_lock: AppendLockKind,
    /// How long a send waits for the append lock. Where another holds it for longer, a send fails
    /// at once.
    pub busy_timeout: Duration,
    /// Whether records carry the whole-record checksum; by default they do.
    pub checksum: Option<bool>,
    /// Whether each message gets a unique id, as RocketMQ's clients give it; by default none does.
    pub unique_ids: Option<bool>,
    /// Address written into records; `None`: this host's, port 0, kept from creation.
    pub store_host: Option<SocketAddr>,
    /// Log files go when this time has passed since their last record was stored; `None`: age takes
    /// none away.
    pub retention: Option<Duration>,
    /// The oldest log files go while all of them together are longer than this many bytes.
    pub retention_bytes: Option<u64>,
    /// Whether messages stay that a group of `config/consumerOffset.json` has not consumed.
    pub keep_unconsumed: bool,
    /// Whether messages stay that are not in every archive that `forebay.archived` names.
    pub keep_unarchived: bool,
    /// Bytes of the file system that are kept free by taking the oldest log files, due or not. It
    /// has a meaning only with `retention` or `retention_bytes`.
    pub disk_reserve: u64,
    /// Hours of the local day in which files that are due go: `"04"`, or several with `;` between.
    pub delete_when: Option<String>,
    /// Part of the file system in use, above 0 and at most 1, beyond which the oldest log files go,
    /// due or not.
    pub disk_warning_ratio: Option<f64>,
}

/// A topic has at most this many queues. Records on a disk may name others, which can be read.
pub const TOPIC_QUEUES_MAX: u32 = 65_536;
/// What `default_queues` may be.
pub(crate) const DEFAULT_QUEUES: RangeInclusive<u32> = 1..=TOPIC_QUEUES_MAX;
/// What `max_message_size` may be.
pub(crate) const MAX_MESSAGE_SIZE: RangeInclusive<usize> = 1..=128 << 20;

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
            index: None,
            default_queues: None,
            max_message_size: None,
            flush: None,
            flush_interval: Duration::from_millis(500),
            flush_least_pages: 4,
            flush_thorough_interval: Duration::from_secs(10),
            flush_timeout: Duration::from_secs(5),
            queue_flush_interval: Duration::from_secs(1),
            transient_pool: 0,
            transient_pool_fail_fast: false,
            commit_interval: Duration::from_millis(200),
            commit_least_pages: 4,
            roll_after: None,
            warm_up: false,
            warm_up_flush_pages: 4096,
            lock_memory: false,
            guard_maps: true,
            read_ahead: true,
            append_lock: AppendLockKind::Mutex,
            busy_timeout: Duration::from_secs(1),
            checksum: None,
            unique_ids: None,
            store_host: None,
            retention: None,
            retention_bytes: None,
            keep_unconsumed: true,
            keep_unarchived: false,
            disk_reserve: 256 << 20,
            delete_when: None,
            disk_warning_ratio: None,
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
        let (min, max) = DEFAULT_QUEUES.into_inner();
        let queues = self.default_queues.map(u64::from);
        check_range("default_queues", queues, min.into(), max.into())?;
        let (min, max) = MAX_MESSAGE_SIZE.into_inner();
        let size = self.max_message_size.map(|size| size as u64);
        check_range("max_message_size", size, min as u64, max as u64)?;
        check_range(
            "transient_pool",
            Some(u64::from(self.transient_pool)),
            0,
            1024,
        )?;
        let pages = u64::from(self.warm_up_flush_pages);
        check_range("warm_up_flush_pages", Some(pages), 1, 1 << 19)?;
        if self.roll_after.is_some_and(|age| age.is_zero()) {
            let rule = "it is longer than 0; None seals a log file when it is full";
            return Err(Error::option("roll_after", 0, rule));
        }
        if self.transient_pool > 0 && self.flush() == Flush::Sync {
            return Err(Error::option(
                "transient_pool",
                self.transient_pool,
                "flush=\"sync\" has no use for it: each send waits for the disk",
            ));
        }
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
        self.check_retention()
    }

    /// Whether keys are indexed.
    pub fn index(&self) -> bool {
        self.index.unwrap_or(true)
    }

    /// Queues of a topic that was not created before it was sent to.
    pub fn default_queues(&self) -> u32 {
        self.default_queues.unwrap_or(8)
    }

    /// Longest body in bytes.
    pub fn max_message_size(&self) -> usize {
        self.max_message_size.unwrap_or(4 << 20)
    }

    /// When a send returns.
    pub fn flush(&self) -> Flush {
        self.flush.unwrap_or_default()
    }

    /// Whether records carry the whole-record checksum.
    pub fn checksum(&self) -> bool {
        self.checksum.unwrap_or(true)
    }

    /// Whether each message gets a unique id.
    #[inline]
    pub fn unique_ids(&self) -> bool {
        self.unique_ids.unwrap_or(false)
    }

    /// Whether log files may go at all.
    pub fn retires(&self) -> bool {
        self.retention.is_some() || self.retention_bytes.is_some()
    }

    /// The hours of `delete_when`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] where it names something else.
    pub fn delete_hours(&self) -> Result<Vec<u32>> {
        let Some(text) = &self.delete_when else {
            return Ok(Vec::new());
        };
        let hour = |part: &str| part.trim().parse().ok().filter(|hour| *hour < 24);
        let hours: Option<Vec<u32>> = text.split(';').map(hour).collect();
        hours.ok_or_else(|| {
            let rule = "it names hours of the day from 00 to 23, with ';' between them";
            Error::option("delete_when", format!("{text:?}"), rule)
        })
    }

    fn check_retention(&self) -> Result<()> {
        const ALL: &str = "it is longer than 0; None keeps everything";
        if self.retention.is_some_and(|age| age.is_zero()) {
            return Err(Error::option("retention", 0, ALL));
        }
        if self.retention_bytes == Some(0) {
            return Err(Error::option("retention_bytes", 0, ALL));
        }
        self.delete_hours()?;
        let within = |ratio: &f64| *ratio > 0.0 && *ratio <= 1.0;
        if let Some(ratio) = self.disk_warning_ratio.filter(|ratio| !within(ratio)) {
            let rule = "it lies above 0 and is at most 1";
            return Err(Error::option("disk_warning_ratio", ratio, rule));
        }
        let alone = "it takes nothing away without retention or retention_bytes";
        match (&self.delete_when, self.disk_warning_ratio) {
            (Some(hours), _) if !self.retires() => {
                Err(Error::option("delete_when", format!("{hours:?}"), alone))
            }
            (_, Some(ratio)) if !self.retires() => {
                Err(Error::option("disk_warning_ratio", ratio, alone))
            }
            _ => Ok(()),
        }
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
