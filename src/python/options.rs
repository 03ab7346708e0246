//! Conversion of the arguments of `forebay.open` to the core's options.

use super::convert::{duration, integer, nearest, refused, word, wrong_type};
use super::errors::{invalid, must};
use super::mapping::mapping_items;
use crate::{
    AppendLockKind, CleanupPolicy, Compaction, Compression, DelayLevels, EngineKind, Flush,
    Isolation, Mode, Options, Policy, TimestampType,
};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Converts mode, engine, flush and the other options.
///
/// # Errors
///
/// `InvalidOptionError` if an option does not exist or a value is not allowed.
pub(super) fn read(
    mode: &str,
    engine: Option<&str>,
    flush: Option<&str>,
    adopt: bool,
    given: &Bound<'_, PyDict>,
) -> PyResult<Options> {
    let mut options = Options {
        mode: read_mode(mode)?,
        engine: engine.map(read_engine).transpose()?,
        adopt,
        flush: flush.map(read_flush).transpose()?,
        ..Options::default()
    };
    for (name, value) in given {
        set(&mut options, word("option", &name)?, &value)?;
    }
    Ok(options)
}

fn read_flush(flush: &str) -> PyResult<Flush> {
    let rule = "be \"async\" or \"sync\"";
    Flush::of(flush).ok_or_else(|| must("flush", format!("{flush:?}"), rule))
}

fn read_mode(mode: &str) -> PyResult<Mode> {
    match mode {
        "a" => Ok(Mode::Append),
        "x" => Ok(Mode::Create),
        "r" => Ok(Mode::Read),
        "share" => Ok(Mode::Share),
        other => Err(must(
            "mode",
            format!("{other:?}"),
            "be \"a\", \"r\", \"share\" or \"x\"",
        )),
    }
}

pub(super) fn read_engine(engine: &str) -> PyResult<EngineKind> {
    let rule = "be \"commitlog\", \"partitionlog\", \"memory\" or None";
    EngineKind::of(engine).ok_or_else(|| must("engine", format!("{engine:?}"), rule))
}

fn set(options: &mut Options, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match name {
        "commitlog_file_size" => options.commitlog_file_size = optional(name, value)?,
        "queue_file_entries" => options.queue_file_entries = optional(name, value)?,
        "lock_timeout" => options.lock_timeout = duration(name, value)?,
        "index_slots" => options.index_slots = optional(name, value)?,
        "index_entries" => options.index_entries = optional(name, value)?,
        "default_queues" => options.default_queues = optional(name, value)?,
        "max_message_size" => options.max_message_size = optional(name, value)?,
        "index" => options.index = optional_truth(name, value)?,
        "transient_pool" => options.transient_pool = size(name, value)?,
        "transient_pool_fail_fast" => options.transient_pool_fail_fast = truth(name, value)?,
        "commit_interval" => options.commit_interval = duration(name, value)?,
        "commit_least_pages" => options.commit_least_pages = size(name, value)?,
        "roll_after" => options.roll_after = optional_duration(name, value)?,
        "warm_up_flush_pages" => options.warm_up_flush_pages = Some(size(name, value)?),
        "warm_up" => options.warm_up = truth(name, value)?,
        "lock_memory" => options.lock_memory = truth(name, value)?,
        "guard_maps" => options.guard_maps = truth(name, value)?,
        "read_ahead" => options.read_ahead = truth(name, value)?,
        "checksum" => options.checksum = optional_truth(name, value)?,
        "unique_ids" => options.unique_ids = optional_truth(name, value)?,
        "flush_interval" => options.flush_interval = duration(name, value)?,
        "flush_least_pages" => options.flush_least_pages = size(name, value)?,
        "flush_thorough_interval" => options.flush_thorough_interval = duration(name, value)?,
        "flush_messages" => options.flush_messages = optional(name, value)?,
        "flush_timeout" => options.flush_timeout = duration(name, value)?,
        "queue_flush_interval" => options.queue_flush_interval = duration(name, value)?,
        "busy_timeout" => options.busy_timeout = duration(name, value)?,
        "append_lock" => options.append_lock = append_lock(name, value)?,
        "store_host" => options.store_host = host(name, value)?,
        "retention" => options.retention = optional_duration(name, value)?,
        "retention_bytes" => options.retention_bytes = optional(name, value)?,
        "isolation" => options.isolation = isolation(name, value)?,
        "segment_bytes" => options.segment_bytes = optional(name, value)?,
        "segment_ms" => options.segment_ms = optional(name, value)?,
        "index_interval_bytes" => options.index_interval_bytes = optional(name, value)?,
        "segment_index_bytes" => options.segment_index_bytes = optional(name, value)?,
        "compression" => options.compression = compression(name, value)?,
        "message_timestamp_type" => options.message_timestamp_type = timestamps(name, value)?,
        "linger" => options.linger = duration(name, value)?,
        "batch_bytes" => options.batch_bytes = optional(name, value)?,
        "keep_unconsumed" => options.keep_unconsumed = truth(name, value)?,
        "keep_unarchived" => options.keep_unarchived = truth(name, value)?,
        "disk_reserve" => options.disk_reserve = Some(size(name, value)?),
        "delay_levels" => options.delay_levels = delay_levels(name, value)?,
        "delete_when" => options.delete_when = hours(name, value)?,
        "disk_warning_ratio" => options.disk_warning_ratio = ratio(name, value)?,
        _ => return set_compaction(&mut options.compaction, name, value),
    }
    Ok(())
}

fn set_compaction(
    compaction: &mut Compaction,
    name: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    match name {
        "cleanup_policy" => compaction.cleanup_policy = policy(name, value)?,
        "min_cleanable_dirty_ratio" => {
            compaction.min_cleanable_dirty_ratio = ratio(name, value)?;
        }
        "delete_retention_ms" => compaction.delete_retention_ms = optional(name, value)?,
        "min_compaction_lag_ms" => {
            compaction.min_compaction_lag_ms = optional(name, value)?;
        }
        "max_compaction_lag_ms" => {
            compaction.max_compaction_lag_ms = optional(name, value)?;
        }
        "log_cleaner_dedupe_buffer_size" => {
            compaction.log_cleaner_dedupe_buffer_size = optional(name, value)?;
        }
        "log_cleaner_io_max_bytes_per_second" => {
            compaction.log_cleaner_io_max_bytes_per_second = optional(name, value)?;
        }
        "log_cleaner_backoff_ms" => {
            compaction.log_cleaner_backoff_ms = optional(name, value)?;
        }
        _ => return Err(no_such_option(name, value)?),
    }
    Ok(())
}

/// The names that `set` and `set_compaction` accept, and the other arguments of `forebay.open`.
const NAMES: &[&str] = &[
    "adopt",
    "append_lock",
    "batch_bytes",
    "busy_timeout",
    "checksum",
    "cleanup_policy",
    "commit_interval",
    "commit_least_pages",
    "commitlog_file_size",
    "compression",
    "default_queues",
    "delay_levels",
    "delete_retention_ms",
    "delete_when",
    "disk_reserve",
    "disk_warning_ratio",
    "engine",
    "flush",
    "flush_interval",
    "flush_least_pages",
    "flush_messages",
    "flush_thorough_interval",
    "flush_timeout",
    "guard_maps",
    "index",
    "index_entries",
    "index_interval_bytes",
    "index_slots",
    "isolation",
    "keep_unarchived",
    "keep_unconsumed",
    "linger",
    "lock_memory",
    "lock_timeout",
    "log_cleaner_backoff_ms",
    "log_cleaner_dedupe_buffer_size",
    "log_cleaner_io_max_bytes_per_second",
    "max_compaction_lag_ms",
    "max_message_size",
    "message_timestamp_type",
    "min_cleanable_dirty_ratio",
    "min_compaction_lag_ms",
    "mode",
    "queue_file_entries",
    "queue_flush_interval",
    "read_ahead",
    "retention",
    "retention_bytes",
    "roll_after",
    "segment_bytes",
    "segment_index_bytes",
    "segment_ms",
    "store_host",
    "transient_pool",
    "transient_pool_fail_fast",
    "unique_ids",
    "warm_up",
    "warm_up_flush_pages",
];

/// The error for an unknown option; it suggests the nearest name.
fn no_such_option(name: &str, value: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let reason = match nearest(value.py(), name, NAMES)? {
        Some(near) => format!("there is no such option; did you mean {near}?"),
        None => "there is no such option".to_owned(),
    };
    Ok(invalid(name, value.repr()?, &reason))
}

fn optional<T: TryFrom<i64>>(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<T>> {
    if value.is_none() {
        Ok(None)
    } else {
        size(name, value).map(Some)
    }
}

fn size<T: TryFrom<i64>>(name: &str, value: &Bound<'_, PyAny>) -> PyResult<T> {
    if value.is_instance_of::<PyBool>() || !value.hasattr("__index__")? {
        return Err(wrong_type(name, value, "an integer"));
    }
    let number = integer(name, value)?.and_then(|number| T::try_from(number).ok());
    let bits = (8 * size_of::<T>()).min(63);
    let rule = format!("be an integer from 0 to 2^{bits} - 1");
    number.ok_or_else(|| must(name, value, &rule))
}

fn optional_duration(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    if value.is_none() {
        Ok(None)
    } else {
        duration(name, value).map(Some)
    }
}

fn delay_levels(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<DelayLevels>> {
    if value.is_none() {
        return Ok(None);
    }
    let text = text_of(name, value, "levels such as \"1s 5s 1m 2h\"")?;
    let rule = "be 1 to 255 delays of at most 366 days, separated by spaces, each a whole \
                number with s, m, h or d";
    match DelayLevels::parse(text) {
        Some(levels) => Ok(Some(levels)),
        None => Err(must(name, format!("{text:?}"), rule)),
    }
}

fn hours(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if value.is_none() {
        return Ok(None);
    }
    let text = text_of(name, value, "hours such as \"04\" or \"04;16\"")?;
    Ok(Some(text.to_owned()))
}

fn ratio(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if value.is_none() {
        return Ok(None);
    }
    if value.is_instance_of::<PyBool>() {
        return Err(wrong_type(name, value, "a number"));
    }
    let number = value.extract::<f64>();
    number
        .map(Some)
        .map_err(|error| refused(name, value, "a number", error))
}

fn truth(name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let truth = value.cast::<PyBool>();
    Ok(truth
        .map_err(|_| wrong_type(name, value, "True or False"))?
        .is_true())
}

fn optional_truth(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    if value.is_none() {
        Ok(None)
    } else {
        truth(name, value).map(Some)
    }
}

fn append_lock(name: &str, value: &Bound<'_, PyAny>) -> PyResult<AppendLockKind> {
    let rule = "\"mutex\" or \"spin\"";
    match text_of(name, value, rule)? {
        "mutex" => Ok(AppendLockKind::Mutex),
        "spin" => Ok(AppendLockKind::Spin),
        other => Err(must(name, format!("{other:?}"), &format!("be {rule}"))),
    }
}

fn isolation(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<Isolation>> {
    let rule = "\"read_uncommitted\" or \"read_committed\"";
    meaning(name, value, rule, Isolation::of)
}

fn compression(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<Compression>> {
    let rule = "\"none\", \"gzip\", \"snappy\", \"lz4\" or \"zstd\"";
    meaning(name, value, rule, Compression::of)
}

fn timestamps(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<TimestampType>> {
    let rule = "\"CreateTime\" or \"LogAppendTime\"";
    meaning(name, value, rule, TimestampType::of)
}

/// The policy of all topics, or those of some.
fn policy(name: &str, value: &Bound<'_, PyAny>) -> PyResult<CleanupPolicy> {
    let rule = "\"delete\", \"compact\" or \"compact,delete\", or a mapping of topics to these";
    if value.is_none() {
        return Ok(CleanupPolicy::default());
    }
    let one = |value: &Bound<'_, PyAny>| {
        let text = text_of(name, value, rule)?;
        let wrong = || must(name, format!("{text:?}"), &format!("be {rule}"));
        Policy::of(text).ok_or_else(wrong)
    };
    if value.is_instance_of::<PyString>() {
        return Ok(CleanupPolicy {
            default: one(value)?,
            ..CleanupPolicy::default()
        });
    }
    let Some(topics) = mapping_items(value)? else {
        return Err(wrong_type(name, value, rule));
    };
    let mut policies = CleanupPolicy::default();
    for item in topics {
        let (topic, policy) = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
        if !topic.is_instance_of::<PyString>() {
            return Err(wrong_type(name, value, rule));
        }
        let topic = word(name, &topic)?.to_owned();
        policies.topics.insert(topic, one(&policy)?);
    }
    Ok(policies)
}

/// The value that a word stands for. `rule` lists the words.
fn meaning<T>(
    name: &str,
    value: &Bound<'_, PyAny>,
    rule: &'static str,
    of: impl Fn(&str) -> Option<T>,
) -> PyResult<Option<T>> {
    if value.is_none() {
        return Ok(None);
    }
    let text = text_of(name, value, rule)?;
    let wrong = || must(name, format!("{text:?}"), &format!("be {rule}"));
    of(text).map(Some).ok_or_else(wrong)
}

/// The text of an option; `wanted` says what it may be.
fn text_of<'a>(name: &str, value: &'a Bound<'_, PyAny>, wanted: &str) -> PyResult<&'a str> {
    match value.is_instance_of::<PyString>() {
        true => word(name, value),
        false => Err(wrong_type(name, value, wanted)),
    }
}

fn host(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<SocketAddr>> {
    if value.is_none() {
        return Ok(None);
    }
    let wanted = "an address such as \"10.0.0.1\" or \"10.0.0.1:80\"";
    let text = text_of(name, value, wanted)?;
    let address = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0));
    let address = address.or_else(|_| text.parse::<SocketAddr>());
    address.map(Some).map_err(|_| {
        must(
            name,
            format!("{text:?}"),
            "be an IP address, with or without a port",
        )
    })
}
