//! Stories that end with everything durable: a power failure then changes no byte of any file.

use super::disk::{Image, SimDisk};
use super::faults::{Faults, Stop};
use super::frame::{Breach, ROOT, hold};
use super::random::Random;
use super::steps::{
    flushed_is_kept, new_disk, next, open, open_by, open_with, options, said, send,
};
use crate::disk::{FileSystem, Synced};
use crate::engine::Engine;
use crate::engine::commit_log::CommitLog;
use crate::options::Options;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The power fails, and every file that `counts` is unchanged.
pub(super) fn outlives_power(
    disk: &SimDisk,
    counts: impl Fn(&Path) -> bool,
) -> Result<Arc<SimDisk>, Breach> {
    let part = |image: Image| -> Image {
        let parts = image.into_iter().filter(|(path, _)| counts(path));
        parts.collect()
    };
    let before = part(disk.contents());
    let disk = next(disk, Stop::Power);
    let mut after = part(disk.contents());
    for (path, bytes) in before {
        let found = after.remove(&path);
        hold!(found == Some(bytes), "{} has changed", path.display());
    }
    // A file of zeros is equivalent to a missing one.
    let holds = |bytes: &Option<Vec<u8>>| !bytes.iter().flatten().all(|byte| *byte == 0);
    after.retain(|_, bytes| holds(bytes));
    let came_back: Vec<PathBuf> = after.into_keys().collect();
    hold!(came_back.is_empty(), "{came_back:?} came back");
    Ok(disk)
}

/// Actions on a store, most of which are not durable when they end.
fn unsettled(random: &mut Random, engine: &CommitLog) -> Result<(), Breach> {
    let mut sent = 0;
    for _ in 0..1 + random.below(4) {
        let count = 1 + random.below(40) as u32;
        send(engine, sent..sent + count, random.chance(70)).map_err(said)?;
        sent += count;
        match random.below(3) {
            0 => drop(engine.flush(&mut || true).map_err(said)?),
            1 => engine.parts().full_pass().map_err(said)?,
            _ => {}
        }
    }
    Ok(())
}

/// A store has a life that ends in any way, then another. Everything is durable after a close, and
/// after a final full pass.
pub fn at_its_end(seed: u64) -> Result<(), Breach> {
    let mut random = Random::new(seed);
    let disk = new_disk(seed, random.pick(&[Stop::Power, Stop::Process]));
    let engine = open(&disk)?;
    unsettled(&mut random, &engine)?;
    let disk = next(&disk, Stop::Power);
    drop(engine);
    let engine = open(&disk)?;
    unsettled(&mut random, &engine)?;
    match random.chance(50) {
        true => engine.close().map_err(said)?,
        false => {
            // A full pass has nothing to do if nothing was sent.
            send(&engine, 0..1, true).map_err(said)?;
            engine.parts().full_pass().map_err(said)?;
        }
    }
    outlives_power(&disk, |_| true).map(drop)
}

/// Queue, index or checkpoint of a closed store are changed from outside. The result of the next
/// opening is durable after the next close or full pass.
pub fn meddled_with(seed: u64) -> Result<(), Breach> {
    let mut random = Random::new(seed);
    let disk = new_disk(seed, Stop::Process);
    let engine = open(&disk)?;
    let sent = 1 + random.below(60) as u32;
    send(&engine, 0..sent, true).map_err(said)?;
    engine.close().map_err(said)?;
    drop(engine);
    let disk = next(&disk, Stop::Power);
    meddle(&mut random, &disk, sent as usize)?;
    let engine = open(&disk)?;
    let close = random.chance(70);
    if !close || random.chance(30) {
        send(&engine, 0..1, true).map_err(said)?;
    }
    match close {
        true => engine.close().map_err(said)?,
        false => engine.parts().full_pass().map_err(said)?,
    }
    outlives_power(&disk, |_| true).map(drop)
}

fn meddle(random: &mut Random, disk: &SimDisk, sent: usize) -> Result<(), Breach> {
    let queue = Path::new(ROOT).join("consumequeue/orders/0");
    let first = queue.join("00000000000000000000");
    let entry = 20 * random.below(sent as u64) as usize;
    let entries = disk.contents().remove(&first).flatten();
    let entries = entries.ok_or("the queue has no file")?;
    let add_file = |start: usize, bytes: &[u8]| {
        let path = queue.join(format!("{start:020}"));
        let added = disk.write_at(&path, 0, bytes);
        let synced = added.and_then(|()| disk.sync(Synced::File(&path)));
        let named = synced.and_then(|()| disk.sync(Synced::Directory(&queue)));
        named.map_err(|error| error.to_string())
    };
    match random.below(6) {
        // Entries after the end of the queue that point to messages with other offsets.
        0 => disk.damage(&first, 20 * sent, &entries[entry..entry + 20]),
        // The last entries are missing.
        1 => disk.damage(&first, entry, &vec![0; 20 * sent - entry]),
        2 => add_file(entries.len(), &entries[..20 * sent])?,
        3 => add_file(entries.len() * (1 + random.below(70) as usize), &entries)?,
        4 => {
            let gone = disk.unlink(&Path::new(ROOT).join("checkpoint"));
            gone.map_err(|error| error.to_string())?;
        }
        // An index entry that the header does not count.
        _ => {
            let within = |path: &Path| path.starts_with("/store/index");
            let files = disk.contents().into_iter();
            let mut files = files.filter(|(path, bytes)| within(path) && bytes.is_some());
            let (path, _) = files.next().ok_or("there is no index")?;
            let at = 40 + 4 * 8 + 20 * (sent + 1);
            disk.damage(&path, at, &random.next().to_be_bytes());
        }
    }
    Ok(())
}

/// A store is opened after a crash. The log that it keeps, and its marks, are then durable.
pub fn at_its_begin(seed: u64) -> Result<(), Breach> {
    let mut random = Random::new(seed);
    let disk = new_disk(seed, random.pick(&[Stop::Power, Stop::Process]));
    let engine = open(&disk)?;
    unsettled(&mut random, &engine)?;
    let closed = random.chance(30);
    if closed {
        engine.close().map_err(said)?;
    }
    let disk = next(&disk, Stop::Power);
    drop(engine);
    if closed && random.chance(50) {
        // Like a store that another system has closed.
        let gone = disk.unlink(&Path::new(ROOT).join("forebay.idle"));
        gone.map_err(|error| error.to_string())?;
    }
    let _engine = open(&disk)?;
    let caches = ["consumequeue", "index", "checkpoint"].map(|name| Path::new(ROOT).join(name));
    let cache = |path: &Path| caches.iter().any(|cache| path.starts_with(cache));
    outlives_power(&disk, |path| !cache(path)).map(drop)
}

/// A log file was truncated. Once the store is open, its length is durably restored.
pub fn cut_short(seed: u64) -> Result<(), Breach> {
    let mut random = Random::new(seed);
    let disk = new_disk(seed, Stop::Process);
    let engine = open(&disk)?;
    send(&engine, 0..3, true).map_err(said)?;
    engine.close().map_err(said)?;
    drop(engine);
    let disk = next(&disk, Stop::Power);
    let len = 3000 + random.below(1000) as usize;
    disk.cut(
        &Path::new(ROOT)
            .join("commitlog")
            .join("00000000000000000000"),
        len,
    );
    let _engine = open(&disk)?;
    outlives_power(&disk, |path| path.starts_with("/store/commitlog")).map(drop)
}

/// A directory of a closed store was removed, in which there may be no message. Its replacement and
/// the contents are durable.
pub fn without_a_directory(seed: u64) -> Result<(), Breach> {
    let mut random = Random::new(seed);
    let disk = new_disk(seed, Stop::Process);
    let engine = open(&disk)?;
    let sent = random.pick(&[0, 20]);
    send(&engine, 0..sent, true).map_err(said)?;
    engine.close().map_err(said)?;
    drop(engine);
    let disk = next(&disk, Stop::Power);
    let of_queues = random.chance(50);
    let name = if of_queues {
        "consumequeue"
    } else {
        "commitlog"
    };
    let directory = Path::new(ROOT).join(name);
    for (path, bytes) in disk.contents().into_iter().rev() {
        let removed = match (path.starts_with(&directory), bytes) {
            (false, _) => continue,
            (true, Some(_)) => disk.unlink(&path),
            (true, None) => disk.remove_directory(&path),
        };
        removed.map_err(|error| error.to_string())?;
    }
    let synced = disk.sync(Synced::Directory(Path::new(ROOT)));
    synced.map_err(|error| error.to_string())?;
    let engine = open(&disk)?;
    send(&engine, sent..sent + 10, true).map_err(said)?;
    engine.flush(&mut || true).map_err(said)?;
    if of_queues {
        engine.parts().full_pass().map_err(said)?;
    }
    outlives_power(&disk, |path| path.starts_with(&directory)).map(drop)
}

/// The process that creates a store dies meanwhile, or the power fails. The next one finds the
/// store and sends, and the power fails once that is durable.
pub fn made_by_the_dead(seed: u64) -> Result<(), Breach> {
    let mut random = Random::new(seed);
    let root = Path::new("/data/store");
    let dying = Faults {
        dies_at: Some(1 + random.below(70)),
        ..Faults::none(random.pick(&[Stop::Power, Stop::Process]))
    };
    let disk = Arc::new(SimDisk::new(Random::new(seed), dying));
    drop(open_with(&disk, root, true));
    let disk = next(&disk, Stop::Power);
    flushed_is_kept(&disk, root, 0..10)
}

/// A closed store is renamed, and the power fails once a message is durable under the new name.
pub fn renamed(seed: u64) -> Result<(), Breach> {
    let disk = new_disk(seed, Stop::Power);
    let (from, to) = (Path::new("/data/one"), Path::new("/data/two"));
    let engine = open_with(&disk, from, true)?;
    send(&engine, 0..10, true).map_err(said)?;
    engine.close().map_err(said)?;
    drop(engine);
    disk.rename(from, to).map_err(|error| error.to_string())?;
    flushed_is_kept(&disk, to, 10..20)
}

/// Another system writes to a store after a writer of ours died, and closes it or dies. Its records
/// carry no checksum. The state page and the table are ours. The power fails while the store is
/// opened: the next opening still accepts the messages of the other system.
pub fn left_by_another(seed: u64) -> Result<(), Breach> {
    let mut random = Random::new(seed);
    let root = Path::new(ROOT);
    let ended = |error: std::io::Error| error.to_string();
    let disk = new_disk(seed, Stop::Process);
    let engine = open(&disk)?;
    unsettled(&mut random, &engine)?;
    let disk = next(&disk, Stop::Process);
    drop(engine);
    let ours = disk.contents();
    let options = Options {
        checksum: Some(false),
        ..options(true)
    };
    let engine = open_by(&disk, root, &options)?;
    send(&engine, 0..1 + random.below(30) as u32, true).map_err(said)?;
    engine.close().map_err(said)?;
    let all = engine.verify(&mut |_, _| true).map_err(said)?.records;
    drop(engine);
    for name in ["forebay.state", "forebay.offsets", "forebay.idle"] {
        let path = root.join(name);
        disk.unlink(&path).map_err(ended)?;
        if let Some(Some(bytes)) = ours.get(&path) {
            disk.write_at(&path, 0, bytes).map_err(ended)?;
        }
    }
    if random.chance(50) {
        let abort = root.join("abort");
        disk.write_at(&abort, 0, b"4711").map_err(ended)?;
    }
    disk.sync(Synced::FileSystem(root)).map_err(ended)?;
    let disk = next(&disk, Stop::Power);
    disk.end_within(1 + random.below(16));
    drop(open(&disk));
    let disk = next(&disk, Stop::Power);
    let engine = open(&disk)?;
    let found = engine.verify(&mut |_, _| true).map_err(said)?;
    hold!(found.records == all, "{} of {all} records", found.records);
    Ok(())
}

/// A store is opened with an option that differs from the saved one, and dies meanwhile or
/// afterwards. If the opening returned, the new value is saved; otherwise one of the two. The next
/// opening finds the same value.
pub fn given_options(seed: u64) -> Result<(), Breach> {
    let mut random = Random::new(seed);
    let root = Path::new(ROOT);
    let giving = |default_queues| Options {
        default_queues,
        ..options(true)
    };
    let disk = new_disk(seed, Stop::Process);
    let engine = open_by(&disk, root, &giving(Some(2)))?;
    engine.close().map_err(said)?;
    drop(engine);
    let disk = next(&disk, random.pick(&[Stop::Power, Stop::Process]));
    if random.chance(50) {
        disk.end_within(1 + random.below(60));
    }
    let returned = open_by(&disk, root, &giving(Some(3))).is_ok();
    let mut found = Vec::new();
    let mut disk = disk;
    for _ in 0..2 {
        disk = next(&disk, Stop::Power);
        let engine = open_by(&disk, root, &giving(None))?;
        found.push(engine.options().default_queues());
    }
    let allowed = match returned {
        true => vec![[3, 3]],
        false => vec![[2, 2], [3, 3]],
    };
    hold!(
        allowed.iter().any(|it| *it == *found),
        "found {found:?}, expected one of {allowed:?}"
    );
    Ok(())
}

/// A store with so many queues that a full pass syncs the whole file system.
pub fn of_many_queues(seed: u64) -> Result<(), Breach> {
    let disk = new_disk(seed, Stop::Power);
    let engine = open(&disk)?;
    for number in 0..70 {
        super::steps::append_to(&engine, &format!("topic-{number}"), 0..1, true).map_err(said)?;
    }
    engine.step_dispatch();
    engine.parts().save_table().map_err(said)?;
    engine.parts().full_pass().map_err(said)?;
    outlives_power(&disk, |_| true).map(drop)
}

/// A store with two messages that are durable, and twelve that may be.
fn with_an_end_in_doubt(disk: &Arc<SimDisk>) -> Result<CommitLog, Breach> {
    let engine = open(disk)?;
    send(&engine, 0..2, true).map_err(said)?;
    engine.flush(&mut || true).map_err(said)?;
    send(&engine, 2..14, true).map_err(said)?;
    Ok(engine)
}

/// As [`after_an_erased_end`], where the opening that erases dies before it has synced the zeros,
/// or its sync fails. The next opening finds zeros, and has to make them durable.
pub fn after_an_end_that_the_dead_erased(seed: u64) -> Result<(), Breach> {
    let mut random = Random::new(seed);
    let disk = new_disk(seed, Stop::Power);
    let engine = with_an_end_in_doubt(&disk)?;
    let dying = Faults {
        dies_at: Some(1 + random.below(70)),
        failing_syncs: random.pick(&[0, 200]),
        ..Faults::none(Stop::Process)
    };
    let disk = Arc::new(disk.restart(dying));
    drop(engine);
    let engine = open(&disk);
    let disk = next(&disk, Stop::Power);
    drop(engine);
    outlives_a_longer_log(&mut random, &disk)
}

/// The power fails in a log whose end was erased on opening: after the messages sent then, no old
/// record follows.
pub fn after_an_erased_end(seed: u64) -> Result<(), Breach> {
    let mut random = Random::new(seed);
    let disk = new_disk(seed, Stop::Power);
    let engine = with_an_end_in_doubt(&disk)?;
    let disk = next(&disk, Stop::Power);
    drop(engine);
    outlives_a_longer_log(&mut random, &disk)
}

/// A store is opened and gets messages, and the power fails: its log ends where it ended then.
fn outlives_a_longer_log(random: &mut Random, disk: &Arc<SimDisk>) -> Result<(), Breach> {
    let engine = open(disk)?;
    let end = engine.stats().published;
    let count = 1 + random.below(4) as u32;
    send(&engine, 0..count, true).map_err(said)?;
    let durable = engine.flush(&mut || true).map_err(said)?;
    hold!(durable > end, "nothing was sent");
    let disk = next(disk, Stop::Power);
    drop(engine);
    let engine = open(&disk)?;
    let published = engine.stats().published;
    hold!(
        published == durable,
        "the log ends at {published}, expected {durable}"
    );
    Ok(())
}
