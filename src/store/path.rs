//! What the path of a store means.

use crate::engine::directory::recognise::is_commit_log;
use crate::engine::partition_log::segments::names::is_log_directory;
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::options::{EngineKind, Options};
use std::path::Path;

/// Whether a path means the memory engine.
pub(super) fn check_path(path: &Path, engine: Option<EngineKind>) -> Result<bool> {
    let name = path == Path::new(":memory:");
    match engine {
        _ if path.as_os_str().is_empty() => Err(Error::option(
            "path",
            "\"\"",
            "name the directory of the store",
        )),
        _ if path.as_os_str().as_encoded_bytes().contains(&0) => Err(Error::must(
            "path",
            format!("{path:?}"),
            "not have NUL characters",
        )),
        Some(kind @ (EngineKind::CommitLog | EngineKind::PartitionLog)) if name => {
            let reason =
                "\":memory:\" means the memory engine; a directory of this name is ./:memory:";
            Err(Error::option(
                "engine",
                format!("{:?}", kind.word()),
                reason,
            ))
        }
        Some(EngineKind::Memory) if !name && path.exists() => {
            let reason = format!(
                "{} exists, but a memory store would not use it",
                path.display()
            );
            Err(Error::option("engine", "\"memory\"", reason))
        }
        _ if is_uri(path) => {
            let reason = "a store is a directory of a local file system; forebay.archive copies \
                          its log files to an object store and reads them there (a directory \
                          whose name looks like a URI is opened as ./NAME)";
            Err(Error::option("path", public(path), reason))
        }
        _ => Ok(name || engine == Some(EngineKind::Memory)),
    }
}

/// Whether a directory is read as a broker's log directory: because the caller says so, or because
/// its files show it.
///
/// # Errors
///
/// [`Error::InvalidOption`] if the files are those of another engine than the caller says.
pub(super) fn is_partition_log(machine: &Machine, root: &Path, options: &Options) -> Result<bool> {
    let Some(kind) = options.engine else {
        return is_log_directory(&*machine.disk, root);
    };
    let found = match kind {
        EngineKind::PartitionLog => is_commit_log(&*machine.disk, root)?.then_some("commit"),
        _ => is_log_directory(&*machine.disk, root)?.then_some("partition"),
    };
    match found {
        Some(form) => {
            let reason = format!("the store at {} is a {form} log", root.display());
            let value = format!("{:?}", kind.word());
            Err(Error::option("engine", value, reason))
        }
        None => Ok(kind == EngineKind::PartitionLog),
    }
}

/// A URI without parts that may be secret: user, password and query.
fn public(uri: &Path) -> String {
    let text = uri.to_string_lossy();
    let separator = if text.contains("://") { "://" } else { ":/" };
    let (scheme, rest) = text.split_once(separator).unwrap_or_default();
    let (place, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    // A password may contain such a character. Then no part is known to be public.
    let place = match query.contains('@') {
        true => "...",
        false => place.rsplit('@').next().unwrap_or_default(),
    };
    format!("{scheme}{separator}{place}")
}

/// Whether a path begins with a scheme, such as `s3://`. One slash is enough, because the path
/// types of most languages collapse two. A scheme has at least two letters.
fn is_uri(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let Some((scheme, _)) = text.split_once(":/") else {
        return false;
    };
    let is_part = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(is_part)
}
