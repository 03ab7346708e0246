//! The names of the simulated disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The object that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Directory,
    /// The file with this number.
    File(usize),
}

/// All names of the disk.
pub type Names = BTreeMap<PathBuf, Node>;

/// Renames a file, or a directory with everything in it.
pub fn move_names(names: &mut Names, from: &Path, to: &Path) {
    let below = names.keys().filter(|name| name.starts_with(from));
    let below: Vec<PathBuf> = below.cloned().collect();
    for name in below {
        if let (Some(node), Ok(rest)) = (names.remove(&name), name.strip_prefix(from)) {
            let to = if rest == Path::new("") {
                to.to_path_buf()
            } else {
                to.join(rest)
            };
            names.insert(to, node);
        }
    }
}
