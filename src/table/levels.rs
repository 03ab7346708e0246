//! `config/delayOffset.json`: how far delayed messages are delivered, in RocketMQ's format.
//!
//! ```text
//! {"dataVersion":{...},"offsetTable":{1:10,3:7}}
//! ```
//!
//! A name is a delay level, from 1 on; its value is the next offset of the level's queue in the
//! schedule topic.

use super::json::{self, RawMembers, raw};
use super::{Reason, load_with_backup, raise_version, replace_with_backup};
use crate::disk::Disk;
use crate::error::{At, Op, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name of the table, in the directory of the tables.
pub const FILE_NAME: &str = "delayOffset.json";
const OFFSETS: &str = "offsetTable";
/// Maximum number of members of the root.
const MEMBERS_MAX: usize = 1024;

/// The table. Members that Forebay does not know are kept.
#[derive(Debug, Default)]
pub struct LevelTable {
    path: PathBuf,
    root: RawMembers,
    offsets: BTreeMap<i64, i64>,
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
        Ok(LevelTable {
            path: path.to_owned(),
            root,
            offsets: offsets.flatten().unwrap_or_default(),
        })
    }

    /// The next offset of a level.
    pub fn get(&self, level: u32) -> Option<u64> {
        u64::try_from(*self.offsets.get(&i64::from(level))?).ok()
    }

    /// Sets the next offset of a level.
    pub fn set(&mut self, level: u32, offset: u64) {
        self.offsets.insert(i64::from(level), offset.cast_signed());
    }

    /// Writes the table durably, with `now_ms` as the time of the change; the previous file becomes
    /// the backup.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; the file then holds the previous table or this one.
    pub fn save(&mut self, disk: &dyn Disk, now_ms: i64) -> Result<()> {
        raise_version(&mut self.root, now_ms);
        let mut root = self.root.clone();
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
        table.set(2, 5);
        table.save(&RealDisk, 9).unwrap();
        let text = std::fs::read(&path).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let expected = serde_json::json!({
            "dataVersion": {"counter": 5, "stateVersion": 0, "timestamp": 9},
            "more": [1],
            "offsetTable": {"1": 10, "2": 5, "3": 7},
        });
        assert_eq!(value, expected);
    }
}
