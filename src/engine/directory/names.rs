//! Names of the files and directories of a store.

/// Directory of the log.
pub const COMMIT_LOG: &str = "commitlog";
/// Directory of the queues.
pub const QUEUES: &str = "consumequeue";
/// Directory of the index.
pub const INDEX: &str = "index";
/// Directory of the tables.
pub const CONFIG: &str = "config";
/// Where a writer locks byte 0.
pub const LOCK: &str = "lock";
/// Exists while a store is written, and after a halt.
pub const ABORT: &str = "abort";
/// Up to which store time log, queues and index are durable.
pub const CHECKPOINT: &str = "checkpoint";
/// The page of marks.
pub const STATE: &str = "forebay.state";
/// Bounds of the queues at the last close.
pub const OFFSETS: &str = "forebay.offsets";
/// What `abort` is renamed to when the store is closed.
pub const IDLE: &str = "forebay.idle";
/// Options that a store keeps.
pub const OPTIONS: &str = "forebay.options";
/// Directory of the rows that other processes stage.
pub const STAGES: &str = "forebay.stages";
