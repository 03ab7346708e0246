//! Saved progress of groups: `config/consumerOffset.json`.
//!
//! Other processes, such as a Spark driver, may write the table while a store is open. So each
//! writer locks `config/consumerOffset.lock`, reads the table again and replaces only its own rows.

use crate::clock::{Clock, RealClock};
use crate::disk::{Disk, LockState};
use crate::error::{Error, Result};
use crate::plant::{Bug, planted};
use crate::sync::Mutex;
use crate::table::offsets::OffsetTable;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a writer of the table waits for another one.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(2);
/// The file that writers of the table lock.
const LOCK_NAME: &str = "consumerOffset.lock";

/// One row of the table: the next offset that a group consumes in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressRow {
    /// The topic.
    pub topic: Box<str>,
    /// The group.
    pub group: Box<str>,
    /// The queue.
    pub queue: u32,
    /// The next offset.
    pub offset: u64,
}

/// The next offsets of a group in queues of a topic.
#[derive(Debug)]
pub(super) struct GroupProgress {
    pub(super) topic: Box<str>,
    pub(super) group: Box<str>,
    pub(super) offsets: Vec<(u32, u64)>,
}

/// Progress by topic and group, then by queue.
type Rows = BTreeMap<(Box<str>, Box<str>), BTreeMap<u32, u64>>;

/// What is stored.
#[derive(Debug, Default)]
struct Stored {
    /// The contents of the table as far as this process knows.
    rows: Rows,
    /// The table that this process wrote last.
    table: Option<OffsetTable>,
}

/// The progress of all groups of a store.
#[derive(Debug)]
pub(super) struct Progress {
    /// Disk and directory of the table; `None` if the store has no files.
    place: Option<(Arc<dyn Disk>, PathBuf)>,
    stored: Mutex<Stored>,
}

impl Progress {
    /// Loads the progress from the tables in the directory `config`.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] and [`Error::Unsupported`] if the table exists but cannot be read:
    /// otherwise groups would begin again. [`Error::Io`].
    pub(super) fn load(place: Option<(Arc<dyn Disk>, PathBuf)>) -> Result<Progress> {
        let mut rows = Rows::new();
        if let Some((disk, config)) = &place {
            let table = OffsetTable::open(&**disk, config)?;
            for (topic, group, queue, offset) in table.all() {
                // A group that has not begun has -1.
                if let Ok(offset) = u64::try_from(offset) {
                    let key = (topic.into(), group.into());
                    rows.entry(key).or_default().insert(queue, offset);
                }
            }
        }
        let stored = Stored { rows, table: None };
        Ok(Progress {
            place,
            stored: Mutex::new(stored),
        })
    }

    /// The next offset of a group in a queue.
    pub(super) fn get(&self, topic: &str, group: &str, queue: u32) -> Option<u64> {
        let stored = self.stored.lock();
        stored
            .rows
            .get(&(topic.into(), group.into()))?
            .get(&queue)
            .copied()
    }

    /// Whether a group has progress in some queue of a topic.
    pub(super) fn knows(&self, topic: &str, group: &str) -> bool {
        self.stored
            .lock()
            .rows
            .contains_key(&(topic.into(), group.into()))
    }

    /// All rows.
    pub(super) fn all(&self) -> Vec<ProgressRow> {
        let stored = self.stored.lock();
        let rows = stored.rows.iter().flat_map(|((topic, group), queues)| {
            queues.iter().map(|(queue, offset)| ProgressRow {
                topic: topic.clone(),
                group: group.clone(),
                queue: *queue,
                offset: *offset,
            })
        });
        rows.collect()
    }

    /// Saves the offsets that changed. Durable on return.
    pub(super) fn save(&self, progress: Vec<GroupProgress>) -> Result<()> {
        let mut stored = self.stored.lock();
        let mut changed = Vec::new();
        for mut it in progress {
            let key = (it.topic, it.group);
            let known = stored.rows.get(&key);
            let is_new = |(queue, offset): &(u32, u64)| {
                known.is_none_or(|known| known.get(queue) != Some(offset))
            };
            it.offsets.retain(is_new);
            if !it.offsets.is_empty() {
                (it.topic, it.group) = key;
                changed.push(it);
            }
        }
        match changed.is_empty() {
            true => Ok(()),
            false => self.store(&mut stored, changed),
        }
    }

    /// Stores offsets whatever is stored, which another process may have changed; durable on
    /// return.
    pub(super) fn put(&self, progress: GroupProgress) -> Result<()> {
        self.store(&mut self.stored.lock(), vec![progress])
    }

    fn store(&self, stored: &mut Stored, progress: Vec<GroupProgress>) -> Result<()> {
        if let Some((disk, config)) = &self.place {
            let table = stored.table.take();
            stored.table = Some(record_in(table, &**disk, config, &progress)?);
        }
        for it in progress {
            let known = stored.rows.entry((it.topic, it.group)).or_default();
            known.extend(it.offsets);
        }
        Ok(())
    }
}

/// Sets rows of the table in the directory `config` of a store and keeps all others. Durable on
/// return.
///
/// # Errors
///
/// [`Error::Corrupt`] and [`Error::Unsupported`] if the table exists but cannot be read; it is then
/// left unchanged. [`Error::Busy`] if another process keeps the table locked; [`Error::Io`].
pub fn record(disk: &dyn Disk, config: &Path, rows: &[ProgressRow]) -> Result<()> {
    let progress = rows.iter().map(|row| GroupProgress {
        topic: row.topic.clone(),
        group: row.group.clone(),
        offsets: vec![(row.queue, row.offset)],
    });
    record_in(None, disk, config, &progress.collect::<Vec<_>>()).map(drop)
}

/// [`record`], without reading the table again if the file is still as `kept` was written. Returns
/// the table.
fn record_in(
    kept: Option<OffsetTable>,
    disk: &dyn Disk,
    config: &Path,
    progress: &[GroupProgress],
) -> Result<OffsetTable> {
    disk.create_directory(config)?;
    let lock = config.join(LOCK_NAME);
    let began = Instant::now();
    let _held = loop {
        match disk.lock(&lock)? {
            LockState::Held(held) => break held,
            LockState::Taken if began.elapsed() < LOCK_TIMEOUT => std::thread::sleep(LOCK_PAUSE),
            LockState::Taken => {
                let waited_ms = u64::try_from(LOCK_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
                return Err(Error::Busy { waited_ms });
            }
        }
    };
    let mut table = match kept {
        Some(table) if planted(Bug::KeepTable) || table.is_current(disk)? => table,
        _ => OffsetTable::open(disk, config)?,
    };
    for it in progress {
        let offsets = it.offsets.iter();
        let offsets = offsets.map(|(queue, offset)| (*queue, offset.cast_signed()));
        table.set(&it.topic, &it.group, offsets);
    }
    table.save(disk, RealClock.now_ms())?;
    Ok(table)
}
