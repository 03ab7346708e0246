//! Replaces segments by one, so that a crash at any point leaves the old ones or the new one.
//!
//! ```text
//!   .cleaned (durable contents) --> sync of the folder --> .swap --> sync
//!   (from here on the new one is valid)
//!   --> the old ones become .deleted --> sync --> .swap loses its suffix --> sync --> unlink
//! ```
//!
//! Each sync separates names that a power loss could otherwise keep in any combination. If an index
//! has the suffix `.swap`, and no log file has it or `.cleaned`, the replacement is complete except
//! for the name of that index. The old segments are renamed before the suffix goes: without the
//! suffix nothing says which of them the new one covers. The new one ends with the last offset of
//! the old ones, so that it covers them all.
//!
//! A replacement that was damaged is undone as long as all old segments are there. Otherwise it is
//! completed, and only its whole batches say which segments it covers. Its last offset, which no
//! checksum covers, counts only if the next segment begins after it.

use super::ends::Ends;
use super::indexes::Indexes;
use super::rules::Rules;
use crate::disk::{Disk, Entry, Kind};
use crate::engine::partition_log::segments::names::{self, ENDINGS, beside, with_suffix};
use crate::engine::partition_log::segments::reader::Reader;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::partition_log::segments::snapshot::SNAPSHOT;
use crate::engine::partition_log::segments::walk::{Step, Walk};
use crate::error::Result;
use crate::plant::{Bug, planted};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The ending of log files.
const LOG: &str = ".log";

/// Replaces segments by `cleaned`, whose files are durable except for their names. Readers switch
/// to it. Durable on return.
///
/// # Errors
///
/// Those of the disk. Opening the store completes the replacement or removes what was begun.
pub fn replace(
    disk: &dyn Disk,
    ends: &Ends,
    cleaned: &Segment,
    replaced: &[Arc<Segment>],
) -> Result<()> {
    let folder = &ends.folder;
    let swap = Segment {
        path: with_suffix(&cleaned.path, ".swap"),
        ..*cleaned
    };
    disk.sync_directory(folder)?;
    rename_all(disk, &cleaned.path, &swap.path)?;
    if !planted(Bug::RemoveBeforeSwap) {
        disk.sync_directory(folder)?;
    }
    let bases = replaced.iter().map(|segment| segment.base);
    let bases = bases.clone().min().unwrap_or_default()..bases.max().unwrap_or_default() + 1;
    ends.replace(bases.clone(), &swap, || Ok(()))?;
    let deleted = |segment: &Segment| with_suffix(&segment.path, ".deleted");
    for segment in replaced {
        rename_all(disk, &segment.path, &deleted(segment))?;
        // Of the producer snapshots, only the one at the first base still belongs to a segment.
        if segment.base != cleaned.base {
            let path = beside(&segment.path, SNAPSHOT);
            rename(disk, &path, &beside(&deleted(segment), SNAPSHOT))?;
        }
    }
    if !planted(Bug::SwapBeforeRemove) {
        disk.sync_directory(folder)?;
    }
    let done = Segment {
        path: with_suffix(&cleaned.path, ""),
        ..*cleaned
    };
    ends.replace(bases, &done, || rename_all(disk, &swap.path, &done.path))?;
    disk.sync_directory(folder)?;
    for segment in replaced {
        for ending in ENDINGS.iter().chain([&SNAPSHOT]) {
            let path = beside(&deleted(segment), ending);
            if disk.stat(&path)?.is_some() {
                disk.unlink(&path)?;
            }
        }
    }
    Ok(())
}

/// Renames the files of a segment, the log file last.
fn rename_all(disk: &dyn Disk, from: &Path, to: &Path) -> Result<()> {
    for ending in ENDINGS {
        rename(disk, &beside(from, ending), &beside(to, ending))?;
    }
    Ok(())
}

/// Renames a file if it exists.
fn rename(disk: &dyn Disk, from: &Path, to: &Path) -> Result<()> {
    match disk.stat(from)? {
        Some(_) => disk.rename(from, to),
        None => Ok(()),
    }
}

/// Completes or undoes the replacements that a crash has interrupted in a partition, and removes
/// files that no segment needs. `entries` are those of its folder; `is_own`: Forebay alone wrote
/// them. Returns whether there was anything to do. Durable on return.
///
/// # Errors
///
/// Those of the disk.
pub fn complete(
    disk: &dyn Disk,
    folder: &Path,
    (rules, is_own): (&Rules, bool),
    entries: &[Entry],
) -> Result<bool> {
    let files = entries.iter().filter(|it| it.kind == Kind::File);
    let files: Vec<File<'_>> = files
        .filter_map(|entry| File::of(entry.name.as_deref()?))
        .collect();
    if files.iter().all(|file| file.suffix == Suffix::None) {
        return Ok(false);
    }
    let all = |suffix| files.iter().filter(move |it| it.suffix == suffix);
    let unfinished = all(Suffix::Cleaned).map(|file| file.base).min();
    let is_undone = |file: &&File<'_>| unfinished.is_some_and(|base| file.base >= base);
    // The names that make a replacement invalid go last.
    let undone: Vec<_> = all(Suffix::Swap).filter(is_undone).collect();
    remove(disk, folder, undone.into_iter())?;
    remove(disk, folder, all(Suffix::Cleaned))?;
    let swaps: Vec<_> = all(Suffix::Swap).filter(|it| !is_undone(it)).collect();
    if !swaps.is_empty() {
        finish(disk, folder, (rules, is_own), (&files, &swaps))?;
    }
    // They go last, because they show that the old segments are not all there.
    remove(disk, folder, all(Suffix::Deleted))?;
    Ok(true)
}

/// Completes a replacement by these files, or undoes it.
fn finish(
    disk: &dyn Disk,
    folder: &Path,
    (rules, is_own): (&Rules, bool),
    (files, swaps): (&[File<'_>], &[&File<'_>]),
) -> Result<()> {
    let all = |suffix| files.iter().filter(move |it| it.suffix == suffix);
    let logs = || swaps.iter().filter(|it| it.ending == LOG);
    let mut new = covered(disk, folder, swaps)?;
    let start = new.offsets.start;
    let first = |it: &&File<'_>| it.ending == LOG && it.base == start;
    // Retention removes segments before these.
    let is_deleted = all(Suffix::Deleted).any(|it| it.base >= start);
    let is_begun = is_deleted || !all(Suffix::None).any(|it| first(&it));
    let used = || all(Suffix::None).filter(|it| it.ending == LOG);
    // A broker's replacement may end before the last of the old segments does.
    if is_begun && is_own {
        new.offsets.end = new.believed_end(|| used().map(|it| it.base));
    }
    let replaced = used().filter(|it| new.offsets.contains(&it.base));
    if !is_begun && let Some(last) = replaced.max_by_key(|it| it.base) {
        // No checksum covers an offset, and the new segment may have lost its end. It ends where
        // the last of the old ones does.
        let mut reader = open(disk, &folder.join(last.name), last.base)?;
        let begin = reader.seek_end(disk)?;
        new.is_whole &= end_of(disk, reader, begin)?.next == new.offsets.end;
    }
    let New {
        offsets, is_whole, ..
    } = new;
    let old = || all(Suffix::None).filter(|it| offsets.contains(&it.base));
    if !is_whole && !is_begun {
        let others = swaps.iter().filter(|it| it.ending != LOG);
        remove(disk, folder, others.copied())?;
        return remove(disk, folder, logs().copied());
    }
    for file in logs() {
        rebuild(disk, &folder.join(file.name), file.base, rules)?;
    }
    let is_swap = |base| swaps.iter().any(|it| it.base == base);
    let is_old = |it: &&File<'_>| it.ending != SNAPSHOT || !is_swap(it.base);
    // The first log file goes before all others: while it is there, so are they.
    remove(disk, folder, old().filter(first))?;
    remove(disk, folder, old().filter(is_old).filter(|it| !first(it)))?;
    for file in swaps {
        let log = folder.join(format!("{:020}.log.swap", file.base));
        rename_all(disk, &log, &with_suffix(&log, ""))?;
    }
    disk.sync_directory(folder)
}

/// A file of a segment by its name.
struct File<'a> {
    name: &'a str,
    base: u64,
    ending: &'a str,
    suffix: Suffix,
}

/// The end of a name, which says how far a replacement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suffix {
    /// The file is in use.
    None,
    /// A copy that is not valid yet.
    Cleaned,
    /// A copy that is valid.
    Swap,
    /// A file that was replaced.
    Deleted,
}

impl File<'_> {
    fn of(name: &str) -> Option<File<'_>> {
        let (digits, rest) = name.split_at_checked(20)?;
        let base = names::base_of(digits)?;
        let ending = ENDINGS.into_iter().chain([SNAPSHOT]);
        let ending = ending.into_iter().find(|it| rest.starts_with(it))?;
        let suffix = rest.get(ending.len()..)?;
        let suffix = match suffix {
            "" => Suffix::None,
            ".cleaned" => Suffix::Cleaned,
            ".swap" => Suffix::Swap,
            ".deleted" => Suffix::Deleted,
            _ => return None,
        };
        let ending = rest.get(..ending.len())?;
        Some(File {
            name,
            base,
            ending,
            suffix,
        })
    }
}

/// Removes files, and makes that durable.
fn remove<'a>(
    disk: &dyn Disk,
    folder: &Path,
    files: impl Iterator<Item = &'a File<'a>>,
) -> Result<()> {
    let mut removed = false;
    for file in files {
        disk.unlink(&folder.join(file.name))?;
        removed = true;
    }
    match removed {
        true => disk.sync_directory(folder),
        false => Ok(()),
    }
}

/// Opens the log file of a replacement.
fn open(disk: &dyn Disk, log: &Path, base: u64) -> Result<Reader> {
    let len = disk.stat(log)?.map_or(0, |entry| entry.len);
    let segment = Arc::new(Segment {
        base,
        path: log.to_owned(),
        len,
    });
    Reader::open(disk, &segment)
}

/// What a replacement states. Only its whole batches count: a damaged header may state any offset.
struct New {
    /// The offsets that it covers.
    offsets: Range<u64>,
    /// The offset after the batch before the last one.
    before_last: u64,
    /// Whether it is whole.
    is_whole: bool,
}

impl New {
    /// Where it ends, if some old segments are gone. `bases`: those of all segments in use.
    ///
    /// If its last offset is wrong, later segments seem to be old ones. It is right if a segment
    /// begins with the next offset: the last segment is never replaced. Otherwise segments that
    /// only the last batch shows to be old stay.
    fn believed_end<T: Iterator<Item = u64>>(&self, bases: impl Fn() -> T) -> u64 {
        let end = self.offsets.end;
        match bases().any(|base| base == end) {
            true => end,
            false => {
                let doubted = bases().filter(|base| (self.before_last + 1..end).contains(base));
                doubted.min().unwrap_or(end)
            }
        }
    }
}

/// What the log files of a replacement state.
fn covered(disk: &dyn Disk, folder: &Path, swaps: &[&File<'_>]) -> Result<New> {
    let mut all: Option<New> = None;
    for file in swaps.iter().filter(|it| it.ending == LOG) {
        let reader = open(disk, &folder.join(file.name), file.base)?;
        let end = end_of(disk, reader, 0)?;
        // The replacement may have no batches.
        let next = end.next.max(file.base + 1);
        let before = all.as_ref();
        let offsets = before.map_or(file.base..next, |it| it.offsets.clone());
        all = Some(New {
            offsets: offsets.start.min(file.base)..offsets.end.max(next),
            before_last: before.map_or(0, |it| it.before_last).max(end.before_last),
            is_whole: end.is_whole && before.is_none_or(|it| it.is_whole),
        });
    }
    Ok(all.unwrap_or(New {
        offsets: 0..0,
        before_last: 0,
        is_whole: true,
    }))
}

/// The end of a segment.
struct SegmentEnd {
    /// The offset after the last whole batch.
    next: u64,
    /// The offset after the whole batch before that.
    before_last: u64,
    /// Whether all batches are whole from the begin of the walk on.
    is_whole: bool,
}

/// The end of a segment, found by a walk from a position on.
fn end_of(disk: &dyn Disk, reader: Reader, begin: u64) -> Result<SegmentEnd> {
    let base = reader.segment.base;
    let mut end = SegmentEnd {
        next: base,
        before_last: base,
        is_whole: true,
    };
    let mut walk = Walk::new(reader, begin);
    walk.is_complete = true;
    loop {
        match walk.next(disk)? {
            Step::Batch(found) if walk.reader.is_whole(found.position, &found.header)? => {
                walk.judge(true);
                end.before_last = end.next;
                end.next = found.header.last_offset() + 1;
            }
            Step::Batch(found) => {
                walk.judge(false);
                walk.lose(&found)?;
                end.is_whole = false;
            }
            Step::Damage(..) => end.is_whole = false,
            Step::End => return Ok(end),
        }
    }
}

/// Writes the indexes of a replacement anew, because a crash may have left only some of its files.
fn rebuild(disk: &dyn Disk, log: &Path, base: u64, rules: &Rules) -> Result<()> {
    let (mut indexes, _) = Indexes::rebuild(disk, open(disk, log, base)?, base, rules)?;
    indexes.close();
    indexes.save(disk, log)
}
