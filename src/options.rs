//! Options for opening a store. Names are those of the Python options; `docs/` maps them to
//! RocketMQ's.

use crate::cleanup::Compaction;
use crate::error::{Error, Result};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

pub mod delay_levels;
mod values;

pub use delay_levels::DelayLevels;
pub use values::{AppendLockKind, Compression, EngineKind, Flush, Isolation, Mode, TimestampType};

/// All options, with the defaults of [`Options::default`].
///
/// Some of them are saved in the store: `default_queues`, `max_message_size`, `flush` and
/// `delay_levels`; in a commit log `index`, `checksum` and `unique_ids`; in a partition log
/// `segment_bytes`, `segment_ms`, `index_interval_bytes`, `segment_index_bytes`, `compression` and
/// `message_timestamp_type`. Opening for writing saves those that are given, and uses the saved
/// value of those that are `None`. If there is no saved value either, the default below is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the store is opened.
    pub mode: Mode,
    /// The engine; `None` detects it from the files.
    pub engine: Option<EngineKind>,
    /// Which messages of transactions are read; has a meaning for a partition log only.
    pub isolation: Option<Isolation>,
    /// Bytes of a segment of a partition log; 1 GiB by default.
    pub segment_bytes: Option<u64>,
    /// Begin another segment of a partition when a message is this much later, in ms, than the
    /// first ones of the segment; 7 days by default.
    pub segment_ms: Option<u64>,
    /// Bytes of a partition between two entries of its index; 4096 by default.
    pub index_interval_bytes: Option<u64>,
    /// Maximum bytes of an index of a partition log; 10 MiB by default.
    pub segment_index_bytes: Option<u64>,
    /// How a partition log packs the records of a batch; [`Compression::None`] by default.
    pub compression: Option<Compression>,
    /// Which time a partition log gives to a message; [`TimestampType::CreateTime`] by default.
    pub message_timestamp_type: Option<TimestampType>,
    /// How long a message of [`crate::Producer::send_nowait`] to a partition log waits for others
    /// of its queue, to be appended with them as one batch; by default not at all.
    pub linger: Duration,
    /// Bytes of such a batch, before it is packed; 16,384 by default.
    pub batch_bytes: Option<u64>,
    /// Which topics of a partition log are compacted, and when.
    pub compaction: Compaction,
    /// Whether a directory that another system created may be opened for writing.
    pub adopt: bool,
    /// How long opening for writing waits for another writer to finish; by default it fails at
    /// once.
    pub lock_timeout: Duration,
    /// Bytes of a commit log file; `None`: 1 GiB for a new store, otherwise the existing length.
    pub commitlog_file_size: Option<u64>,
    /// Entries of a queue file; `None`: 300,000 for a new store, otherwise the existing number.
    pub queue_file_entries: Option<u64>,
    /// Hash slots of an index file; `None`: 5,000,000 for a new store, otherwise as existing.
    pub index_slots: Option<u32>,
    /// Entries of an index file; `None`: 20,000,000 for a new store, otherwise as existing.
    pub index_entries: Option<u32>,
    /// Whether keys are indexed; `true` by default.
    pub index: Option<bool>,
    /// Queues of a topic that is created by sending to it; 8 by default.
    pub default_queues: Option<u32>,
    /// Longest body in bytes; 4 MiB by default.
    pub max_message_size: Option<usize>,
    /// When a send returns; [`Flush::Async`] by default.
    pub flush: Option<Flush>,
    /// Time between two flushes of an asynchronous store.
    pub flush_interval: Duration,
    /// In an asynchronous store, fewer unflushed pages of 4 KiB than this wait for
    /// `flush_thorough_interval`.
    pub flush_least_pages: u32,
    /// In an asynchronous partition log, ask for a flush once this many messages of a queue are not
    /// durable; `None`: their number does not matter.
    pub flush_messages: Option<u64>,
    /// Longest time that written pages wait for a flush, however few they are.
    pub flush_thorough_interval: Duration,
    /// How long a send waits for its flush.
    pub flush_timeout: Duration,
    /// Time between two flushes of queues, index and checkpoint.
    pub queue_flush_interval: Duration,
    /// Number of buffers of the transient pool; 0: appends store directly to the map of the file.
    pub transient_pool: u32,
    /// Whether a send fails if the pool is full, instead of writing out itself.
    pub transient_pool_fail_fast: bool,
    /// Time between two checks whether the pool needs a write-out.
    pub commit_interval: Duration,
    /// Fewer pages of 4 KiB than this may wait in the pool until the next check.
    pub commit_least_pages: u32,
    /// Seal a log file this long after its first record was stored; `None`: only when it is full.
    pub roll_after: Option<Duration>,
    /// Store to each page of a log file before it is used.
    pub warm_up: bool,
    /// Pages of 4 KiB between two syncs while a file is warmed up; 4,096 by default.
    pub warm_up_flush_pages: Option<u32>,
    /// Lock the current and the next log file in memory; gives a warning if the system refuses.
    pub lock_memory: bool,
    /// Handle SIGBUS, so that a failed load from or store to a map is an error. An installed
    /// handler stays for the whole process: `false` in one store does not remove it.
    pub guard_maps: bool,
    /// Let the kernel read ahead in log files.
    pub read_ahead: bool,
    /// How a sender waits for the append lock.
    pub append_lock: AppendLockKind,
    /// How long a send waits for the append lock. If another holder has had it for longer, a send
    /// fails at once.
    pub busy_timeout: Duration,
    /// Whether records carry the whole-record checksum; `true` by default.
    pub checksum: Option<bool>,
    /// Whether each message gets a unique id, as RocketMQ's clients assign it; `false` by default.
    pub unique_ids: Option<bool>,
    /// How long messages of each delay level wait; RocketMQ's 18 levels by default.
    pub delay_levels: Option<DelayLevels>,
    /// Address written into records; `None`: this host's with port 0, fixed at creation.
    pub store_host: Option<SocketAddr>,
    /// Retire log files this long after their last record was stored; `None`: never because of age.
    pub retention: Option<Duration>,
    /// Retire the oldest log files while the log is longer than this many bytes.
    pub retention_bytes: Option<u64>,
    /// Keep messages that a group of `config/consumerOffset.json` has not consumed.
    pub keep_unconsumed: bool,
    /// Keep messages that are missing from an archive listed in `forebay.archived`.
    pub keep_unarchived: bool,
    /// Bytes of the file system to keep free by retiring the oldest log files, even if not due.
    /// Effective only with `retention` or `retention_bytes`; 256 MiB by default.
    pub disk_reserve: Option<u64>,
    /// Hours of the local day in which due files are retired: `"04"`, or several separated by `;`.
    pub delete_when: Option<String>,
    /// Fraction of the file system in use, above 0 and at most 1, above which the oldest log files
    /// are retired, even if not due.
    pub disk_warning_ratio: Option<f64>,
}

/// A topic has at most this many queues. Records on a disk may name others, which can be read.
pub const TOPIC_QUEUES_MAX: u32 = 65_536;
/// Allowed values of `default_queues`.
pub(crate) const DEFAULT_QUEUES: RangeInclusive<u32> = 1..=TOPIC_QUEUES_MAX;
/// Allowed values of `max_message_size`.
pub(crate) const MAX_MESSAGE_SIZE: RangeInclusive<usize> = 1..=128 << 20;
/// Allowed values of `segment_bytes`.
pub(crate) const SEGMENT_BYTES: RangeInclusive<u64> = 4096..=i32::MAX as u64;
/// Allowed values of `segment_ms`.
pub(crate) const SEGMENT_MS: RangeInclusive<u64> = 1..=i64::MAX as u64;
/// Allowed values of `index_interval_bytes`.
pub(crate) const INDEX_INTERVAL_BYTES: RangeInclusive<u64> = 0..=i32::MAX as u64;
/// Allowed values of `flush_messages`.
const FLUSH_MESSAGES: RangeInclusive<u64> = 1..=i64::MAX as u64;
/// Longest `linger`.
const LINGER_MAX: Duration = Duration::from_secs(3600);
/// Allowed values of `batch_bytes`.
const BATCH_BYTES: RangeInclusive<u64> = 0..=16 << 20;
/// Allowed values of `segment_index_bytes`.
pub(crate) const SEGMENT_INDEX_BYTES: RangeInclusive<u64> = 36..=1 << 30;

impl Default for Options {
    fn default() -> Options {
        Options {
            mode: Mode::Append,
            engine: None,
            isolation: None,
            segment_bytes: None,
            segment_ms: None,
            index_interval_bytes: None,
            segment_index_bytes: None,
            compression: None,
            message_timestamp_type: None,
            linger: Duration::ZERO,
            batch_bytes: None,
            compaction: Compaction::default(),
            adopt: false,
            lock_timeout: Duration::ZERO,
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
            flush_messages: None,
            flush_thorough_interval: Duration::from_secs(10),
            flush_timeout: Duration::from_secs(5),
            queue_flush_interval: Duration::from_secs(1),
            transient_pool: 0,
            transient_pool_fail_fast: false,
            commit_interval: Duration::from_millis(200),
            commit_least_pages: 4,
            roll_after: None,
            warm_up: false,
            warm_up_flush_pages: None,
            lock_memory: false,
            guard_maps: true,
            read_ahead: true,
            append_lock: AppendLockKind::Mutex,
            busy_timeout: Duration::from_secs(1),
            checksum: None,
            unique_ids: None,
            delay_levels: None,
            store_host: None,
            retention: None,
            retention_bytes: None,
            keep_unconsumed: true,
            keep_unarchived: false,
            disk_reserve: None,
            delete_when: None,
            disk_warning_ratio: None,
        }
    }
}

impl Options {
    /// Checks every option and the combinations of options.
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
        let within = |name: &str, value: Option<u64>, range: RangeInclusive<u64>| {
            check_range(name, value, *range.start(), *range.end())
        };
        within("segment_bytes", self.segment_bytes, SEGMENT_BYTES)?;
        within("segment_ms", self.segment_ms, SEGMENT_MS)?;
        let (interval, index) = (self.index_interval_bytes, self.segment_index_bytes);
        within("index_interval_bytes", interval, INDEX_INTERVAL_BYTES)?;
        within("segment_index_bytes", index, SEGMENT_INDEX_BYTES)?;
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
        let pages = self.warm_up_flush_pages.map(u64::from);
        check_range("warm_up_flush_pages", pages, 1, 1 << 19)?;
        if self.roll_after.is_some_and(|age| age.is_zero()) {
            let rule = "be longer than 0; None seals a log file only when it is full";
            return Err(Error::must("roll_after", 0, rule));
        }
        if self
            .commitlog_file_size
            .is_some_and(|size| size % 4096 != 0)
        {
            let value = self.commitlog_file_size.unwrap_or_default();
            return Err(Error::must(
                "commitlog_file_size",
                value,
                "be a multiple of 4096",
            ));
        }
        self.check_flush()?;
        self.check_linger()?;
        self.compaction.check()?;
        self.check_retention()
    }

    /// Whether keys are indexed.
    pub fn index(&self) -> bool {
        self.index.unwrap_or(true)
    }

    /// Pages of 4 KiB between two syncs while a file is warmed up.
    pub fn warm_up_flush_pages(&self) -> u32 {
        self.warm_up_flush_pages.unwrap_or(4096)
    }

    /// Bytes of the file system to keep free by retiring log files.
    pub fn disk_reserve(&self) -> u64 {
        self.disk_reserve.unwrap_or(256 << 20)
    }

    /// Queues of a topic that is created by sending to it.
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

    /// How long messages of each delay level wait.
    pub fn delay_levels(&self) -> DelayLevels {
        self.delay_levels.clone().unwrap_or_default()
    }

    /// Whether log files may be retired at all.
    pub fn retires(&self) -> bool {
        self.retention.is_some() || self.retention_bytes.is_some()
    }

    /// The hours of `delete_when`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if it is malformed.
    pub fn delete_hours(&self) -> Result<Vec<u32>> {
        let Some(text) = &self.delete_when else {
            return Ok(Vec::new());
        };
        let hour = |part: &str| part.trim().parse().ok().filter(|hour| *hour < 24);
        let hours: Option<Vec<u32>> = text.split(';').map(hour).collect();
        hours.ok_or_else(|| {
            let rule = "be hours of the day from 00 to 23, separated by ';'";
            Error::must("delete_when", format!("{text:?}"), rule)
        })
    }

    fn check_flush(&self) -> Result<()> {
        let (min, max) = FLUSH_MESSAGES.into_inner();
        check_range("flush_messages", self.flush_messages, min, max)?;
        if self.flush() == Flush::Async {
            return Ok(());
        }
        let pool = Some(u64::from(self.transient_pool)).filter(|buffers| *buffers > 0);
        let given = [
            ("transient_pool", pool),
            ("flush_messages", self.flush_messages),
        ];
        let mut given = given.into_iter();
        match given.find_map(|(name, value)| Some((name, value?))) {
            Some((name, value)) => {
                let reason = "has no effect with flush=\"sync\": each send waits for the disk";
                Err(Error::option(name, value, reason))
            }
            None => Ok(()),
        }
    }

    fn check_linger(&self) -> Result<()> {
        let seconds = self.linger.as_secs_f64();
        if self.linger > LINGER_MAX {
            let rule = format!("be at most {} seconds", LINGER_MAX.as_secs());
            return Err(Error::must("linger", seconds, rule));
        }
        let (min, max) = BATCH_BYTES.into_inner();
        check_range("batch_bytes", self.batch_bytes, min, max)?;
        match self.batch_bytes.filter(|_| self.linger.is_zero()) {
            Some(bytes) => {
                let reason = "has no effect without linger";
                Err(Error::option("batch_bytes", bytes, reason))
            }
            None => Ok(()),
        }
    }

    fn check_retention(&self) -> Result<()> {
        const ALL: &str = "be greater than 0; None keeps everything";
        if self.retention.is_some_and(|age| age.is_zero()) {
            return Err(Error::must("retention", 0, ALL));
        }
        if self.retention_bytes == Some(0) {
            return Err(Error::must("retention_bytes", 0, ALL));
        }
        self.delete_hours()?;
        let within = |ratio: &f64| *ratio > 0.0 && *ratio <= 1.0;
        if let Some(ratio) = self.disk_warning_ratio.filter(|ratio| !within(ratio)) {
            let rule = "be above 0 and at most 1";
            return Err(Error::must("disk_warning_ratio", ratio, rule));
        }
        let alone = "has no effect without retention or retention_bytes";
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
        Some(value) if value < min || value > max => Err(Error::must(
            name,
            value,
            format!("be between {min} and {max}"),
        )),
        _ => Ok(()),
    }
}
