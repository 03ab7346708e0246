//! Operations of the operating system that can fail.

use std::fmt;

/// An operation on a path. It is displayed as the verb before the path: `sync`, `rename`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Load or store a word of a map.
    Access,
    /// Allocate memory.
    Allocate,
    /// Create a file or a directory.
    Create,
    /// Zero a range.
    Erase,
    /// Make a path absolute.
    Find,
    /// Extend a file to its full length.
    Lengthen,
    /// List a directory.
    List,
    /// Take a lock.
    Lock,
    /// Allocate a buffer of the transient pool.
    Make,
    /// Allocate the transient pool.
    MakePool,
    /// Map a file.
    Map,
    /// Open a file.
    Open,
    /// Read a file.
    Read,
    /// Rename a file.
    Rename,
    /// Replace a file by another.
    Replace,
    /// Allocate blocks for a range.
    Reserve,
    /// Rewrite a log file for a repair.
    Rewrite,
    /// Save damaged bytes.
    Save,
    /// Start a thread.
    Start,
    /// Start the threads of a store.
    StartThreads,
    /// Read type and length of a file.
    Stat,
    /// Store to a map.
    Store,
    /// Make a file or a directory durable.
    Sync,
    /// Make a file system durable.
    SyncFileSystem,
    /// Remove the mark of a running writer.
    TakeAway,
    /// Remove a name.
    Unlink,
    /// Use a temporary file.
    UseTemporary,
    /// Write to a file.
    Write,
}

impl Op {
    /// Whether it makes something durable. If that fails, it is not retried.
    pub fn is_sync(self) -> bool {
        matches!(self, Op::Sync | Op::SyncFileSystem)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Access => "access",
            Op::Allocate => "allocate memory for",
            Op::Create => "create",
            Op::Erase => "erase",
            Op::Find => "resolve",
            Op::Lengthen => "extend",
            Op::List => "list",
            Op::Lock => "lock",
            Op::Make => "allocate",
            Op::MakePool => "allocate the transient pool of",
            Op::Map => "map",
            Op::Open => "open",
            Op::Read => "read",
            Op::Rename => "rename",
            Op::Replace => "replace",
            Op::Reserve => "reserve",
            Op::Rewrite => "rewrite",
            Op::Save => "save the damaged bytes of",
            Op::Start => "start",
            Op::StartThreads => "start the threads of",
            Op::Stat => "stat",
            Op::Store => "store to",
            Op::Sync => "sync",
            Op::SyncFileSystem => "sync the file system of",
            Op::TakeAway => "remove",
            Op::Unlink => "unlink",
            Op::UseTemporary => "use a temporary file in",
            Op::Write => "write",
        })
    }
}
