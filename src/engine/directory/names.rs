//! Names of the files and directories of a store.

/// Directory of the log.
pub const COMMIT_LOG: &str = "commitlog";
/// Directory of the queues.
pub const QUEUES: &str = "consumequeue";
/// Directory of the index.
pub const INDEX: &str = "index";
/// Directory of the tables.
pub const CONFIG: &str = "config";
/// The file whose byte 0 a writer locks.
pub const LOCK: &str = "lock";
/// As [`LOCK`], in a partition log; a broker locks all of it.
pub const BROKER_LOCK: &str = ".lock";
/// Exists while a store is open for writing, and after a crash.
pub const ABORT: &str = "abort";
/// Store times up to which log, queues and index are durable.
pub const CHECKPOINT: &str = "checkpoint";
/// The state page.
pub const STATE: &str = "forebay.state";
/// Bounds of queues and index at the last full pass.
pub const OFFSETS: &str = "forebay.offsets";
/// Name of `abort` while the store is closed.
pub const IDLE: &str = "forebay.idle";
/// The saved options.
pub const OPTIONS: &str = "forebay.options";
/// Which messages with a delivery time are delivered.
pub const DELAY: &str = "forebay.delay";
/// Who owns which queue of a group, while processes share the store.
pub const GROUPS: &str = "forebay.groups";
/// In a partition log: where each partition ends, while processes share it.
pub const PARTITIONS: &str = "forebay.partitions";
/// In a partition log: the page of marks of the processes that share it.
pub const SHARED: &str = "forebay.shared";
/// Which messages with a delivery time waited at some moment.
pub const PENDING: &str = "forebay.pending";
/// Which producers own queues.
pub const PRODUCERS: &str = "forebay.producers";
/// Directory of rows staged by other processes; in a partition log, the beginning of their files'
/// names.
pub const STAGES: &str = "forebay.stages";
/// In a partition log: the page through which those who stage and the writer wake each other.
pub const INTAKE: &str = "forebay.intake";
/// In a partition log: the page by which its writers notify readers in other processes, and show
/// how long sends take.
pub const METERS: &str = "forebay.meters";
