//! What the operating system was asked to do when it failed.

use std::fmt;

/// An operation on a path. It is shown as the verb that stands before the path: `sync`, `look at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Load or store a word of a map.
    Access,
    /// Get memory that is no file's.
    Allocate,
    /// Create a file or a directory.
    Create,
    /// Turn a range into zeros.
    Erase,
    /// Make a path absolute.
    Find,
    /// Give a file its full length.
    Lengthen,
    /// List a directory.
    List,
    /// Take a lock.
    Lock,
    /// Make a buffer of the transient pool.
    Make,
    /// Make the transient pool.
    MakePool,
    /// Map a file.
    Map,
    /// Open a file.
    Open,
    /// Read a file.
    Read,
    /// Rename a file.
    Rename,
    /// Put a file in the place of another.
    Replace,
    /// Give a range its blocks.
    Reserve,
    /// Write a log file anew for a repair.
    Rewrite,
    /// Save damaged bytes.
    Save,
    /// Start a thread.
    Start,
    /// Start the threads of a store.
    StartThreads,
    /// Ask for the kind and the length of a file.
    Stat,
    /// Store to a map.
    Store,
    /// Make a file or a directory durable.
    Sync,
    /// Make a file system durable.
    SyncFileSystem,
    /// Take the mark of a running writer away.
    TakeAway,
    /// Take a name away.
    Unlink,
    /// Use a temporary file.
    UseTemporary,
    /// Write to a file.
    Write,
}

impl Op {
    /// Whether it makes something durable. One that failed is not tried again.
    pub fn is_sync(self) -> bool {
        matches!(self, Op::Sync | Op::SyncFileSystem)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Access => "access",
            Op::Allocate => "get memory for",
            Op::Create => "create",
            Op::Erase => "erase",
            Op::Find => "find",
            Op::Lengthen => "lengthen",
            Op::List => "list",
            Op::Lock => "lock",
            Op::Make => "make",
            Op::MakePool => "make the transient pool of",
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
            Op::Stat => "look at",
            Op::Store => "store to",
            Op::Sync => "sync",
            Op::SyncFileSystem => "sync the file system of",
            Op::TakeAway => "take away",
            Op::Unlink => "unlink",
            Op::UseTemporary => "use a temporary file in",
            Op::Write => "write",
        })
    }
}
