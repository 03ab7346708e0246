//! `forebay.offsets`: the bounds of all queues and the index files, at one position of the log.

use crate::disk::{Disk, read_text, replace};
use crate::engine::Topics;
use crate::engine::commit_log::index::Index;
use crate::engine::commit_log::queues::Queues;
use crate::engine::commit_log::queues::queue::entry::{OFFSET_MAX, QUEUE_IDS_MAX};
use crate::engine::commit_log::queues::queue::is_directory_name;
use crate::engine::directory::names;
use crate::error::Result;
use crate::table::TABLE_LEN_MAX;
use std::path::Path;
use std::sync::Arc;

/// `forebay.offsets`: the bounds of all queues and the index files, at one position of the log. It
/// is written by each full pass, on close, and by an opening that finds the last message of a queue
/// lost or takes over another system's store.
///
/// It is the only record of the next offset of a queue whose last messages are deleted or lost;
/// everything else is in the log. On opening it also reveals missing queues and index files. It is
/// text, in lines:
///
/// ```text
/// forebay.offsets 1
/// position <end of the log>
/// queue <topic> <queue> <first offset> <next offset>
/// index <file name> <number of its next entry>
/// unindexed                                        if its writer built no index
/// crc <CRC-32 of all lines above, 8 hex digits>
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// End of the log when it was taken.
    pub position: u64,
    /// Topic, queue, first offset, next offset.
    pub queues: Vec<(String, u32, u64, u64)>,
    /// Name of each index file and number of its next entry; `None` if unknown.
    pub index: Option<Vec<(String, u32)>>,
}

/// A longer file is read in parts, as far as it has no hole.
const LEN_MAX: u64 = if cfg!(test) { 64 << 10 } else { TABLE_LEN_MAX };

/// Name of the file.
pub const INVENTORY_NAME: &str = names::OFFSETS;

impl Inventory {
    /// The bounds of queues and index files. Dispatch must be paused.
    pub fn of(
        position: u64,
        topics: &Topics,
        queues: &Queues,
        index: Option<&Index>,
    ) -> Result<Inventory> {
        let bounds = queues.offsets(topics).into_iter();
        let bounds =
            bounds.map(|(topic, id, range)| (topic.name.to_string(), id, range.start, range.end));
        Ok(Inventory {
            position,
            queues: bounds.collect(),
            index: index.map(Index::listing).transpose()?,
        })
    }

    /// Reads the file; `None` if it does not exist or is damaged.
    pub fn load(disk: &dyn Disk, root: &Path) -> Result<Option<Inventory>> {
        let path = root.join(INVENTORY_NAME);
        // A store may have any number of queues, each of which needs its line.
        let bytes = read_text(disk, &path, LEN_MAX)?;
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
                    let id = id.parse().ok().filter(|id| *id < QUEUE_IDS_MAX)?;
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

    /// Writes the file, durably.
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
        replace(&**disk, &path, text.as_bytes())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod test {
    use super::*;
    use crate::disk::RealDisk;

    /// Its writer could write it, and nobody could read it again, so the store could not be opened.
    #[test]
    fn the_bounds_of_any_number_of_queues_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let queues = (0..4000).map(|queue| (format!("topic-{}", queue % 7), queue, 1, 5));
        let saved = Inventory {
            position: 1 << 40,
            queues: queues.collect(),
            index: None,
        };
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        saved.save(&disk, dir.path()).unwrap();
        let path = dir.path().join(INVENTORY_NAME);
        assert!(std::fs::metadata(&path).unwrap().len() > LEN_MAX);
        assert_eq!(Inventory::load(&*disk, dir.path()).unwrap(), Some(saved));
        // A hole of it is damage, as in a short one.
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_len(1 << 40).unwrap();
        assert_eq!(Inventory::load(&*disk, dir.path()).unwrap(), None);
    }
}
