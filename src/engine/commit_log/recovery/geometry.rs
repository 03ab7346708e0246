//! Finds the sizes of a store's files, which may be stated nowhere.

use crate::disk::Disk;
use crate::engine::directory::geometry::Geometry;
use crate::engine::directory::names;
use crate::engine::directory::page::StatePage;
use crate::error::{Error, Result};
use crate::mapped::queue::{FoundFile, list_files};
use crate::options::Options;
use std::path::Path;

fn unsupported(root: &Path, what: &str) -> Error {
    Error::Unsupported {
        what: format!("{} holds {what}", root.display()),
    }
}

/// Lists the log's files, and refuses layouts that cannot be read. `ours`: Forebay created the
/// store.
///
/// # Errors
///
/// [`Error::Unsupported`] if every other file of another system's log is missing.
pub fn log_files(disk: &dyn Disk, root: &Path, ours: bool) -> Result<Vec<FoundFile>> {
    let directory = root.join(names::COMMIT_LOG);
    let files = list_files(disk, &directory)?;
    let gaps = files
        .windows(2)
        .filter(|pair| matches!(pair, [a, b] if a.start.saturating_add(a.len) < b.start));
    if !ours && files.len() > 1 && gaps.count() == files.len() - 1 {
        return Err(unsupported(
            root,
            "only every other file of a log, which is spread over several directories",
        ));
    }
    Ok(files)
}

/// Whether queues are kept in files that cannot be read. Readers rebuild them from the log.
pub fn has_foreign_queues(disk: &dyn Disk, root: &Path) -> Result<bool> {
    let rocks = root.join(names::QUEUES).join("CURRENT");
    let batch = root.join("batchconsumequeue");
    let there = |path: &Path| disk.stat(path).map(|found| found.is_some());
    let batches = there(&batch)? && !disk.list(&batch)?.is_empty();
    Ok(there(&rocks)? || batches)
}

/// Sizes of the files: those of the store, else those of the options.
///
/// # Errors
///
/// [`Error::InvalidOption`] if an option contradicts the files; it states both values.
pub fn geometry(
    disk: &dyn Disk,
    root: &Path,
    state: Option<&StatePage>,
    files: &[FoundFile],
    options: &Options,
) -> Result<Geometry> {
    // All files have the same length, except a few damaged ones.
    let same = |len: u64| files.iter().filter(|file| file.len == len).count();
    let lens = files.iter().map(|file| file.len);
    let lens = lens.filter(|len| Geometry::LOG_FILE_LEN.contains(len));
    let log_len = lens.max_by_key(|len| (same(*len), *len));
    // A page that does not fit the files belongs to another store. Every file may have been
    // truncated.
    let fits = |len: u64| {
        let may_be_cut = |file: &FoundFile| file.start.is_multiple_of(len) && file.len <= len;
        files.iter().any(|file| file.len == len) || files.iter().all(may_be_cut)
    };
    let known = state
        .and_then(StatePage::geometry)
        .filter(|known| fits(known.log_file_len));
    let queue_len = match known {
        None if !has_foreign_queues(disk, root)? => queue_file_len(disk, root)?,
        _ => None,
    };
    let found = Geometry {
        log_file_len: known
            .map(|k| k.log_file_len)
            .or(log_len)
            .or(options.commitlog_file_size)
            .unwrap_or(1 << 30),
        queue_file_entries: known
            .map(|k| k.queue_file_entries)
            .or(queue_len.map(|len| len / crate::engine::commit_log::queues::queue::ENTRY_LEN))
            .or(options.queue_file_entries)
            .unwrap_or(300_000),
        index_slots: known
            .map(|k| k.index_slots)
            .or(options.index_slots)
            .unwrap_or(5_000_000),
        index_entries: known
            .map(|k| k.index_entries)
            .or(options.index_entries)
            .unwrap_or(20_000_000),
    };
    let entries = found.queue_file_entries;
    let [slots, index_entries] = [found.index_slots, found.index_entries].map(u64::from);
    for (name, option, has) in [
        (
            "commitlog_file_size",
            options.commitlog_file_size,
            found.log_file_len,
        ),
        ("queue_file_entries", options.queue_file_entries, entries),
        ("index_slots", options.index_slots.map(u64::from), slots),
        (
            "index_entries",
            options.index_entries.map(u64::from),
            index_entries,
        ),
    ] {
        if let Some(value) = option.filter(|value| *value != has) {
            let reason = format!("the store at {} has {has}", root.display());
            return Err(Error::option(name, value, reason));
        }
    }
    Ok(found)
}

/// The most frequent length of queue files, in a store that does not state it.
fn queue_file_len(disk: &dyn Disk, root: &Path) -> Result<Option<u64>> {
    let directory = root.join(names::QUEUES);
    let mut lengths = std::collections::BTreeMap::<u64, usize>::new();
    for name in crate::engine::commit_log::queues::queue::list_topics(disk, &directory)? {
        let topic = directory.join(name);
        for queue in crate::engine::commit_log::queues::queue::list_queues(disk, &topic)? {
            for file in list_files(disk, &topic.join(queue.to_string()))? {
                let entries = file.len / crate::engine::commit_log::queues::queue::ENTRY_LEN;
                if file.len % crate::engine::commit_log::queues::queue::ENTRY_LEN == 0
                    && Geometry::QUEUE_FILE_ENTRIES.contains(&entries)
                {
                    *lengths.entry(file.len).or_default() += 1;
                }
            }
        }
        if lengths.values().sum::<usize>() > 64 {
            break;
        }
    }
    Ok(lengths
        .into_iter()
        .max_by_key(|(_, count)| *count)
        .map(|(len, _)| len))
}
