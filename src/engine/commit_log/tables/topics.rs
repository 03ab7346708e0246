//! `config/topics.json`, RocketMQ's table of topics.
//!
//! The file may come from anyone, so it is never parsed into a tree: a tree takes thirty times the
//! memory of the text. Unused parts stay text.

use crate::disk::Disk;
use crate::engine::Topics;
use crate::engine::commit_log::queues::queue::is_directory_name;
use crate::engine::directory::names;
use crate::error::{At, Op, Result};
use crate::record::check_topic;
use crate::table::json::{self, RawMembers, raw};
use crate::table::{Loaded, Reason, load_with_backup, raise_version, replace_with_backup};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name of the table, in `config`.
pub const FILE_NAME: &str = "topics.json";
/// Maximum number of topics in a table.
const TOPICS_MAX: usize = 1 << 20;
/// Maximum number of members of any other object in the table.
const MEMBERS_MAX: usize = 1024;
/// A longer entry is written as it was read, without formatting.
const PRETTY_LEN_MAX: usize = 64 << 10;

/// Number of write queues, number of read queues, permissions.
type Numbers = [u32; 3];
const NUMBER_NAMES: [&str; 3] = ["writeQueueNums", "readQueueNums", "perm"];

/// The table. Members that Forebay does not know are kept.
#[derive(Debug)]
pub struct TopicTable {
    path: PathBuf,
    /// Members of the root except the topics.
    root: RawMembers,
    topics: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    text: Box<RawValue>,
    /// Its numbers, if the text states all of them.
    stated: Option<Numbers>,
}

impl TopicTable {
    /// Reads the table of the store at `root` and adds its topics to `topics`. If the file is
    /// missing, empty or not JSON, reads its backup, as RocketMQ does. If that is unusable too, the
    /// table is empty.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if it is longer or has more topics than the limits, and
    /// [`Error::Unsupported`] if it is not a file.
    pub fn load(disk: &dyn Disk, root: &Path, topics: &Topics) -> Result<TopicTable> {
        let path = root.join(names::CONFIG).join(FILE_NAME);
        let found = match load_with_backup(disk, &path, parse)? {
            Loaded::Damaged(_, Reason::Unreadable(_)) => None,
            found => found.table()?,
        };
        let (root, entries) = found.unwrap_or_default();
        let mut table = TopicTable {
            path,
            root,
            topics: BTreeMap::new(),
        };
        for (name, text) in entries {
            let stated = apply(topics, &name, &text);
            table.topics.insert(name, Entry { text, stated });
        }
        Ok(table)
    }

    /// Whether the table has an entry for a topic.
    pub fn knows(&self, name: &str) -> bool {
        self.topics.contains_key(name)
    }

    /// Updates the table from the topics.
    pub fn update(&mut self, topics: &Topics, now_ms: i64) {
        for topic in topics.all() {
            let numbers = [
                topic.write_queues(),
                topic.read_queues(),
                topic.permissions(),
            ];
            let entry = self.topics.get(&*topic.name);
            if entry.is_none() && check_topic(&topic.name).is_err()
                || entry.is_some_and(|entry| entry.stated == Some(numbers))
            {
                continue;
            }
            let mut members = match entry {
                Some(entry) => members_of(&entry.text),
                None => BTreeMap::from([
                    ("attributes".to_owned(), raw(&serde_json::Map::new())),
                    ("order".to_owned(), raw(&false)),
                    ("topicFilterType".to_owned(), raw("SINGLE_TAG")),
                    ("topicName".to_owned(), raw(&*topic.name)),
                    ("topicSysFlag".to_owned(), raw(&0)),
                ]),
            };
            for (name, number) in NUMBER_NAMES.into_iter().zip(numbers) {
                members.insert(name.to_owned(), raw(&number));
            }
            let entry = Entry {
                text: raw(&members),
                stated: Some(numbers),
            };
            self.topics.insert(topic.name.to_string(), entry);
        }
        raise_version(&mut self.root, now_ms);
    }

    /// Durably writes the table. The previous one becomes the backup, if it is readable.
    pub fn save(&self, disk: &dyn Disk) -> Result<()> {
        let text = json::pretty(self).map_err(std::io::Error::other);
        let text = text.at(Op::Write, &self.path)?;
        replace_with_backup(disk, &self.path, &text)
    }
}

impl Serialize for TopicTable {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = to.serialize_map(None)?;
        for (name, text) in &self.root {
            map.serialize_entry(name, text)?;
        }
        map.serialize_entry("topicConfigTable", &self.topics)?;
        map.end()
    }
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let text = self.text.get();
        let tree = (text.len() <= PRETTY_LEN_MAX).then(|| serde_json::from_str::<Value>(text).ok());
        match tree.flatten() {
            Some(tree) => tree.serialize(to),
            None => self.text.serialize(to),
        }
    }
}

/// The members of a root without the topics, and the topics.
fn parse(text: &[u8]) -> Result<(RawMembers, RawMembers), Reason> {
    let mut root = json::members::<MEMBERS_MAX>(text, "members")?;
    let topics = root.remove("topicConfigTable");
    let topics = topics.map(|text| json::members::<TOPICS_MAX>(text.get().as_bytes(), "topics"));
    match topics {
        None | Some(Err(Reason::NotAFile | Reason::Unreadable(_))) => Ok((root, RawMembers::new())),
        Some(topics) => Ok((root, topics?)),
    }
}

/// Adds the topic of an entry to `topics`. Returns its numbers if it states all of them.
fn apply(topics: &Topics, name: &str, text: &RawValue) -> Option<Numbers> {
    if !is_directory_name(name) {
        return None;
    }
    let Stated(stated) = json::read(text.get().as_bytes()).unwrap_or_default();
    let stated = stated.map(|text| text.and_then(|text| number(&text)));
    let [write, read, permissions] = stated
        .map(|value: Option<u64>| value.map(|value| u32::try_from(value).unwrap_or(u32::MAX)));
    let write_queues = write.unwrap_or(1);
    let (topic, _) = topics.get_or_add(name, write_queues);
    let (read_queues, perm) = (read.unwrap_or(write_queues), permissions.unwrap_or(6));
    topic.configure(write_queues, read_queues, perm);
    let known = [
        topic.write_queues(),
        topic.read_queues(),
        topic.permissions(),
    ];
    ([write, read, permissions] == known.map(Some)).then_some(known)
}

/// The members of an object; none if it is not an object or has too many.
fn members_of(text: &RawValue) -> RawMembers {
    json::members::<MEMBERS_MAX>(text.get().as_bytes(), "members").unwrap_or_default()
}

/// The members of an object that have the names [`NUMBER_NAMES`], each as its text; none if the
/// object has too many members. Other members are not kept, because there may be many topics.
#[derive(Default)]
struct Stated([Option<Box<RawValue>>; NUMBER_NAMES.len()]);

impl<'de> Deserialize<'de> for Stated {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(StatedVisitor)
    }
}

struct StatedVisitor;

impl<'de> Visitor<'de> for StatedVisitor {
    type Value = Stated;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Stated, A::Error> {
        let mut stated = Stated::default();
        let mut count = 0;
        while let Some(Which(which)) = object.next_key()? {
            count += 1;
            match which.and_then(|which| stated.0.get_mut(which)) {
                Some(place) => *place = Some(object.next_value()?),
                None => drop(object.next_value::<IgnoredAny>()?),
            }
        }
        Ok(match count > MEMBERS_MAX {
            true => Stated::default(),
            false => stated,
        })
    }
}

/// Index of a name in [`NUMBER_NAMES`]; `None` for other names.
struct Which(Option<usize>);

impl<'de> Deserialize<'de> for Which {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_identifier(WhichVisitor)
    }
}

struct WhichVisitor;

impl Visitor<'_> for WhichVisitor {
    type Value = Which;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Which, E> {
        let mut names = NUMBER_NAMES.iter();
        Ok(Which(names.position(|known| *known == name)))
    }
}

fn number<T: std::str::FromStr>(text: &RawValue) -> Option<T> {
    text.get().parse().ok()
}
