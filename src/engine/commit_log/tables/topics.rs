//! `config/topics.json`, the table of topics, as RocketMQ keeps it.
//!
//! The file may be anybody's, so it is never held as a tree: a tree takes thirty times the text.
//! Each part that is not asked for stays the text that it is.

use super::inventory::TABLE_LEN_MAX;
use super::json::{Members, raw};
use crate::disk::{Disk, Kind, read_small, replace};
use crate::engine::Topics;
use crate::engine::commit_log::queues::queue::is_directory_name;
use crate::engine::directory::names;
use crate::error::{Error, Op, Result};
use crate::record::check::check_topic;
use serde::de::IgnoredAny;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name of the table, in `config`.
pub const FILE_NAME: &str = "topics.json";
/// The most topics that a table may have.
const TOPICS_MAX: usize = 1 << 20;
/// The most members of another object of the table that is read.
const MEMBERS_MAX: usize = 1024;
/// An entry that is longer is written as it was read, and not put in order.
const PRETTY_LEN_MAX: usize = 64 << 10;

/// Number of queues to write to, of those to read, permissions.
type Numbers = [u32; 3];
const NUMBER_NAMES: [&str; 3] = ["writeQueueNums", "readQueueNums", "perm"];

/// The table. What Forebay does not know stays in it.
#[derive(Debug)]
pub struct TopicTable {
    path: PathBuf,
    /// What the root has beside the topics.
    root: BTreeMap<String, Box<RawValue>>,
    topics: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    text: Box<RawValue>,
    /// Its numbers, where the text states all of them.
    stated: Option<Numbers>,
}

impl TopicTable {
    /// Reads the table of the store at `root` and gives its topics to `topics`. Where the file is
    /// missing, empty or no JSON, its backup is read, as RocketMQ does; where both are, the table
    /// is empty.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] where it is longer or has more topics than any table may, and
    /// [`Error::Unsupported`] where it is no file.
    pub fn load(disk: &dyn Disk, root: &Path, topics: &Topics) -> Result<TopicTable> {
        let path = root.join(names::CONFIG).join(FILE_NAME);
        let backup = root.join(names::CONFIG).join("topics.json.bak");
        let found = match read(disk, &path)? {
            Some(found) => Some(found),
            None => read(disk, &backup)?,
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

    /// Brings the table up to what the topics are now.
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
        let version = self.root.get("dataVersion");
        let mut version = version.map_or_else(BTreeMap::new, |text| members_of(text));
        let counter: i64 = version
            .get("counter")
            .and_then(|text| number(text))
            .unwrap_or(0);
        version.insert("counter".to_owned(), raw(&counter.saturating_add(1)));
        let state = version.entry("stateVersion".to_owned());
        state.or_insert_with(|| raw(&0));
        version.insert("timestamp".to_owned(), raw(&now_ms));
        self.root.insert("dataVersion".to_owned(), raw(&version));
    }

    /// Writes the table, durably; the one before stays as the backup, if it could be read.
    pub fn save(&self, disk: &dyn Disk) -> Result<()> {
        let io = |error| Error::io(Op::Write, &self.path, error);
        let directory = self.path.parent().unwrap_or(Path::new("."));
        disk.create_directory(directory).map_err(io)?;
        // A table that cannot be read would take the place of a backup that can.
        let old = read_small(disk, &self.path, TABLE_LEN_MAX).map_err(io)?;
        if let Some(old) = old.filter(|old| serde_json::from_slice::<IgnoredAny>(old).is_ok()) {
            replace(disk, &self.path.with_extension("json.bak"), &old).map_err(io)?;
        }
        let mut text = Vec::new();
        let tabs = serde_json::ser::PrettyFormatter::with_indent(b"\t");
        let mut writer = serde_json::Serializer::with_formatter(&mut text, tabs);
        let written = self.serialize(&mut writer);
        written.map_err(|e| io(std::io::Error::other(e)))?;
        replace(disk, &self.path, &text).map_err(io)
    }
}

impl Serialize for TopicTable {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
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
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        let text = self.text.get();
        let tree = (text.len() <= PRETTY_LEN_MAX).then(|| serde_json::from_str::<Value>(text).ok());
        match tree.flatten() {
            Some(tree) => tree.serialize(to),
            None => self.text.serialize(to),
        }
    }
}

/// The members of a root without the topics, and the topics.
type Parts = (
    BTreeMap<String, Box<RawValue>>,
    BTreeMap<String, Box<RawValue>>,
);

/// Reads a table; `None` where there is none, or no JSON object.
fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Parts>> {
    let there = disk.stat(path).map_err(|e| Error::io(Op::Stat, path, e))?;
    let Some(there) = there else { return Ok(None) };
    if there.kind != Kind::File {
        let what = format!("{} is not a regular file", path.display());
        return Err(Error::Unsupported { what });
    }
    let too_much = |what: String| Err(Error::corrupt(path, 0, what));
    if there.len > TABLE_LEN_MAX {
        let len = there.len;
        return too_much(format!("it is {len} bytes long, limit {TABLE_LEN_MAX}"));
    }
    let bytes = read_small(disk, path, TABLE_LEN_MAX);
    let bytes = bytes.map_err(|e| Error::io(Op::Read, path, e))?;
    let Some(found) = bytes.and_then(|bytes| Members::<MEMBERS_MAX>::read(&bytes)) else {
        return Ok(None);
    };
    if found.more {
        return too_much(format!("its object has more than {MEMBERS_MAX} members"));
    }
    let mut root = found.map;
    let table = root.remove("topicConfigTable");
    let table = table.and_then(|text| Members::<TOPICS_MAX>::read(text.get().as_bytes()));
    let table = table.unwrap_or_default();
    match table.more {
        true => too_much(format!("it has more than {TOPICS_MAX} topics")),
        false => Ok(Some((root, table.map))),
    }
}

/// Gives the topic of an entry to `topics`; the numbers that it states, if it states them all.
fn apply(topics: &Topics, name: &str, text: &RawValue) -> Option<Numbers> {
    if !is_directory_name(name) {
        return None;
    }
    let members = members_of(text);
    let stated = NUMBER_NAMES.map(|name| members.get(name).and_then(|text| number(text)));
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

/// The members of an object; none of anything else, or of one that has too many.
fn members_of(text: &RawValue) -> BTreeMap<String, Box<RawValue>> {
    let found = Members::<MEMBERS_MAX>::read(text.get().as_bytes());
    found.filter(|found| !found.more).unwrap_or_default().map
}

fn number<T: std::str::FromStr>(text: &RawValue) -> Option<T> {
    text.get().parse().ok()
}
