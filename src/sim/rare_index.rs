//! Short stories of an index that is torn, missing, rebuilt, or comes back.

use super::disk::SimDisk;
use super::faults::{Faults, Stop};
use super::frame::{Breach, hold};
use super::random::Random;
use super::steps::{check, new_disk, next, open, open_by, open_with, options, said, send};
use crate::disk::{FileSystem, Synced};
use crate::engine::{Engine, Files};
use crate::options::Options;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    // The power fails shortly before the end of the rebuild, when the index exists but may not be
    // durable.
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
