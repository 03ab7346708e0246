//! Counters and times of a store.

use super::pickle::plain;
use pyo3::prelude::*;

plain!(
    Latency,
    "A histogram of durations. Four buckets cover each power of two.

Attributes
----------
count
    Number of durations.
mean, p50, p99, p999, max
    In seconds; 0 if nothing was counted. Percentiles are the upper ends of their buckets, so they
    may be too long by up to a quarter.
buckets
    The non-empty buckets, as (exclusive upper end in seconds, number of durations).",
    {
        /// Number of durations.
        count: u64,
        /// Mean duration in seconds; 0 if nothing was counted.
        mean: f64,
        /// Median in seconds, or 0 if nothing was counted. It is the upper end of a bucket, so it
        /// may be up to a quarter too long.
        p50: f64,
        /// The duration that 99% do not exceed, with the rules of ``p50``.
        p99: f64,
        /// The duration that 99.9% do not exceed, with the rules of ``p50``.
        p999: f64,
        /// The longest duration in seconds; 0 if nothing was counted.
        max: f64,
        /// The non-empty buckets, as (exclusive upper end in seconds, number of durations).
        buckets: Vec<(f64, u64)>,
    }
);

impl From<crate::Latency> for Latency {
    fn from(found: crate::Latency) -> Latency {
        let quantile = |share| found.quantile(share).as_secs_f64();
        let buckets = found.buckets.iter();
        Latency {
            count: found.count,
            mean: found.total.as_secs_f64() / found.count.max(1) as f64,
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: found.max.as_secs_f64(),
            buckets: buckets
                .map(|(end, count)| (end.as_secs_f64(), *count))
                .collect(),
        }
    }
}

impl From<crate::Summary> for Latency {
    fn from(found: crate::Summary) -> Latency {
        let seconds = |time: std::time::Duration| time.as_secs_f64();
        Latency {
            count: found.count,
            mean: seconds(found.total) / found.count.max(1) as f64,
            p50: seconds(found.p50),
            p99: seconds(found.p99),
            p999: seconds(found.p999),
            max: seconds(found.max),
            buckets: Vec::new(),
        }
    }
}

plain!(
    WriterStats,
    "Measurements that the live writer of a store publishes for other processes.

They are published about once a second, if they have changed. In a store that several processes
write, they are those of the process that runs the services for all of them.

Attributes
----------
pid
    Its process id.
age
    Seconds since it last published a change.
messages_sent, bytes_sent
    Messages and bytes that it has appended.
recent_messages_per_second, recent_bytes_per_second
    Rates over about the last ten seconds.
put_latency, slow_puts
    Duration of puts as a `Latency` without buckets, and the number of puts above 500 ms.
flushes, flush_time, longest_flush
    Number of syncs of the log, their total time, and the longest, in seconds.
flush_wait
    How long senders and tickets waited for durability, as a `Latency` without buckets.",
    {
        /// Its process id.
        pid: u32,
        /// Seconds since it last published a change.
        age: f64,
        /// Messages that it has appended.
        messages_sent: u64,
        /// Bytes that it has appended.
        bytes_sent: u64,
        /// Rate of messages over about the last ten seconds.
        recent_messages_per_second: f64,
        /// Rate of bytes over about the last ten seconds.
        recent_bytes_per_second: f64,
        /// Duration of puts, as a `Latency` without buckets.
        put_latency: Latency,
        /// Number of puts above 500 ms.
        slow_puts: u64,
        /// Number of syncs of the log.
        flushes: u64,
        /// Total time of the syncs of the log, in seconds.
        flush_time: f64,
        /// The longest sync of the log, in seconds.
        longest_flush: f64,
        /// How long senders and tickets waited for durability, as a `Latency` without buckets.
        flush_wait: Latency,
    }
);

impl From<crate::WriterStats> for WriterStats {
    fn from(found: crate::WriterStats) -> WriterStats {
        WriterStats {
            pid: found.pid,
            age: found.age.as_secs_f64(),
            messages_sent: found.messages_sent,
            bytes_sent: found.bytes_sent,
            recent_messages_per_second: found.recent_messages,
            recent_bytes_per_second: found.recent_bytes,
            put_latency: found.puts.into(),
            slow_puts: found.slow_puts,
            flushes: found.flushes,
            flush_time: found.flush_time.as_secs_f64(),
            longest_flush: found.longest_flush.as_secs_f64(),
            flush_wait: found.waits.into(),
        }
    }
}

plain!(
    Stats,
    "Counters and times of a store since it was opened.

A put is the append of one message, or of one chunk of a batch. Its time covers encoding, waiting
for the append lock, and appending; `flush_wait` counts the wait for the disk. The first 1,024
single messages are timed, and then one in 64, chosen at random, and every one that takes longer
than a few milliseconds. So counts and sums are estimates, but rare long puts are counted exactly.

Attributes
----------
messages_sent, bytes_sent, sends_failed, busy
    Messages and bytes appended, failed appends, and how many of these failed because the log was
    busy.
messages_read
    Messages that reads, queries and tails returned; those of scans are not counted.
messages_delivered, messages_delivered_again
    Messages that consumers got, and how many of these had been delivered before and not settled.
messages_per_second, bytes_per_second
    Rates since the store was opened.
recent_messages_per_second, recent_bytes_per_second
    Rates over about the last ten seconds.
put_latency, slow_puts
    Duration of puts as a `Latency`, and the number of puts above 500 ms. Each of these is logged as
    a warning to the logger ``forebay``.
encode_time, append_time
    Seconds that senders spent encoding; seconds of waiting for the append lock and appending.
append_held
    Seconds since the current append began; 0 if there is none.
flushes, flush_time, longest_flush
    Number of syncs of the log, their total time, and the longest, in seconds. Each sync above
    500 ms is logged as a warning to the logger ``forebay``.
flush_wait
    How long senders and tickets waited for durability, as a `Latency`.
published, dispatched, durable
    Positions up to which readers see the log, queues and index are built, and the log is durable.
flush_behind, dispatch_behind
    Bytes of the log that are not durable yet, and bytes not yet entered into queues and index.
min_position
    First position in the log.
log_bytes, disk_free
    Total length of the log files (of a partition log, of the batches in them); free bytes of the
    file system, or None if that is unknown.
recovered_records, truncated_bytes
    Records that opening checked, and bytes after the end that it erased.
damaged
    Number of known damaged regions.
stale_checksums
    Number of copied records found with the checksum of their original.
retired_bytes_mapped
    Bytes of log files that retention has deleted but that are still mapped. The disk space is freed
    when the last message, scan or buffer that uses the file is dropped.
writer
    Measurements published by the process that writes the store, as `WriterStats`; None if this
    process writes it, no process does, or nothing was published yet.",
    {
        /// Messages appended.
        messages_sent: u64,
        /// Bytes appended.
        bytes_sent: u64,
        /// Appends that failed.
        sends_failed: u64,
        /// Failed appends because the log was busy.
        busy: u64,
        /// Messages that reads, queries and tails returned; those of scans are not counted.
        messages_read: u64,
        /// Messages that consumers got.
        messages_delivered: u64,
        /// Messages that consumers got, and that had been delivered before and not settled.
        messages_delivered_again: u64,
        /// Rate of messages since the store was opened.
        messages_per_second: f64,
        /// Rate of bytes since the store was opened.
        bytes_per_second: f64,
        /// Rate of messages over about the last ten seconds.
        recent_messages_per_second: f64,
        /// Rate of bytes over about the last ten seconds.
        recent_bytes_per_second: f64,
        /// Duration of puts, as a `Latency`.
        put_latency: Latency,
        /// Number of puts above 500 ms. Each of these is logged as a warning to the logger
        /// ``forebay``.
        slow_puts: u64,
        /// Seconds that senders spent encoding.
        encode_time: f64,
        /// Seconds of waiting for the append lock and appending.
        append_time: f64,
        /// Seconds since the current append began; 0 if there is none.
        append_held: f64,
        /// Number of syncs of the log.
        flushes: u64,
        /// Total time of the syncs of the log, in seconds.
        flush_time: f64,
        /// The longest sync of the log, in seconds. Each above 500 ms is logged as a warning to
        /// the logger ``forebay``.
        longest_flush: f64,
        /// How long senders and tickets waited for durability, as a `Latency`.
        flush_wait: Latency,
        /// Position up to which readers see the log.
        published: u64,
        /// Position up to which queues and index are built.
        dispatched: u64,
        /// Position up to which the log is durable.
        durable: u64,
        /// Bytes of the log that are not durable yet.
        flush_behind: u64,
        /// Bytes of the log that are not yet entered into queues and index.
        dispatch_behind: u64,
        /// First position in the log.
        min_position: u64,
        /// Total length of the log files (of a partition log, of the batches in them).
        log_bytes: u64,
        /// Free bytes of the file system, or None if that is unknown.
        disk_free: Option<u64>,
        /// Records that opening checked.
        recovered_records: u64,
        /// Bytes after the end that opening erased.
        truncated_bytes: u64,
        /// Number of known damaged regions.
        damaged: u64,
        /// Number of copied records found with the checksum of their original.
        stale_checksums: u64,
        /// Bytes of log files that retention has deleted but that are still mapped. The disk
        /// space is freed when the last message, scan or buffer that uses the file is dropped.
        retired_bytes_mapped: u64,
        /// Measurements published by the process that writes the store, as `WriterStats`; None if
        /// this process writes it, no process does, or nothing was published yet.
        writer: Option<WriterStats>,
    },
    notebook "stats"
);

impl From<crate::Stats> for Stats {
    fn from(stats: crate::Stats) -> Stats {
        Stats {
            messages_sent: stats.messages_sent,
            bytes_sent: stats.bytes_sent,
            sends_failed: stats.sends_failed,
            busy: stats.busy,
            messages_read: stats.gets.read,
            messages_delivered: stats.gets.delivered,
            messages_delivered_again: stats.gets.delivered_again,
            messages_per_second: stats.rates.messages,
            bytes_per_second: stats.rates.bytes,
            recent_messages_per_second: stats.rates.recent_messages,
            recent_bytes_per_second: stats.rates.recent_bytes,
            put_latency: stats.puts.latency.into(),
            slow_puts: stats.puts.slow,
            encode_time: stats.puts.encoding.as_secs_f64(),
            append_time: stats.puts.appending.as_secs_f64(),
            append_held: stats.append_held.as_secs_f64(),
            flushes: stats.flushes.count,
            flush_time: stats.flushes.total.as_secs_f64(),
            longest_flush: stats.flushes.longest.as_secs_f64(),
            flush_wait: stats.flushes.waits.into(),
            published: stats.published,
            dispatched: stats.dispatched,
            durable: stats.durable,
            // The marks are read one after the other, so the lower one may have passed the other.
            flush_behind: stats.published.saturating_sub(stats.durable),
            dispatch_behind: stats.published.saturating_sub(stats.dispatched),
            min_position: stats.min_position,
            log_bytes: stats.log_bytes,
            disk_free: stats.disk_free,
            recovered_records: stats.recovered_records,
            truncated_bytes: stats.truncated_bytes,
            damaged: stats.damaged,
            stale_checksums: stats.stale_checksums,
            retired_bytes_mapped: stats.retired_bytes_mapped,
            writer: stats.writer.map(Into::into),
        }
    }
}
