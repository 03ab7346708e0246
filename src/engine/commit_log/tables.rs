//! Small files beside the log: the table of topics, the next offsets.

use super::consume_queue::QUEUES_MAX;
use super::dispatch::{OFFSET_MAX, is_directory_name};
use crate::disk::{Disk, Kind, read_small, replace};
use crate::engine::Topics;
use crate::error::{Error, Result};
use crate::record::check::check_topic;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The longest table that is read.
pub(super) const TABLE_LEN_MAX: u64 = 256 << 20;

/// `config/topics.json`, as RocketMQ keeps it. What Forebay does not know stays in it.
#[derive(Debug)]
pub struct TopicTable {
    path: PathBuf,
    root: Value,
}

impl TopicTable {
    /// Reads the table of the store at `root` and gives its topics to `topics`. Where the file is
    /// missing, empty or no JSON, its backup is read, as RocketMQ does; where both are, the table
    /// is empty.
    pub fn load(disk: &dyn Disk, root: &Path, topics: &Topics) -> Result<TopicTable> {
        let path = root.join("config").join("topics.json");
        let backup = root.join("config").join("topics.json.bak");
        let read = |path: &Path| -> Result<Option<Value>> {
            let there = disk.look(path).map_err(|e| Error::io("look at", path, e))?;
            if there.is_some_and(|entry| entry.kind != Kind::File) {
                let what = format!("{} is not a regular file", path.display());
                return Err(Error::Unsupported { what });
            }
            let bytes = read_small(disk, path, TABLE_LEN_MAX);
            let bytes = bytes.map_err(|e| Error::io("read", path, e))?;
            let value = bytes.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
            Ok(value.filter(Value::is_object))
        };
        let found = match read(&path)? {
            Some(value) => Some(value),
            None => read(&backup)?,
        };
        let table = TopicTable {
            path,
            root: found.unwrap_or_else(|| json!({})),
        };
        table.apply(topics);
        Ok(table)
    }

    fn apply(&self, topics: &Topics) {
        let entries = self.root.get("topicConfigTable").and_then(Value::as_object);
        for (name, entry) in entries.into_iter().flatten() {
            if !is_directory_name(name) {
                continue;
            }
            let number = |field: &str, default: u32| {
                let value = entry.get(field).and_then(Value::as_u64);
                value.map_or(default, |value| value.min(65_536) as u32)
            };
            let queues = number("writeQueueNums", 1);
            let (topic, _) = topics.get_or_add(name, queues);
            topic.configure(queues, number("readQueueNums", queues), number("perm", 6));
        }
    }

    /// Whether the table has an entry for a topic.
    pub fn knows(&self, name: &str) -> bool {
        self.root
            .get("topicConfigTable")
            .is_some_and(|table| table.get(name).is_some())
    }

    /// Brings the table up to what the topics are now.
    pub fn update(&mut self, topics: &Topics, now_ms: i64) {
        let root = as_object(&mut self.root);
        let entries = as_object(root.entry("topicConfigTable").or_insert_with(|| json!({})));
        for topic in topics.all() {
            let fresh = || {
                json!({
                    "attributes": {}, "order": false, "perm": 6, "topicFilterType": "SINGLE_TAG",
                    "topicName": &*topic.name, "topicSysFlag": 0,
                })
            };
            let system = check_topic(&topic.name).is_err() && !entries.contains_key(&*topic.name);
            if system {
                continue;
            }
            let entry = as_object(entries.entry(&*topic.name).or_insert_with(fresh));
            entry.insert("readQueueNums".to_owned(), topic.read_queues().into());
            entry.insert("writeQueueNums".to_owned(), topic.write_queues().into());
            entry.insert("perm".to_owned(), topic.permissions().into());
        }
        let version = as_object(root.entry("dataVersion").or_insert_with(|| json!({})));
        let counter = version.get("counter").and_then(Value::as_i64).unwrap_or(0);
        version.insert("counter".to_owned(), (counter + 1).into());
        version.entry("stateVersion").or_insert_with(|| 0.into());
        version.insert("timestamp".to_owned(), now_ms.into());
    }

    /// Writes the table, durably; the one before stays as the backup, if it could be read.
    pub fn save(&self, disk: &dyn Disk) -> Result<()> {
        let io = |error| Error::io("write", &self.path, error);
        let directory = self.path.parent().unwrap_or(Path::new("."));
        disk.create_directory(directory).map_err(io)?;
        // A table that cannot be read would take the place of a backup that can.
        let old = read_small(disk, &self.path, TABLE_LEN_MAX).map_err(io)?;
        if let Some(old) = old.filter(|old| serde_json::from_slice::<Value>(old).is_ok()) {
            replace(disk, &self.path.with_extension("json.bak"), &old).map_err(io)?;
        }
        let mut text = Vec::new();
        let tabs = serde_json::ser::PrettyFormatter::with_indent(b"\t");
        let mut writer = serde_json::Serializer::with_formatter(&mut text, tabs);
        let written = serde::Serialize::serialize(&self.root, &mut writer);
        written.map_err(|e| io(std::io::Error::other(e)))?;
        replace(disk, &self.path, &text).map_err(io)
    }
}

fn as_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    let Value::Object(map) = value else {
        unreachable!("it was just made one")
    };
    map
}

/// `forebay.offsets`: the bounds of every queue and the index files, as of a position of the log.
/// It is written on each full flush and on close.
///
/// The log tells everything else; only the next offset of a queue whose messages are all retired
/// stands nowhere else. On opening it also tells which caches are missing. Text, a line each:
///
/// ```text
/// forebay.offsets 1
/// position <end of the log>
/// queue <topic> <queue> <first offset> <next offset>
/// index <file name> <number of its next entry>
/// unindexed                                        where its writer knew of no index
/// crc <CRC-32 of all lines above, 8 hex digits>
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// End of the log when it was taken.
    pub position: u64,
    /// Topic, queue, first offset, next offset.
    pub queues: Vec<(String, u32, u64, u64)>,
    /// Name of each index file, number of its next entry; `None` where that is not known.
    pub index: Option<Vec<(String, u32)>>,
}

/// Name of the file.
pub(super) const INVENTORY_NAME: &str = "forebay.offsets";

impl Inventory {
    /// Reads it; `None` where there is none that holds.
    pub fn load(disk: &dyn Disk, root: &Path) -> Result<Option<Inventory>> {
        let path = root.join(INVENTORY_NAME);
        let bytes = read_small(disk, &path, TABLE_LEN_MAX);
        let bytes = bytes.map_err(|e| Error::io("read", &path, e))?;
        Ok(bytes.and_then(|bytes| Inventory::parse(&bytes)))
    }

    fn parse(bytes: &[u8]) -> Option<Inventory> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (body, crc) = text.trim_end().rsplit_once("crc ")?;
        if u32::from_str_radix(crc, 16).ok()? != crc32fast::hash(body.as_bytes()) {
            return None;
        }
        let mut lines = body.lines();
        (lines.next()? == "forebay.offsets 1").then_some(())?;
        let mut inventory = Inventory {
            index: Some(Vec::new()),
            ..Inventory::default()
        };
        for line in lines {
            let fields: Vec<&str> = line.split(' ').collect();
            match *fields.as_slice() {
                ["position", at] => inventory.position = at.parse().ok()?,
                ["queue", topic, id, min, next] => {
                    let (min, next) = (min.parse().ok()?, next.parse().ok()?);
                    let id = id.parse().ok().filter(|id| *id < QUEUES_MAX)?;
                    if !is_directory_name(topic) || min > next || next >= OFFSET_MAX {
                        return None;
                    }
                    inventory.queues.push((topic.to_owned(), id, min, next));
                }
                ["index", name, count] => {
                    let file = (name.to_owned(), count.parse().ok()?);
                    inventory.index.as_mut()?.push(file);
                }
                ["unindexed"] => inventory.index = None,
                _ => return None,
            }
        }
        Some(inventory)
    }

    /// Writes it, durably.
    pub fn save(&self, disk: &Arc<dyn Disk>, root: &Path) -> Result<()> {
        use std::fmt::Write;
        let path = root.join(INVENTORY_NAME);
        let mut text = format!("forebay.offsets 1\nposition {}\n", self.position);
        for (topic, queue, min, next) in &self.queues {
            let _ = writeln!(text, "queue {topic} {queue} {min} {next}");
        }
        for (name, count) in self.index.iter().flatten() {
            let _ = writeln!(text, "index {name} {count}");
        }
        if self.index.is_none() {
            text.push_str("unindexed\n");
        }
        let crc = crc32fast::hash(text.as_bytes());
        let _ = writeln!(text, "crc {crc:08x}");
        let written = replace(&**disk, &path, text.as_bytes());
        written.map_err(|e| Error::io("write", &path, e))
    }
}
