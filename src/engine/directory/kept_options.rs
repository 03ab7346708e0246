//! `forebay.options`: the options that a store saves.
//!
//! ```text
//! {"checksum":true,"default_queues":2,"delay_levels":"1s 10s 1m","flush":"sync","index":false,
//!  "max_message_size":4194304,"unique_ids":false}
//! {"compression":"zstd","default_queues":2,"segment_bytes":67108864}
//! ```
//!
//! The file has the latest value of each option that was given when the store was opened for
//! writing. An opening for writing without one of these options uses the saved value, else the
//! default. So a process that opens the store for a moment, for example to append a commit, writes
//! as its owner does. Unknown members are left unchanged.
//!
//! A damaged file does not prevent opening: unreadable parts are reported and ignored.

use super::names;
use crate::damage::{Damage, DamageKind};
use crate::disk::{Disk, replace};
use crate::error::{Error, Result};
use crate::options::{
    Compression, DEFAULT_QUEUES, DelayLevels, EngineKind, Flush, INDEX_INTERVAL_BYTES,
    MAX_MESSAGE_SIZE, Options, SEGMENT_BYTES, SEGMENT_INDEX_BYTES, SEGMENT_MS, TimestampType,
};
use crate::table::{Loaded, json, load};
use crate::warning::{Warning, Warnings};
use serde_json::{Map, Value};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Name of the file.
pub const FILE_NAME: &str = names::OPTIONS;
/// Maximum length of the file.
const LEN_MAX: u64 = 64 << 10;

/// The options for an opening for writing.
pub struct Kept {
    /// The options; those not given have their saved values.
    pub options: Options,
    /// The parts of the file that could not be used.
    pub damage: Option<Damage>,
    path: PathBuf,
    /// The members of the file, updated with the given options.
    members: Map<String, Value>,
    /// Whether they differ from those in the file.
    changed: bool,
    /// Members whose values are invalid.
    unusable: Vec<&'static str>,
}

impl Kept {
    /// Reads the saved options of the store of `engine` at `root`. Options in `given` take
    /// precedence.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if an option is out of range, or contradicts another that is given
    /// or saved.
    pub fn load(disk: &dyn Disk, root: &Path, given: &Options, engine: EngineKind) -> Result<Kept> {
        let path = root.join(FILE_NAME);
        let mut flaw = None;
        let before = match read(disk, &path)? {
            Loaded::Table(members) => members,
            Loaded::Nothing => Map::new(),
            Loaded::Damaged(_, reason) => {
                flaw = Some(format!(
                    "not a table of options ({reason}): the defaults are used; pass the options \
                     of the store to forebay.open once, or remove the file to keep the defaults"
                ));
                Map::new()
            }
        };
        let mut options = given.clone();
        let mut merge = Merge {
            members: before.clone(),
            unusable: Vec::new(),
        };
        merge.all(&mut options, engine);
        if !merge.unusable.is_empty() {
            let names = merge.unusable.join(", ");
            flaw = Some(format!(
                "invalid value for {names}: the default is used; pass a value to forebay.open \
                 once, which replaces the invalid one"
            ));
        }
        options.check()?;
        Ok(Kept {
            options,
            damage: flaw.map(|reason| damage(&path, reason)),
            changed: merge.members != before,
            members: merge.members,
            unusable: merge.unusable,
            path,
        })
    }

    /// Checks that the given options equal those of the file, which other processes use.
    ///
    /// # Errors
    ///
    /// `InvalidOption` with both values.
    pub fn agree(&self, disk: &dyn Disk) -> Result<()> {
        let before = read(disk, &self.path)?.sound().unwrap_or_default();
        let word = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
        let mut members = self.members.iter();
        let Some((name, given)) = members.find(|(name, value)| before.get(*name) != Some(*value))
        else {
            return Ok(());
        };
        let theirs = match before.get(name) {
            Some(value) => format!("have {}", word(value)),
            None => "do not set it".to_owned(),
        };
        let reason = format!("the processes that share the store {theirs}");
        Err(Error::option(name, word(given), reason))
    }

    /// Durably saves given options that are not in the file. A store can be opened on a full disk:
    /// the file is then left unchanged, with a warning.
    pub fn save(&self, disk: &dyn Disk, warnings: &Warnings) -> Result<()> {
        if !self.changed {
            return Ok(());
        }
        match self.write(disk) {
            Err(error) if error.is_out_of_room() => {
                let (path, reason) = (self.path.clone(), error.reason());
                warnings.add(Warning::NotKept { path, reason });
                Ok(())
            }
            written => written,
        }
    }

    fn write(&self, disk: &dyn Disk) -> Result<()> {
        let text = Value::Object(self.members.clone()).to_string();
        replace(disk, &self.path, text.as_bytes())
    }
}

fn damage(path: &Path, reason: String) -> Damage {
    Damage::new(DamageKind::Options, path, 0..0, reason)
}

/// The members of the file.
fn read(disk: &dyn Disk, path: &Path) -> Result<Loaded<Map<String, Value>>> {
    load(disk, path, LEN_MAX, json::object)
}

/// What is wrong with the file.
pub fn flaw(disk: &dyn Disk, root: &Path, engine: EngineKind) -> Result<Option<String>> {
    let kept = Kept::load(disk, root, &Options::default(), engine)?;
    Ok(kept.damage.map(|damage| damage.reason))
}

/// What [`mend`] does.
pub const MENDED: &str = "rewritten with the options that could be read";

/// Durably rewrites the file with its usable members.
pub fn mend(disk: &dyn Disk, root: &Path, engine: EngineKind) -> Result<()> {
    let mut kept = Kept::load(disk, root, &Options::default(), engine)?;
    for name in &kept.unusable {
        kept.members.remove(*name);
    }
    kept.write(disk)
}

/// Merges options and members of the file.
struct Merge {
    members: Map<String, Value>,
    /// Names of the members whose values are invalid.
    unusable: Vec<&'static str>,
}

impl Merge {
    fn all(&mut self, options: &mut Options, engine: EngineKind) {
        let to_queues = |it: &Value| {
            let queues = u32::try_from(it.as_u64()?).ok()?;
            DEFAULT_QUEUES.contains(&queues).then_some(queues)
        };
        let to_size = |it: &Value| {
            let size = usize::try_from(it.as_u64()?).ok()?;
            MAX_MESSAGE_SIZE.contains(&size).then_some(size)
        };
        let (queues, size) = (&mut options.default_queues, &mut options.max_message_size);
        self.one("default_queues", queues, to_queues);
        self.one("max_message_size", size, to_size);
        self.one("flush", &mut options.flush, |it| Flush::of(it.as_str()?));
        let to_levels = |it: &Value| DelayLevels::parse(it.as_str()?);
        self.one("delay_levels", &mut options.delay_levels, to_levels);
        match engine {
            EngineKind::PartitionLog => self.of_segments(options),
            EngineKind::CommitLog | EngineKind::Memory => {
                self.one("index", &mut options.index, Value::as_bool);
                self.one("checksum", &mut options.checksum, Value::as_bool);
                self.one("unique_ids", &mut options.unique_ids, Value::as_bool);
            }
        }
    }

    /// The options that only partition logs have, except those of compaction: each opening decides
    /// what is removed.
    fn of_segments(&mut self, options: &mut Options) {
        let mut number = |name, option: &mut Option<u64>, range: RangeInclusive<u64>| {
            self.one(name, option, |it| it.as_u64().filter(|n| range.contains(n)));
        };
        number("segment_bytes", &mut options.segment_bytes, SEGMENT_BYTES);
        number("segment_ms", &mut options.segment_ms, SEGMENT_MS);
        let interval = &mut options.index_interval_bytes;
        number("index_interval_bytes", interval, INDEX_INTERVAL_BYTES);
        let index = &mut options.segment_index_bytes;
        number("segment_index_bytes", index, SEGMENT_INDEX_BYTES);
        let to_codec = |it: &Value| Compression::of(it.as_str()?);
        self.one("compression", &mut options.compression, to_codec);
        let to_type = |it: &Value| TimestampType::of(it.as_str()?);
        let timestamps = &mut options.message_timestamp_type;
        self.one("message_timestamp_type", timestamps, to_type);
    }

    /// A given value is put into the file; otherwise the file's value is used.
    fn one<T: Clone + Into<Value>>(
        &mut self,
        name: &'static str,
        option: &mut Option<T>,
        read: impl Fn(&Value) -> Option<T>,
    ) {
        if let Some(given) = option.clone() {
            self.members.insert(name.to_owned(), given.into());
        } else if let Some(kept) = self.members.get(name) {
            *option = read(kept);
            if option.is_none() {
                self.unusable.push(name);
            }
        }
    }
}

impl From<DelayLevels> for Value {
    fn from(levels: DelayLevels) -> Value {
        Value::from(levels.to_string())
    }
}

impl From<Compression> for Value {
    fn from(compression: Compression) -> Value {
        Value::from(compression.word())
    }
}

impl From<TimestampType> for Value {
    fn from(timestamps: TimestampType) -> Value {
        Value::from(timestamps.word())
    }
}

impl From<Flush> for Value {
    fn from(flush: Flush) -> Value {
        Value::from(flush.word())
    }
}
