//! A disk that refuses to sync a queue or the index, under a process that dies of it. The next one
//! finds everything in the page cache, and then the power goes.

use super::disk::{Faults, SimDisk, Stop, shared};
use super::model::{Breach, hold};
use super::random::Random;
use crate::engine::commit_log::CommitLog;
use crate::engine::{Atomicity, Durability, Engine};
use crate::machine::{Drive, Machine};
use crate::options::{Flush, Options};
use crate::record::{Batch, Draft};
use std::path::Path;
use std::sync::Arc;

const MESSAGES: i64 = 120;

fn faults(stop: Stop) -> Faults {
    Faults {
        stop,
        dies_at: None,
        failing_syncs: 0,
        full: 0,
        written_back: 0,
    }
}

fn open(disk: &Arc<SimDisk>) -> Result<CommitLog, Breach> {
    let machine = Machine {
        disk: shared(disk),
        drive: Drive::Steps,
    };
    let options = Options {
        flush: Flush::Async,
        commitlog_file_size: Some(4096),
        queue_file_entries: Some(64),
        index_slots: Some(8),
        index_entries: Some(70),
        ..Options::default()
    };
    let engine = CommitLog::open(&machine, Path::new("/store"), &options);
    engine.map_err(|error| format!("it does not open: {error}"))
}

fn send(engine: &CommitLog) -> crate::error::Result<()> {
    let topic = engine.topic_for_append("orders")?;
    for number in 0..MESSAGES {
        let mut batch = Batch::new();
        let draft = Draft {
            keys: &[&format!("key-{number}")],
            ..Draft::default()
        };
        batch.push("orders", 0, &draft, engine.style(), 1_700_000_000_000)?;
        engine.append(&topic, &mut batch, Atomicity::Rows, Durability::Written)?;
    }
    engine.step_dispatch();
    engine.shared().save_table()?;
    engine.flush().map(|_| ())
}

/// Tells it; afterwards queues and index agree with the log.
pub fn tell(seed: u64) -> Result<(), Breach> {
    let said = |error| format!("{error}");
    let disk = Arc::new(SimDisk::new(Random::new(seed), faults(Stop::Process)));
    let engine = open(&disk)?;
    send(&engine).map_err(said)?;
    // Some seeds fail at the queue, some at a file of the index, some nowhere.
    disk.fail_syncs(300);
    let _ = engine.shared().settle();

    let disk = Arc::new(disk.restart(faults(Stop::Power)));
    drop(engine);
    let engine = open(&disk)?;
    engine.shared().settle().map_err(said)?;

    let disk = Arc::new(disk.restart(faults(Stop::Power)));
    drop(engine);
    let found = open(&disk)?.verify(&mut |_, _| true).map_err(said)?;
    hold!(found.damage.is_empty(), "verify finds {:?}", found.damage);
    hold!(
        found.queue_entries == MESSAGES as u64 && found.index_entries >= found.queue_entries,
        "{} queue entries and {} of the index",
        found.queue_entries,
        found.index_entries
    );
    Ok(())
}
