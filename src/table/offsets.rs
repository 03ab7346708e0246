//! `config/consumerOffset.json`: how far groups have consumed, in RocketMQ's format.
//!
//! ```text
//! {"dataVersion":{...},"offsetTable":{"topic@group":{0:5,1:7}}}
//! ```
//!
//! A value is the next queue offset that the group consumes, or -1 if it has not begun. RocketMQ
//! writes the numbers of queues without quotes, but also reads them with quotes. Forebay writes the
//! quotes, so the file is strict JSON. For each group and topic it adds the log with which the
//! offsets were saved, to detect a log that came back shorter:
//!
//! ```text
//! "forebayLog":{"topic@group":{"began":1764000000000000000,"epoch":3,"position":73400320}}
//! ```

use super::json::{self, RawMembers};
use super::{
    Loaded, Reason, TABLE_LEN_MAX, load_with_backup, raise_version, replace_known,
    replace_with_backup,
};
use crate::disk::{Disk, read_small};
use crate::error::{At, Op, Result};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name of the table, in the directory of the tables.
pub const FILE_NAME: &str = "consumerOffset.json";
const OFFSETS: &str = "offsetTable";
/// The log with which the offsets were saved. RocketMQ ignores this member, and drops it when it
/// writes the table.
const PLACES: &str = "forebayLog";
/// RocketMQ derives this member from the offsets and does not read it.
const DERIVED: &str = "groupTopicMap";
/// Maximum number of members of the root.
const MEMBERS_MAX: usize = 1024;

/// Offsets by the number of their queue. Another system may have numbers that no queue has.
pub type Offsets = BTreeMap<i64, i64>;

/// Identifies a log, and states how far it was durable when offsets were saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the epoch.
    pub epoch: u64,
    /// When the epoch began, in ns since 1970.
    pub began_ns: u64,
    /// Durable end of the log.
    pub position: u64,
}

/// The table. Members that Forebay does not know are kept.
#[derive(Debug, Default)]
pub struct OffsetTable {
    path: PathBuf,
    /// The members of the root besides the offsets.
    root: RawMembers,
    /// By `topic@group`.
    offsets: BTreeMap<String, Offsets>,
    /// By `topic@group`, if Forebay saved its offsets last.
    places: BTreeMap<String, Place>,
    /// The text of the file that [`OffsetTable::save`] wrote last.
    text: Option<Vec<u8>>,
}

impl OffsetTable {
    /// Reads the table at `path`, or its backup.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`].
    pub fn load(disk: &dyn Disk, path: &Path) -> Result<Loaded<OffsetTable>> {
        load_with_backup(disk, path, |text| OffsetTable::parse(path, text))
    }

    fn parse(path: &Path, text: &[u8]) -> Result<OffsetTable, Reason> {
        json::check_values(text)?;
        let mut root = json::members::<MEMBERS_MAX>(text, "members")?;
        root.remove(DERIVED);
        let read = |text: Box<RawValue>| serde_json::from_str::<Option<_>>(text.get());
        let offsets = root.remove(OFFSETS).map(read).transpose();
        let offsets = offsets.map_err(Reason::unreadable)?.flatten();
        let places = root.remove(PLACES);
        let places = places.and_then(|text| serde_json::from_str(text.get()).ok());
        Ok(OffsetTable {
            path: path.to_owned(),
            root,
            offsets: offsets.unwrap_or_default(),
            places: places.map_or_else(BTreeMap::new, parse_places),
            text: None,
        })
    }

    /// Topic, group, queue and next offset, for all groups and queues.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str, u32, i64)> {
        self.offsets.iter().flat_map(|(name, offsets)| {
            // Neither topics nor groups have this character in their names.
            let (topic, group) = name.split_once('@').unwrap_or((name, ""));
            let offsets = offsets.iter();
            offsets.filter_map(move |(queue, offset)| {
                Some((topic, group, u32::try_from(*queue).ok()?, *offset))
            })
        })
    }
}

impl OffsetTable {
    /// The table at `path`; an empty one if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::Corrupt`] and [`Error::Unsupported`] if table and backup cannot be
    /// read: with an empty table every group would begin again.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<OffsetTable> {
        let found = OffsetTable::load(disk, path)?.table()?;
        Ok(found.unwrap_or_else(|| OffsetTable {
            path: path.to_owned(),
            root: RawMembers::new(),
            offsets: BTreeMap::new(),
            places: BTreeMap::new(),
            text: None,
        }))
    }

    /// Whether the file is as [`OffsetTable::save`] wrote it. Another process may have replaced it
    /// since.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn is_current(&self, disk: &dyn Disk) -> Result<bool> {
        match &self.text {
            Some(text) => Ok(read_small(disk, &self.path, TABLE_LEN_MAX)?.as_ref() == Some(text)),
            None => Ok(false),
        }
    }

    /// The next offset that a group consumes in a queue.
    pub fn get(&self, topic: &str, group: &str, queue: u32) -> Option<i64> {
        let offsets = self.offsets.get(&format!("{topic}@{group}"))?;
        offsets.get(&i64::from(queue)).copied()
    }

    /// The next offsets that a group consumes in the queues of a topic.
    pub fn offsets(&self, topic: &str, group: &str) -> Option<&Offsets> {
        self.offsets.get(&format!("{topic}@{group}"))
    }

    /// Topic, group, and the log with which their offsets were saved last, if it is known.
    pub fn places(&self) -> impl Iterator<Item = (&str, &str, Place)> {
        self.places.iter().map(|(name, place)| {
            let (topic, group) = name.split_once('@').unwrap_or((name, ""));
            (topic, group, *place)
        })
    }

    /// The log with which the offsets of one group in a topic were saved last.
    pub fn place(&self, topic: &str, group: &str) -> Option<Place> {
        self.places.get(&format!("{topic}@{group}")).copied()
    }

    /// Sets the next offsets that a group consumes in queues of a topic, and the log with which
    /// they are saved.
    pub fn set(
        &mut self,
        topic: &str,
        group: &str,
        offsets: impl IntoIterator<Item = (u32, i64)>,
        place: Option<Place>,
    ) {
        let name = format!("{topic}@{group}");
        match place {
            Some(place) => drop(self.places.insert(name.clone(), place)),
            None => drop(self.places.remove(&name)),
        }
        let offsets = offsets.into_iter();
        let known = self.offsets.entry(name).or_default();
        known.extend(offsets.map(|(queue, offset)| (i64::from(queue), offset)));
    }

    /// Writes the table durably, with `now_ms` as the time of the change; the previous file becomes
    /// the backup. The file is read again, unless the table [is current](OffsetTable::is_current).
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; the file then holds the previous table or this one.
    pub fn save(&mut self, disk: &dyn Disk, now_ms: i64) -> Result<()> {
        raise_version(&mut self.root, now_ms);
        match self.places.is_empty() {
            true => drop(self.root.remove(PLACES)),
            false => drop(
                self.root
                    .insert(PLACES.to_owned(), write_places(&self.places)),
            ),
        }
        let text = self.write().map_err(std::io::Error::other);
        let text = text.at(Op::Write, &self.path)?;
        match self.text.take() {
            Some(_) => replace_known(disk, &self.path, &text)?,
            None => replace_with_backup(disk, &self.path, &text)?,
        }
        self.text = Some(text);
        Ok(())
    }

    /// The text of the table, indented by tabs, with the members in the order of their names, as
    /// RocketMQ writes them. Offsets are by far the largest part, so they are written directly,
    /// which is faster than a general serializer.
    fn write(&self) -> serde_json::Result<Vec<u8>> {
        let mut text = Vec::with_capacity(self.text_len());
        text.extend_from_slice(b"{");
        let mut separator: &[u8] = b"\n\t";
        let mut next = |text: &mut Vec<u8>| {
            text.extend_from_slice(std::mem::replace(&mut separator, b",\n\t"));
        };
        for (name, value) in &self.root {
            if name.as_str() < OFFSETS {
                next(&mut text);
                write_member(&mut text, name, value)?;
            }
        }
        next(&mut text);
        self.write_offsets(&mut text)?;
        for (name, value) in &self.root {
            if name.as_str() > OFFSETS {
                next(&mut text);
                write_member(&mut text, name, value)?;
            }
        }
        text.extend_from_slice(b"\n}");
        Ok(text)
    }

    /// The approximate length of the text.
    fn text_len(&self) -> usize {
        let of_names = self.offsets.keys().map(|name| name.len() + 16);
        let of_offsets = self.offsets.values().map(|offsets| offsets.len() * 24);
        let others = self.root.iter();
        let others = others.map(|(name, value)| name.len() + value.get().len() + 16);
        of_names.chain(of_offsets).chain(others).sum()
    }

    fn write_offsets(&self, text: &mut Vec<u8>) -> serde_json::Result<()> {
        write_name(text, OFFSETS)?;
        text.push(b'{');
        for (number, (name, offsets)) in self.offsets.iter().enumerate() {
            let indent: &[u8] = match number {
                0 => b"\n\t\t",
                _ => b",\n\t\t",
            };
            text.extend_from_slice(indent);
            write_name(text, name)?;
            text.push(b'{');
            for (number, (queue, offset)) in offsets.iter().enumerate() {
                let indent: &[u8] = match number {
                    0 => b"\n\t\t\t\"",
                    _ => b",\n\t\t\t\"",
                };
                text.extend_from_slice(indent);
                serde_json::to_writer(&mut *text, queue)?;
                text.extend_from_slice(b"\": ");
                serde_json::to_writer(&mut *text, offset)?;
            }
            end_of(text, offsets.is_empty(), b"\n\t\t}");
        }
        end_of(text, self.offsets.is_empty(), b"\n\t}");
        Ok(())
    }
}

/// The places in a value; those that are malformed are left out.
fn parse_places(all: serde_json::Map<String, Value>) -> BTreeMap<String, Place> {
    let places = all.into_iter().filter_map(|(name, of)| {
        let field = |name: &str| of.get(name).and_then(Value::as_u64);
        let place = Place {
            epoch: field("epoch")?,
            began_ns: field("began")?,
            position: field("position")?,
        };
        Some((name, place))
    });
    places.collect()
}

fn write_places(places: &BTreeMap<String, Place>) -> Box<RawValue> {
    let of = |place: &Place| {
        json!({
            "began": place.began_ns,
            "epoch": place.epoch,
            "position": place.position,
        })
    };
    let all = places.iter().map(|(name, place)| (name.clone(), of(place)));
    json::raw(&Value::Object(all.collect()))
}

fn write_member(text: &mut Vec<u8>, name: &str, value: &RawValue) -> serde_json::Result<()> {
    write_name(text, name)?;
    text.extend_from_slice(value.get().as_bytes());
    Ok(())
}

fn write_name(text: &mut Vec<u8>, name: &str) -> serde_json::Result<()> {
    serde_json::to_writer(&mut *text, name)?;
    text.extend_from_slice(b": ");
    Ok(())
}

/// Ends an object, on a line of its own unless the object is empty.
fn end_of(text: &mut Vec<u8>, is_empty: bool, end: &[u8]) {
    match is_empty {
        true => text.push(b'}'),
        false => text.extend_from_slice(end),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
    use crate::error::Error;
    use std::fs;

    /// As RocketMQ 5.5.0 writes it: names of queues without quotes, derived and unknown members.
    const OF_ROCKETMQ: &str = "{\n\t\"dataVersion\":{\n\t\t\"counter\":41,\n\t\t\
        \"stateVersion\":2,\n\t\t\"timestamp\":1795214956880\n\t},\n\t\
        \"groupTopicMap\":{\"G\":[\"T\"]},\n\t\"offsetTable\":{\n\t\t\
        \"%RETRY%G@G\":{0:-1},\n\t\t\"T@G\":{0:5,1:7\n\t\t}\n\t},\n\t\
        \"pullOffsetTable\":{\"T@G\":{3:9}}\n}";

    fn folder(text: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE_NAME), text).unwrap();
        folder
    }

    fn text_of(folder: &tempfile::TempDir, name: &str) -> String {
        fs::read_to_string(folder.path().join(name)).unwrap()
    }

    #[test]
    fn offsets_are_written_as_rocketmq_reads_them() {
        let folder = folder(OF_ROCKETMQ);
        let mut table = OffsetTable::open(&RealDisk, &folder.path().join(FILE_NAME)).unwrap();
        let found: Vec<_> = table.all().collect();
        assert_eq!(
            found,
            [("%RETRY%G", "G", 0, -1), ("T", "G", 0, 5), ("T", "G", 1, 7)]
        );
        assert_eq!(table.get("T", "G", 1), Some(7));
        assert_eq!(table.get("T", "G", 2), None);
        table.set("T", "G", [(1, 8)], None);
        table.set("T", "other", [(10, i64::MAX)], None);
        table.save(&RealDisk, 1_795_214_960_000).unwrap();
        assert_eq!(text_of(&folder, "consumerOffset.json.bak"), OF_ROCKETMQ);
        let written = text_of(&folder, FILE_NAME);
        // Strict JSON, with quotes, which needs no leniency of `parse`.
        let value: serde_json::Value = serde_json::from_str(&written).unwrap();
        let expected = serde_json::json!({
            "dataVersion": {"counter": 42, "stateVersion": 2, "timestamp": 1_795_214_960_000_i64},
            "offsetTable": {
                "%RETRY%G@G": {"0": -1},
                "T@G": {"0": 5, "1": 8},
                "T@other": {"10": i64::MAX},
            },
            "pullOffsetTable": {"T@G": {"3": 9}},
        });
        assert_eq!(value, expected);
        let at = |name: &str| written.find(name).unwrap();
        assert!(at("dataVersion") < at("offsetTable") && at("offsetTable") < at("pullOffset"));
        assert!(written.contains("\n\t\"offsetTable\": {\n\t\t\"%RETRY%G@G\""));
        let again = OffsetTable::open(&RealDisk, &folder.path().join(FILE_NAME)).unwrap();
        assert!(again.all().eq(table.all()));
    }

    #[test]
    fn a_table_that_is_not_there_is_empty_and_begins_with_version_one() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config");
        let mut table = OffsetTable::open(&RealDisk, &config.join(FILE_NAME)).unwrap();
        assert_eq!(table.all().count(), 0);
        table.set("T", "G", [(0, 1)], None);
        table.save(&RealDisk, 7).unwrap();
        let value: serde_json::Value =
            serde_json::from_slice(&fs::read(config.join(FILE_NAME)).unwrap()).unwrap();
        let version = serde_json::json!({"counter": 1, "stateVersion": 0, "timestamp": 7});
        assert_eq!(value["dataVersion"], version);
        assert!(!config.join("consumerOffset.json.bak").exists());
    }

    #[test]
    fn numbers_that_no_queue_has_are_passed_over_and_kept() {
        let folder = folder(r#"{"offsetTable":{"T@G":{-1:3,4294967296:4,2:5},"T":{0:6}}}"#);
        let mut table = OffsetTable::open(&RealDisk, &folder.path().join(FILE_NAME)).unwrap();
        let found: Vec<_> = table.all().collect();
        assert_eq!(found, [("T", "", 0, 6), ("T", "G", 2, 5)]);
        table.save(&RealDisk, 0).unwrap();
        let written = text_of(&folder, FILE_NAME);
        assert!(written.contains(r#""-1": 3"#) && written.contains(r#""4294967296": 4"#));
    }

    #[test]
    fn what_is_no_table_of_offsets_is_an_error_that_says_where_and_why() {
        for (text, why) in [
            ("", "EOF"),
            ("[]", "expected an object"),
            (r#"{"offsetTable":[]}"#, "expected a map"),
            (r#"{"offsetTable":{"T@G":5}}"#, "expected a map"),
            (r#"{"offsetTable":{"T@G":{"x":5}}}"#, "x"),
            (r#"{"offsetTable":{"T@G":{0:"5"}}}"#, "expected i64"),
            (r#"{"offsetTable":{"T@G":{0:1.5}}}"#, "expected i64"),
            (
                r#"{"offsetTable":{"T@G":{0:9223372036854775808}}}"#,
                "expected i64",
            ),
            (r#"{"offsetTable":{"T@G":{0:5}"#, "EOF"),
        ] {
            let folder = folder(text);
            let error = OffsetTable::open(&RealDisk, &folder.path().join(FILE_NAME)).unwrap_err();
            let said = error.to_string();
            assert!(
                said.contains(FILE_NAME) && said.contains(why),
                "{text}: {said}"
            );
            assert!(matches!(error, Error::Corrupt { .. }));
            fs::write(folder.path().join("consumerOffset.json.bak"), OF_ROCKETMQ).unwrap();
            let table = OffsetTable::open(&RealDisk, &folder.path().join(FILE_NAME)).unwrap();
            assert_eq!(table.get("T", "G", 0), Some(5), "{text}");
        }
        for text in ["{}", r#"{"offsetTable":null}"#] {
            let table = OffsetTable::open(&RealDisk, &folder(text).path().join(FILE_NAME)).unwrap();
            assert_eq!(table.all().count(), 0);
        }
    }

    #[test]
    fn a_table_of_too_many_values_is_an_error_even_with_a_backup() {
        let many = "0:1,".repeat(json::VALUES_MAX / 2);
        let folder = folder(&format!(r#"{{"offsetTable":{{"T@G":{{{many}1:2}}}}}}"#));
        fs::write(folder.path().join("consumerOffset.json.bak"), OF_ROCKETMQ).unwrap();
        let error = OffsetTable::open(&RealDisk, &folder.path().join(FILE_NAME)).unwrap_err();
        assert!(
            error.to_string().contains("more than 4194304 values"),
            "{error}"
        );
    }
}
