//! `config/subscriptionGroup.json`: what each group may do, in RocketMQ's format.
//!
//! ```text
//! {"dataVersion":{...},"forbiddenTable":{},"subscriptionGroupTable":{"billing":{
//!     "groupName":"billing","consumeEnable":true,"retryMaxTimes":16,"retryQueueNums":1,...}}}
//! ```
//!
//! Forebay reads the table and never writes it. A group that is not listed, and a switch that a
//! group does not state, have RocketMQ's defaults.

use super::json::{self, RawMembers};
use super::{Reason, load_with_backup};
use crate::disk::Disk;
use crate::error::Result;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::path::Path;

/// The name of the table, in the directory of the tables.
pub const FILE_NAME: &str = "subscriptionGroup.json";
const GROUPS: &str = "subscriptionGroupTable";
/// By group and topic, what a group may not do there: a set of [`READ`] and other bits.
const FORBIDDEN: &str = "forbiddenTable";
const READ: i64 = 1 << 2;
/// Maximum number of members of the root, of groups, and of topics of one group.
const MEMBERS_MAX: usize = 1024;
const GROUPS_MAX: usize = 1 << 20;
const TOPICS_MAX: usize = 1 << 20;

/// The switches of a group that Forebay honours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Whether the group may consume.
    pub consume_enable: bool,
    /// Retries after which a message becomes a dead letter.
    pub retry_max_times: i32,
    /// Queues of the retry topic; if 0, a message that fails becomes a dead letter.
    pub retry_queue_nums: i32,
    /// Topics that the group may not read.
    pub forbidden: BTreeSet<String>,
}

impl Default for Subscription {
    fn default() -> Subscription {
        Subscription {
            consume_enable: true,
            retry_max_times: 16,
            retry_queue_nums: 1,
            forbidden: BTreeSet::new(),
        }
    }
}

/// The switches of `group` in the table at `path`, or in its backup.
///
/// # Errors
///
/// [`crate::Error::Io`]; [`crate::Error::Corrupt`] and [`crate::Error::Unsupported`] if the table
/// exists but cannot be read: it may forbid the group to consume.
pub fn load(disk: &dyn Disk, path: &Path, group: &str) -> Result<Subscription> {
    let found = load_with_backup(disk, path, |text| parse(text, group))?;
    Ok(found.table()?.unwrap_or_default())
}

fn parse(text: &[u8], group: &str) -> Result<Subscription, Reason> {
    let root = json::members::<MEMBERS_MAX>(text, "members")?;
    let default = Subscription {
        forbidden: forbidden(&root, group)?,
        ..Subscription::default()
    };
    let Some(groups) = root.get(GROUPS) else {
        return Ok(default);
    };
    let groups = json::members::<GROUPS_MAX>(groups.get().as_bytes(), "groups")?;
    let Some(switches) = groups.get(group) else {
        return Ok(default);
    };
    let switches = json::members::<MEMBERS_MAX>(switches.get().as_bytes(), "members")?;
    Ok(Subscription {
        consume_enable: switch(&switches, "consumeEnable", default.consume_enable)?,
        retry_max_times: switch(&switches, "retryMaxTimes", default.retry_max_times)?,
        retry_queue_nums: switch(&switches, "retryQueueNums", default.retry_queue_nums)?,
        ..default
    })
}

/// The topics that a group may not read.
fn forbidden(root: &RawMembers, group: &str) -> Result<BTreeSet<String>, Reason> {
    // RocketMQ writes no such table before version 5, and reads one that is null.
    let Some(groups) = root.get(FORBIDDEN).filter(|it| it.get() != "null") else {
        return Ok(BTreeSet::new());
    };
    let groups = json::members::<GROUPS_MAX>(groups.get().as_bytes(), "groups")?;
    let Some(topics) = groups.get(group) else {
        return Ok(BTreeSet::new());
    };
    let topics = json::members::<TOPICS_MAX>(topics.get().as_bytes(), "topics")?;
    let mut found = BTreeSet::new();
    for topic in topics.keys() {
        // RocketMQ takes a negative number for 0.
        if switch(&topics, topic, 0_i64)?.max(0) & READ != 0 {
            found.insert(topic.clone());
        }
    }
    Ok(found)
}

fn switch<T: DeserializeOwned>(of: &RawMembers, name: &str, default: T) -> Result<T, Reason> {
    match of.get(name) {
        Some(text) => serde_json::from_str(text.get()).map_err(Reason::unreadable),
        None => Ok(default),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
    use std::fs;

    /// As RocketMQ 5.5.0 writes it.
    const OF_ROCKETMQ: &str = r#"{
        "dataVersion":{"counter":1,"stateVersion":0,"timestamp":1795216143335},
        "forbiddenTable":{"G":{"T":1}},
        "subscriptionGroupTable":{
            "G":{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":false,
                "consumeFromMinEnable":true,"consumeMessageOrderly":false,
                "consumeTimeoutMinute":15,"groupName":"G","groupRetryPolicy":{"type":"CUSTOMIZED"},
                "groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":3,
                "retryQueueNums":2,"whichBrokerWhenConsumeSlowly":1},
            "H":{"groupName":"H","retryMaxTimes":-1}
        }
    }"#;

    fn load_from(text: &str, group: &str) -> Result<Subscription> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE_NAME), text).unwrap();
        load(&RealDisk, &folder.path().join(FILE_NAME), group)
    }

    #[test]
    fn switches_are_read_and_those_that_are_not_stated_have_their_defaults() {
        let stated = Subscription {
            consume_enable: false,
            retry_max_times: 3,
            retry_queue_nums: 2,
            forbidden: BTreeSet::new(),
        };
        assert_eq!(load_from(OF_ROCKETMQ, "G").unwrap(), stated);
        let partly = Subscription {
            retry_max_times: -1,
            ..Subscription::default()
        };
        assert_eq!(load_from(OF_ROCKETMQ, "H").unwrap(), partly);
        for (text, group) in [(OF_ROCKETMQ, "other"), ("{}", "G")] {
            assert_eq!(load_from(text, group).unwrap(), Subscription::default());
        }
        let folder = tempfile::tempdir().unwrap();
        let nothing = load(&RealDisk, &folder.path().join(FILE_NAME), "G").unwrap();
        assert_eq!(nothing, Subscription::default());
    }

    #[test]
    fn a_group_may_not_read_the_topics_that_have_the_bit_for_reading() {
        let bits = r#"{"G":{"T":1}}"#;
        let told = r#"{"G":{"T":4,"U":2,"V":6,"W":-4},"H":{}}"#;
        let table = OF_ROCKETMQ.replace(bits, told);
        let stated = load_from(&table, "G").unwrap();
        assert_eq!(stated.forbidden, ["T", "V"].map(str::to_owned).into());
        assert_eq!(stated.retry_max_times, 3);
        let alone = format!("{{\"forbiddenTable\":{told}}}");
        assert_eq!(load_from(&alone, "G").unwrap().forbidden.len(), 2);
        for text in [table, OF_ROCKETMQ.replace(bits, "null")] {
            assert!(load_from(&text, "H").unwrap().forbidden.is_empty());
        }
        for odd in ["[]", r#"{"G":4}"#, r#"{"G":{"T":"4"}}"#] {
            let error = load_from(&OF_ROCKETMQ.replace(bits, odd), "G").unwrap_err();
            assert!(error.to_string().contains(FILE_NAME), "{odd}: {error}");
        }
    }

    #[test]
    fn a_table_that_cannot_be_read_is_an_error() {
        let no_number = OF_ROCKETMQ.replace(":3,", ":\"3\",");
        for text in ["", "{", r#"{"subscriptionGroupTable":[]}"#, &no_number] {
            let error = load_from(text, "G").unwrap_err();
            assert!(error.to_string().contains(FILE_NAME), "{text}: {error}");
        }
        assert!(load_from(&no_number, "H").is_ok());
    }
}
