//! Options that only one engine has.

use crate::error::{Error, Result};
use crate::options::{EngineKind, Isolation, Options};

/// Refuses options that mean nothing to an engine, before it changes anything.
///
/// # Errors
///
/// [`Error::InvalidOption`].
pub(super) fn check(engine: EngineKind, options: &Options) -> Result<()> {
    match engine {
        EngineKind::PartitionLog => check_commit_log(options),
        _ => check_isolation(options.isolation).and_then(|()| check_segments(options)),
    }
}

/// Refuses options of a commit log for a partition log, where they would have no effect.
fn check_commit_log(options: &Options) -> Result<()> {
    let count = |value: Option<u32>| value.map(|value| value.to_string());
    let given = [
        (
            "commitlog_file_size",
            options.commitlog_file_size.map(|it| it.to_string()),
        ),
        (
            "queue_file_entries",
            options.queue_file_entries.map(|it| it.to_string()),
        ),
        ("index_slots", count(options.index_slots)),
        ("index_entries", count(options.index_entries)),
    ];
    let mut given = given.into_iter();
    match given.find_map(|(name, value)| value.map(|value| (name, value))) {
        Some((name, value)) => {
            let reason = "only a commit log has this option";
            Err(Error::option(name, value, reason))
        }
        None => Ok(()),
    }
}

/// Refuses an isolation for engines that keep no transactions.
fn check_isolation(isolation: Option<Isolation>) -> Result<()> {
    let Some(isolation) = isolation else {
        return Ok(());
    };
    let rule = "only a partition log has transactions";
    Err(Error::option(
        "isolation",
        format!("{:?}", isolation.word()),
        rule,
    ))
}

/// Refuses the options of segments for engines that have none.
fn check_segments(options: &Options) -> Result<()> {
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let compression = options.compression.map(|it| format!("{:?}", it.word()));
    let timestamps = options.message_timestamp_type;
    let given = [
        ("segment_bytes", number(options.segment_bytes)),
        ("segment_ms", number(options.segment_ms)),
        ("index_interval_bytes", number(options.index_interval_bytes)),
        ("segment_index_bytes", number(options.segment_index_bytes)),
        ("compression", compression),
        (
            "message_timestamp_type",
            timestamps.map(|it| format!("{:?}", it.word())),
        ),
        (
            "linger",
            (!options.linger.is_zero()).then(|| options.linger.as_secs_f64().to_string()),
        ),
        ("batch_bytes", number(options.batch_bytes)),
        ("flush_messages", number(options.flush_messages)),
    ];
    let mut given = given.into_iter();
    let given = given.find_map(|(name, value)| value.map(|value| (name, value)));
    match given.or_else(|| options.compaction.first_given()) {
        Some((name, value)) => Err(Error::option(
            name,
            value,
            "only a partition log has this option",
        )),
        None => Ok(()),
    }
}
