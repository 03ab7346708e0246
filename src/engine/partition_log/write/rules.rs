//! The options of a partition log as numbers.

use crate::error::{Error, Result};
use crate::num::index;
use crate::options::{Compression, Flush, Options, TimestampType};
use crate::record::kafka::header::BATCH_LEN_MAX;
use crate::record::kafka::{Codec, Form};
use std::time::Duration;

/// Bytes of an entry of the offset index.
pub const OFFSET_ENTRY: u64 = 8;
/// Bytes of an entry of the time index.
pub const TIME_ENTRY: u64 = 12;

/// How messages are appended.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whether readers see durable messages only, and sends wait for the disk.
    pub sync: bool,
    /// A flush is requested once this many messages of a partition are not durable.
    pub flush_messages: Option<u64>,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Longest time, in ms, between the first messages of a segment and its others.
    pub segment_ms: u64,
    /// Bytes between two entries of the indexes.
    pub index_interval: u64,
    /// Entries of an offset index.
    pub offsets_max: u64,
    /// Entries of a time index.
    pub times_max: u64,
    /// How records are encoded.
    pub form: Form,
    /// Queues of a topic that nobody created explicitly.
    pub default_queues: u32,
    /// How long an append waits for the append lock.
    pub busy_timeout: Duration,
    /// How long an append waits for the disk.
    pub flush_timeout: Duration,
}

impl Rules {
    /// The rules for a store with these options.
    pub fn new(options: &Options) -> Rules {
        let segment_bytes = options.segment_bytes.unwrap_or(1 << 30);
        let index_bytes = options.segment_index_bytes.unwrap_or(10 << 20);
        let codec = match options.compression.unwrap_or_default() {
            Compression::None => Codec::None,
            Compression::Gzip => Codec::Gzip,
            Compression::Snappy => Codec::Snappy,
            Compression::Lz4 => Codec::Lz4,
            Compression::Zstd => Codec::Zstd,
        };
        let timestamps = options.message_timestamp_type.unwrap_or_default();
        Rules {
            sync: options.flush() == Flush::Sync,
            flush_messages: options.flush_messages,
            segment_bytes,
            segment_ms: segment_ms(options),
            index_interval: options.index_interval_bytes.unwrap_or(4096),
            offsets_max: index_bytes / OFFSET_ENTRY,
            times_max: index_bytes / TIME_ENTRY,
            form: Form {
                // Readers treat a longer one as damage.
                batch_len_max: index(segment_bytes).min(BATCH_LEN_MAX),
                value_len_max: options.max_message_size(),
                codec,
                append_time: timestamps == TimestampType::LogAppendTime,
            },
            default_queues: options.default_queues(),
            busy_timeout: options.busy_timeout,
            flush_timeout: options.flush_timeout,
        }
    }
}

/// Refuses options without a meaning for a partition log that is written.
///
/// # Errors
///
/// [`Error::InvalidOption`].
pub fn check(options: &Options) -> Result<()> {
    let space = "retention of a partition log ignores the free space of the disk";
    if let Some(ratio) = options.disk_warning_ratio {
        return Err(Error::option("disk_warning_ratio", ratio, space));
    }
    // Zero is accepted: it reserves nothing.
    if let Some(reserve) = options.disk_reserve.filter(|reserve| *reserve > 0) {
        return Err(Error::option("disk_reserve", reserve, space));
    }
    if options.transient_pool > 0 {
        let reason = "a partition log has no transient pool";
        return Err(Error::option(
            "transient_pool",
            options.transient_pool,
            reason,
        ));
    }
    check_files(options)?;
    if let Some(host) = options.store_host {
        let reason = "messages of a partition log have no hosts";
        return Err(Error::option("store_host", host, reason));
    }
    if options.unique_ids() {
        let reason = "messages of a partition log are known by topic, queue and offset alone";
        return Err(Error::option("unique_ids", true, reason));
    }
    if !options.checksum() {
        let reason = "batches of a partition log always have a checksum";
        return Err(Error::option("checksum", false, reason));
    }
    Ok(())
}

/// Refuses options of files that a partition log does not have, or does not prepare.
fn check_files(options: &Options) -> Result<()> {
    let truth = |name, given: bool| given.then(|| (name, "True".to_owned()));
    let pages = options.warm_up_flush_pages;
    let prepared = [
        truth("warm_up", options.warm_up),
        truth("lock_memory", options.lock_memory),
        pages.map(|pages| ("warm_up_flush_pages", pages.to_string())),
    ];
    if let Some((name, value)) = prepared.into_iter().flatten().next() {
        let reason = "a partition log does not prepare its files";
        return Err(Error::option(name, value, reason));
    }
    if let Some(index) = options.index {
        let reason = "a partition log has no index of keys: a query reads the topic";
        let value = if index { "True" } else { "False" };
        return Err(Error::option("index", value, reason));
    }
    if !options.read_ahead {
        let reason = "a partition log leaves reading ahead to the kernel";
        return Err(Error::option("read_ahead", "False", reason));
    }
    Ok(())
}

/// Longest time between the first messages of a segment and its others. Compaction needs complete
/// segments, so its longest lag limits this time too.
fn segment_ms(options: &Options) -> u64 {
    let mut time = options.segment_ms.unwrap_or(7 * 24 * 3600 * 1000);
    if let Some(age) = options.roll_after {
        time = time.min(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    }
    let compaction = &options.compaction;
    match compaction.max_compaction_lag_ms {
        Some(lag) if compaction.cleanup_policy.compacts_any() => time.min(lag),
        _ => time,
    }
}
