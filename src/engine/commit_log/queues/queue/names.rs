//! Names of topics and queues in the directory `consumequeue`.

use super::entry::QUEUE_IDS_MAX;
use crate::disk::{Disk, Kind};
use crate::error::{Error, Op, Result};
use std::path::Path;

/// Whether the name of a topic may be used as the name of a directory.
pub fn is_directory_name(name: &str) -> bool {
    let allowed =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'%' | b'|' | b'_' | b'-' | b'.');
    !name.is_empty()
        && name.len() <= 255
        && name.bytes().all(allowed)
        && name != "."
        && name != ".."
}

/// Topics that have a directory in `directory`, which need not exist.
///
/// # Errors
///
/// [`Error::Unsupported`] if such a name is not a directory: a link would lead out of the store.
pub fn list_topics(disk: &dyn Disk, directory: &Path) -> Result<Vec<String>> {
    let found = disk.stat(directory);
    let found = found.map_err(|error| error.during(Op::List, directory))?;
    if found.is_none() {
        return Ok(Vec::new());
    }
    let mut topics = names(disk, directory, is_directory_name)?;
    topics.sort_unstable();
    Ok(topics)
}

/// Queues of a topic that have a directory, named by their number. Errors as [`list_topics`].
pub fn list_queues(disk: &dyn Disk, directory: &Path) -> Result<Vec<u32>> {
    let number = |name: &str| -> Option<u32> {
        let number = name
            .parse::<u32>()
            .ok()
            .filter(|number| *number < QUEUE_IDS_MAX)?;
        (number.to_string() == name).then_some(number)
    };
    let names = names(disk, directory, |name| number(name).is_some())?;
    let mut queues: Vec<u32> = names.iter().filter_map(|name| number(name)).collect();
    queues.sort_unstable();
    Ok(queues)
}

fn names(disk: &dyn Disk, directory: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    // The lengths are not asked for: that would take longer than listing the names.
    let entries = disk.list_some(directory, &|_| false)?;
    let mut found = Vec::new();
    for entry in entries {
        let Some(name) = entry.name.filter(|name| wanted(name)) else {
            continue;
        };
        // The files that file managers leave have a dot in their names, which names of topics do
        // not have.
        if entry.kind == Kind::File && name.contains('.') {
            continue;
        }
        if entry.kind != Kind::Directory {
            let what = format!("{} is not a directory", directory.join(name).display());
            return Err(Error::Unsupported { what });
        }
        found.push(name);
    }
    Ok(found)
}
