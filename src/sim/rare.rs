//! Short stories that random ones reach once in some hundred thousand crashes. After each, queues
//! and index must agree with the log.

use super::disk::{SimDisk, shared};
use super::faults::{Faults, Stop};
use super::frame::{Breach, hold, undamaged};
use super::random::Random;
use crate::disk::{FileSystem, Synced};
use crate::engine::commit_log::CommitLog;
use crate::engine::{Atomicity, Durability, Engine, Files, Verification};
use crate::error::Error;
use crate::machine::Machine;
use crate::options::{Flush, Options};
use crate::record::Draft;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// An empty disk on which nothing fails.
pub(super) fn new_disk(seed: u64, stop: Stop) -> Arc<SimDisk> {
    Arc::new(SimDisk::new(Random::new(seed), Faults::none(stop)))
}

/// Stops the machine. Returns the disk that the next life finds, on which nothing fails, and which
/// ends like this.
pub(super) fn next(disk: &SimDisk, stop: Stop) -> Arc<SimDisk> {
    Arc::new(disk.restart(Faults::none(stop)))
}

pub(super) fn open(disk: &Arc<SimDisk>) -> Result<CommitLog, Breach> {
    open_with(disk, Path::new("/store"), true)
}

pub(super) fn open_with(
    disk: &Arc<SimDisk>,
    root: &Path,
    index: bool,
) -> Result<CommitLog, Breach> {
    open_by(disk, root, &options(index))
}

pub(super) fn options(index: bool) -> Options {
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

pub(super) fn open_by(
    disk: &Arc<SimDisk>,
    root: &Path,
    options: &Options,
) -> Result<CommitLog, Breach> {
    let engine = CommitLog::open(&Machine::stepped(shared(disk)), root, options, Vec::new());
    engine.map_err(|error| format!("opening failed: {error}"))
}

/// Sends messages, each with or without a key, and dispatches them.
pub(super) fn send(engine: &CommitLog, keys: Range<u32>, keyed: bool) -> crate::error::Result<()> {
    append(engine, keys, keyed)?;
    engine.step_dispatch();
    engine.parts().save_table()
}

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

/// Sends the messages of `keys`, flushes, and lets the power fail: the store still has them and
/// all earlier ones.
pub(super) fn flushed_is_kept(
    disk: &Arc<SimDisk>,
    root: &Path,
    keys: Range<u32>,
) -> Result<(), Breach> {
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

fn append(engine: &CommitLog, keys: Range<u32>, keyed: bool) -> crate::error::Result<()> {
    append_to(engine, "orders", keys, keyed)
}

pub(super) fn append_to(
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

pub(super) fn said(error: Error) -> Breach {
    error.to_string()
}

fn check(disk: &Arc<SimDisk>) -> Result<Verification, Breach> {
    let found = open(disk)?.verify(&mut |_, _| true).map_err(said)?;
    hold!(found.damage.is_empty(), "verify found {:?}", found.damage);
    Ok(found)
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

/// A power failure removes messages that the index covers. The index file is removed, and comes
/// back in the next power failure.
pub fn returning_index_file(seed: u64) -> Result<(), Breach> {
    let disk = new_disk(seed, Stop::Power);
    let engine = open(&disk)?;
    send(&engine, 0..1, false).map_err(said)?;
    engine.flush(&mut || true).map_err(said)?;
    send(&engine, 1..4, true).map_err(said)?;

    let disk = next(&disk, Stop::Power);
    drop(engine);
    let engine = open(&disk)?;
    send(&engine, 4..30, false).map_err(said)?;
    engine.parts().full_pass().map_err(said)?;

    let disk = next(&disk, Stop::Power);
    drop(engine);
    check(&disk).map(|_| ())
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
/// log files without a gap, queue files with longer ones than damage leaves, index files. What
/// follows is still there, and was not lost for a moment: nothing is built again.
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
    // Nearly none, half or nearly all of the removals are durable by then.
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

/// A power failure tears the index, a writer without index closes the store cleanly, and the next
/// writer with index finds every key.
pub fn index_after_a_life_without(seed: u64) -> Result<(), Breach> {
    let disk = new_disk(seed, Stop::Power);
    let engine = open(&disk)?;
    send(&engine, 0..5, true).map_err(said)?;
    engine.flush(&mut || true).map_err(said)?;
    send(&engine, 5..40, true).map_err(said)?;

    let disk = next(&disk, Stop::Power);
    drop(engine);
    let engine = open_with(&disk, Path::new("/store"), false)?;
    send(&engine, 40..80, false).map_err(said)?;
    engine.close().map_err(said)?;

    let disk = next(&disk, Stop::Process);
    drop(engine);
    let found = check(&disk)?;
    hold!(
        found.index_entries + 40 == found.queue_entries,
        "{} index entries, but {} queue entries",
        found.index_entries,
        found.queue_entries
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

/// The index is missing, and the process that rebuilds it dies meanwhile.
pub fn killed_rebuild(seed: u64) -> Result<(), Breach> {
    let mut random = Random::new(seed);
    let disk = new_disk(seed, Stop::Process);
    let engine = open(&disk)?;
    send(&engine, 0..1, false).map_err(said)?;
    engine.close().map_err(said)?;
    drop(engine);
    let engine = open(&disk)?;
    send(&engine, 1..300, true).map_err(said)?;
    engine.flush(&mut || true).map_err(said)?;

    let dying = Faults {
        dies_at: Some(random.below(120)),
        ..Faults::none(random.pick(&[Stop::Process, Stop::Power]))
    };
    let disk = disk.restart(Faults::none(Stop::Process));
    drop(engine);
    let index = Path::new("/store/index");
    for file in disk.list(index).map_err(|error| error.to_string())? {
        let name = file.name.unwrap_or_default();
        let gone = disk.unlink(&index.join(name));
        gone.map_err(|error| error.to_string())?;
    }
    let disk = Arc::new(disk.restart(dying));
    drop(open(&disk));

    let disk = next(&disk, Stop::Process);
    let found = check(&disk)?;
    hold!(
        found.index_entries == 299,
        "{} index entries of 299",
        found.index_entries
    );
    Ok(())
}

/// The index is damaged, the table of its files is missing, and the power fails during the rebuild:
/// by an opening after a crash, since only then the whole index is checked, or by a repair. Half an
/// index must not be trusted.
pub fn torn_rebuild(seed: u64) -> Result<(), Breach> {
    // In half of the cases shortly before the end, when the index exists but is not durable.
    let (damaged, calls, _) = torn_within(seed, 1000)?;
    let last = if damaged.is_some() { 10 } else { 5 };
    let within = calls - 1 - Random::new(seed).below(last);
    let (damaged, _, disk) = torn_within(seed, within)?;
    let engine = open_by(&disk, Path::new("/store"), &torn_options())?;
    if damaged.is_some_and(|file| disk.contents().contains_key(&file)) {
        // The repair has not begun the rebuild.
        return Ok(());
    }
    let found = engine.verify(&mut |_, _| true).map_err(said)?;
    hold!(found.damage.is_empty(), "verify found {:?}", found.damage);
    hold!(
        found.index_entries == found.queue_entries,
        "{} index entries of {}",
        found.index_entries,
        found.queue_entries
    );
    Ok(())
}

fn torn_options() -> Options {
    Options {
        // Larger than one sector.
        index_entries: Some(400),
        ..options(true)
    }
}

/// [`torn_rebuild`] with a power failure within this many calls. Returns the file that a repair has
/// to rebuild, the calls until then, and the disk after the power failure.
fn torn_within(seed: u64, calls: u64) -> Result<(Option<PathBuf>, u64, Arc<SimDisk>), Breach> {
    let mut random = Random::new(seed);
    let open = |disk| open_by(disk, Path::new("/store"), &torn_options());
    let disk = new_disk(seed, Stop::Process);
    let engine = open(&disk)?;
    send(&engine, 0..100 + random.below(250) as u32, true).map_err(said)?;
    let repairs = random.chance(50);
    match repairs {
        true => engine.close().map_err(said)?,
        false => engine.parts().full_pass().map_err(said)?,
    }
    drop(engine);
    let disk = next(&disk, Stop::Power);
    let files = disk.contents().into_keys();
    let mut files = files.filter(|path| path.parent() == Some(Path::new("/store/index")));
    let file = files.next().ok_or("there is no index")?;
    let begun;
    if repairs {
        // Opening checks only the first and the last entry.
        disk.damage(&file, 40 + 4 * 8 + 20 * 50, &[0xEE; 20]);
        let engine = open(&disk)?;
        lose_table(&disk)?;
        begun = disk.calls();
        disk.end_within(calls);
        let _ = engine.repair(&mut |_, _| true);
    } else {
        lose_table(&disk)?;
        disk.damage(&file, 36, &[0xEE; 4]);
        begun = disk.calls();
        disk.end_within(calls);
        drop(open(&disk));
    }
    let after = disk.calls() - begun;
    let left = next(&disk, Stop::Power);
    Ok((repairs.then_some(file), after, left))
}

/// Removes the table of queues and index files.
fn lose_table(disk: &SimDisk) -> Result<(), Breach> {
    let gone = disk.unlink(Path::new("/store/forebay.offsets"));
    let gone = gone.and_then(|()| disk.sync(Synced::Directory(Path::new("/store"))));
    gone.map_err(|error| error.to_string())
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
/// fails removes none.
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
    loop {
        let faults = faults(failing);
        disk = Arc::new(disk.restart(faults));
        let opened = open(&disk);
        let (maps, calls) = disk.tried();
        let count = faults.failing_map.map_or(calls, |_| maps);
        disk.set_failing_calls(0);
        if let Ok(engine) = opened {
            let found = engine.verify(&mut |_, _| true).map_err(said)?;
            hold!(
                found.damage.is_empty() && found.queue_entries == u64::from(all),
                "without call {failing}: {} of {all} messages, {:?}",
                found.queue_entries,
                found.damage
            );
        }
        if count < failing {
            return Ok(());
        }
        failing += step;
    }
}
