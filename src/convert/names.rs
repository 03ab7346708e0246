//! Names of topics in the target.
//!
//! A commit log allows `%` and `|`, a partition log `.`; the longest name has 127 bytes and 249. A
//! name that the target allows is kept. In other names each character that the target does not
//! allow becomes `_`. Topics of retries and dead letters of a group get the names that the target's
//! engine uses for them. Properties of messages that hold the name of a topic, such as the one that
//! a dead letter was sent to, get its name in the target.

use crate::engine::{Engine, Topic};
use crate::error::{Error, Result};
use crate::options::EngineKind;
use crate::record::common::check::{OWN_TOPIC_PREFIX, TOPIC_LEN_MAX as COMMIT_LOG_LEN_MAX};
use crate::record::names::{
    DEAD_PREFIX, KAFKA_DEAD_PREFIX, KAFKA_RETRY_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Names in the target, by the name in the source.
pub type NameMap = BTreeMap<String, String>;

/// Topics that the systems keep for themselves, besides those with [`SYSTEM_PREFIX`].
const SYSTEM: [&str; 11] = [
    "TBW102",
    SCHEDULE_TOPIC,
    "BenchmarkTest",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
    "CHECKPOINT_TOPIC",
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
];
const SYSTEM_PREFIX: &str = "rmq_sys_";
/// Maximum length of a name in a partition log, in bytes.
const PARTITION_LOG_LEN_MAX: usize = 249;
/// Names of a group's own topics: in a commit log, in a partition log.
const GROUPS: [(&str, &str); 2] = [
    (RETRY_PREFIX, KAFKA_RETRY_PREFIX),
    (DEAD_PREFIX, KAFKA_DEAD_PREFIX),
];

/// The topics to convert, and those left out with the number of their offsets.
pub type Chosen = (Vec<Arc<Topic>>, Vec<(String, u64)>);

/// Chooses the topics to convert, in the order of their names.
pub fn choose(source: &dyn Engine, wanted: Option<&[String]>) -> Result<Chosen> {
    if let Some(names) = wanted {
        let found = names.iter().map(|name| {
            let topic = source.topics().get(name);
            topic.ok_or_else(|| Error::UnknownTopic {
                topic: name.clone(),
            })
        });
        return Ok((found.collect::<Result<_>>()?, Vec::new()));
    }
    let mut all = source.topics().all();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    let (system, chosen): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| is_system(&it.name));
    let mut left_out = Vec::new();
    for topic in system {
        let mut offsets = 0;
        for queue in source.queues(&topic) {
            let bounds = source.bounds(&topic, queue)?.unwrap_or_default();
            offsets += bounds.end - bounds.start;
        }
        if offsets > 0 {
            left_out.push((topic.name.to_string(), offsets));
        }
    }
    Ok((chosen, left_out))
}

fn is_system(name: &str) -> bool {
    SYSTEM.contains(&name)
        || name.starts_with(OWN_TOPIC_PREFIX)
        || name.to_ascii_lowercase().starts_with(SYSTEM_PREFIX)
}

/// The name in the target of each topic, all of them different.
pub fn map(
    topics: &[Arc<Topic>],
    given: &NameMap,
    target: EngineKind,
) -> Result<Vec<(String, String)>> {
    let names: BTreeSet<&str> = topics.iter().map(|topic| &*topic.name).collect();
    if let Some(unknown) = given.keys().find(|name| !names.contains(name.as_str())) {
        return Err(Error::UnknownTopic {
            topic: unknown.clone(),
        });
    }
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for (name, to) in given {
        if !is_allowed(to, target) {
            return Err(refused(to, target));
        }
        if !taken.insert(to.clone()) {
            let reason = "two topics would get this name";
            return Err(Error::option("names", format!("{name:?}: {to:?}"), reason));
        }
    }
    // Topics that can keep their names take them before the others get new names.
    for name in names.iter().filter(|name| !given.contains_key(**name)) {
        if is_allowed(name, target) && !taken.insert((*name).to_owned()) {
            let reason = "another topic has this name and keeps it";
            return Err(Error::option("names", format!("{name:?}"), reason));
        }
    }
    let mut found = Vec::new();
    for topic in topics {
        let name = &*topic.name;
        let to = match given.get(name) {
            Some(to) => to.clone(),
            None if is_allowed(name, target) => name.to_owned(),
            None => free(&by_rule(name, target), &taken, target),
        };
        taken.insert(to.clone());
        found.push((name.to_owned(), to));
    }
    Ok(found)
}

fn len_max(target: EngineKind) -> usize {
    match target {
        EngineKind::PartitionLog => PARTITION_LOG_LEN_MAX,
        _ => COMMIT_LOG_LEN_MAX,
    }
}

fn is_char(char: char, target: EngineKind) -> bool {
    let other = match target {
        EngineKind::PartitionLog => char == '.',
        _ => matches!(char, '%' | '|'),
    };
    char.is_ascii_alphanumeric() || matches!(char, '_' | '-') || other
}

fn is_allowed(name: &str, target: EngineKind) -> bool {
    has_form(name, target) && !is_system(name)
}

fn has_form(name: &str, target: EngineKind) -> bool {
    (1..=len_max(target)).contains(&name.len())
        && name.chars().all(|char| is_char(char, target))
        && !matches!(name, "." | "..")
}

fn by_rule(name: &str, target: EngineKind) -> String {
    for (commit_log, partition_log) in GROUPS {
        let (from, to) = match target {
            EngineKind::PartitionLog => (commit_log, partition_log),
            _ => (partition_log, commit_log),
        };
        if let Some(group) = name.strip_prefix(from) {
            return format!("{to}{}", plain(group, target));
        }
    }
    plain(name, target)
}

fn plain(name: &str, target: EngineKind) -> String {
    let char = |char| match is_char(char, target) {
        true => char,
        false => '_',
    };
    name.chars().map(char).collect()
}

/// The beginning of a name, which has no other characters than those of ASCII.
fn cut(name: &str, len_max: usize) -> String {
    let len = len_max.min(name.len());
    name.get(..len).unwrap_or_default().to_owned()
}

/// The name, cut to the length that is allowed, with a number if it is taken.
fn free(name: &str, taken: &BTreeSet<String>, target: EngineKind) -> String {
    let first = cut(name, len_max(target));
    if is_allowed(&first, target) && !taken.contains(&first) {
        return first;
    }
    for number in 2.. {
        let end = format!("_{number}");
        let other = cut(name, len_max(target) - end.len()) + &end;
        if !taken.contains(&other) {
            return other;
        }
    }
    unreachable!("there are more numbers than names that are taken")
}

fn refused(name: &str, target: EngineKind) -> Error {
    Error::InvalidTopic {
        topic: name.to_owned(),
        reason: format!("not a valid topic name in a {}", target.word()),
    }
}

/// How the target calls the topics that messages name.
pub struct Renamed {
    /// Those that are converted.
    topics: NameMap,
    /// The names that these have in the target.
    taken: BTreeSet<String>,
    target: EngineKind,
}

impl Renamed {
    /// `topics` are the names in source and target of those that are converted.
    pub fn new(topics: &[(String, String)], target: EngineKind) -> Renamed {
        Renamed {
            topics: topics.iter().cloned().collect(),
            taken: topics.iter().map(|(_, to)| to.clone()).collect(),
            target,
        }
    }

    /// The name in the target of a topic that need not be converted; `None` if it is the same. A
    /// topic that is not converted gets a name that no converted topic has.
    pub fn of(&self, name: &str) -> Option<String> {
        let to = match self.topics.get(name) {
            Some(to) => to.clone(),
            None if has_form(name, self.target) && !self.taken.contains(name) => return None,
            None => free(&by_rule(name, self.target), &self.taken, self.target),
        };
        (to != name).then_some(to)
    }
}

/// How many queues a topic needs in the target.
pub fn queues(source: &dyn Engine, topic: &Topic) -> u32 {
    let highest = source.queues(topic).into_iter().max();
    let used = highest.map_or(1, |highest| highest.saturating_add(1));
    used.max(topic.write_queues()).max(1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::engine::Topics;

    fn mapped(names: &[&str], given: &[(&str, &str)], to: EngineKind) -> Result<Vec<String>> {
        let topics = Topics::default();
        let found: Vec<_> = names
            .iter()
            .map(|name| topics.get_or_add(name, 1).0)
            .collect();
        let pair = |(name, to): &(&str, &str)| ((*name).to_owned(), (*to).to_owned());
        let given = given.iter().map(pair).collect();
        let pairs = map(&found, &given, to)?;
        Ok(pairs.into_iter().map(|(_, to)| to).collect())
    }

    #[test]
    fn names_are_kept_where_they_can_be() {
        let to = EngineKind::PartitionLog;
        let names = [
            "orders",
            "%RETRY%billing",
            "%DLQ%billing",
            "a|b",
            "a_b",
            "a%b",
        ];
        let found = mapped(&names, &[], to).unwrap();
        let expected = [
            "orders",
            "retry.billing",
            "dlq.billing",
            "a_b_2",
            "a_b",
            "a_b_3",
        ];
        assert_eq!(found, expected);
        let to = EngineKind::CommitLog;
        let long = "x.".repeat(100);
        let names = ["retry.billing", "dlq.a.b", "a.b.c", &long];
        let found = mapped(&names, &[], to).unwrap();
        assert_eq!(found[..3], ["%RETRY%billing", "%DLQ%a_b", "a_b_c"]);
        assert_eq!(found[3].len(), COMMIT_LOG_LEN_MAX);
    }

    #[test]
    fn topics_that_messages_name_are_renamed_even_if_they_are_not_converted() {
        let topics = [("a.b", "orders"), ("c", "c")];
        let topics = topics.map(|(from, to)| (from.to_owned(), to.to_owned()));
        let renamed = Renamed::new(&topics, EngineKind::CommitLog);
        let of = |name: &str| renamed.of(name).unwrap_or_default();
        assert_eq!(of("a.b"), "orders");
        assert_eq!(of("retry.g"), "%RETRY%g");
        assert_eq!(of("x.y"), "x_y");
        assert_eq!(renamed.of("c"), None);
        assert_eq!(renamed.of("SCHEDULE_TOPIC_XXXX"), None);
        let renamed = Renamed::new(&[], EngineKind::PartitionLog);
        assert_eq!(renamed.of("%RETRY%g").unwrap(), "retry.g");
        assert_eq!(renamed.of("orders"), None);
    }

    /// A dead letter of a topic that was not converted was sent to another topic when it was
    /// redriven.
    #[test]
    fn topics_that_are_not_converted_get_no_name_of_a_converted_one() {
        let topics = [("a_b", "a_b"), ("c.d", "orders"), ("e.f", "e_f")];
        let topics = topics.map(|(from, to)| (from.to_owned(), to.to_owned()));
        let renamed = Renamed::new(&topics, EngineKind::CommitLog);
        let of = |name: &str| renamed.of(name).unwrap_or_default();
        assert_eq!(of("a.b"), "a_b_2");
        assert_eq!(of("orders"), "orders_2");
        assert_eq!(of("e_f"), "e_f_2");
        assert_eq!(renamed.of("a_b"), None);
        assert_eq!(of("e.f"), "e_f");
    }

    #[test]
    fn names_may_be_given_and_are_checked() {
        let to = EngineKind::CommitLog;
        let found = mapped(&["a.b", "c"], &[("a.b", "orders")], to).unwrap();
        assert_eq!(found, ["orders", "c"]);
        assert!(mapped(&["a.b", "c"], &[("a.b", "c")], to).is_err());
        assert!(mapped(&["a.b"], &[("x", "y")], to).is_err());
        assert!(mapped(&["a.b"], &[("a.b", "still.dotted")], to).is_err());
        assert!(mapped(&["a", "b"], &[("a", "x"), ("b", "x")], to).is_err());
    }
}
