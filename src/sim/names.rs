//! The names of the simulated disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Directory,
    /// The file of this number.
    File(usize),
}

/// What each name of the disk stands for.
pub type Names = BTreeMap<PathBuf, Node>;

/// Gives a file, or a directory with all that is in it, another name.
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
