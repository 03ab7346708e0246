//! The table of partitions, `forebay.partitions`: where each partition ends, while several
//! processes share a partition log.
//!
//! The file lives as long as some process shares the store: the first one makes it anew, and the
//! last one removes it. Numbers are in the machine's byte order:
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
//! An end has five fields: base and length of the last segment, the next offset, 1 if that segment
//! may be appended to, and a checksum. A new end is stored in the place that is not current, and
//! then its number, so that a process that dies in between leaves the current one.
//!
//! Any process may have stored anything here, so what is read is checked. A partition must not end
//! before where it was seen to end.

use crate::disk::Disk;
use crate::engine::directory::fields::Fields;
use crate::engine::directory::names::PARTITIONS;
use crate::engine::directory::table_file::TableFile;
use crate::engine::partition_log::segments::names;
use crate::error::{Error, Result};
use crate::num::{index, short};
use crate::region::{Access, PAGE};
use crate::sync::fence;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const FILE: TableFile = TableFile {
    name: PARTITIONS,
    of: "partitions",
    magic: *b"FOREBAYP",
    version: 1,
    len: TABLE_LEN,
    head_len: PAGE,
};
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
const TOPIC_LEN_MAX: usize = 249;
const OF_TOPIC_LEN: usize = 4;
const OF_TOPIC: usize = 8;
const OF_START: usize = 264;
const OF_CHANGES: usize = 272;
const OF_PUBLISHED: usize = 276;
const OF_DURABLE: usize = 360;
/// Bytes from the number of an end to the first of its two places: of the published one, and of the
/// durable one.
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

impl End {
    /// The end of a partition without segments, whose next offset is `offset`.
    pub fn without_segments(offset: u64) -> End {
        End {
            base: offset,
            len: 0,
            offset,
        }
    }
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
    fields: Fields,
    disk: Arc<dyn Disk>,
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
        FILE.create(&**disk, root)?;
        let table = Table::open(disk, root)?;
        table.fields.store(AT_SEGMENT_BYTES, segment_bytes);
        table.check()?;
        Ok(table)
    }

    /// Opens the table.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the file is missing; those of [`TableFile::open`].
    pub fn open(disk: &Arc<dyn Disk>, root: &Path) -> Result<Table> {
        let found = FILE.open(&**disk, root, Access::ReadWrite)?;
        let missing = || {
            Error::corrupt(
                root.join(PARTITIONS),
                0,
                "the table of partitions is missing",
            )
        };
        Ok(Table {
            fields: found.ok_or_else(missing)?,
            disk: Arc::clone(disk),
        })
    }

    /// Removes the table, which no process uses.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn remove(disk: &dyn Disk, root: &Path) -> Result<()> {
        FILE.remove(disk, root)
    }

    /// Returns an error if an access has faulted; see [`Fields::check`].
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn check(&self) -> Result<()> {
        self.fields.check()
    }

    /// The error of a partition with an impossible end.
    #[cold]
    pub fn corrupt_end(&self, number: u32) -> Error {
        let reason = "a partition ends before an end that was seen earlier";
        self.fields.corrupt(entry_at(number), reason)
    }

    /// Bytes of a segment, which all processes give to the files that they begin.
    pub fn segment_bytes(&self) -> u64 {
        self.fields.load(AT_SEGMENT_BYTES)
    }

    /// Number of partitions.
    pub fn count(&self) -> u32 {
        self.fields.word(AT_COUNT).min(PARTITIONS_MAX)
    }

    /// Adds partitions: topic, queue, first offset and end of each. Other processes see all of them
    /// at once. The caller holds the append lock, or has the store for itself.
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
            FILE.reserve(&*self.disk, &self.fields, PAGE, at)?;
            let mut name = topic.as_bytes().to_vec();
            self.fields.set_word(at, *queue);
            self.fields.set_word(at + OF_TOPIC_LEN, short(name.len()));
            name.resize(OF_START - OF_TOPIC, 0);
            self.fields.set_words(at + OF_TOPIC, &name);
            self.fields.store(at + OF_START, *start);
            self.set(Which::Durable, number, *place);
            self.set(Which::Published, number, *place);
        }
        fence(Ordering::Release);
        self.fields.set_word(AT_COUNT, count);
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
        let (queue, len) = (self.fields.word(at), self.fields.word(at + OF_TOPIC_LEN));
        let bytes = self.fields.words::<{ OF_START - OF_TOPIC }>(at + OF_TOPIC);
        self.check()?;
        let topic = bytes.get(..index(u64::from(len)));
        let topic = topic.and_then(|topic| str::from_utf8(topic).ok());
        let is_name = |topic: &&str| names::check_topic(topic).is_ok();
        let topic = topic
            .filter(is_name)
            .filter(|_| queue <= i32::MAX.cast_unsigned());
        let topic = topic.ok_or_else(|| self.fields.corrupt(at, "not a topic and a queue"))?;
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
            let seen = self.fields.word(at);
            let place = places + (seen % 2) as usize * PLACE_LEN;
            let words: [u64; 5] = std::array::from_fn(|word| self.fields.load(place + word * 8));
            fence(Ordering::Acquire);
            if self.fields.word(at) != seen {
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
        Err(self.fields.corrupt(at, "not the end of a partition"))
    }

    /// Moves an end of a partition. Only one thread of all processes may move it at a time.
    pub fn set(&self, which: Which, number: u32, to: Place) {
        let (at, places) = which.at(number);
        let next = self.fields.word(at).wrapping_add(1);
        let place = places + (next % 2) as usize * PLACE_LEN;
        let End { base, len, offset } = to.end;
        let words = [base, len, offset, u64::from(to.continues)];
        let sum = sum_of(words, next);
        for (number, word) in words.into_iter().chain([sum]).enumerate() {
            self.fields.store(place + number * 8, word);
        }
        fence(Ordering::Release);
        self.fields.set_word(at, next);
        // The next move overwrites the place that a reader of the number before this one loads.
        fence(Ordering::Release);
    }

    /// The first offset of a partition.
    pub fn start(&self, number: u32) -> u64 {
        self.fields.load(entry_at(number) + OF_START)
    }

    /// Raises the first offset of a partition.
    pub fn raise_start(&self, number: u32, start: u64) {
        self.fields
            .store(entry_at(number) + OF_START, start.max(self.start(number)));
    }

    /// A number that changes when segments of a partition are removed.
    pub fn changes(&self, number: u32) -> u32 {
        self.fields.word(entry_at(number) + OF_CHANGES)
    }

    /// Makes other processes list the segments of a partition again.
    pub fn next_change(&self, number: u32) {
        let next = self.changes(number).wrapping_add(1);
        self.fields.set_word(entry_at(number) + OF_CHANGES, next);
    }

    /// A number that changes when segments are cut.
    pub fn cuts(&self) -> u32 {
        self.fields.word(AT_CUTS)
    }

    /// Makes all processes map segments again before they append. The caller holds the append lock.
    pub fn next_cut(&self) {
        self.fields.set_word(AT_CUTS, self.cuts().wrapping_add(1));
    }

    /// Whether an append has failed and left something after the published ends.
    pub fn is_unclean(&self) -> bool {
        self.fields.word(AT_UNCLEAN) != 0
    }

    /// Sets [`Table::is_unclean`]. The caller holds the append lock.
    pub fn set_unclean(&self, unclean: bool) {
        self.fields.set_word(AT_UNCLEAN, u32::from(unclean));
    }

    /// End of the last atomic batch whose intent may exist; 0 if there is none.
    pub fn whole(&self) -> u64 {
        self.fields.load(AT_WHOLE)
    }

    /// Sets the end of that batch. The caller holds the append lock.
    pub fn set_whole(&self, end: u64) {
        self.fields.store(AT_WHOLE, end);
    }
}

fn entry_at(number: u32) -> usize {
    PAGE + number.min(PARTITIONS_MAX - 1) as usize * ENTRY_LEN
}

fn sum_of(words: [u64; 4], number: u32) -> u64 {
    let mut bytes = [0; 36];
    let (places, last) = bytes.split_at_mut(32);
    for (place, word) in places.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    last.copy_from_slice(&number.to_ne_bytes());
    // Never zero, so that zeros are not an end.
    u64::from(crc32fast::hash(&bytes)) | 1 << 32
}
