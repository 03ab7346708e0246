//! `forebay.delay`: which messages with a delivery time are delivered.
//!
//! ```text
//! {"crc32":1234,"delivered_ms":1795216143335,"end":90,"low":17,"position":51200}
//! ```
//!
//! No message with an offset below `low` of the timer topic waits. Of those below `end`, none with
//! a time at or before `delivered_ms` waits. The deliveries of all other messages begin at or after
//! `position` of the log.
//!
//! A member `aside` lists the offsets of further messages that wait because their topic was
//! refused; without any, the member is missing.
//!
//! The table is a cache: without it the whole log is searched for deliveries.

use super::{json, load};
use crate::disk::{Disk, replace};
use crate::error::Result;
use serde_json::{Map, Value};
use std::path::Path;

/// Maximum length of the file, in bytes.
const LEN_MAX: u64 = 1 << 20;

/// The table; see the module. The default means that nothing is known to be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerTable {
    /// No message below this offset waits.
    pub low: u64,
    /// The table covers messages below this offset.
    pub end: u64,
    /// Covered messages with this time or an earlier one are delivered.
    pub delivered_ms: i64,
    /// The position of the log from which on all other deliveries are.
    pub position: u64,
    /// Offsets of messages that still wait although `low` or `delivered_ms` covers them.
    pub aside: Vec<u64>,
}

impl Default for TimerTable {
    fn default() -> TimerTable {
        TimerTable {
            low: 0,
            end: 0,
            delivered_ms: i64::MIN,
            position: 0,
            aside: Vec::new(),
        }
    }
}

impl TimerTable {
    /// Reads the table at `path`; the default if it is missing or damaged.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`].
    pub fn load(disk: &dyn Disk, path: &Path) -> Result<TimerTable> {
        let members = load(disk, path, LEN_MAX, json::object)?.sound();
        let table = members.and_then(|members| TimerTable::of(&members));
        Ok(table.unwrap_or_default())
    }

    fn of(members: &Map<String, Value>) -> Option<TimerTable> {
        let number = |name: &str| members.get(name).and_then(Value::as_u64);
        let aside = match members.get("aside") {
            Some(offsets) => {
                let offsets = offsets.as_array()?.iter();
                offsets.map(Value::as_u64).collect::<Option<_>>()?
            }
            None => Vec::new(),
        };
        let table = TimerTable {
            low: number("low")?,
            end: number("end")?,
            delivered_ms: members.get("delivered_ms")?.as_i64()?,
            position: number("position")?,
            aside,
        };
        (number("crc32")? == u64::from(table.checksum())).then_some(table)
    }

    fn checksum(&self) -> u32 {
        let fields = [
            self.low,
            self.end,
            self.delivered_ms.cast_unsigned(),
            self.position,
        ];
        let mut hasher = crc32fast::Hasher::new();
        let fields = fields.iter().chain(&self.aside);
        fields.for_each(|field| hasher.update(&field.to_be_bytes()));
        hasher.finalize()
    }

    /// Whether the table says of a message that it is delivered.
    pub fn has_delivered(&self, at_ms: i64, offset: u64) -> bool {
        offset < self.end && at_ms <= self.delivered_ms
    }

    /// Writes the table, durably.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`]; the file then holds the previous table or this one.
    pub fn save(&self, disk: &dyn Disk, path: &Path) -> Result<()> {
        let mut text = serde_json::json!({
            "crc32": self.checksum(),
            "delivered_ms": self.delivered_ms,
            "end": self.end,
            "low": self.low,
            "position": self.position,
        });
        if let (false, Some(members)) = (self.aside.is_empty(), text.as_object_mut()) {
            members.insert("aside".to_owned(), self.aside.clone().into());
        }
        replace(disk, path, text.to_string().as_bytes())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
    use std::fs;

    #[test]
    fn a_table_is_read_as_it_was_written_and_a_damaged_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("forebay.delay");
        let read = || TimerTable::load(&RealDisk, &path).unwrap();
        assert_eq!(read(), TimerTable::default());
        let mut table = TimerTable {
            low: 17,
            end: 90,
            delivered_ms: i64::MAX,
            position: 51_200,
            aside: Vec::new(),
        };
        table.save(&RealDisk, &path).unwrap();
        assert_eq!(read(), table);
        assert!(!fs::read_to_string(&path).unwrap().contains("aside"));
        table.aside = vec![3, 21];
        table.save(&RealDisk, &path).unwrap();
        assert_eq!(read(), table);
        let text = fs::read_to_string(&path).unwrap();
        for damaged in [
            "",
            "{}",
            "[1]",
            &text.replace("17", "18"),
            &text.replace("90", "-1"),
            &text.replace("21", "22"),
            &text.replace("[3,21]", "[3,-21]"),
            &text.replace("[3,21]", "7"),
        ] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(read(), TimerTable::default(), "{damaged}");
        }
    }
}
