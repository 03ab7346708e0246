//! The small files of a log directory and of a partition, as a broker that is alone writes them.

use crate::disk::{Disk, Kind, read_small, replace};
use crate::engine::partition_log::segments::names::{self, CHECKPOINT_LEN_MAX, CLEAN};
use crate::error::Result;
use crate::record::coded::base64;
use std::fmt::Write;
use std::path::Path;

/// Offsets below which each partition is durable.
pub const RECOVERY_POINT: &str = names::RECOVERY_POINT;
/// Offsets up to which all replicas of each partition have it.
pub const HIGH_WATERMARK: &str = "replication-offset-checkpoint";
/// First offsets of each partition that compaction has not covered.
pub const FIRST_DIRTY: &str = "cleaner-offset-checkpoint";
/// File of a partition: which leader wrote from which offset on.
pub const EPOCHS: &str = "leader-epoch-checkpoint";
/// File of a partition: the id of its topic.
pub const METADATA: &str = "partition.metadata";
/// How that file begins.
const METADATA_START: &str = "version: 0\ntopic_id: ";
/// The small files of a partition.
pub const SMALL: [&str; 2] = [METADATA, EPOCHS];
/// Longest small file of a partition that is read.
const SMALL_LEN_MAX: u64 = 1 << 20;

/// File that marks the log directory as a store of Forebay: its seed as text, and then the times in
/// ms at which it was opened with retention, one per line.
pub const MARKER: &str = names::FOREBAY;
/// How many of these times are kept, the newest ones.
const TIMES_KEPT: usize = 64;

/// The seed of the store; `None` if Forebay has not written to the directory.
pub fn read_seed(disk: &dyn Disk, root: &Path) -> Result<Option<u64>> {
    let known = read_table(disk, &root.join(MARKER), SMALL_LEN_MAX)?;
    let text = known.map(|bytes| String::from_utf8(bytes).unwrap_or_default());
    let seed = |text: String| text.lines().next().and_then(|it| it.trim().parse().ok());
    Ok(text.map(|text| seed(text).unwrap_or_default()))
}

/// Adds the time of an opening to those that the marker has, and returns the earlier ones. Durable
/// on return.
pub fn add_opening(disk: &dyn Disk, root: &Path, seed: u64, now_ms: i64) -> Result<Vec<i64>> {
    let known = read_table(disk, &root.join(MARKER), SMALL_LEN_MAX)?.unwrap_or_default();
    let text = String::from_utf8(known).unwrap_or_default();
    let times = text.lines().skip(1).filter_map(|line| line.parse().ok());
    let times: Vec<i64> = times.collect();
    let kept = times.get((times.len() + 1).saturating_sub(TIMES_KEPT)..);
    let mut text = format!("{seed}\n");
    for time in kept.unwrap_or_default().iter().chain([&now_ms]) {
        let _ = writeln!(text, "{time}");
    }
    replace(disk, &root.join(MARKER), text.as_bytes())?;
    Ok(times)
}

/// Makes a directory a store of Forebay. Durable on return.
pub fn save_seed(disk: &dyn Disk, root: &Path, seed: u64) -> Result<()> {
    replace(disk, &root.join(MARKER), format!("{seed}\n").as_bytes())
}

/// A topic, a partition and an offset.
pub type Line<'a> = (&'a str, u32, u64);

/// Writes a checkpoint file. Durable on return.
pub fn save_checkpoint(disk: &dyn Disk, root: &Path, name: &str, lines: &[Line<'_>]) -> Result<()> {
    replace(disk, &root.join(name), text_of(lines).as_bytes())
}

/// Writes the first offsets of partitions: nothing before them may become visible again. Durable on
/// return.
pub fn save_starts(disk: &dyn Disk, root: &Path, lines: &[Line<'_>]) -> Result<()> {
    let path = root.join(names::LOG_START);
    replace(disk, &path, text_of(lines).as_bytes())
}

fn text_of(lines: &[Line<'_>]) -> String {
    let mut text = format!("0\n{}\n", lines.len());
    for (topic, queue, offset) in lines {
        // Writing to text does not fail.
        let _ = writeln!(text, "{topic} {queue} {offset}");
    }
    text
}

/// Writes what a clean stop leaves, its mark last. The logs must be durable already. Durable on
/// return.
pub fn save_clean_stop(disk: &dyn Disk, root: &Path, lines: &[Line<'_>]) -> Result<()> {
    save_checkpoint(disk, root, RECOVERY_POINT, lines)?;
    save_checkpoint(disk, root, HIGH_WATERMARK, lines)?;
    let mark = b"{\"version\":0,\"brokerEpoch\":-1}";
    replace(disk, &root.join(CLEAN), mark)
}

/// The entries of a checkpoint file; none if it is missing or damaged.
pub fn read_checkpoint(disk: &dyn Disk, path: &Path) -> Result<Vec<(String, u32, u64)>> {
    Ok(match load_checkpoint(disk, path)? {
        Checkpoint::Lines(lines) => lines,
        Checkpoint::Missing | Checkpoint::Damaged => Vec::new(),
    })
}

/// The contents of a checkpoint file.
pub enum Checkpoint {
    /// There is none.
    Missing,
    /// It is not a checkpoint.
    Damaged,
    /// Its entries.
    Lines(Vec<(String, u32, u64)>),
}

/// Reads a checkpoint file.
pub fn load_checkpoint(disk: &dyn Disk, path: &Path) -> Result<Checkpoint> {
    if disk.stat(path)?.is_none() {
        return Ok(Checkpoint::Missing);
    }
    let Some(bytes) = read_table(disk, path, CHECKPOINT_LEN_MAX)? else {
        return Ok(Checkpoint::Damaged);
    };
    let mut lines = Vec::new();
    let read = names::each_start(&bytes, &mut |topic, queue, offset| {
        lines.push((topic.to_owned(), queue, offset));
    });
    Ok(match read {
        Ok(()) => Checkpoint::Lines(lines),
        Err(_) => Checkpoint::Damaged,
    })
}

/// The bytes of a small file; `None` if it is missing, too long or not a file.
pub(super) fn read_table(disk: &dyn Disk, path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
    match disk.stat(path)? {
        Some(entry) if entry.kind == Kind::File && entry.len <= limit => {
            read_small(disk, path, limit)
        }
        _ => Ok(None),
    }
}

/// Writes the small files of a partition whose folder was just made, for a topic with this id. It
/// begins at the offset `next`, and the epoch of its leader is 0. They are not durable on return.
pub fn make(disk: &dyn Disk, folder: &Path, id: &str, next: u64) -> Result<()> {
    disk.write_at(&folder.join(METADATA), 0, metadata_of(id).as_bytes())?;
    disk.write_at(&folder.join(EPOCHS), 0, epochs_from(next).as_bytes())
}

/// Writes the small files of a partition again, so that the next sync stores them.
pub fn rewrite_small(disk: &dyn Disk, folder: &Path) -> Result<()> {
    for path in SMALL.map(|name| folder.join(name)) {
        if let Some(bytes) = read_table(disk, &path, SMALL_LEN_MAX)? {
            disk.write_at(&path, 0, &bytes)?;
        }
    }
    Ok(())
}

/// Makes the small files of a partition durable, with their names.
pub fn sync_small(disk: &dyn Disk, folder: &Path) -> Result<()> {
    for name in SMALL {
        disk.sync_file(&folder.join(name))?;
    }
    disk.sync_directory(folder)
}

pub(super) fn metadata_of(id: &str) -> String {
    format!("{METADATA_START}{id}")
}

pub(super) fn epochs_from(next: u64) -> String {
    format!("0\n1\n0 {next}\n")
}

/// The id of a topic, given the folder of one of its partitions: the id that another partition
/// states, otherwise one derived from name and `seed`.
pub fn id_of(disk: &dyn Disk, folder: &Path, topic: &str, seed: u64) -> Result<String> {
    let known = known_id(disk, folder, topic)?;
    Ok(known.unwrap_or_else(|| topic_id(topic, seed)))
}

/// The id that another of the topic's first partitions states.
pub(super) fn known_id(disk: &dyn Disk, folder: &Path, topic: &str) -> Result<Option<String>> {
    /// How many partitions are asked.
    const ASKED: u32 = 16;
    for queue in 0..ASKED {
        let other = folder.with_file_name(format!("{topic}-{queue}"));
        let known = read_table(disk, &other.join(METADATA), SMALL_LEN_MAX)?;
        if let Some(id) = known.as_deref().and_then(id_in) {
            return Ok(Some(id.to_owned()));
        }
    }
    Ok(None)
}

/// The id in a partition's metadata; `None` if the file is torn or states none.
pub(super) fn id_in(metadata: &[u8]) -> Option<&str> {
    /// Characters of an id: 16 bytes in base64 without padding.
    const LEN: usize = 22;
    let text = str::from_utf8(metadata).ok()?;
    let id = text.strip_prefix(METADATA_START)?.trim_end();
    let is_of_id = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
    (id.len() == LEN && id.chars().all(is_of_id)).then_some(id)
}

/// Updates the table of epochs of a partition to match a log that ends before the offset `end`.
/// `of`: the epochs of its batches, each with its first offset. A damaged table counts as empty.
/// Durable on return.
pub fn follow_epochs(disk: &dyn Disk, folder: &Path, of: &[(i32, u64)], end: u64) -> Result<()> {
    let path = folder.join(EPOCHS);
    let Some(bytes) = read_table(disk, &path, SMALL_LEN_MAX)? else {
        return match of {
            [] => Ok(()),
            of => save_epochs(disk, &path, of),
        };
    };
    let known = epochs(&bytes).unwrap_or_default();
    let mut kept: Vec<_> = known.iter().filter(|it| it.1 < end).copied().collect();
    for (epoch, at) in of {
        if kept.last().is_none_or(|(last, _)| last < epoch) {
            kept.push((*epoch, *at));
        }
    }
    match kept == known {
        true => Ok(()),
        false => save_epochs(disk, &path, &kept),
    }
}

/// Makes the table of epochs of a partition begin at its first offset: drops epochs without
/// messages, and moves the start of the epoch that has this offset. Does nothing if the table is
/// missing or damaged. Durable on return.
pub fn begin_epochs(disk: &dyn Disk, folder: &Path, start: u64) -> Result<()> {
    let path = folder.join(EPOCHS);
    let known = read_table(disk, &path, SMALL_LEN_MAX)?;
    let Some(known) = known.and_then(|bytes| epochs(&bytes)) else {
        return Ok(());
    };
    let kept = epochs_since(&known, start);
    match kept == known {
        true => Ok(()),
        false => save_epochs(disk, &path, &kept),
    }
}

/// These epochs without those that end before the offset `start`. The one that has it begins there.
pub(super) fn epochs_since(all: &[(i32, u64)], start: u64) -> Vec<(i32, u64)> {
    let gone = all.partition_point(|(_, at)| *at <= start);
    let (gone, left) = all.split_at(gone);
    let first = gone.last().map(|(epoch, _)| (*epoch, start));
    first.into_iter().chain(left.iter().copied()).collect()
}

/// The offset at which the table of epochs of a partition begins; `None` if the table is missing,
/// damaged or empty.
pub(super) fn begin_of_epochs(disk: &dyn Disk, folder: &Path) -> Result<Option<u64>> {
    let bytes = read_table(disk, &folder.join(EPOCHS), SMALL_LEN_MAX)?;
    let epochs = bytes.and_then(|bytes| epochs(&bytes));
    Ok(epochs.and_then(|epochs| epochs.first().map(|(_, at)| *at)))
}

pub(super) fn save_epochs(disk: &dyn Disk, path: &Path, epochs: &[(i32, u64)]) -> Result<()> {
    replace(disk, path, text_of_epochs(epochs).as_bytes())
}

pub(super) fn text_of_epochs(epochs: &[(i32, u64)]) -> String {
    let mut text = format!("0\n{}\n", epochs.len());
    for (epoch, offset) in epochs {
        // Writing to text does not fail.
        let _ = writeln!(text, "{epoch} {offset}");
    }
    text
}

/// The entries of a table of epochs: each epoch and the offset where it begins; `None` if the bytes
/// are not such a table.
pub(super) fn epochs(bytes: &[u8]) -> Option<Vec<(i32, u64)>> {
    let mut lines = str::from_utf8(bytes).ok()?.lines();
    if lines.next() != Some("0") {
        return None;
    }
    let count: usize = lines.next()?.parse().ok()?;
    let entry = |line: &str| {
        let (epoch, offset) = line.split_once(' ')?;
        Some((epoch.parse().ok()?, offset.trim().parse().ok()?))
    };
    let found: Vec<(i32, u64)> = lines.map(entry).collect::<Option<_>>()?;
    (found.len() == count).then_some(found)
}

/// The epoch in the last line of a table of epochs.
pub(super) fn last_epoch(bytes: &[u8]) -> Option<i32> {
    let last = epochs(bytes)?.last().map(|(epoch, _)| *epoch);
    last.filter(|epoch| *epoch >= 0)
}

/// An id for a new topic: 16 bytes derived from its name and the store's seed, in base64 for URLs.
pub fn topic_id(topic: &str, seed: u64) -> String {
    let hash = |salt: u64| {
        let mut hash = 0xCBF2_9CE4_8422_2325 ^ salt;
        for byte in topic.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        hash ^ hash >> 29
    };
    let (high, low) = (hash(seed), hash(seed.rotate_left(32) ^ 0x9E37_79B9));
    // A random UUID states version 4 and variant 2.
    let high = high & !0xF000 | 0x4000;
    let low = low & !(0b11 << 62) | 0b10 << 62;
    let mut bytes = [0; 16];
    for (to, from) in bytes.chunks_mut(8).zip([high, low]) {
        to.copy_from_slice(&from.to_be_bytes());
    }
    let text = base64(&bytes).replace('+', "-").replace('/', "_");
    text.trim_end_matches('=').to_owned()
}
