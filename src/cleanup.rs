//! The options of compaction: which topics keep only the latest message of each key, and when.

use crate::error::{Error, Result};
use std::collections::BTreeMap;

/// What happens to old messages of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Retention deletes them, if it is asked for.
    #[default]
    Delete,
    /// Compaction keeps the latest message of each key.
    Compact,
    /// Both.
    CompactDelete,
}

impl Policy {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Policy::Delete => "delete",
            Policy::Compact => "compact",
            Policy::CompactDelete => "compact,delete",
        }
    }

    /// The policy with this name.
    pub fn of(word: &str) -> Option<Policy> {
        match word {
            "delete" => Some(Policy::Delete),
            "compact" => Some(Policy::Compact),
            "compact,delete" | "delete,compact" => Some(Policy::CompactDelete),
            _ => None,
        }
    }

    fn compacts(self) -> bool {
        self != Policy::Delete
    }
}

/// Prefixes of the topics of retries, of dead letters and of delays.
const OF_CONSUMERS: [&str; 3] = ["retry.", "dlq.", "rmq_sys_forebay_"];

/// The policy of each topic.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CleanupPolicy {
    /// The policy of all topics that are not named, except those of retries, dead letters and
    /// delays.
    pub default: Policy,
    /// By the topic's name.
    pub topics: BTreeMap<String, Policy>,
}

impl CleanupPolicy {
    fn of(&self, topic: &str) -> Policy {
        match self.topics.get(topic) {
            Some(policy) => *policy,
            // In these topics, a later message with the same key does not replace an earlier one.
            None if OF_CONSUMERS.iter().any(|it| topic.starts_with(it)) => Policy::Delete,
            None => self.default,
        }
    }

    /// Whether a topic is compacted.
    pub fn compacts(&self, topic: &str) -> bool {
        self.of(topic).compacts()
    }

    /// Whether retention by time and size applies to a topic.
    pub fn deletes(&self, topic: &str) -> bool {
        self.of(topic) != Policy::Compact
    }

    /// The policies as text.
    pub fn words(&self) -> String {
        let topics = self.topics.iter();
        let topics = topics.map(|(topic, policy)| format!("{topic}={}", policy.word()));
        let all = std::iter::once(self.default.word().to_owned()).chain(topics);
        all.collect::<Vec<_>>().join(" ")
    }

    /// Whether any topic may be compacted.
    pub fn compacts_any(&self) -> bool {
        self.default.compacts() || self.topics.values().any(|it| it.compacts())
    }
}

/// The options of compaction. Those that are `None` have Kafka's defaults.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Compaction {
    /// Which topics are compacted; none by default.
    pub cleanup_policy: CleanupPolicy,
    /// A partition is compacted when more than this part of its complete segments is dirty, from 0
    /// to 1; 0.5 by default.
    pub min_cleanable_dirty_ratio: Option<f64>,
    /// How long a tombstone stays after the first pass that kept it, in ms; a day by default.
    pub delete_retention_ms: Option<u64>,
    /// Messages are not compacted before they are this old, in ms; 0 by default.
    pub min_compaction_lag_ms: Option<u64>,
    /// Messages are compacted when they are this old, in ms, however little is dirty; not by
    /// default.
    pub max_compaction_lag_ms: Option<u64>,
    /// Maximum bytes of the offset map, 24 for each key, of which nine tenths are used; 128 MiB by
    /// default.
    pub log_cleaner_dedupe_buffer_size: Option<u64>,
    /// Maximum bytes that compaction in the background reads in a second; no limit by default.
    pub log_cleaner_io_max_bytes_per_second: Option<u64>,
    /// Time between two checks whether a partition needs compaction, in ms; 15 s by default.
    pub log_cleaner_backoff_ms: Option<u64>,
}

impl Compaction {
    /// Name and value of the first option that is given.
    pub fn first_given(&self) -> Option<(&'static str, String)> {
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let policy = &self.cleanup_policy;
        let ratio = self.min_cleanable_dirty_ratio;
        let given = [
            (
                "cleanup_policy",
                (*policy != CleanupPolicy::default()).then(|| format!("{:?}", policy.words())),
            ),
            (
                "min_cleanable_dirty_ratio",
                ratio.map(|ratio| ratio.to_string()),
            ),
            ("delete_retention_ms", number(self.delete_retention_ms)),
            ("min_compaction_lag_ms", number(self.min_compaction_lag_ms)),
            ("max_compaction_lag_ms", number(self.max_compaction_lag_ms)),
            (
                "log_cleaner_dedupe_buffer_size",
                number(self.log_cleaner_dedupe_buffer_size),
            ),
            (
                "log_cleaner_io_max_bytes_per_second",
                number(self.log_cleaner_io_max_bytes_per_second),
            ),
            (
                "log_cleaner_backoff_ms",
                number(self.log_cleaner_backoff_ms),
            ),
        ];
        let mut given = given.into_iter();
        given.find_map(|(name, value)| Some((name, value?)))
    }

    /// Checks every option, and the combinations of options.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] with name, value and rule.
    pub fn check(&self) -> Result<()> {
        let name = "min_cleanable_dirty_ratio";
        if let Some(ratio) = self.min_cleanable_dirty_ratio
            && !(0.0..=1.0).contains(&ratio)
        {
            return Err(Error::must(name, ratio, "be between 0 and 1"));
        }
        let most = i64::MAX as u64;
        let numbers = [
            ("delete_retention_ms", self.delete_retention_ms, 0, most),
            ("min_compaction_lag_ms", self.min_compaction_lag_ms, 0, most),
            ("max_compaction_lag_ms", self.max_compaction_lag_ms, 1, most),
            (
                "log_cleaner_dedupe_buffer_size",
                self.log_cleaner_dedupe_buffer_size,
                1024,
                1 << 40,
            ),
            (
                "log_cleaner_io_max_bytes_per_second",
                self.log_cleaner_io_max_bytes_per_second,
                1,
                most,
            ),
            (
                "log_cleaner_backoff_ms",
                self.log_cleaner_backoff_ms,
                1,
                most,
            ),
        ];
        for (name, value, min, max) in numbers {
            if let Some(value) = value.filter(|value| !(min..=max).contains(value)) {
                let rule = format!("be between {min} and {max}");
                return Err(Error::must(name, value, rule));
            }
        }
        let (min, max) = (self.min_compaction_lag_ms, self.max_compaction_lag_ms);
        match (min, max) {
            (Some(min), Some(max)) if min > max => Err(Error::must(
                "min_compaction_lag_ms",
                min,
                format!("not be greater than max_compaction_lag_ms={max}"),
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two delayed messages with one key are two messages.
    #[test]
    fn topics_of_consumers_are_compacted_only_if_they_are_named() {
        let mut policy = CleanupPolicy {
            default: Policy::Compact,
            topics: BTreeMap::new(),
        };
        assert!(policy.compacts("orders"));
        for topic in ["retry.billing", "dlq.billing", "rmq_sys_forebay_delay"] {
            assert!(!policy.compacts(topic), "{topic}");
        }
        let named = "dlq.billing".to_owned();
        policy.topics.insert(named, Policy::Compact);
        assert!(policy.compacts("dlq.billing"));
    }
}
