//! The last segment of a partition, to which messages are appended.
//!
//! Its file is created at the full length of a segment, gets disk blocks in steps ahead of use, and
//! is written through a map. After the end it has zeros, which are not a batch. The file is cut to
//! its contents when the segment is completed.

use super::indexes::{Indexes, OFFSETS, TIMES};
use super::rules::Rules;
use crate::disk::Disk;
use crate::engine::partition_log::segments::names::beside;
use crate::engine::partition_log::segments::reader::{Here, Reader};
use crate::engine::partition_log::segments::segment::Segment;
use crate::error::Result;
use crate::mapped::{Allocator, Extent, MappedFile};
use crate::region::{Access, Region};
use std::path::PathBuf;
use std::sync::Arc;

/// Blocks are reserved this far ahead at first, later as far ahead as the segment is long.
const STEP_MIN: u64 = 64 << 10;
/// At most this far ahead.
const STEP_MAX: u64 = 16 << 20;
/// Pages after the end are faulted in at least this far ahead: faulting in many at once takes less
/// time per page than one fault per store.
const POPULATE_LEN: u64 = 64 << 10;
/// The allocator faults in pages at most this far ahead.
const POPULATE_MAX: u64 = 1 << 20;
/// It does so for all partitions together, as far as each has [`POPULATE_LEN`].
const POPULATE_ALL: u64 = 8 << 20;
/// Pages are faulted in ahead only after this many bytes were appended: pages that stay unused take
/// memory, and are written as zeros.
const POPULATE_FROM: u64 = 256 << 10;

/// A segment to which messages are appended.
#[derive(Debug)]
pub struct Last {
    /// No offset in it is lower.
    pub base: u64,
    /// Bytes of its batches.
    pub len: u64,
    /// The largest time of its first batch.
    pub first_timestamp: Option<i64>,
    /// When it was created or opened, in ms.
    pub opened_ms: i64,
    /// Its indexes.
    pub indexes: Indexes,
    /// Its log file.
    pub file: Arc<MappedFile>,
    /// The map of the file, while it is used.
    pub region: Option<Arc<Region>>,
    /// A lower bound of the bytes that have blocks.
    pub room: u64,
    /// Where appends began.
    began: u64,
    /// Bytes whose pages were faulted in, or requested from the allocator.
    asked: u64,
    /// An append that ends after this byte looks whether pages have to be faulted in.
    look_at: u64,
}

impl Last {
    /// Creates a segment with blocks for the first `len` bytes. Nothing is durable on return. After
    /// an error it does not exist.
    pub fn create(
        disk: &Arc<dyn Disk>,
        path: PathBuf,
        (base, len): (u64, u64),
        rules: &Rules,
        now_ms: i64,
    ) -> Result<Last> {
        // An earlier attempt may have left these files.
        for ending in [OFFSETS, TIMES, ".log"] {
            let stray = beside(&path, ending);
            if disk.stat(&stray)?.is_some() {
                disk.unlink(&stray)?;
            }
        }
        let reserve = (len + STEP_MIN).min(rules.segment_bytes);
        let file = MappedFile::begin(disk, path, 0, rules.segment_bytes, reserve)?;
        Ok(Last {
            base,
            len: 0,
            first_timestamp: None,
            opened_ms: now_ms,
            indexes: Indexes::new(base, rules),
            region: Some(file.region()?),
            room: file.reserved(),
            began: 0,
            asked: 0,
            look_at: 0,
            file: Arc::new(file),
        })
    }

    /// Opens a segment of `len` bytes that ends before the offset `next`. All of them are durable,
    /// unless processes share it. In that case the indexes here stay empty, because the leader has
    /// them.
    pub fn open(
        disk: &Arc<dyn Disk>,
        path: PathBuf,
        (base, len, next): (u64, u64, u64),
        rules: &Rules,
        (now_ms, is_shared): (i64, bool),
    ) -> Result<Last> {
        let segment = Arc::new(Segment {
            base,
            path: path.clone(),
            len,
        });
        let mut reader = Reader::open(&**disk, &segment)?;
        let first_timestamp = match reader.here(0)? {
            Here::Batch(header) => Some(header.max_timestamp),
            _ => None,
        };
        let indexes = match is_shared {
            true => Indexes::new(base, rules),
            false => match Indexes::load(&**disk, &path, (base, len, next), rules)? {
                Some(indexes) => indexes,
                None => Indexes::rebuild(&**disk, reader, base, rules)?.0,
            },
        };
        disk.set_len(&path, rules.segment_bytes)?;
        let extent = Extent::Part(len);
        let length = rules.segment_bytes;
        let file = MappedFile::open(disk, path, 0, length, Access::ReadWrite, extent);
        Ok(Last {
            base,
            len,
            first_timestamp,
            opened_ms: now_ms,
            indexes,
            file: Arc::new(file),
            region: None,
            room: 0,
            began: len,
            asked: 0,
            look_at: 0,
        })
    }

    /// Faults in the pages of the bytes before `end`, which are about to be stored, and some that
    /// follow. `active`: how many partitions were appended to since the last sync.
    #[inline]
    pub fn populate(&mut self, end: u64, allocator: Option<&Allocator>, active: usize) {
        if end > self.look_at && end.saturating_sub(self.began) >= POPULATE_FROM {
            self.populate_ahead(end, allocator, active);
        }
    }

    #[cold]
    fn populate_ahead(&mut self, end: u64, allocator: Option<&Allocator>, active: usize) {
        let mut present = self.file.populated().max(self.len);
        if end > present {
            // Nobody was asked to, or the allocator is late, as on a busy machine.
            let until = (end + POPULATE_LEN).min(self.room);
            if present < until {
                self.file.populate(present, until - present);
                present = until;
            }
        }
        self.look_at = present;
        let share = POPULATE_ALL / (active as u64).max(1);
        let step = share.min(POPULATE_MAX).min(end - self.began);
        let Some(allocator) = allocator.filter(|_| step > POPULATE_LEN) else {
            return;
        };
        self.asked = self.asked.max(present);
        if end + step / 2 > self.asked {
            let until = (end + step).min(self.room);
            if self.asked < until {
                allocator.populate(&self.file, self.asked, until - self.asked);
                self.asked = until;
            }
        }
        self.look_at = present.min(self.asked.saturating_sub(step / 2));
    }

    /// Reserves blocks for the bytes below `end`, and for some that follow. Returns the map.
    pub fn reserve(&mut self, end: u64) -> Result<Arc<Region>> {
        if end > self.file.reserved() {
            let ahead = end.clamp(STEP_MIN, STEP_MAX);
            // If the disk has no room for blocks ahead, it may still have room for these.
            match self.file.reserve(end + ahead) {
                Err(error) if error.is_out_of_room() => self.file.reserve(end)?,
                reserved => reserved?,
            }
        }
        self.room = self.file.reserved();
        self.file.region()
    }

    /// Moves the end of a shared segment past what other processes have appended. Returns false if
    /// the segment must be opened again.
    pub fn catch_up(&mut self, len: u64) -> bool {
        if len == self.len {
            return true;
        }
        self.len = len;
        self.file.publish(len);
        self.first_timestamp.is_some()
    }

    /// Unmaps the file if it was not used since this was last called.
    pub fn unmap_unused(&mut self) {
        (self.asked, self.look_at) = (0, 0);
        if self.region.take().is_none() {
            self.file.unmap_unused();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod test {
    use super::*;
    use crate::disk::RealDisk;
    use crate::machine::Machine;
    use crate::mapped::Preparation;
    use crate::num::index;
    use crate::options::Options;
    use std::cell::Cell;

    const STEP: u64 = 10_000;

    /// What segments are created in.
    struct Bed {
        dir: tempfile::TempDir,
        disk: Arc<dyn Disk>,
        rules: Rules,
        allocator: Allocator,
        made: Cell<u64>,
    }

    impl Bed {
        fn new() -> Bed {
            let disk: Arc<dyn Disk> = Arc::new(RealDisk);
            let machine = Machine::stepped(Arc::clone(&disk));
            Bed {
                dir: tempfile::tempdir().unwrap(),
                disk,
                rules: Rules::new(&Options::default()),
                allocator: Allocator::new(&machine, Preparation::default(), &Arc::default()),
                made: Cell::new(0),
            }
        }

        fn last(&self) -> Last {
            let base = self.made.replace(self.made.get() + 1);
            let path = self.dir.path().join(format!("{base:020}.log"));
            Last::create(&self.disk, path, (base, 0), &self.rules, 0).unwrap()
        }
    }

    fn append(last: &mut Last, allocator: Option<&Allocator>, active: usize) {
        let end = last.len + STEP;
        let region = last.reserve(end).unwrap();
        last.populate(end, allocator, active);
        region.write(index(last.len), &[7; index(STEP)]).unwrap();
        last.len = end;
        region.publish(index(end));
    }

    /// A partition to which little is appended takes no memory for pages that it does not use.
    #[test]
    fn pages_are_faulted_in_only_ahead_of_a_segment_to_which_much_is_appended() {
        let bed = Bed::new();
        let mut last = bed.last();
        while last.len + STEP < POPULATE_FROM {
            append(&mut last, None, 1);
            assert_eq!(last.file.populated(), 0);
        }
        append(&mut last, None, 1);
        let populated = last.file.populated();
        assert_eq!(populated, (last.len + POPULATE_LEN).min(last.room));
        append(&mut last, None, 1);
        assert_eq!(last.file.populated(), populated, "in steps");
        last.unmap_unused();
        assert_eq!(last.look_at, 0);
    }

    /// Of 1,000 partitions, each has few pages that it may never use.
    #[test]
    fn the_allocator_faults_in_as_many_pages_ahead_as_there_is_room_for_all_partitions() {
        let bed = Bed::new();
        let allocator = Some(&bed.allocator);
        for (active, most) in [(1, POPULATE_MAX), (32, POPULATE_ALL / 32), (1000, 0)] {
            let mut last = bed.last();
            let mut ahead = Vec::new();
            while last.len < 4 * POPULATE_MAX {
                append(&mut last, allocator, active);
                assert!(last.file.populated() <= last.room);
                if last.len > 2 * POPULATE_MAX && last.len + most < last.room {
                    ahead.push(last.file.populated() - last.len);
                }
            }
            let (min, max) = (ahead.iter().min().unwrap(), ahead.iter().max().unwrap());
            assert!(*max <= most.max(POPULATE_LEN), "{active}: {max}");
            assert!(*min + STEP >= most / 2, "{active}: {min}");
        }
    }
}
