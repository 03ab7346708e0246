//! Saved progress of groups: `config/consumerOffset.json`.
//!
//! Other processes, such as a Spark driver, may write the table while a store is open. So each
//! writer locks `config/consumerOffset.lock`, reads the table again and replaces only its own rows.

use crate::clock::{Clock, RealClock};
use crate::disk::{Disk, LockState};
use crate::error::{Error, Result};
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

/// Progress by topic and group, then by queue.
type Rows = BTreeMap<(Box<str>, Box<str>), BTreeMap<u32, u64>>;

/// The progress of all groups of a store.
#[derive(Debug)]
pub(super) struct Progress {
    /// Disk and directory of the table; `None` if the store has no files.
    place: Option<(Arc<dyn Disk>, PathBuf)>,
    /// The contents of the table as far as this process knows.
    stored: Mutex<Rows>,
}

impl Progress {
    /// Loads the progress from the tables in the directory `config`.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] and [`Error::Unsupported`] if the table exists but cannot be read:
    /// otherwise groups would begin again. [`Error::Io`].
    pub(super) fn load(place: Option<(Arc<dyn Disk>, PathBuf)>) -> Result<Progress> {
        let mut stored = Rows::new();
        if let Some((disk, config)) = &place {
            let table = OffsetTable::open(&**disk, config)?;
            for (topic, group, queue, offset) in table.all() {
                // A group that has not begun has -1.
                if let Ok(offset) = u64::try_from(offset) {
                    let key = (topic.into(), group.into());
                    stored.entry(key).or_default().insert(queue, offset);
                }
            }
        }
        let stored = Mutex::new(stored);
        Ok(Progress { place, stored })
    }

    /// The next offset of a group in a queue.
    pub(super) fn get(&self, topic: &str, group: &str, queue: u32) -> Option<u64> {
        let stored = self.stored.lock();
        stored
            .get(&(topic.into(), group.into()))?
            .get(&queue)
            .copied()
    }

    /// Whether a group has progress in some queue of a topic.
    pub(super) fn knows(&self, topic: &str, group: &str) -> bool {
        self.stored
            .lock()
            .contains_key(&(topic.into(), group.into()))
    }

    /// All rows.
    pub(super) fn all(&self) -> Vec<ProgressRow> {
        let stored = self.stored.lock();
        let rows = stored.iter().flat_map(|((topic, group), queues)| {
            queues.iter().map(|(queue, offset)| ProgressRow {
                topic: topic.clone(),
                group: group.clone(),
                queue: *queue,
                offset: *offset,
            })
        });
        rows.collect()
    }

    /// Saves the rows that changed. Durable on return.
    pub(super) fn save(&self, rows: Vec<ProgressRow>) -> Result<()> {
        let mut stored = self.stored.lock();
        let is_new = |row: &ProgressRow| {
            let queues = stored.get(&(row.topic.clone(), row.group.clone()));
            queues.and_then(|queues| queues.get(&row.queue)) != Some(&row.offset)
        };
        let rows: Vec<ProgressRow> = rows.into_iter().filter(is_new).collect();
        match rows.is_empty() {
            true => Ok(()),
            false => self.store(&mut stored, rows),
        }
    }

    /// Stores rows whatever is stored, which another process may have changed; durable on return.
    pub(super) fn put(&self, rows: Vec<ProgressRow>) -> Result<()> {
        self.store(&mut self.stored.lock(), rows)
    }

    fn store(&self, stored: &mut Rows, rows: Vec<ProgressRow>) -> Result<()> {
        if let Some((disk, config)) = &self.place {
            record(&**disk, config, &rows)?;
        }
        for row in rows {
            let key = (row.topic, row.group);
            stored.entry(key).or_default().insert(row.queue, row.offset);
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
    let mut table = OffsetTable::open(disk, config)?;
    for row in rows {
        table.set(&row.topic, &row.group, row.queue, row.offset.cast_signed());
    }
    table.save(disk, RealClock.now_ms())
}
