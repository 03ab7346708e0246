//! The steps of short stories of the commit log: it is opened with small files, messages are sent,
//! the machine stops, and queues and index must agree with the log.

use super::disk::{SimDisk, shared};
use super::faults::{Faults, Stop};
use super::frame::{Breach, hold};
use super::random::Random;
use crate::engine::commit_log::CommitLog;
use crate::engine::{Atomicity, Durability, Engine, Verification};
use crate::error::Error;
use crate::machine::Machine;
use crate::options::{Flush, Options};
use crate::record::Draft;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// An empty disk on which nothing fails.
pub fn new_disk(seed: u64, stop: Stop) -> Arc<SimDisk> {
    Arc::new(SimDisk::new(Random::new(seed), Faults::none(stop)))
}

/// Stops the machine. Returns the disk that the next life finds. On it nothing fails, and its
/// machine stops as `stop` says.
pub fn next(disk: &SimDisk, stop: Stop) -> Arc<SimDisk> {
    Arc::new(disk.restart(Faults::none(stop)))
}

pub fn open(disk: &Arc<SimDisk>) -> Result<CommitLog, Breach> {
    open_with(disk, Path::new("/store"), true)
}

pub fn open_with(disk: &Arc<SimDisk>, root: &Path, index: bool) -> Result<CommitLog, Breach> {
    open_by(disk, root, &options(index))
}

pub fn options(index: bool) -> Options {
    Options {
        flush: Some(Flush::Async),
        commitlog_file_size: Some(4096),
        queue_file_entries: Some(64),
        index_slots: Some(8),
        index_entries: Some(70),
        index: Some(index),
        ..Options::default()
    }
}

pub fn open_by(disk: &Arc<SimDisk>, root: &Path, options: &Options) -> Result<CommitLog, Breach> {
    let engine = CommitLog::open(&Machine::stepped(shared(disk)), root, options, Vec::new());
    engine.map_err(|error| format!("opening failed: {error}"))
}

/// Sends messages, each with or without a key, and dispatches them.
pub fn send(engine: &CommitLog, keys: Range<u32>, keyed: bool) -> crate::error::Result<()> {
    append(engine, keys, keyed)?;
    engine.step_dispatch();
    engine.parts().save_table()
}

pub fn append(engine: &CommitLog, keys: Range<u32>, keyed: bool) -> crate::error::Result<()> {
    append_to(engine, "orders", keys, keyed)
}

pub fn append_to(
    engine: &CommitLog,
    name: &str,
    keys: Range<u32>,
    keyed: bool,
) -> crate::error::Result<()> {
    let topic = engine.topic_for_append(name)?;
    for number in keys {
        let mut batch = engine.form().batch();
        let key = format!("key-{number}");
        let draft = Draft {
            keys: &[&*key][..usize::from(keyed)],
            ..Draft::default()
        };
        batch.push(name, 0, &draft, 1_700_000_000_000)?;
        engine.append(
            &mut [(&topic, &mut batch)],
            Atomicity::Rows,
            Durability::Written,
        )?;
    }
    Ok(())
}

/// Sends the messages of `keys`, flushes, and lets the power fail: the store still has them and
/// all earlier ones.
pub fn flushed_is_kept(disk: &Arc<SimDisk>, root: &Path, keys: Range<u32>) -> Result<(), Breach> {
    let count = u64::from(keys.end);
    let engine = open_with(disk, root, true)?;
    send(&engine, keys, true).map_err(said)?;
    engine.flush(&mut || true).map_err(said)?;
    let disk = next(disk, Stop::Power);
    drop(engine);
    let engine = open_with(&disk, root, true)?;
    let found = engine.verify(&mut |_, _| true).map_err(said)?;
    hold!(
        found.records == count,
        "{} of {count} records",
        found.records
    );
    Ok(())
}

pub fn said(error: Error) -> Breach {
    error.to_string()
}

pub fn check(disk: &Arc<SimDisk>) -> Result<Verification, Breach> {
    let found = open(disk)?.verify(&mut |_, _| true).map_err(said)?;
    hold!(found.damage.is_empty(), "verify found {:?}", found.damage);
    Ok(found)
}
