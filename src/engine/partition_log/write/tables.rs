//! The small files of a log directory and of its partitions: what is wrong with them, and how those
//! that are damaged are saved and written again.
//!
//! | file | written again from |
//! |---|---|
//! | `recovery-point-`, `replication-offset-checkpoint` | the ends of the partitions |
//! | `log-start-offset-checkpoint` | the tables of epochs, which begin at the first offsets |
//! | `cleaner-offset-checkpoint` | nothing: all is compacted again |
//! | `leader-epoch-checkpoint` | the batches |
//! | `partition.metadata` | another partition of the topic, or its name and the store's seed |

use super::ends::Ends;
use super::files::{self, EPOCHS, FIRST_DIRTY, HIGH_WATERMARK, MARKER, METADATA, RECOVERY_POINT};
use super::follow;
use crate::disk::{Disk, Kind, put, read_small, replace};
use crate::engine::directory::salvage;
use crate::engine::partition_log::segments::names::{self, CHECKPOINT_LEN_MAX, LOG_START, State};
use crate::engine::partition_log::segments::reader::Reader;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::partition_log::segments::walk::{Step, Walk};
use crate::engine::{Damage, DamageKind, Report};
use crate::error::Result;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Tables of offsets in a log directory.
const CHECKPOINTS: [&str; 4] = [RECOVERY_POINT, HIGH_WATERMARK, LOG_START, FIRST_DIRTY];
/// Longest other small file that is read.
const SMALL_LEN_MAX: u64 = 1 << 20;

/// What is wrong with the contents of a file, if anything is.
type Flaw = Option<&'static str>;

/// Damage of the tables in a log directory.
///
/// # Errors
///
/// Those of reading.
pub fn of_root(disk: &dyn Disk, root: &Path) -> Result<Vec<Damage>> {
    let is_own = disk.stat(&root.join(MARKER))?.is_some();
    let mut found = Vec::new();
    for name in CHECKPOINTS {
        found.extend(checkpoint(disk, root, name, is_own)?);
    }
    found.extend(contradicted(disk, root)?);
    let marker = (DamageKind::Table, root.join(MARKER));
    found.extend(check(disk, marker, SMALL_LEN_MAX, marker_flaw)?);
    Ok(found)
}

/// Damage of a table of offsets. `is_own`: Forebay has written it.
fn checkpoint(disk: &dyn Disk, root: &Path, name: &str, is_own: bool) -> Result<Option<Damage>> {
    // A broker creates its tables empty.
    let may_be_empty = !is_own || name == FIRST_DIRTY;
    let file = (DamageKind::Checkpoint, root.join(name));
    check(disk, file, CHECKPOINT_LEN_MAX, |bytes| {
        match bytes.is_empty() && may_be_empty {
            true => None,
            false => names::each_start(bytes, &mut |_, _, _| ()).err(),
        }
    })
}

/// Damage of the tables of a partition.
///
/// # Errors
///
/// Those of reading.
pub fn of_partition(disk: &dyn Disk, folder: &Path) -> Result<Vec<Damage>> {
    let mut found = Vec::new();
    let tables: [(_, _, Look); 2] = [
        (DamageKind::Checkpoint, EPOCHS, epochs_flaw),
        (DamageKind::Table, METADATA, metadata_flaw),
    ];
    for (kind, name, flaw) in tables {
        let file = (kind, folder.join(name));
        // The first sync of a partition makes these files durable. Until then a power loss may
        // leave them without contents, and the next append writes them again.
        let has_bytes = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0);
        let flaw = |bytes: &[u8]| flaw(bytes).filter(|_| has_bytes(bytes));
        found.extend(check(disk, file, SMALL_LEN_MAX, flaw)?);
    }
    Ok(found)
}

/// Damage of a small file; `None` if it is missing or not a file.
fn check(
    disk: &dyn Disk,
    (kind, path): (DamageKind, PathBuf),
    limit: u64,
    flaw: impl Fn(&[u8]) -> Flaw,
) -> Result<Option<Damage>> {
    match disk.stat(&path)? {
        Some(entry) if entry.kind == Kind::File && entry.len > limit => {
            let reason = format!("{} bytes, limit {limit}", entry.len);
            Ok(Some(Damage::new(kind, path, 0..entry.len, reason)))
        }
        Some(entry) if entry.kind == Kind::File => {
            let bytes = read_small(disk, &path, limit)?.unwrap_or_default();
            let len = bytes.len() as u64;
            Ok(flaw(&bytes).map(|reason| Damage::new(kind, path, 0..len, reason)))
        }
        _ => Ok(None),
    }
}

fn marker_flaw(bytes: &[u8]) -> Flaw {
    let Ok(text) = str::from_utf8(bytes) else {
        return Some("it is not text");
    };
    let mut lines = text.lines();
    let seed = lines.next().map(|line| line.trim().parse::<u64>());
    if !matches!(seed, Some(Ok(_))) {
        return Some("its first line is not the seed of a store");
    }
    let are_times = lines.all(|line| line.parse::<i64>().is_ok());
    (!are_times).then_some("a line is not a time")
}

fn epochs_flaw(bytes: &[u8]) -> Flaw {
    let Some(epochs) = files::epochs(bytes) else {
        return Some("it is not a table of epochs and offsets");
    };
    let rise = epochs.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1);
    (!rise).then_some("its epochs or offsets do not rise")
}

fn metadata_flaw(bytes: &[u8]) -> Flaw {
    match files::id_in(bytes) {
        Some(_) => None,
        None => Some("it does not state the id of a topic"),
    }
}

/// Copies a damaged file to one beside it, with `.damaged` after its name. Returns the copy; `None`
/// if the file is empty. Durable on return. The copy has no directory of its own, because a broker
/// takes each directory in its log directory for a partition.
///
/// # Errors
///
/// Those of the disk.
pub fn save(disk: &dyn Disk, path: &Path) -> Result<Option<PathBuf>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = format!("{name}.damaged");
    salvage::save(disk, (path, 0..u64::MAX), (folder, &name))
}

/// Reports the damaged tables of a log directory, and saves them: its writer replaces them. Returns
/// them with their copies.
///
/// # Errors
///
/// Those of the disk.
pub fn keep(
    disk: &dyn Disk,
    root: &Path,
    report: &Report,
) -> Result<Vec<(Damage, Option<PathBuf>)>> {
    let mut kept = Vec::new();
    for damage in of_root(disk, root)? {
        report.add(damage.clone());
        let saved = save(disk, &damage.path)?;
        kept.push((damage, saved));
    }
    Ok(kept)
}

/// Damage of a table of first offsets that the tables of epochs contradict.
fn contradicted(disk: &dyn Disk, root: &Path) -> Result<Option<Damage>> {
    let path = root.join(LOG_START);
    let Some(bytes) = files::read_table(disk, &path, CHECKPOINT_LEN_MAX)? else {
        return Ok(None);
    };
    // It may name any number of other partitions.
    let there = names::partitions(disk, root)?;
    let there: HashSet<(&str, u32)> = there.iter().map(|it| (&*it.0, it.1)).collect();
    let mut starts = HashMap::new();
    let read = names::each_start(&bytes, &mut |topic, queue, start| {
        if there.contains(&(topic, queue)) {
            starts.insert((topic.to_owned(), queue), start);
        }
    });
    if read.is_err() {
        return Ok(None);
    }
    let reason = limit_starts(disk, root, &mut starts)?;
    let bytes = 0..bytes.len() as u64;
    Ok(reason.map(|reason| Damage::new(DamageKind::Checkpoint, path, bytes, reason)))
}

/// Lowers first offsets that hide messages to where the tables of epochs of their partitions begin.
/// Returns what was wrong with one of them.
///
/// No checksum covers a first offset. One that is too high hides messages, and the next opening for
/// writing removes them. Forebay moves the begin of the table of epochs before it raises a first
/// offset. A broker may write it later, so the first offsets in a directory of its own count, and
/// so do those without a table of epochs.
///
/// # Errors
///
/// Those of reading.
pub fn limit_starts(
    disk: &dyn Disk,
    root: &Path,
    starts: &mut HashMap<(String, u32), u64>,
) -> Result<Option<String>> {
    let mut wrong = Vec::new();
    if disk.stat(&root.join(MARKER))?.is_none() {
        return Ok(None);
    }
    for ((topic, queue), start) in starts {
        let name = format!("{topic}-{queue}");
        let folder = root.join(&name);
        let begin = files::begin_of_epochs(disk, &folder)?;
        let Some(begin) = begin.filter(|begin| *begin < *start) else {
            continue;
        };
        // A follower of a topic with remote segments has epochs of messages that it never had.
        let files = names::log_files_of(&names::entries(disk, &folder)?);
        let mut used = files.iter().filter(|it| it.state == State::Used);
        if used.any(|it| it.base < *start) {
            wrong.push(format!(
                "{name} begins at offset {start} here, and at {begin} in its {EPOCHS}"
            ));
            *start = begin;
        }
    }
    Ok(wrong.into_iter().min())
}

/// Whether the table of first offsets is damaged. `is_own`: Forebay has written it. A missing table
/// is not damage: partitions then begin with their first segments. In an archive these have
/// messages that were deleted from the store later, which its tables of epochs no longer show.
///
/// # Errors
///
/// Those of reading.
pub fn lacks_starts(disk: &dyn Disk, root: &Path, is_own: bool) -> Result<bool> {
    match disk.stat(&root.join(LOG_START))? {
        Some(entry) if entry.kind == Kind::File => {
            Ok(checkpoint(disk, root, LOG_START, is_own)?.is_some())
        }
        other => Ok(other.is_some()),
    }
}

/// The first offsets that the tables of epochs of these partitions show, if the table of first
/// offsets is damaged. The other partitions begin with their first segments.
///
/// # Errors
///
/// Those of reading.
pub fn starts_by_epochs(
    disk: &dyn Disk,
    root: &Path,
    named: &[(String, u32)],
) -> Result<HashMap<(String, u32), u64>> {
    let mut starts = HashMap::new();
    for (topic, queue) in named {
        let folder = root.join(format!("{topic}-{queue}"));
        if let Some(start) = start_by_epochs(disk, &folder)? {
            starts.insert((topic.clone(), *queue), start);
        }
    }
    Ok(starts)
}

/// Where a partition begins within its first segment, if its table of epochs shows it. The table
/// drops what is before the first offset when that is raised. So if the log has batches of an epoch
/// before the start of the table, these were deleted.
fn start_by_epochs(disk: &dyn Disk, folder: &Path) -> Result<Option<u64>> {
    let begin = files::begin_of_epochs(disk, folder)?;
    // Most tables begin at 0: nothing was deleted, and no more files are read.
    let Some(begin) = begin.filter(|begin| *begin > 0) else {
        return Ok(None);
    };
    let segments = segments(disk, folder)?;
    let Some(first) = segments.first() else {
        return Ok(None);
    };
    let next = segments.get(1).map_or(u64::MAX, |it| it.base);
    if begin <= first.base || begin >= next {
        return Ok(None);
    }
    let mut walk = Walk::new(Reader::open(disk, first)?, 0);
    Ok(match walk.next(disk)? {
        Step::Batch(found) if found.header.leader_epoch >= 0 => {
            Some(begin).filter(|begin| found.header.first_offset() < *begin)
        }
        _ => None,
    })
}

/// The segments of a partition in use.
fn segments(disk: &dyn Disk, folder: &Path) -> Result<Vec<Arc<Segment>>> {
    let files = names::log_files(disk, folder)?.into_iter();
    let used = files.filter(|file| file.state == names::State::Used);
    let segment = |file: names::LogFile| {
        Arc::new(Segment {
            base: file.base,
            path: folder.join(format!("{:020}.log", file.base)),
            len: file.len,
        })
    };
    Ok(used.map(segment).collect())
}

/// The epochs of a partition whose table is damaged or missing, according to its batches. None if
/// the first batch has none, because it is of an old format.
pub(super) fn epochs_in(disk: &dyn Disk, folder: &Path) -> Result<Vec<(i32, u64)>> {
    let segments = segments(disk, folder)?;
    let Some(first) = segments.first() else {
        return Ok(Vec::new());
    };
    match Walk::new(Reader::open(disk, first)?, 0).next(disk)? {
        Step::Batch(found) if found.header.leader_epoch < 0 => Ok(Vec::new()),
        _ => follow::epochs(disk, segments.iter().map(|it| &**it)),
    }
}

/// Writes the small files that a broker expects, where they are missing or torn; a copy of a torn
/// one is saved first. Returns the epoch of the partition's leader, and whether files were written.
/// `offsets` are the first and the next one, `seed` is that of the store. Not durable on return; a
/// torn file is written again before the next append.
pub fn prepare(
    disk: &dyn Disk,
    folder: &Path,
    topic: &str,
    (offsets, seed): (Range<u64>, u64),
) -> Result<(i32, bool)> {
    let metadata = folder.join(METADATA);
    let mut written = false;
    let known = files::read_table(disk, &metadata, SMALL_LEN_MAX)?;
    if known.as_deref().and_then(files::id_in).is_none() {
        let id = files::id_of(disk, folder, topic, seed)?;
        save(disk, &metadata)?;
        put(disk, &metadata, files::metadata_of(&id).as_bytes())?;
        written = true;
    }
    let epochs = folder.join(EPOCHS);
    let known = files::read_table(disk, &epochs, SMALL_LEN_MAX)?;
    if let Some(epoch) = known.as_deref().and_then(files::last_epoch) {
        return Ok((epoch, written));
    }
    if known.is_some_and(|bytes| files::epochs(&bytes).is_none()) {
        save(disk, &epochs)?;
    }
    let found = match offsets.end {
        0 => Vec::new(),
        _ => files::epochs_since(&epochs_in(disk, folder)?, offsets.start),
    };
    let (text, epoch) = match found.last() {
        Some((epoch, _)) => (files::text_of_epochs(&found), *epoch),
        None => (files::epochs_from(offsets.end), 0),
    };
    put(disk, &epochs, text.as_bytes())?;
    Ok((epoch, true))
}

/// Writes the table of epochs of a partition again. Durable on return.
///
/// # Errors
///
/// Those of the disk.
pub fn mend_epochs(disk: &dyn Disk, ends: &Ends) -> Result<()> {
    let mut found = epochs_in(disk, &ends.folder)?;
    match found.first_mut() {
        // The messages that it began with may have been compacted away.
        Some(first) => first.1 = first.1.min(ends.first_base()),
        None => found.push((0, ends.next_offset(false))),
    }
    let found = files::epochs_since(&found, ends.start());
    files::save_epochs(disk, &ends.folder.join(EPOCHS), &found)
}

/// Writes the metadata of a partition again. Returns what was done. Durable on return.
///
/// # Errors
///
/// Those of the disk.
pub fn mend_metadata(
    disk: &dyn Disk,
    folder: &Path,
    topic: &str,
    seed: u64,
) -> Result<&'static str> {
    let known = files::known_id(disk, folder, topic)?;
    let what = match known {
        Some(_) => "rewritten with the id that another queue of the topic states",
        None => "rewritten with the id that the store gives the topic: no other queue states one",
    };
    let text = files::metadata_of(&known.unwrap_or_else(|| files::topic_id(topic, seed)));
    replace(disk, &folder.join(METADATA), text.as_bytes())?;
    Ok(what)
}

/// Finds what is wrong with the bytes of a file.
type Look = fn(&[u8]) -> Flaw;
