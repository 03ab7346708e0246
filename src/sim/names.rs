//! The names of the simulated disk.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The object that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Directory,
    /// The file with this number.
    File(usize),
}

/// An absolute path, each part after a zero byte; the root is empty. Compared byte by byte, names
/// have the order of paths, part by part, which `Path` computes ten times as slowly.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// The name of a path, which has no `.`, no `..` and no `/` at its end.
    pub fn of(path: &Path) -> Name {
        let bytes = path.as_os_str().as_bytes();
        let bytes = if bytes == b"/" { b"" } else { bytes };
        let byte = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
        Name(bytes.iter().map(byte).collect())
    }

    /// The path.
    pub fn path(&self) -> PathBuf {
        if self.0.is_empty() {
            return PathBuf::from("/");
        }
        let byte = |byte: &u8| if *byte == 0 { b'/' } else { *byte };
        let bytes: Vec<u8> = self.0.iter().map(byte).collect();
        PathBuf::from(OsStr::from_bytes(&bytes))
    }

    /// The name of its directory; the root has none.
    pub fn parent(&self) -> Option<&[u8]> {
        let end = memchr::memrchr(0, &self.0)?;
        Some(&self.0[..end])
    }

    /// Whether it is directly in a directory.
    pub fn is_in(&self, directory: &Name) -> bool {
        self.parent() == Some(&directory.0)
    }

    /// Whether it is a directory or anything below that.
    pub fn is_below(&self, directory: &Name) -> bool {
        let rest = self.0.strip_prefix(&*directory.0);
        rest.is_some_and(|rest| rest.first().is_none_or(|first| *first == 0))
    }

    /// The name once `from`, which it is below, is called `to`.
    fn moved(&self, from: &Name, to: &Name) -> Name {
        let rest = &self.0[from.0.len()..];
        Name([&*to.0, rest].concat().into())
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path().fmt(f)
    }
}

/// All names of the disk.
pub type Names = BTreeMap<Name, Node>;

/// The name of a directory, and all names below it.
pub fn below<'a>(names: &'a Names, directory: &Name) -> impl Iterator<Item = (&'a Name, &'a Node)> {
    let inside = names.range(directory.clone()..);
    inside.take_while(|(name, _)| name.is_below(directory))
}

/// Renames a file, or a directory with everything in it.
pub fn move_names(names: &mut Names, from: &Name, to: &Name) {
    let moved: Vec<Name> = below(names, from).map(|(name, _)| name.clone()).collect();
    for name in moved {
        if let Some(node) = names.remove(&name) {
            names.insert(name.moved(from, to), node);
        }
    }
}
