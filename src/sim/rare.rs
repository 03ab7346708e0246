//! Short stories that random ones reach once in some hundred thousand crashes. After each, queues
//! and index must agree with the log.

use super::disk::{SimDisk, shared};
use super::faults::{Faults, Stop};
use super::frame::{Breach, hold, undamaged};
use super::openings::{MODES, check_failed};
use super::random::Random;
use super::steps::{
    append, check, flushed_is_kept, new_disk, next, open, open_by, options, said, send,
};
use crate::engine::Engine;
use crate::engine::commit_log::CommitLog;
use crate::machine::Machine;
use crate::options::Options;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// The power fails twice, so that a queue file may hold sectors of two lives. Every entry that
/// counts leads to its record.
pub fn with_queues_of_two_lives(seed: u64) -> Result<(), Breach> {
    let mut random = Random::new(seed);
    let mut disk = new_disk(seed, Stop::Power);
    // The records of the first life are shorter, so its entries lead to earlier positions.
    for keyed in [false, true] {
        let engine = open(&disk)?;
        let count = 27 + random.below(30) as u32;
        send(&engine, 0..count, keyed).map_err(said)?;
        disk = next(&disk, Stop::Power);
        drop(engine);
    }
    check(&disk).map(drop)
}

/// A sync of the log fails, so the page no longer vouches for the page cache; then the next
/// opening cannot sync the page, and the kernel drops pages. The one after it trusts none of them.
pub fn doubt_that_cannot_be_synced(seed: u64) -> Result<(), Breach> {
    let mut random = Random::new(seed);
    let failing = |failing_syncs| Faults {
        failing_syncs,
        ..Faults::none(Stop::Process)
    };
    let disk = Arc::new(SimDisk::new(Random::new(seed), failing(100)));
    if let Ok(engine) = open(&disk) {
        let _ = send(&engine, 0..1 + random.below(40) as u32, true);
        // The page is stored while it vouches.
        let _ = engine.parts().log.state.sync(&*engine.parts().disk);
        let _ = engine.flush(&mut || true);
    }
    let disk = Arc::new(disk.restart(failing(1000)));
    hold!(open(&disk).is_err(), "opened without a sync");
    let disk = Arc::new(disk.restart(failing(0)));
    check(&disk)?;
    let engine = open(&Arc::new(disk.restart(failing(0))))?;
    let damage = engine.parts().report.damage();
    hold!(damage.is_empty(), "reported damage: {damage:?}");
    Ok(())
}

/// A disk refuses to sync a queue or the index, so the process dies. The next one finds everything
/// in the page cache, and then the power fails.
pub fn refused_sync(seed: u64) -> Result<(), Breach> {
    refuse(seed, false)
}

/// [`refused_sync`] with durable queues.
pub fn refused_sync_of_the_index(seed: u64) -> Result<(), Breach> {
    refuse(seed, true)
}

fn refuse(seed: u64, queues_are_durable: bool) -> Result<(), Breach> {
    let disk = new_disk(seed, Stop::Process);
    let engine = open(&disk)?;
    send(&engine, 0..120, true).map_err(said)?;
    engine.flush(&mut || true).map_err(said)?;
    if queues_are_durable {
        engine.parts().queues.flush().map_err(said)?;
    }
    // Some seeds fail at the queue, some at an index file, some nowhere.
    disk.fail_syncs(if queues_are_durable { 1000 } else { 300 });
    let _ = engine.parts().full_pass();

    let disk = next(&disk, Stop::Power);
    drop(engine);
    let engine = open(&disk)?;
    engine.parts().full_pass().map_err(said)?;

    let disk = next(&disk, Stop::Power);
    drop(engine);
    let found = check(&disk)?;
    hold!(
        (found.queue_entries, found.index_entries) == (120, 120),
        "{} queue entries and {} index entries",
        found.queue_entries,
        found.index_entries
    );
    Ok(())
}

/// A process dies while retention retires log files. The next one finds them retired, and a power
/// failure restores one: the queues still have the entries that point to it.
pub fn returning_log_file(seed: u64) -> Result<(), Breach> {
    let mut random = Random::new(seed);
    let dies_at = Some(20 + random.below(24));
    let opened_at = Some(10 + random.below(30));
    let kept = Options {
        queue_file_entries: Some(16),
        ..options(true)
    };
    let retiring = Options {
        retention_bytes: Some(1 << 13),
        ..kept.clone()
    };
    let root = Path::new("/store");
    let disk = Arc::new(SimDisk::new(random, Faults::none(Stop::Process)));
    let engine = open_by(&disk, root, &kept)?;
    send(&engine, 0..150, false).map_err(said)?;
    engine.parts().full_pass().map_err(said)?;

    let disk = Arc::new(disk.restart(Faults {
        dies_at,
        ..Faults::none(Stop::Process)
    }));
    drop(engine);
    if let Ok(engine) = open_by(&disk, root, &retiring) {
        engine.step_retention(1_700_000_000_000, Instant::now());
    }

    let disk = Arc::new(disk.restart(Faults {
        dies_at: opened_at,
        ..Faults::none(Stop::Power)
    }));
    drop(open_by(&disk, root, &kept));

    let disk = next(&disk, Stop::Power);
    let engine = open_by(&disk, root, &kept)?;
    let found = engine.verify(&mut |_, _| true).map_err(said)?;
    hold!(found.damage.is_empty(), "verify found {:?}", found.damage);
    Ok(())
}

/// The power fails during a step of retention, so that any of the files that it removes are left:
/// log files without a gap, queue files with longer gaps than damage leaves, and index files.
/// Everything after them is still there, and nothing needs to be rebuilt.
pub fn removed_in_part(seed: u64) -> Result<(), Breach> {
    let mut random = Random::new(seed);
    let options = Options {
        queue_file_entries: Some(1),
        retention_bytes: Some(1),
        index_entries: Some(20),
        ..options(true)
    };
    let root = Path::new("/store");
    let disk = new_disk(seed, Stop::Power);
    let engine = open_by(&disk, root, &options)?;
    let all = 90 + random.below(40) as u32;
    send(&engine, 0..all, true).map_err(said)?;
    engine.parts().full_pass().map_err(said)?;
    // Nearly none, half or nearly all of the removals are durable when the power fails.
    disk.keep_names(random.pick(&[2, 50, 98]));
    disk.end_within(1 + random.below(160));
    engine.step_retention(1_700_000_000_000, Instant::now());

    let disk = next(&disk, Stop::Power);
    drop(engine);
    let engine = open_by(&disk, root, &options)?;
    let rebuilt = engine.report().recovery().queue_entries_rebuilt;
    hold!(rebuilt == 0, "{rebuilt} durable entries were built again");
    let found = undamaged(&engine)?;
    let topic = engine.topics().get("orders").ok_or("the topic is gone")?;
    let bounds = engine.bounds(&topic, 0).map_err(said)?.unwrap_or_default();
    let end = u64::from(all);
    hold!(bounds.end == end, "the queue ends at {bounds:?}, not {end}");
    let there = end - bounds.start;
    let entries = (found.records, found.queue_entries, found.index_entries);
    hold!(
        entries == (there, there, there),
        "{entries:?} for {bounds:?}"
    );
    Ok(())
}

/// A store is created together with its parent directories, and the power fails once a message is
/// durable. One of the directories may be unreadable.
pub fn directories_made_above(seed: u64) -> Result<(), Breach> {
    let root = Path::new("/data/of/an/application");
    let disk = new_disk(seed, Stop::Power);
    if let Some(above) = root.ancestors().nth(Random::new(seed).below(5) as usize) {
        // The store itself can be read.
        disk.make_unreadable(if above == root {
            Path::new("/none")
        } else {
            above
        });
    }
    flushed_is_kept(&disk, root, 0..10)
}

/// A sync of dispatch fails unnoticed. Afterwards nothing may count as durable.
pub fn unheard_failure_of_dispatch(seed: u64) -> Result<(), Breach> {
    let disk = new_disk(seed, Stop::Power);
    let engine = open(&disk)?;
    send(&engine, 0..60, true).map_err(said)?;
    engine.parts().full_pass().map_err(said)?;
    disk.fail_syncs(1000);
    let _ = append(&engine, 60..100, true);
    let failed = engine.parts().dispatcher.try_step();
    hold!(
        failed.is_err(),
        "the sync of the full index file did not fail"
    );
    disk.fail_syncs(0);
    hold!(
        engine.parts().dispatcher.step().is_err(),
        "the failed sync succeeded when retried"
    );
    Ok(())
}

/// A process dies with log and queues in the page cache. The next ones open the store while a map
/// fails, a different one each time: an opening that succeeds finds every message, and one that
/// fails tells the cause and changes none.
pub fn failing_map_on_opening(seed: u64) -> Result<(), Breach> {
    openings_that_fail(seed, 1, |failing| Faults {
        failing_map: Some(failing),
        ..Faults::none(Stop::Process)
    })
}

/// [`failing_map_on_opening`] with any call: open, read, list, stat and the ones that write.
/// A seed tries one of [`CALL_STEP`] calls.
pub fn failing_call_on_opening(seed: u64) -> Result<(), Breach> {
    openings_that_fail(seed, CALL_STEP, |failing| Faults {
        failing_call: Some(failing),
        ..Faults::none(Stop::Process)
    })
}

const CALL_STEP: u64 = 8;

/// Opens a store with these faults, for each `step`th number from one of the first on, until the
/// opening makes fewer calls.
fn openings_that_fail(seed: u64, step: u64, faults: impl Fn(u64) -> Faults) -> Result<(), Breach> {
    let mut random = Random::new(seed);
    let durable = 1 + random.below(60) as u32;
    let all = durable + 1 + random.below(60) as u32;
    let mut disk = new_disk(seed, Stop::Process);
    let engine = open(&disk)?;
    send(&engine, 0..durable, true).map_err(said)?;
    engine.parts().full_pass().map_err(said)?;
    send(&engine, durable..all, true).map_err(said)?;
    engine.flush(&mut || true).map_err(said)?;
    drop(engine);
    let mut failing = 1 + random.below(step);
    let options = Options {
        mode: random.pick(&MODES),
        ..options(true)
    };
    loop {
        let faults = faults(failing);
        disk = Arc::new(disk.restart(faults));
        let before = disk.contents();
        let machine = Machine::stepped(shared(&disk));
        let opened = CommitLog::open(&machine, Path::new("/store"), &options, Vec::new());
        let (maps, calls) = disk.tried();
        let count = faults.failing_map.map_or(calls, |_| maps);
        disk.set_failing_calls(0);
        match opened {
            Ok(engine) => check_complete(&engine, all),
            Err(error) => check_failed(&disk, &before, options.mode, &error),
        }
        .map_err(|breach| format!("{:?}, without call {failing}: {breach}", options.mode))?;
        if count < failing {
            return Ok(());
        }
        failing += step;
    }
}

/// Checks that a store has all messages, and entries of them.
fn check_complete(engine: &CommitLog, all: u32) -> Result<(), Breach> {
    let found = engine.verify(&mut |_, _| true).map_err(said)?;
    hold!(
        found.damage.is_empty() && found.queue_entries == u64::from(all),
        "{} of {all} messages, {:?}",
        found.queue_entries,
        found.damage
    );
    Ok(())
}
