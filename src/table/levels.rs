//! `config/delayOffset.json`: how far delayed messages are delivered, in RocketMQ's format.
//!
//! ```text
//! {"dataVersion":{...},"offsetTable":{1:10,3:7}}
//! ```
//!
//! A name is a delay level, from 1 on; its value is the next offset of the level's queue in the
//! schedule topic. Forebay adds the epoch of the log in which it saved the offsets, to detect those
//! of a longer log:
//!
//! ```text
//! "forebayLog":{"began":1764000000000000000,"epoch":3}
//! ```

use super::json::{self, RawMembers, raw};
use super::{Reason, load_with_backup, raise_version, replace_with_backup};
use crate::disk::Disk;
use crate::error::{At, Op, Result};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name of the table, in the directory of the tables.
pub const FILE_NAME: &str = "delayOffset.json";
const OFFSETS: &str = "offsetTable";
/// The epoch in which the offsets were saved. RocketMQ ignores this member, and drops it when it
/// writes the table.
const LOG: &str = "forebayLog";
/// Maximum number of members of the root.
const MEMBERS_MAX: usize = 1024;

/// The table. Members that Forebay does not know are kept.
#[derive(Debug, Default)]
pub struct LevelTable {
    path: PathBuf,
    root: RawMembers,
    offsets: BTreeMap<i64, i64>,
    saved_in: Option<SavedIn>,
}

/// The epoch of the log in which a table was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedIn {
    /// When the epoch began, in ns since 1970.
    pub began_ns: u64,
    /// Its number.
    pub epoch: u64,
}

impl SavedIn {
    fn of(members: &Map<String, Value>) -> Option<SavedIn> {
        let number = |name: &str| members.get(name).and_then(Value::as_u64);
        Some(SavedIn {
            began_ns: number("began")?,
            epoch: number("epoch")?,
        })
    }
}

impl LevelTable {
    /// The table at `path`, or its backup; an empty one if there is neither.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::Corrupt`] and [`Error::Unsupported`] if they cannot be read: with an
    /// empty table all delayed messages would be delivered again.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<LevelTable> {
        let parse = |text: &[u8]| LevelTable::parse(path, text);
        let found = load_with_backup(disk, path, parse)?.table()?;
        Ok(found.unwrap_or_else(|| LevelTable {
            path: path.to_owned(),
            ..LevelTable::default()
        }))
    }

    fn parse(path: &Path, text: &[u8]) -> std::result::Result<LevelTable, Reason> {
        let mut root = json::members::<MEMBERS_MAX>(text, "members")?;
        let offsets = root.remove(OFFSETS);
        let offsets = offsets.map(|text| serde_json::from_str::<Option<_>>(text.get()));
        let offsets = offsets.transpose().map_err(Reason::unreadable)?;
        let saved_in = root.remove(LOG);
        let saved_in = saved_in.and_then(|text| serde_json::from_str(text.get()).ok());
        let saved_in = saved_in.and_then(|members| SavedIn::of(&members));
        Ok(LevelTable {
            path: path.to_owned(),
            root,
            offsets: offsets.flatten().unwrap_or_default(),
            saved_in,
        })
    }

    /// The epoch in which Forebay saved the table; `None` if another system saved it last.
    pub fn saved_in(&self) -> Option<SavedIn> {
        self.saved_in
    }

    /// All levels, and the next offset of each.
    pub fn all(&self) -> Vec<(u32, u64)> {
        let offsets = self.offsets.iter();
        let known = offsets.filter_map(|(level, offset)| {
            let level = u32::try_from(*level).ok().filter(|level| *level > 0)?;
            Some((level, u64::try_from(*offset).ok()?))
        });
        known.collect()
    }

    /// The next offset of a level.
    pub fn get(&self, level: u32) -> Option<u64> {
        u64::try_from(*self.offsets.get(&i64::from(level))?).ok()
    }

    /// Sets the next offset of a level.
    pub fn set(&mut self, level: u32, offset: u64) {
        self.offsets.insert(i64::from(level), offset.cast_signed());
    }

    /// Writes the table durably, as one of the epoch `saved_in`, with `now_ms` as the time of the
    /// change; the previous file becomes the backup.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; the file then holds the previous table or this one.
    pub fn save(&mut self, disk: &dyn Disk, saved_in: Option<SavedIn>, now_ms: i64) -> Result<()> {
        raise_version(&mut self.root, now_ms);
        self.saved_in = saved_in;
        let mut root = self.root.clone();
        if let Some(SavedIn { began_ns, epoch }) = saved_in {
            let members = json!({"began": began_ns, "epoch": epoch});
            root.insert(LOG.to_owned(), raw(&members));
        }
        root.insert(OFFSETS.to_owned(), raw(&self.offsets));
        let text = json::pretty(&root).map_err(std::io::Error::other);
        let text = text.at(Op::Write, &self.path)?;
        replace_with_backup(disk, &self.path, &text)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;

    #[test]
    fn levels_are_written_as_rocketmq_reads_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let before = r#"{"dataVersion":{"counter":4},"offsetTable":{1:10,3:7},"more":[1]}"#;
        std::fs::write(&path, before).unwrap();
        let mut table = LevelTable::open(&RealDisk, &folder.path().join(FILE_NAME)).unwrap();
        assert_eq!(
            (table.get(1), table.get(2), table.get(3)),
            (Some(10), None, Some(7))
        );
        assert_eq!(table.all(), [(1, 10), (3, 7)]);
        assert_eq!(table.saved_in(), None);
        table.set(2, 5);
        let saved_in = SavedIn {
            began_ns: 8,
            epoch: 3,
        };
        table.save(&RealDisk, Some(saved_in), 9).unwrap();
        let text = std::fs::read(&path).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let expected = serde_json::json!({
            "dataVersion": {"counter": 5, "stateVersion": 0, "timestamp": 9},
            "forebayLog": {"began": 8, "epoch": 3},
            "more": [1],
            "offsetTable": {"1": 10, "2": 5, "3": 7},
        });
        assert_eq!(value, expected);
        let mut again = LevelTable::open(&RealDisk, &path).unwrap();
        assert_eq!(again.saved_in(), Some(saved_in));
        again.save(&RealDisk, None, 10).unwrap();
        assert!(!std::fs::read_to_string(&path).unwrap().contains(LOG));
    }
}
