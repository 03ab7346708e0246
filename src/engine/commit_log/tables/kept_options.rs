//! `forebay.options`: the options that a store keeps.
//!
//! ```text
//! {"checksum":true,"default_queues":2,"flush":"sync","index":false,"max_message_size":4194304,
//!  "unique_ids":false}
//! ```
//!
//! It has those that an opening for writing was given, the latest value of each. An opening for
//! writing that is not given one uses what it finds here, else the default; so whoever opens the
//! store for a moment, to append a commit say, writes it as its owner does. Members of other names
//! stay as they are.
//!
//! A file that is damaged keeps no store closed: what cannot be read is reported, and is not used.

use crate::disk::{Disk, replace};
use crate::engine::directory::names;
use crate::engine::{Damage, DamageKind};
use crate::error::{Error, Op, Result, is_out_of_room};
use crate::options::{DEFAULT_QUEUES, Flush, MAX_MESSAGE_SIZE, Options};
use crate::table::{Loaded, json, load};
use crate::warning::{Warning, Warnings};
use serde_json::{Map, Value};
use std::io;
use std::path::{Path, PathBuf};

/// Name of the file.
pub const FILE_NAME: &str = names::OPTIONS;
/// The longest file that is read.
const LEN_MAX: u64 = 64 << 10;

/// What an opening for writing goes by.
pub struct Kept {
    /// The options, those that were not given as the store keeps them.
    pub options: Options,
    /// What of the file could not be used.
    pub damage: Option<Damage>,
    path: PathBuf,
    /// What the file has, with the options that are given.
    members: Map<String, Value>,
    /// Whether that differs from what the file has.
    changed: bool,
    /// Members that are no value of their option.
    unusable: Vec<&'static str>,
}

impl Kept {
    /// Reads the options of the store at `root`, of which those in `given` go first.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] where a given option contradicts one that is kept.
    pub fn load(disk: &dyn Disk, root: &Path, given: &Options) -> Result<Kept> {
        let path = root.join(FILE_NAME);
        let mut flaw = None;
        let before = read(disk, &path)?.unwrap_or_else(|| {
            flaw = Some("it is no table of options: the defaults are used".to_owned());
            Map::new()
        });
        let mut options = given.clone();
        let mut merge = Merge {
            members: before.clone(),
            unusable: Vec::new(),
        };
        merge.all(&mut options);
        if !merge.unusable.is_empty() {
            let names = merge.unusable.join(", ");
            flaw = Some(format!(
                "its value for {names} is none of those allowed: the default is used"
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

    /// Writes down, durably, what was given and is not in the file. A store opens on a full disk,
    /// too: there the file stays as it is, with a warning.
    pub fn save(&self, disk: &dyn Disk, warnings: &Warnings) -> Result<()> {
        if !self.changed {
            return Ok(());
        }
        match self.write(disk) {
            Err(error) if is_out_of_room(&error) => {
                let (path, reason) = (self.path.clone(), error.to_string());
                warnings.add(Warning::NotKept { path, reason });
                Ok(())
            }
            written => written.map_err(|e| Error::io(Op::Write, &self.path, e)),
        }
    }

    fn write(&self, disk: &dyn Disk) -> io::Result<()> {
        let text = Value::Object(self.members.clone()).to_string();
        replace(disk, &self.path, text.as_bytes())
    }
}

fn damage(path: &Path, reason: String) -> Damage {
    Damage::new(DamageKind::Options, path, 0..0, reason)
}

/// The members of the file: none where it is not there, `None` where it is no table.
fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Map<String, Value>>> {
    Ok(match load(disk, path, LEN_MAX, json::object)? {
        Loaded::Nothing => Some(Map::new()),
        Loaded::Damaged(..) => None,
        Loaded::Table(members) => Some(members),
    })
}

/// What of the file cannot be used.
pub fn flaw(disk: &dyn Disk, root: &Path) -> Result<Option<String>> {
    let kept = Kept::load(disk, root, &Options::default())?;
    Ok(kept.damage.map(|damage| damage.reason))
}

/// Writes the file again, durably, with what of it can be used.
pub fn mend(disk: &dyn Disk, root: &Path) -> Result<()> {
    let mut kept = Kept::load(disk, root, &Options::default())?;
    for name in &kept.unusable {
        kept.members.remove(*name);
    }
    let written = kept.write(disk);
    written.map_err(|e| Error::io(Op::Write, &kept.path, e))
}

/// Options and members of the file on their way to being the same.
struct Merge {
    members: Map<String, Value>,
    /// Names of the members that are no value of their option.
    unusable: Vec<&'static str>,
}

impl Merge {
    fn all(&mut self, options: &mut Options) {
        let to_queues = |it: &Value| {
            let queues = u32::try_from(it.as_u64()?).ok()?;
            DEFAULT_QUEUES.contains(&queues).then_some(queues)
        };
        let to_size = |it: &Value| {
            let size = usize::try_from(it.as_u64()?).ok()?;
            MAX_MESSAGE_SIZE.contains(&size).then_some(size)
        };
        let (queues, size) = (&mut options.default_queues, &mut options.max_message_size);
        self.one("index", &mut options.index, Value::as_bool);
        self.one("default_queues", queues, to_queues);
        self.one("max_message_size", size, to_size);
        self.one("flush", &mut options.flush, |it| Flush::of(it.as_str()?));
        self.one("checksum", &mut options.checksum, Value::as_bool);
        self.one("unique_ids", &mut options.unique_ids, Value::as_bool);
    }

    /// A value that is given goes into the file; else that of the file is used.
    fn one<T: Copy + Into<Value>>(
        &mut self,
        name: &'static str,
        option: &mut Option<T>,
        read: impl Fn(&Value) -> Option<T>,
    ) {
        if let Some(given) = *option {
            self.members.insert(name.to_owned(), given.into());
        } else if let Some(kept) = self.members.get(name) {
            *option = read(kept);
            if option.is_none() {
                self.unusable.push(name);
            }
        }
    }
}

impl From<Flush> for Value {
    fn from(flush: Flush) -> Value {
        Value::from(flush.word())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::disk::{Call, HookedDisk};
    use crate::engine::Engine;
    use crate::engine::commit_log::CommitLog;
    use crate::machine::Machine;

    /// A store opens on a full disk. That its owner gives an option which is not kept yet, as with
    /// a store of release 0.1.0, does not change that.
    #[test]
    fn options_that_find_no_room_are_reported_and_kept_by_the_next_opening() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("store");
        let open = |room: bool| {
            let disk = HookedDisk::shared(move |call, path| {
                let is_options = path.to_string_lossy().contains(FILE_NAME);
                match call == Call::Write && is_options && !room {
                    true => Err(std::io::Error::from_raw_os_error(libc::ENOSPC)),
                    false => Ok(()),
                }
            });
            let options = Options {
                flush: Some(Flush::Sync),
                ..Options::default()
            };
            CommitLog::open(&Machine::stepped(disk), &root, &options, Vec::new()).unwrap()
        };
        for room in [false, true] {
            let engine = open(room);
            assert_eq!(engine.options().flush(), Flush::Sync);
            assert_eq!(engine.report().warnings.take().is_empty(), room);
            assert_eq!(root.join(FILE_NAME).exists(), room);
            engine.close().unwrap();
        }
    }
}
