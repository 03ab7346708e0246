//! The commit log: records of all topics, back to back, in files of one size.

pub mod append;
pub mod atomic;
pub mod blank;
pub mod bridge;
mod join;
pub mod search;
pub mod sound;
pub mod walk;
pub mod walker;

use crate::clock::{Clock, RealClock};
use crate::damage::{Damage, DamageKind};
use crate::disk::Disk;
use crate::engine::directory::names;
use crate::engine::directory::page::{Mark, StatePage};
use crate::error::{At, Error, Op, Result};
use crate::mapped::queue::FoundFile;
use crate::mapped::{Extent, MappedFile, MappedFileQueue};
use crate::num::index;
use crate::plant::{Bug, planted};
use crate::record::rocketmq::layout::{BLANK_LEN, RECORD_LEN_MAX, be_u32};
use crate::record::{Flaw, Message};
use crate::region::guard;
use crate::region::{Access, Region};
use crate::sync::Mutex;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The log's files and its marks.
#[derive(Debug)]
pub struct Log {
    /// The files.
    pub files: MappedFileQueue,
    /// The marks.
    pub state: Arc<StatePage>,
    /// The writer's page, if this process follows another one.
    pub source: Option<Arc<StatePage>>,
    /// Whether readers see only durable messages.
    pub sync: bool,
    /// End of the reserved blocks of the current file.
    pub ready: AtomicU64,
    /// Store time in ms of the last published record, or of the one before it.
    pub stored_ms: AtomicI64,
    /// In a shared store, up to where the files of other processes are open here.
    pub joined: Mutex<u64>,
}

impl Log {
    /// The log of the store at `root` as it is on disk, for walks only. All bytes are readable.
    pub fn of_files(
        disk: &Arc<dyn Disk>,
        root: &Path,
        found: &[FoundFile],
        file_len: u64,
    ) -> Result<Log> {
        let files = MappedFileQueue::new(disk, root.join(names::COMMIT_LOG), file_len);
        let found: Vec<_> = found.iter().filter(|file| file.len > 0).cloned().collect();
        files.load(&found, Access::Read, |_| Extent::Full);
        let state = Arc::new(StatePage::in_memory()?);
        state.set(Mark::Published, u64::MAX);
        Ok(Log {
            files,
            state,
            source: None,
            sync: false,
            ready: AtomicU64::new(0),
            stored_ms: AtomicI64::new(0),
            joined: Mutex::default(),
        })
    }

    /// End of what readers of this process may see.
    #[inline]
    pub fn published(&self) -> u64 {
        self.state.get(Mark::Published)
    }

    /// Moves the published end forward to `end`.
    pub fn publish(&self, end: u64) {
        if end > self.published() {
            self.state.set(Mark::Published, end);
        }
    }

    /// Position up to which an append needs neither new blocks nor another file.
    #[inline]
    pub fn ready_end(&self) -> u64 {
        self.ready.load(Ordering::Relaxed)
    }

    /// End of what readers may see: the published end; in a synchronous store, the durable end.
    #[inline]
    pub fn readable_end(&self) -> u64 {
        self.state.get(if self.sync {
            Mark::Durable
        } else {
            Mark::Published
        })
    }

    /// Starts writing `from..to` to the disk, ahead of a flush.
    pub fn write_back(&self, from: u64, to: u64) {
        let mut at = from;
        while let Some(file) = self.files.find(at).filter(|_| at < to) {
            let end = to.min(file.end());
            self.files
                .disk()
                .write_back(file.path(), at - file.start(), end - at);
            at = end;
        }
    }

    /// First position of the log. Bytes below it are deleted or about to be deleted, so they are
    /// not damage.
    pub fn min_position(&self) -> u64 {
        let first = self.files.first().map_or(0, |file| file.start());
        let state = self.source.as_ref().unwrap_or(&self.state);
        first.max(state.get(Mark::Minimum))
    }

    /// Whether a file could not be opened because retention has deleted it after its name was
    /// looked up. A file that is missing anywhere else is an error.
    pub fn is_retired(&self, file: &MappedFile, error: &Error) -> bool {
        error.is_not_found() && file.start() < self.min_position()
    }

    /// What is at `position`: a structurally sound record that states this position, or what is
    /// wrong with the bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be opened, mapped or read. Then nothing is known about the
    /// bytes, and no decision may rest on them.
    pub fn record_at(&self, position: u64) -> Result<Lookup> {
        guard::renew_at(RealClock.coarse_ms());
        match self.find_at(position) {
            // The writer has deleted the file.
            Err(error) if error.is_not_found() && position < self.min_position() => {
                Ok(Lookup::Flawed(OUTSIDE))
            }
            Err(_) if planted(Bug::TakeErrorForAbsence) => Ok(Lookup::Flawed(Flaw::Empty)),
            found => found,
        }
    }

    fn find_at(&self, position: u64) -> Result<Lookup> {
        let file = self.files.find(position);
        let Some(file) = file.filter(|_| position < self.published()) else {
            return Ok(Lookup::Flawed(OUTSIDE));
        };
        let (region, start) = match self.files.disk().copies() && !file.is_mapped() {
            true => (copy_record(self.files.disk(), &file, position)?, 0),
            false => (self.files.map(&file)?, index(position - file.start())),
        };
        Ok(match Message::new(region, start)? {
            Err(flaw) => Lookup::Flawed(flaw),
            Ok(message) => match message.record().position() {
                stated if stated == position.cast_signed() => Lookup::Record(message),
                stated => Lookup::Flawed(Flaw::Position(stated)),
            },
        })
    }

    /// As [`Log::record_at`], with all checksums verified.
    ///
    /// # Errors
    ///
    /// As [`Log::record_at`].
    pub fn checked_record_at(&self, position: u64) -> Result<Lookup> {
        let found = self.record_at(position)?;
        if let Lookup::Record(message) = &found
            && let Err(flaw) = message.record().check(position)
        {
            return Ok(Lookup::Flawed(flaw));
        }
        Ok(found)
    }

    /// The record at `position`, which must exist, with all checksums verified.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if there is no record; otherwise as [`Log::record_at`].
    pub fn require(&self, position: u64) -> Result<Message> {
        match self.checked_record_at(position)? {
            Lookup::Record(message) => Ok(message),
            Lookup::Flawed(flaw) => {
                let path = self.path_at(position);
                Err(Error::corrupt(path, position, flaw.to_string()))
            }
        }
    }

    /// Path of the log file that contains a position.
    pub fn path_at(&self, position: u64) -> PathBuf {
        self.files.path_of(self.files.start_of(position))
    }

    /// Describes damage of these bytes of the log.
    #[cold]
    pub fn damage(&self, bytes: Range<u64>, reason: impl ToString) -> Damage {
        Damage::new(DamageKind::Log, self.path_at(bytes.start), bytes, reason)
    }
}

/// The result of reading at a position of the log.
///
/// Bytes that cannot be read are an error instead, so that a lack of descriptors or memory is never
/// mistaken for the absence of a record.
#[derive(Debug)]
pub enum Lookup {
    /// A record.
    Record(Message),
    /// No record, and what is wrong with the bytes.
    Flawed(Flaw),
}

impl Lookup {
    /// The record, if there is one.
    pub fn record(self) -> Option<Message> {
        match self {
            Lookup::Record(message) => Some(message),
            Lookup::Flawed(_) => None,
        }
    }
}

/// The flaw of a position outside the log files.
const OUTSIDE: Flaw = Flaw::Field("position: outside the log");

/// Copies the record at `position` of a file. The copy may end early.
fn copy_record(disk: &dyn Disk, file: &MappedFile, position: u64) -> Result<Arc<Region>> {
    let at = position - file.start();
    let mut head = [0; BLANK_LEN];
    disk.read_at(file.path(), at, &mut head)?;
    let most = RECORD_LEN_MAX.min(index(file.end() - position));
    let len = (be_u32(&head, 0) as usize).clamp(BLANK_LEN.min(most), most);
    let mut bytes = vec![0; len];
    disk.read_at(file.path(), at, &mut bytes)?;
    let region = Region::anonymous(len, file.path()).at(Op::Read, file.path())?;
    region.write(0, &bytes).at(Op::Read, file.path())?;
    region.publish(len);
    Ok(Arc::new(region))
}
