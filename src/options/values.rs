//! The values of options that are words.

/// What the caller may do with the store, and whether it may be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// Write; create the store if there is none.
    #[default]
    Append,
    /// Write; the store must not exist yet.
    Create,
    /// Read; the directory is not modified.
    Read,
    /// Write, beside other processes that have opened it so; create the store if there is none.
    Share,
}

/// The storage engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// RocketMQ's store.
    CommitLog,
    /// Kafka's log: the log directory of a broker.
    PartitionLog,
    /// No files: messages live as long as the handle.
    Memory,
}

impl EngineKind {
    /// The name of the option value.
    pub fn word(self) -> &'static str {
        match self {
            EngineKind::CommitLog => "commitlog",
            EngineKind::PartitionLog => "partitionlog",
            EngineKind::Memory => "memory",
        }
    }

    /// The engine with this name.
    pub fn of(word: &str) -> Option<EngineKind> {
        match word {
            "commitlog" => Some(EngineKind::CommitLog),
            "partitionlog" => Some(EngineKind::PartitionLog),
            "memory" => Some(EngineKind::Memory),
            _ => None,
        }
    }

    /// Whether its stores are directories.
    pub fn keeps_files(self) -> bool {
        self != EngineKind::Memory
    }

    /// Whether its stores keep all messages in one log, whose positions are bytes.
    pub fn has_one_log(self) -> bool {
        self == EngineKind::CommitLog
    }

    /// Whether its stores are log directories of Kafka's, in which messages can have no body, any
    /// bytes as key, and headers.
    pub fn in_kafka_form(self) -> bool {
        self == EngineKind::PartitionLog
    }
}

/// Which messages of transactions are read, in a partition log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Isolation {
    /// All.
    #[default]
    ReadUncommitted,
    /// Those of committed transactions, up to the first message of the oldest open one.
    ReadCommitted,
}

impl Isolation {
    /// The name of the option value.
    pub fn word(self) -> &'static str {
        match self {
            Isolation::ReadUncommitted => "read_uncommitted",
            Isolation::ReadCommitted => "read_committed",
        }
    }

    /// The value with this name.
    pub fn of(word: &str) -> Option<Isolation> {
        match word {
            "read_uncommitted" => Some(Isolation::ReadUncommitted),
            "read_committed" => Some(Isolation::ReadCommitted),
            _ => None,
        }
    }
}

/// How a partition log packs the records of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip
    Gzip,
    /// Snappy
    Snappy,
    /// LZ4
    Lz4,
    /// Zstandard
    Zstd,
}

impl Compression {
    const WORDS: [(Compression, &str); 5] = [
        (Compression::None, "none"),
        (Compression::Gzip, "gzip"),
        (Compression::Snappy, "snappy"),
        (Compression::Lz4, "lz4"),
        (Compression::Zstd, "zstd"),
    ];

    /// The name of the option value.
    pub fn word(self) -> &'static str {
        let mut words = Compression::WORDS.iter();
        words
            .find(|(it, _)| *it == self)
            .map_or("", |(_, word)| word)
    }

    /// The value with this name.
    pub fn of(word: &str) -> Option<Compression> {
        let mut words = Compression::WORDS.iter();
        words.find(|(_, it)| *it == word).map(|(it, _)| *it)
    }
}

/// Which time a partition log gives to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TimestampType {
    /// When it was made.
    #[default]
    CreateTime,
    /// When it was appended.
    LogAppendTime,
}

impl TimestampType {
    /// The name of the option value.
    pub fn word(self) -> &'static str {
        match self {
            TimestampType::CreateTime => "CreateTime",
            TimestampType::LogAppendTime => "LogAppendTime",
        }
    }

    /// The value with this name.
    pub fn of(word: &str) -> Option<TimestampType> {
        match word {
            "CreateTime" => Some(TimestampType::CreateTime),
            "LogAppendTime" => Some(TimestampType::LogAppendTime),
            _ => None,
        }
    }
}

/// When a send returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Flush {
    /// When the message is in the page cache. It becomes durable within the flush interval.
    #[default]
    Async,
    /// When the message is durable.
    Sync,
}

impl Flush {
    /// The name of the option value.
    pub fn word(self) -> &'static str {
        match self {
            Flush::Async => "async",
            Flush::Sync => "sync",
        }
    }

    /// The value with this name.
    pub fn of(word: &str) -> Option<Flush> {
        match word {
            "async" => Some(Flush::Async),
            "sync" => Some(Flush::Sync),
            _ => None,
        }
    }
}

/// How a sender waits for the append lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AppendLockKind {
    /// It spins briefly, then sleeps until it is woken.
    #[default]
    Mutex,
    /// It spins, and yields now and then: for senders that each have their own processor.
    Spin,
}
