//! Opens a store with the steps that [`super`] describes.

use super::assemble::{Opened, assemble, follow};
use super::begin::begin;
use super::find::{find, find_again, find_beside};
use super::later::walk_later;
use super::lengthen::lengthen;
use super::mark::mark_running;
use super::rebuild::walk;
use super::trim::trim;
use crate::engine::commit_log::parts::Parts;
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::options::{Mode, Options};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Maximum attempts to open a store for reading while files are removed.
const ATTEMPTS: usize = 10;

/// Opens the store at `root` with these options. On return everything kept is durable, and nothing
/// follows the end of its log.
///
/// # Errors
///
/// Those of [`find`], and [`Error::Io`] if a step cannot read or write. The
/// opening then ends, and the next one starts over.
pub fn open(machine: &Machine, root: &Path, options: &Options) -> Result<Opened> {
    let began = Instant::now();
    let mut opened = attempt(machine, root, options);
    let mut missing = None;
    for _ in 1..ATTEMPTS {
        // A writer may have come meanwhile and removed a file that was found. The next attempt does
        // not find that file, so a file that is missing twice was not removed.
        let gone = opened.as_ref().err().and_then(missing_file);
        if options.mode != Mode::Read || gone.is_none() || gone == missing.as_deref() {
            break;
        }
        missing = gone.map(Path::to_owned);
        opened = attempt(machine, root, options);
    }
    let mut opened = opened?;
    opened.recovery.elapsed = began.elapsed();
    Ok(opened)
}

/// The file that does not exist, if this is why an opening has failed.
fn missing_file(error: &Error) -> Option<&Path> {
    match error {
        Error::Io { path, .. } if error.is_not_found() => Some(path),
        _ => None,
    }
}

fn attempt(machine: &Machine, root: &Path, options: &Options) -> Result<Opened> {
    let mut found = find(machine, root, options)?;
    if found.is_live {
        return follow(found);
    }
    let begin = begin(&found)?;
    mark_running(&found, &begin)?;
    lengthen(&mut found)?;
    let walked = match walk_later(&found, &begin)? {
        Some(walked) => walked,
        None => walk(&found, begin)?,
    };
    let trimmed = trim(&found, &walked)?;
    assemble(found, walked, trimmed)
}

/// Opens a store beside the process that runs its services, for reading.
///
/// # Errors
///
/// As [`open`].
pub fn open_beside(machine: &Machine, root: &Path, options: &Options) -> Result<Opened> {
    follow(find_beside(machine, root, options)?)
}

/// Joins the writer of a store that was opened as `opened` while nobody wrote it; `None` if no
/// writer has begun an epoch yet.
///
/// # Errors
///
/// As [`open`].
pub fn join(
    machine: &Machine,
    root: &Path,
    options: &Options,
    opened: &Parts,
) -> Result<Option<Arc<Parts>>> {
    let found = find_again(machine, root, options, opened)?;
    let opened = found.map(follow).transpose()?;
    Ok(opened.map(|opened| opened.parts))
}
