//! The table of partitions, `forebay.partitions`: where each partition ends, while several
//! processes share a partition log.
//!
//! The file lives as long as some process shares the store: the first one makes it anew, and the
//! last one removes it. The machine's byte order:
//!
//! ```text
//! at    width      field
//! 0     8          magic "FOREBAYP"
//! 8     u32        version, 1
//! 12    u32        number of partitions
//! 16    u32        changes when segments were cut: processes map them again
//! 20    u32        1 if an append has failed and left something after the published ends
//! 24    u64        bytes of a segment
//! 32    u64        end of the last atomic batch whose intent may exist; 0 if there is none
//! 4096  512 each   partitions:
//!         0    u32   queue
//!         4    u32   length of the topic
//!         8    249   topic
//!         264  u64   first offset
//!         272  u32   changes when segments were removed
//!         276  u32   number of the published end
//!         280  2x40  the published end, at its number modulo 2
//!         360  u32   number of the durable end
//!         364  u32   unused
//!         368  2x40  the durable end, at its number modulo 2
//! ```
//!
//! An end is base and length of the last segment, next offset, 1 if that segment may be appended
//! to, and a checksum. It is stored where the current one is not, and then its number is, so
//! whoever dies in between leaves the current one.
//!
//! Any process may have stored anything here. What is read is checked, and a partition never ends
//! before where it was seen to end.

use crate::disk::{Disk, Kind};
use crate::engine::directory::names::PARTITIONS;
use crate::engine::partition_log::segments::names;
use crate::error::{At, Error, Op, Result};
use crate::num::{index, short};
use crate::region::{Access, Fault, PAGE, Region};
use crate::sync::fence;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

const MAGIC: [u8; 8] = *b"FOREBAYP";
const VERSION: u32 = 1;
const AT_VERSION: usize = 8;
const AT_COUNT: usize = 12;
const AT_CUTS: usize = 16;
const AT_UNCLEAN: usize = 20;
const AT_SEGMENT_BYTES: usize = 24;
const AT_WHOLE: usize = 32;
/// Length of an entry.
const ENTRY_LEN: usize = 512;
/// Number of partitions that fit. Fewer in tests: simulated disks compare all bytes of a file.
const PARTITIONS_MAX: u32 = if cfg!(test) { 128 } else { 65_536 };
const TABLE_LEN: usize = PAGE + PARTITIONS_MAX as usize * ENTRY_LEN;
/// Blocks are reserved in steps of so many bytes.
const STEP_LEN: usize = 64 << 10;
const TOPIC_LEN_MAX: usize = 249;
const OF_TOPIC_LEN: usize = 4;
const OF_TOPIC: usize = 8;
const OF_START: usize = 264;
const OF_CHANGES: usize = 272;
const OF_PUBLISHED: usize = 276;
const OF_DURABLE: usize = 360;
/// From the number of an end to the first of its places.
const TO_PLACES: [usize; 2] = [4, 8];
const PLACE_LEN: usize = 40;
const _: () = assert!(OF_TOPIC + TOPIC_LEN_MAX <= OF_START);
const _: () = assert!(OF_DURABLE + TO_PLACES[1] + 2 * PLACE_LEN <= ENTRY_LEN);
/// An end is read again this often while it changes.
const READS: usize = 1000;

/// The end of a partition at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Base of the last segment.
    pub base: u64,
    /// Bytes of that segment.
    pub len: u64,
    /// The next offset.
    pub offset: u64,
}

/// An end, and whether messages may be appended to the last segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The end.
    pub end: End,
    /// Whether messages may be appended to the last segment, which exists.
    pub continues: bool,
}

/// Which of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// That of what readers may see.
    Published,
    /// That of what is durable.
    Durable,
}

impl Which {
    fn at(self, number: u32) -> (usize, usize) {
        let entry = entry_at(number);
        match self {
            Which::Published => (entry + OF_PUBLISHED, entry + OF_PUBLISHED + TO_PLACES[0]),
            Which::Durable => (entry + OF_DURABLE, entry + OF_DURABLE + TO_PLACES[1]),
        }
    }
}

/// The mapped table.
pub struct Table {
    region: Region,
    path: PathBuf,
    disk: Arc<dyn Disk>,
    /// The first access that faulted.
    fault: OnceLock<Fault>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}

impl Table {
    /// Makes the table of a store anew, without partitions. No other process uses it.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], [`Error::Io`].
    pub fn create(disk: &Arc<dyn Disk>, root: &Path, segment_bytes: u64) -> Result<Table> {
        Table::remove(&**disk, root)?;
        let path = root.join(PARTITIONS);
        let new = root.join(format!("{PARTITIONS}.new"));
        if disk.stat(&new)?.is_some() {
            disk.unlink(&new)?;
        }
        disk.create(&new, TABLE_LEN as u64)?;
        disk.reserve(&new, 0, PAGE as u64)?;
        let mut head = MAGIC.to_vec();
        head.extend(VERSION.to_ne_bytes());
        disk.write_at(&new, 0, &head)?;
        disk.rename(&new, &path)?;
        let table = Table::open(disk, root)?;
        table.store(AT_SEGMENT_BYTES, segment_bytes);
        table.check()?;
        Ok(table)
    }

    /// Opens the table.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the file is missing or not a table of this version; [`Error::Io`].
    pub fn open(disk: &Arc<dyn Disk>, root: &Path) -> Result<Table> {
        let path = root.join(PARTITIONS);
        let corrupt = |reason: &str| Error::corrupt(root.join(PARTITIONS), 0, reason);
        match disk.stat(&path)? {
            Some(entry) if entry.kind == Kind::File && entry.len == TABLE_LEN as u64 => {}
            Some(_) => return Err(corrupt("not a file with the length of the table")),
            None => return Err(corrupt("the table of partitions is missing")),
        }
        let region = disk.map(&path, TABLE_LEN, Access::ReadWrite)?;
        let magic = region.words::<8>(0).at(Op::Read, &path)?;
        let table = Table {
            region,
            path,
            disk: Arc::clone(disk),
            fault: OnceLock::new(),
        };
        if magic != MAGIC || table.word(AT_VERSION) != VERSION {
            return Err(corrupt("no table of partitions, or one of another version"));
        }
        table.check()?;
        Ok(table)
    }

    /// Removes the table, which no process uses.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn remove(disk: &dyn Disk, root: &Path) -> Result<()> {
        match disk.unlink(&root.join(PARTITIONS)) {
            Err(error) if error.is_not_found() => Ok(()),
            done => done,
        }
    }

    /// Returns an error if an access has faulted. A value that cannot be read is 0.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn check(&self) -> Result<()> {
        self.fault.get().map_or(Ok(()), |fault| {
            let error = std::io::Error::other(*fault);
            Err(Error::io(Op::Access, &self.path, error))
        })
    }

    fn noted<T>(&self, done: std::io::Result<T>, otherwise: T) -> T {
        done.unwrap_or_else(|error| {
            if let Some(fault) = Fault::of(&error) {
                let _ = self.fault.set(fault);
            }
            otherwise
        })
    }

    fn word(&self, at: usize) -> u32 {
        self.noted(self.region.load_u32(at), 0)
    }

    fn load(&self, at: usize) -> u64 {
        self.noted(self.region.load_u64(at), 0)
    }

    fn set_word(&self, at: usize, value: u32) {
        self.noted(self.region.set_words(at, &value.to_ne_bytes()), ());
    }

    fn store(&self, at: usize, value: u64) {
        self.noted(self.region.store_u64(at, value), ());
    }

    #[cold]
    fn corrupt(&self, at: usize, reason: impl Into<String>) -> Error {
        Error::corrupt(&self.path, at as u64, reason)
    }

    /// The error of a partition that ends where it cannot.
    #[cold]
    pub fn corrupt_end(&self, number: u32) -> Error {
        let reason = "a partition ends before where it was seen to end";
        self.corrupt(entry_at(number), reason)
    }

    /// Bytes of a segment, which all processes give to the files that they begin.
    pub fn segment_bytes(&self) -> u64 {
        self.load(AT_SEGMENT_BYTES)
    }

    /// Number of partitions.
    pub fn count(&self) -> u32 {
        self.word(AT_COUNT).min(PARTITIONS_MAX)
    }

    /// Adds partitions: topic, queue, first offset and end of each. All of them are known to other
    /// processes at once. The caller holds the append lock, or has the store for itself.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if they do not fit; [`Error::Full`], [`Error::Io`].
    pub fn add(&self, all: &[(&str, u32, u64, Place)]) -> Result<()> {
        let first = self.count();
        let count = u32::try_from(all.len()).ok();
        let count = count.and_then(|count| first.checked_add(count));
        let Some(count) = count.filter(|count| *count <= PARTITIONS_MAX) else {
            let what = format!("mode=\"share\" with more than {PARTITIONS_MAX} partitions");
            return Err(Error::Unsupported { what });
        };
        for (number, (topic, queue, start, place)) in (first..).zip(all) {
            let at = entry_at(number);
            if at.is_multiple_of(STEP_LEN) || number == first {
                let len = STEP_LEN.min(TABLE_LEN - at);
                self.disk.reserve(&self.path, at as u64, len as u64)?;
            }
            let mut name = topic.as_bytes().to_vec();
            self.set_word(at, *queue);
            self.set_word(at + OF_TOPIC_LEN, short(name.len()));
            name.resize(OF_START - OF_TOPIC, 0);
            self.noted(self.region.set_words(at + OF_TOPIC, &name), ());
            self.store(at + OF_START, *start);
            self.set(Which::Durable, number, *place);
            self.set(Which::Published, number, *place);
        }
        fence(Ordering::Release);
        self.set_word(AT_COUNT, count);
        self.check()
    }

    /// Topic and queue of a partition.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the table has something else there; [`Error::Io`].
    pub fn name(&self, number: u32) -> Result<(Arc<str>, u32)> {
        fence(Ordering::Acquire);
        let at = entry_at(number);
        let (queue, len) = (self.word(at), self.word(at + OF_TOPIC_LEN));
        let found = self.region.words::<{ OF_START - OF_TOPIC }>(at + OF_TOPIC);
        let bytes = self.noted(found, [0; OF_START - OF_TOPIC]);
        self.check()?;
        let topic = bytes.get(..index(u64::from(len)));
        let topic = topic.and_then(|topic| str::from_utf8(topic).ok());
        let is_name = |topic: &&str| names::check_topic(topic).is_ok();
        let topic = topic
            .filter(is_name)
            .filter(|_| queue <= i32::MAX.cast_unsigned());
        let topic = topic.ok_or_else(|| self.corrupt(at, "not a topic and a queue"))?;
        Ok((topic.into(), queue))
    }

    /// An end of a partition.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the table has none there; [`Error::Io`].
    pub fn get(&self, which: Which, number: u32) -> Result<Place> {
        let (at, places) = which.at(number);
        for _ in 0..READS {
            let seen = self.word(at);
            let place = places + (seen % 2) as usize * PLACE_LEN;
            let words: [u64; 5] = std::array::from_fn(|word| self.load(place + word * 8));
            fence(Ordering::Acquire);
            if self.word(at) != seen {
                continue;
            }
            self.check()?;
            let [base, len, offset, continues, sum] = words;
            let is_end = sum == sum_of([base, len, offset, continues], seen);
            if is_end && continues <= 1 && base <= offset && offset < names::OFFSET_MAX {
                return Ok(Place {
                    end: End { base, len, offset },
                    continues: continues == 1,
                });
            }
            break;
        }
        Err(self.corrupt(at, "not the end of a partition"))
    }

    /// Moves an end of a partition. One thread of all processes at a time may move it.
    pub fn set(&self, which: Which, number: u32, to: Place) {
        let (at, places) = which.at(number);
        let next = self.word(at).wrapping_add(1);
        let place = places + (next % 2) as usize * PLACE_LEN;
        let End { base, len, offset } = to.end;
        let words = [base, len, offset, u64::from(to.continues)];
        let sum = sum_of(words, next);
        for (number, word) in words.into_iter().chain([sum]).enumerate() {
            self.store(place + number * 8, word);
        }
        fence(Ordering::Release);
        self.set_word(at, next);
        // The next move overwrites the place that a reader of the number before this one loads.
        fence(Ordering::Release);
    }

    /// The first offset of a partition.
    pub fn start(&self, number: u32) -> u64 {
        self.load(entry_at(number) + OF_START)
    }

    /// Raises the first offset of a partition.
    pub fn raise_start(&self, number: u32, start: u64) {
        self.store(entry_at(number) + OF_START, start.max(self.start(number)));
    }

    /// Changes when segments of a partition were removed.
    pub fn changes(&self, number: u32) -> u32 {
        self.word(entry_at(number) + OF_CHANGES)
    }

    /// Has other processes list the segments of a partition again.
    pub fn next_change(&self, number: u32) {
        let next = self.changes(number).wrapping_add(1);
        self.set_word(entry_at(number) + OF_CHANGES, next);
    }

    /// Changes when segments were cut.
    pub fn cuts(&self) -> u32 {
        self.word(AT_CUTS)
    }

    /// Has all processes map segments again before they append. The caller holds the append lock.
    pub fn next_cut(&self) {
        self.set_word(AT_CUTS, self.cuts().wrapping_add(1));
    }

    /// Whether an append has failed and left something after the published ends.
    pub fn is_unclean(&self) -> bool {
        self.word(AT_UNCLEAN) != 0
    }

    /// Sets whether it has. The caller holds the append lock.
    pub fn set_unclean(&self, unclean: bool) {
        self.set_word(AT_UNCLEAN, u32::from(unclean));
    }

    /// End of the last atomic batch whose intent may exist; 0 if there is none.
    pub fn whole(&self) -> u64 {
        self.load(AT_WHOLE)
    }

    /// Sets the end of that batch. The caller holds the append lock.
    pub fn set_whole(&self, end: u64) {
        self.store(AT_WHOLE, end);
    }
}

fn entry_at(number: u32) -> usize {
    PAGE + number.min(PARTITIONS_MAX - 1) as usize * ENTRY_LEN
}

fn sum_of(words: [u64; 4], number: u32) -> u64 {
    let mut sum = crc32fast::Hasher::new();
    for word in words {
        sum.update(&word.to_ne_bytes());
    }
    sum.update(&number.to_ne_bytes());
    // An entry of zeros is none.
    u64::from(sum.finalize()) | 1 << 32
}
