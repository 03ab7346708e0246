//! The directories of source and target: neither may be within the other.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// Fails if the target lies in the source, where it would be taken for a part of that store, or the
/// source in the target. Accepts equal directories, because a later check refuses a target that
/// exists.
///
/// # Errors
///
/// [`Error::InvalidOption`].
pub fn check_apart(source: &Path, target: &Path) -> Result<()> {
    let (outer, inner) = (resolve(source), resolve(target));
    let rule = match (inner.starts_with(&outer), outer.starts_with(&inner)) {
        (true, false) => "not be within the store",
        (false, true) => "not be a directory that contains the store",
        _ => return Ok(()),
    };
    let rule = format!("{rule} {}", source.display());
    Err(Error::must("target", target.display(), rule))
}

/// The path without links, as far as it exists.
fn resolve(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let found = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(rest))
    });
    found.unwrap_or(path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs::create_dir_all;

    #[test]
    fn a_target_within_the_source_or_around_it_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        create_dir_all(source.join("commitlog")).unwrap();
        let refused = |target: &Path| {
            let refused = check_apart(&source, target).unwrap_err();
            assert!(matches!(refused, Error::InvalidOption { .. }));
            refused.to_string()
        };
        let within = "must not be within the store";
        for target in ["sub", "commitlog", "a/b/c"] {
            assert!(refused(&source.join(target)).contains(within));
        }
        assert!(refused(dir.path()).contains("must not be a directory that contains the store"));
        for target in ["target", "source-2", "source"] {
            check_apart(&source, &dir.path().join(target)).unwrap();
        }
        #[cfg(unix)]
        {
            let link = dir.path().join("link");
            std::os::unix::fs::symlink(&source, &link).unwrap();
            assert!(refused(&link.join("a")).contains(within));
        }
    }
}
