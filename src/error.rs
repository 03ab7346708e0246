//! The only error type of the crate. Variants say what the caller can do about it.
//!
//! Values are fields, so that each binding can expose them as attributes. An ordinary outcome, such
//! as "nothing to read yet", is a value ([`crate::ReadStatus`]) and never an error.

mod awaited;
mod kinds;
mod making;
mod op;
mod reason;
mod text;

pub use awaited::Awaited;
pub use op::Op;
pub use reason::Reason;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of a call that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Adds operation and path to an error of the operating system.
pub trait At<T> {
    /// As [`Error::io`].
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    fn at(self, op: Op, path: impl AsRef<Path>) -> Result<T>;
}

impl<T> At<T> for io::Result<T> {
    #[inline]
    fn at(self, op: Op, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|error| Error::io(op, path, error))
    }
}

/// Why a call failed. Nothing was appended unless the variant says otherwise.
#[derive(Debug)]
pub enum Error {
    /// There is no store at this path, and the mode does not create one.
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// Mode `x`, but the store exists already.
    Exists {
        /// Its directory.
        path: PathBuf,
    },
    /// The path exists, but is not a store.
    NotAStore {
        /// The path.
        path: PathBuf,
        /// What the path holds instead.
        reason: String,
    },
    /// The directory was created by another system and cannot be opened for writing.
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// Another handle holds the store for writing.
    Locked {
        /// Directory of the store.
        path: PathBuf,
        /// Its process, if known.
        pid: Option<u32>,
        /// Whether all writers may open the store with mode `share` instead.
        shareable: bool,
    },
    /// The store was closed.
    Closed {
        /// Its directory, if the call knew it.
        path: Option<PathBuf>,
    },
    /// The consumer was closed, and its store is open.
    ConsumerClosed,
    /// A write to the disk failed for good; only reopening the store helps.
    Failed {
        /// The first error.
        reason: String,
        /// Whether the message of this call is in the log; it may or may not be durable.
        appended: bool,
    },
    /// The store was opened for reading, or the topic does not allow writing.
    ReadOnly {
        /// The store or the topic.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The handle was inherited through `fork`.
    Forked,
    /// The topic is not in the store.
    UnknownTopic {
        /// Its name.
        topic: String,
    },
    /// The topic has no queue of this number.
    UnknownQueue {
        /// The topic.
        topic: String,
        /// The number.
        queue: u32,
        /// How many queues the topic has.
        queues: u32,
    },
    /// The name is not allowed for a topic.
    InvalidTopic {
        /// The name.
        topic: String,
        /// The rule that it breaks.
        reason: String,
    },
    /// An argument or option has a value that is not allowed.
    InvalidOption {
        /// Name of the argument or option.
        name: String,
        /// The value, as text.
        value: String,
        /// What is allowed, or what is wrong.
        reason: Reason,
    },
    /// A queue lacks a message, so a conversion cannot keep its offsets. Let it assign new ones.
    Gap {
        /// The topic.
        topic: String,
        /// The queue.
        queue: u32,
        /// Offset of the message that the queue lacks.
        offset: u64,
        /// The same in words.
        reason: String,
    },
    /// A message or a part of it is larger than allowed.
    TooLarge {
        /// The part.
        what: String,
        /// Its bytes.
        size: u64,
        /// The bytes that are allowed.
        limit: u64,
    },
    /// The offset is not in the queue.
    OffsetOutOfRange {
        /// The topic.
        topic: String,
        /// The queue.
        queue: u32,
        /// The offset.
        offset: i64,
        /// First offset of the queue.
        min: u64,
        /// The next offset to be written.
        max: u64,
    },
    /// Bytes on disk are invalid.
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Position of the bytes, in the log or in the file.
        position: u64,
        /// What is wrong with them.
        reason: String,
    },
    /// This version does not read or write this format.
    Unsupported {
        /// The format or the operation.
        what: String,
    },
    /// This version reads the store, and does not write to it.
    ReadableOnly {
        /// Directory of the store.
        path: PathBuf,
        /// Why it does not write.
        reason: String,
    },
    /// The file system has no space for the write.
    Full {
        /// The file or the directory.
        path: PathBuf,
        /// Bytes that the write needs.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// Other threads or processes held a lock or another resource for too long: retry.
    Busy {
        /// The lock or resource.
        what: Awaited,
        /// How long the call has waited.
        waited_ms: u64,
    },
    /// The message is in the log, but did not become durable in time.
    FlushTimeout {
        /// How long the call has waited.
        timeout_ms: u64,
    },
    /// The message lingers still: it waits for others of its queue, and is not in the log yet.
    Lingers {
        /// How long the call has waited.
        timeout_ms: u64,
    },
    /// Messages that lingered were not appended. Their tickets have the same error.
    NotAppended {
        /// How many.
        count: usize,
        /// Why.
        source: Arc<Error>,
    },
    /// The message was settled before.
    AlreadySettled {
        /// Its topic.
        topic: String,
        /// Its queue.
        queue: u32,
        /// Its offset.
        offset: u64,
    },
    /// Another consumer owns the queue, or the message was delivered again since.
    OwnershipLost {
        /// The topic.
        topic: String,
        /// The queue.
        queue: u32,
    },
    /// A producer no longer owns its queue: it was closed, or a newer one has its name.
    Replaced {
        /// The topic.
        topic: String,
        /// The queue.
        queue: u32,
        /// Name of the producer.
        name: String,
    },
    /// A queue ends before the offset that a reader has reached: the log came back shorter.
    LogShrunk {
        /// The topic.
        topic: String,
        /// The queue.
        queue: u32,
        /// The offset that the reader would read next.
        offset: u64,
        /// The next offset to be written.
        end: u64,
    },
    /// One row of a batch was rejected; nothing of its chunk was appended.
    Row {
        /// Number of the row in the batch, from 0.
        row: usize,
        /// Why it was rejected.
        source: Box<Error>,
    },
    /// The operating system reported an error.
    Io {
        /// What was tried.
        op: Op,
        /// The file or the directory.
        path: PathBuf,
        /// For a failed load from or store to a map: the byte of the file.
        position: Option<u64>,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            Error::Row { source, .. } => Some(source),
            Error::NotAppended { source, .. } => Some(source),
            _ => None,
        }
    }
}
