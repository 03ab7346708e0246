//! Saved progress of groups: `config/consumerOffset.json`, or in a partition log
//! `forebay.consumerOffset.json`.
//!
//! Other processes, such as a Spark driver, may write the table while a store is open. So each
//! writer locks `consumerOffset.lock` beside it, reads the table again and replaces only its own
//! rows. A thread that waits for another process holds no lock of its own process, and reads the
//! progress to be saved after the wait. The service of the consumers does not wait: it has messages
//! to deliver, and saves later.

use crate::clock::{Clock, RealClock};
use crate::disk::{Disk, FileLock, LockState};
use crate::engine::directory::epochs::{Epoch, Epochs};
use crate::error::{Awaited, Error, Result};
use crate::interrupt;
use crate::plant::{Bug, planted};
use crate::sync::{Mutex, MutexGuard};
use crate::table::TablePlace;
use crate::table::offsets::{self, OffsetTable, Place};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a call that stores progress waits for another writer of the table.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a call that closes does. What it cannot save is delivered again.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(2);
/// The file that writers of the table lock has the name of the table with another extension.
const LOCK_EXTENSION: &str = "lock";

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
    pub(super) log: Saved,
}

/// The log with which progress is saved.
#[derive(Clone, Copy, Debug)]
pub(super) enum Saved {
    /// This log, up to where it was durable.
    Beside(Option<Place>),
    /// The log already stored with the progress, a part of which stays.
    AsBefore,
}

/// Progress by topic and group, then by queue.
type Rows = BTreeMap<(Box<str>, Box<str>), BTreeMap<u32, u64>>;

/// The log of a store when its progress is loaded: its epochs, and how far it is durable.
pub(super) struct Known {
    pub(super) epochs: Epochs,
    pub(super) durable: u64,
}

impl Known {
    /// This log, durable up to `position`. In a shared store each process that begins to lead
    /// begins an epoch.
    pub(super) fn beside(&self, position: u64) -> Saved {
        Saved::Beside(self.epochs.newest().map(|epoch| Place {
            epoch: epoch.number,
            began_ns: epoch.began_ns,
            position,
        }))
    }
}

/// The stored progress.
#[derive(Debug, Default)]
struct Stored {
    /// The contents of the table when this process last read or wrote it.
    rows: Rows,
    /// By topic and group, how much is left of the log with which the progress was saved, if it has
    /// come back shorter.
    cut: BTreeMap<(Box<str>, Box<str>), u64>,
}

/// The progress of all groups of a store.
#[derive(Debug)]
pub(super) struct Progress {
    /// Where the table is; `None` if the store has no files.
    place: Option<TablePlace>,
    stored: Mutex<Stored>,
    /// The table that this process wrote or read last. Held by the thread that writes it.
    turn: Mutex<Option<OffsetTable>>,
    /// The newest epoch of the log.
    epoch: Option<Epoch>,
}

impl Progress {
    /// Loads the progress from the table at its place.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] and [`Error::Unsupported`] if the table exists but cannot be read:
    /// otherwise groups would begin again. [`Error::Io`].
    pub(super) fn load(place: Option<TablePlace>, log: Option<Known>) -> Result<Progress> {
        let (mut rows, mut cut) = (Rows::new(), BTreeMap::new());
        if let Some(place) = &place {
            let table = OffsetTable::open(&*place.disk, &path_of(place))?;
            for (topic, group, queue, offset) in table.all() {
                // A group that has not begun has -1.
                if let Ok(offset) = u64::try_from(offset) {
                    let key = (topic.into(), group.into());
                    rows.entry(key).or_default().insert(queue, offset);
                }
            }
            for (topic, group, of) in table.places() {
                let place = (of.epoch, of.began_ns, of.position);
                let log = log.as_ref();
                let left = log.and_then(|log| log.epochs.intact_until(place, log.durable));
                cut.extend(left.map(|left| ((topic.into(), group.into()), left)));
            }
        }
        let epoch = log.and_then(|log| log.epochs.newest());
        Ok(Progress {
            place,
            stored: Mutex::new(Stored { rows, cut }),
            turn: Mutex::default(),
            epoch,
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

    /// How much is left of the log with which the progress of a group in a topic was saved, if it
    /// has come back shorter.
    pub(super) fn cut(&self, topic: &str, group: &str) -> Option<u64> {
        let stored = self.stored.lock();
        stored.cut.get(&(topic.into(), group.into())).copied()
    }

    /// The log for progress that is saved while it is durable up to `position`.
    pub(super) fn beside(&self, position: u64) -> Saved {
        Saved::Beside(self.epoch.map(|epoch| Place {
            epoch: epoch.number,
            began_ns: epoch.began_ns,
            position,
        }))
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

    /// Saves the offsets that `read` returns, except those that are stored already. `read` returns
    /// those of each group and topic in the order of the queues. Durable on return. The last call
    /// of `read` is made under the lock of the table, so that no thread overwrites progress that
    /// another read later. Waits for other writers of the table at most for `timeout`.
    pub(super) fn save(
        &self,
        timeout: Duration,
        read: impl Fn() -> Result<Vec<GroupProgress>>,
    ) -> Result<()> {
        // If nothing has changed, this waits for no other process.
        if self.changed(read()?).is_empty() {
            return Ok(());
        }
        self.put(timeout, || Ok(self.changed(read()?)))
    }

    /// Stores the offsets that `read` returns, even over those that another process has stored.
    /// Durable on return. `read` is called once, under the lock of the table. Waits as
    /// [`Progress::save`].
    pub(super) fn put(
        &self,
        timeout: Duration,
        read: impl FnOnce() -> Result<Vec<GroupProgress>>,
    ) -> Result<()> {
        self.put_shared(timeout, |_| read())
    }

    /// As [`Progress::put`]; `read` gets the stored table.
    pub(super) fn put_shared(
        &self,
        timeout: Duration,
        read: impl FnOnce(&OffsetTable) -> Result<Vec<GroupProgress>>,
    ) -> Result<()> {
        let Some(place) = &self.place else {
            let _turn = self.turn.lock();
            self.note(interrupt::forbid(|| read(&OffsetTable::default()))?);
            return Ok(());
        };
        let (disk, path) = (&*place.disk, path_of(place));
        let (mut turn, _held) = self.lock(disk, &path, timeout)?;
        // The interrupt function runs user code, which may want the same lock.
        interrupt::forbid(|| {
            let mut table = current(turn.take(), disk, &path)?;
            let progress = read(&table)?;
            if !progress.is_empty() {
                set(&mut table, &progress);
                table.save(disk, RealClock.now_ms())?;
            }
            *turn = Some(table);
            self.note(progress);
            Ok(())
        })
    }

    /// What `look` finds in the current table.
    pub(super) fn peek<T>(&self, look: impl FnOnce(&OffsetTable) -> T) -> Result<T> {
        let mut turn = self.turn.lock();
        let table = match &self.place {
            Some(place) => current(turn.take(), &*place.disk, &path_of(place))?,
            None => OffsetTable::default(),
        };
        let found = look(&table);
        *turn = Some(table);
        Ok(found)
    }

    /// Takes the turn of this process, and then the lock of the table. Holds neither while another
    /// process holds the table's, for which it waits at most for `timeout`.
    fn lock(
        &self,
        disk: &dyn Disk,
        path: &Path,
        timeout: Duration,
    ) -> Result<(MutexGuard<'_, Option<OffsetTable>>, FileLock)> {
        let began = Instant::now();
        loop {
            let turn = self.turn.lock();
            if let Some(held) = try_lock(disk, path)? {
                return Ok((turn, held));
            }
            drop(turn);
            pause(path, began, timeout)?;
        }
    }

    /// Those offsets that are not stored.
    fn changed(&self, progress: Vec<GroupProgress>) -> Vec<GroupProgress> {
        let stored = self.stored.lock();
        let mut changed = Vec::new();
        for mut it in progress {
            let key = (it.topic, it.group);
            let known = stored.rows.get(&key);
            let mut known = known.into_iter().flatten().peekable();
            // Both are in the order of the queues.
            it.offsets.retain(|(queue, offset)| {
                while known.next_if(|(before, _)| *before < queue).is_some() {}
                known.peek() != Some(&(queue, offset))
            });
            if !it.offsets.is_empty() {
                (it.topic, it.group) = key;
                changed.push(it);
            }
        }
        changed
    }

    /// Notes that this progress is stored.
    fn note(&self, progress: Vec<GroupProgress>) {
        let mut stored = self.stored.lock();
        for it in progress {
            let key = (it.topic, it.group);
            if let Saved::Beside(_) = it.log {
                stored.cut.remove(&key);
            }
            stored.rows.entry(key).or_default().extend(it.offsets);
        }
    }

    /// Reads the table again, which other processes write.
    pub(super) fn reload(&self, log: Option<Known>) -> Result<()> {
        let again = Progress::load(self.place.clone(), log)?;
        let mut again = again.stored.lock();
        let mut stored = self.stored.lock();
        stored.rows = std::mem::take(&mut again.rows);
        stored.cut = std::mem::take(&mut again.cut);
        Ok(())
    }
}

/// The path of the table.
fn path_of(place: &TablePlace) -> PathBuf {
    place.config(offsets::FILE_NAME)
}

/// Whether an error says that another process has the table locked.
pub(super) fn is_held(error: &Error) -> bool {
    matches!(
        error,
        Error::Busy {
            what: Awaited::Progress { .. },
            ..
        }
    )
}

/// Sets rows of the table of a store and keeps all others. Durable on return.
///
/// # Errors
///
/// [`Error::Corrupt`] and [`Error::Unsupported`] if the table exists but cannot be read; it is then
/// left unchanged. [`Error::Busy`] if another process keeps the table locked, or the caller
/// interrupts the wait for it; [`Error::Io`].
pub fn record(place: &TablePlace, rows: &[ProgressRow]) -> Result<()> {
    let progress = rows.iter().map(|row| GroupProgress {
        topic: row.topic.clone(),
        group: row.group.clone(),
        offsets: vec![(row.queue, row.offset)],
        log: Saved::Beside(None),
    });
    let progress: Vec<_> = progress.collect();
    let (disk, path) = (&*place.disk, path_of(place));
    let _held = lock(disk, &path, LOCK_TIMEOUT)?;
    let mut table = OffsetTable::open(disk, &path)?;
    set(&mut table, &progress);
    table.save(disk, RealClock.now_ms())
}

/// The table that this process wrote last, if the file is unchanged; otherwise the table in the
/// file.
fn current(kept: Option<OffsetTable>, disk: &dyn Disk, path: &Path) -> Result<OffsetTable> {
    match kept {
        Some(table) if planted(Bug::KeepTable) || table.is_current(disk)? => Ok(table),
        _ => OffsetTable::open(disk, path),
    }
}

fn set(table: &mut OffsetTable, progress: &[GroupProgress]) {
    for it in progress {
        let offsets = it.offsets.iter();
        let offsets = offsets.map(|(queue, offset)| (*queue, offset.cast_signed()));
        let place = match it.log {
            Saved::Beside(place) => place,
            Saved::AsBefore => table.place(&it.topic, &it.group),
        };
        table.set(&it.topic, &it.group, offsets, place);
    }
}

/// Locks the table at `path` against its other writers, in all processes. Waits at most for
/// `timeout`; the caller holds no lock, and may interrupt the wait.
fn lock(disk: &dyn Disk, path: &Path, timeout: Duration) -> Result<FileLock> {
    let began = Instant::now();
    loop {
        if let Some(held) = try_lock(disk, path)? {
            return Ok(held);
        }
        pause(path, began, timeout)?;
    }
}

/// The lock, unless somebody else holds it.
fn try_lock(disk: &dyn Disk, path: &Path) -> Result<Option<FileLock>> {
    if let Some(folder) = path.parent() {
        disk.create_directory(folder)?;
    }
    match disk.lock(&path.with_extension(LOCK_EXTENSION))? {
        LockState::Held(held) => Ok(Some(held)),
        LockState::Taken => Ok(None),
    }
}

/// The pause of a caller that has waited for the lock since `began`; an error if it may not wait
/// any longer.
fn pause(path: &Path, began: Instant, timeout: Duration) -> Result<()> {
    let waited = began.elapsed();
    if waited >= timeout || interrupt::is_raised() {
        let lock = path.with_extension(LOCK_EXTENSION);
        let waited_ms = u64::try_from(waited.min(timeout).as_millis()).unwrap_or(u64::MAX);
        let what = Awaited::Progress { lock };
        return Err(Error::Busy { what, waited_ms });
    }
    std::thread::sleep(LOCK_PAUSE);
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod test {
    use super::{GroupProgress, LOCK_TIMEOUT, Progress, Saved, lock};
    use crate::disk::{Disk, RealDisk};
    use crate::interrupt;
    use crate::table::TablePlace;
    use crate::table::offsets::OffsetTable;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread::{scope, yield_now};
    use std::time::Duration;

    #[test]
    fn who_cannot_save_progress_learns_which_file_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        let table = folder.path().join("consumerOffset.json");
        let _held = lock(&RealDisk, &table, Duration::ZERO).unwrap();
        let busy = lock(&RealDisk, &table, Duration::ZERO).unwrap_err();
        let file = table.with_extension("lock");
        let text = format!(
            "another writer held {} for 0 ms: progress was not saved, retry",
            file.display()
        );
        assert_eq!(busy.to_string(), text);
    }

    /// The handler of a signal may save progress too, and would wait for its own thread.
    #[test]
    fn nobody_is_asked_while_the_table_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let place = TablePlace::nested(disk, folder.path().to_owned());
        for place in [Some(place), None] {
            let progress = Progress::load(place, None).unwrap();
            let read = || {
                assert!(!interrupt::is_allowed());
                Ok(Vec::new())
            };
            interrupt::allow(|| false, || progress.put(LOCK_TIMEOUT, read)).unwrap();
        }
    }

    /// Progress that was read before the wait would overwrite what another thread has saved
    /// meanwhile.
    #[test]
    fn what_is_saved_after_a_wait_is_read_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let place = TablePlace::nested(Arc::clone(&disk), folder.path().to_owned());
        let progress = Progress::load(Some(place.clone()), None).unwrap();
        let (next, calls) = (AtomicU64::new(1), AtomicU64::new(0));
        let read = || {
            calls.fetch_add(1, Ordering::AcqRel);
            Ok(vec![GroupProgress {
                topic: "orders".into(),
                group: "billing".into(),
                offsets: vec![(0, next.load(Ordering::Acquire))],
                log: Saved::AsBefore,
            }])
        };
        let path = super::path_of(&place);
        let held = lock(&RealDisk, &path, Duration::ZERO).unwrap();
        scope(|scope| {
            let saves = scope.spawn(|| progress.save(LOCK_TIMEOUT, read));
            while calls.load(Ordering::Acquire) == 0 {
                yield_now();
            }
            next.store(2, Ordering::Release);
            // The waiting thread holds no lock that others need.
            assert_eq!(progress.get("orders", "billing", 0), None);
            assert!(
                progress
                    .peek(|table| table.get("orders", "billing", 0).is_none())
                    .unwrap()
            );
            drop(held);
            saves.join().unwrap().unwrap();
        });
        let table = OffsetTable::open(&RealDisk, &path).unwrap();
        assert_eq!(table.get("orders", "billing", 0), Some(2));
        assert_eq!(progress.get("orders", "billing", 0), Some(2));
    }
}
