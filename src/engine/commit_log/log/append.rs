//! Appending: assigns positions and queue offsets, seals and copies the records, and publishes the
//! new end, all under one lock.
//!
//! ```text
//!   check, size, encode (outside) --> lock --> secure room --> seal and copy --> publish -->
//!   unlock
//! ```
//!
//! Room is secured before the first byte is stored: files exist, and disk blocks are reserved for
//! the whole batch. So an append fails before it has stored anything, or not at all.

mod shared;

use super::Log;
use super::blank::blank;
use crate::engine::commit_log::queues::table::QueueTable;
use crate::engine::directory::page::Mark;
use crate::engine::{Appended, Place, Topic};
use crate::error::{At, Error, Op, Result};
use crate::mapped::{Allocator, Latch, MappedFile, Ready, TransientPool, Use};
use crate::num::index;
use crate::plant::{Point, pass};
use crate::record::rocketmq::layout::BLANK_LEN;
use crate::record::{Batch, rocketmq};
use crate::region::{PAGE, Region};
use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Disk blocks of a log file are reserved in steps of this many bytes.
pub const RESERVE_STEP: u64 = 64 << 20;
/// If `populate` is set, pages after the end are faulted in ahead: as many bytes at once as were
/// appended since opening, and at most this many.
const POPULATE_MAX: u64 = 8 << 20;
/// Not before so many were appended: pages that stay unused are written as zeros, and searched for
/// records by the opening after a crash.
const POPULATE_MIN: u64 = 256 << 10;
/// Appends of at least this many bytes use write calls, which fill pages without zeroing them or
/// faulting. Smaller ones are copied into the map, which needs no system call.
const WRITE_LEN: usize = if cfg!(test) { 1 << 10 } else { 128 << 10 };
/// Sealed records are stored once they reach this many bytes, while they are in the processor's
/// cache.
const RUN_LEN: usize = 4 * WRITE_LEN;
/// Number of files created ahead of use.
const FILES_AHEAD: usize = 2;
/// How long a roll waits for a file that the allocator is creating.
const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(5);

/// The end of the log: everything that the append lock guards.
#[derive(Debug)]
pub struct Tail {
    current: Option<Current>,
    position: u64,
    last_store_ms: i64,
    /// Next offset of each queue.
    offsets: QueueTable<u64>,
    /// Finished files after the current one, in order.
    ahead: VecDeque<Arc<MappedFile>>,
    /// Files requested from the allocator after those, in order. Only the next file is locked in
    /// memory.
    coming: VecDeque<Arc<Latch<Arc<MappedFile>>>>,
    /// Number of files to create ahead of use; fewer when the disk is nearly full.
    files_ahead: usize,
    /// Position up to which blocks have been requested from the allocator.
    asked_until: u64,
    populated: u64,
    populate: bool,
    /// Whether new files are written from the transient pool.
    pooled: bool,
    messages: u64,
    bytes: u64,
}

#[derive(Debug, Clone)]
struct Current {
    file: Arc<MappedFile>,
    region: Arc<Region>,
    end: u64,
    /// Whether this file is written only from the transient pool, never through its map.
    pooled: bool,
}

impl Current {
    #[inline]
    fn store(&self, with: &Appender<'_>, start: usize, bytes: &[u8], writes: bool) -> Result<()> {
        let stored = match with.pool {
            Some(pool) if self.pooled => pool.take(&self.file, start, bytes),
            _ if writes && self.write(with, start, bytes) => Ok(()),
            // The blocks are reserved: this fails only if the device or file system is lost.
            _ => self.region.write(start, bytes),
        };
        stored.at(Op::Store, self.file.path())
    }

    #[cold]
    fn write(&self, with: &Appender<'_>, start: usize, bytes: &[u8]) -> bool {
        let wrote = with.disk.write_at(self.file.path(), start as u64, bytes);
        wrote.is_ok()
    }
}

/// What an append needs besides the tail.
pub struct Appender<'a> {
    /// The log.
    pub log: &'a Log,
    /// Creates files and reserves blocks.
    pub allocator: &'a Allocator,
    /// The disk.
    pub disk: &'a Arc<dyn crate::disk::Disk>,
    /// The buffers that appends go to first, if the store has them.
    pub pool: Option<&'a TransientPool>,
    /// Whether an append fails instead of writing out a full pool.
    pub pool_fail_fast: bool,
}

impl Tail {
    /// The tail of a log that ends at `position`. `populate`: fault in pages ahead. `pooled`: write
    /// new files from the transient pool.
    pub fn new(
        log: &Log,
        position: u64,
        last_store_ms: i64,
        populate: bool,
        pooled: bool,
    ) -> Result<Tail> {
        let mut tail = Tail {
            current: None,
            position,
            last_store_ms,
            offsets: QueueTable::default(),
            ahead: VecDeque::new(),
            coming: VecDeque::new(),
            files_ahead: FILES_AHEAD,
            asked_until: 0,
            populated: position,
            populate,
            pooled,
            messages: 0,
            bytes: 0,
        };
        if let Some(file) = log.files.find(position) {
            tail.enter(file)?;
        }
        Ok(tail)
    }

    /// End of the log.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Position up to which pages were requested ahead of use.
    #[cfg(test)]
    pub fn populated(&self) -> u64 {
        self.populated
    }

    /// Continues in `file`, a replacement of the current file with the same bytes up to the end.
    pub fn exchange(&mut self, file: Arc<MappedFile>) -> Result<()> {
        self.enter(file)
    }

    /// Store time of the last record, in ms.
    pub fn last_store_ms(&self) -> i64 {
        self.last_store_ms
    }

    /// Messages and bytes appended since opening.
    pub fn counters(&self) -> (u64, u64) {
        (self.messages, self.bytes)
    }

    /// Sets the next offset of a queue, as found by opening.
    pub fn set_next_offset(&mut self, topic: &Topic, queue: u32, offset: u64) {
        *self.offsets.place(topic.id, queue) = offset;
    }

    /// Raises the next offset of a queue to `next`, so that lower offsets are not assigned again.
    pub fn raise_next_offset(&mut self, topic: &Topic, queue: u32, next: u64) {
        let offset = self.offsets.place(topic.id, queue);
        *offset = next.max(*offset);
    }

    /// The next offset of a queue.
    #[cfg(test)]
    pub fn next_offset(&mut self, topic: &Topic, queue: u32) -> u64 {
        *self.offsets.place(topic.id, queue)
    }

    fn enter(&mut self, file: Arc<MappedFile>) -> Result<()> {
        let region = file.region()?;
        let end = file.end();
        self.asked_until = file.start() + file.reserved();
        self.populated = self.position;
        let pooled = self.pooled;
        self.current = Some(Current {
            file,
            region,
            end,
            pooled,
        });
        Ok(())
    }

    /// Appends the parts in order, publishes them together, and fills `appended`, which must be
    /// empty. On an error nothing was stored, except if a store to memory faulted
    /// ([`Error::is_fault`]): then nothing is published, and nothing may be appended any more.
    ///
    /// `appended` is filled in place. To return it would copy bytes that were just stored in other
    /// sizes, and such a copy stalls until all earlier stores, including those to the log, have
    /// reached the cache.
    pub fn append(
        &mut self,
        with: &Appender<'_>,
        parts: &mut [(&Topic, &mut Batch)],
        clock_ms: i64,
        appended: &mut Appended,
    ) -> Result<()> {
        self.secure(with, parts)?;
        let begin = self.position;
        let store_ms = self.last_store_ms.max(clock_ms);
        appended.store_timestamp = store_ms;
        let len: usize = parts.iter().map(|(_, batch)| batch.encoded_len()).sum();
        let writes = len >= WRITE_LEN;
        let mut count = 0;
        for (topic, batch) in parts.iter_mut() {
            let batch = batch.rocketmq_mut();
            // Bytes of the batch that are sealed but not stored yet.
            let mut run = 0..0;
            for index in 0..batch.rows().len() {
                let Some(row) = batch.rows().get(index).copied() else {
                    break;
                };
                let fits = self.has_room(u64::from(row.len));
                if !fits || run.len() >= RUN_LEN {
                    self.store(with, batch, &mut run, writes)?;
                }
                if !fits {
                    self.roll(with)?;
                }
                let position = self.position;
                let next = self.offsets.place(topic.id, row.queue);
                let offset = *next;
                *next += 1;
                batch.seal(row, offset, position, store_ms);
                run.end += row.len as usize;
                self.position += u64::from(row.len);
                count += 1;
                appended.rows.push(Place {
                    position,
                    queue: row.queue,
                    offset,
                });
            }
            self.store(with, batch, &mut run, writes)?;
        }
        self.last_store_ms = store_ms;
        self.messages += count;
        self.bytes += self.position - begin;
        appended.end = self.position;
        if with.log.state.is_shared() {
            with.log.state.set_stored_ms(store_ms);
            pass(Point::Stored);
        }
        self.publish(with);
        with.log.stored_ms.store(store_ms, Ordering::Release);
        self.show_ready(with);
        self.look_ahead(with, self.position - begin);
        Ok(())
    }

    /// Fills up the current file with a BLANK, however much room it has, and continues in the next.
    /// Readers see the BLANK at once. Returns where the next file begins. Does nothing if the
    /// current file is empty, or if `start` is given and the current file begins elsewhere.
    ///
    /// # Errors
    ///
    /// As for [`Tail::append`]: nothing was stored.
    pub fn seal(&mut self, with: &Appender<'_>, start: Option<u64>) -> Result<Option<u64>> {
        let Some(current) = &self.current else {
            return Ok(None);
        };
        let (begin, end) = (current.file.start(), current.end);
        if self.position == begin || start.is_some_and(|start| start != begin) {
            return Ok(None);
        }
        if let Some(pool) = with.pool {
            self.have_buffers(with, pool, BLANK_LEN, 2)?;
        }
        self.reserve(with, 0, (self.position + BLANK_LEN as u64).min(end))?;
        self.have_ahead(with, 1)?;
        self.roll(with)?;
        self.publish(with);
        self.show_ready(with);
        Ok(Some(self.position))
    }

    /// Shows senders how far blocks are reserved.
    #[inline]
    fn show_ready(&self, with: &Appender<'_>) {
        if let Some(current) = &self.current {
            let ready = current.file.start() + current.file.reserved();
            with.log.ready.store(ready, Ordering::Relaxed);
        }
    }

    /// Stores the sealed records `run` of a batch, which end at the end of the log.
    #[inline]
    fn store(
        &self,
        with: &Appender<'_>,
        batch: &rocketmq::Batch,
        run: &mut Range<usize>,
        writes: bool,
    ) -> Result<()> {
        let sealed = batch.bytes().get(run.clone()).unwrap_or_default();
        run.start = run.end;
        if let Some(current) = &self.current
            && !sealed.is_empty()
        {
            let end = index(self.position - current.file.start());
            current.store(with, end - sealed.len(), sealed, writes)?;
        }
        Ok(())
    }

    /// Publishes what was appended. In a pooled file the write-out does that.
    #[inline]
    fn publish(&self, with: &Appender<'_>) {
        let Some(current) = &self.current else { return };
        if let Some(pool) = with.pool {
            pool.set_wrote(self.position);
        }
        if !current.pooled {
            let wrote = self.position - current.file.start();
            current.region.publish_alone(index(wrote));
            with.log.state.set(Mark::Published, self.position);
        }
    }

    /// Whether a record of `len` bytes fits the current file.
    #[inline]
    fn has_room(&self, len: u64) -> bool {
        let needed = self.position + len + BLANK_LEN as u64;
        let current = self.current.as_ref();
        current.is_some_and(|current| needed <= current.end)
    }

    /// Fills up the current file and continues in the next, which `secure` has prepared.
    fn roll(&mut self, with: &Appender<'_>) -> Result<()> {
        if let Some(current) = self.current.take() {
            let at = index(self.position - current.file.start());
            let filler = blank(current.end - self.position);
            // A log that another system wrote may have less room than a whole BLANK.
            let room = index(current.end - self.position).min(filler.len());
            current.store(with, at, filler.get(..room).unwrap_or_default(), false)?;
            match with.pool {
                Some(pool) if current.pooled => pool.end_file(&current.file),
                _ => current.region.publish_alone(current.region.len()),
            }
            self.position = current.end;
            with.allocator.end(&current.file);
        }
        let Some(next) = self.ahead.pop_front() else {
            unreachable!("files were secured")
        };
        with.log.files.push(Arc::clone(&next));
        self.files_ahead = FILES_AHEAD;
        // Requests that failed are repeated.
        while self.coming.back().is_some_and(|last| last.has_failed()) {
            self.coming.pop_back();
        }
        match (self.ahead.front(), self.coming.front()) {
            (Some(file), _) => with.allocator.begin(file),
            (None, Some(coming)) => with.allocator.begin_coming(coming),
            (None, None) => {}
        }
        pass(Point::Rolled);
        self.enter(next)
    }

    /// Prepares files and blocks for all rows and for the BLANK after them.
    #[inline]
    fn secure(&mut self, with: &Appender<'_>, parts: &[(&Topic, &mut Batch)]) -> Result<()> {
        let total: usize = parts.iter().map(|(_, batch)| batch.encoded_len()).sum();
        if let Some(pool) = with.pool {
            self.secure_buffers(with, pool, total)?;
        }
        if let Some(current) = &self.current {
            let end = self.position + total as u64 + BLANK_LEN as u64;
            if end <= current.file.start() + current.file.reserved() {
                return Ok(());
            }
        }
        self.secure_slowly(with, parts)
    }

    /// Prepares buffers for `total` bytes.
    fn secure_buffers(
        &self,
        with: &Appender<'_>,
        pool: &TransientPool,
        total: usize,
    ) -> Result<()> {
        let fits = |current: &Current| {
            current.pooled && self.position + total as u64 + BLANK_LEN as u64 <= current.end
        };
        let rolls = match self.current.as_ref().is_some_and(fits) {
            true => 0,
            // Any two consecutive records are longer than a file together, or fit into one.
            false => 2 * total / index(with.log.files.file_len()) + 2,
        };
        self.have_buffers(with, pool, total, rolls)
    }

    /// Prepares buffers for `total` bytes that continue in another file `rolls` times.
    fn have_buffers(
        &self,
        with: &Appender<'_>,
        pool: &TransientPool,
        total: usize,
        rolls: usize,
    ) -> Result<()> {
        if pool.lacking(total, rolls) == 0 {
            return Ok(());
        }
        if with.pool_fail_fast && !pool.is_idle() {
            return Err(Error::Busy { waited_ms: 0 });
        }
        pool.write_out(|end| with.log.publish(end))?;
        pool.add(pool.lacking(total, rolls))
    }

    #[cold]
    fn secure_slowly(&mut self, with: &Appender<'_>, parts: &[(&Topic, &mut Batch)]) -> Result<()> {
        let file_len = with.log.files.file_len();
        let filler = BLANK_LEN as u64;
        let mut position = self.position;
        let mut end = self
            .current
            .as_ref()
            .map_or(position, |current| current.end);
        let mut files = 0;
        for row in parts.iter().flat_map(|(_, batch)| batch.rocketmq().rows()) {
            let len = u64::from(row.len);
            if len + filler > file_len {
                return Err(Error::TooLarge {
                    what: "record (which must fit a commit log file)".to_owned(),
                    size: len,
                    limit: file_len - filler,
                });
            }
            if position + len + filler > end {
                self.reserve(with, files, (position + filler).min(end))?;
                position = end;
                end += file_len;
                files += 1;
                self.have_ahead(with, files)?;
            }
            position += len;
        }
        self.reserve(with, files, position + filler)
    }

    /// Reserves the blocks below `position`, in the current file (`ahead` 0) or a later one.
    fn reserve(&mut self, with: &Appender<'_>, ahead: usize, position: u64) -> Result<()> {
        let file = match ahead.checked_sub(1) {
            None => self.current.as_ref().map(|current| &current.file),
            Some(index) => self.ahead.get(index),
        };
        let Some(file) = file.cloned() else {
            return Ok(());
        };
        let need = position - file.start();
        if need <= file.reserved() {
            return Ok(());
        }
        // Tries a whole step first, then only what is needed.
        let step = need.next_multiple_of(RESERVE_STEP);
        if file.reserve(step).is_ok() {
            return Ok(());
        }
        let mut reserved = file.reserve(need);
        if reserved.as_ref().is_err_and(Error::is_out_of_room) && self.let_go(ahead.max(1)) {
            reserved = file.reserve(need);
        }
        reserved.map_err(|error| {
            let missing = need.saturating_sub(file.reserved());
            with_room(with, error, file.path(), missing)
        })
    }

    /// Deletes files ahead except the first `kept` to free their disk space. Returns whether there
    /// were any. Until the next roll only one file is created ahead.
    fn let_go(&mut self, kept: usize) -> bool {
        let mut gone = false;
        self.files_ahead = 1;
        while self.ahead.len() + self.coming.len() > kept {
            let last = match self.coming.pop_back() {
                Some(coming) => match coming.wait(ALLOCATE_TIMEOUT) {
                    None => {
                        self.coming.push_back(coming);
                        break;
                    }
                    Some(made) => made.done(),
                },
                None => self.ahead.pop_back(),
            };
            if let Some(file) = last {
                file.discard();
                gone = true;
            }
        }
        gone
    }

    /// Prepares at least `count` files after the current one.
    fn have_ahead(&mut self, with: &Appender<'_>, count: usize) -> Result<()> {
        while self.ahead.len() < count {
            let start = match (self.ahead.back(), &self.current) {
                (Some(file), _) => file.end(),
                (None, Some(current)) => current.end,
                (None, None) => with.log.files.start_of(self.position),
            };
            // It stays in the list until its file exists, because the requests after it depend on
            // the order.
            let coming = self.coming.front().cloned();
            let file = match coming.as_ref().map(|latch| latch.wait(ALLOCATE_TIMEOUT)) {
                Some(Some(Ready::Done(file))) => file,
                Some(None) => {
                    // The allocator is still creating it, so it cannot be created here too.
                    let waited_ms = ALLOCATE_TIMEOUT.as_secs() * 1000;
                    return Err(Error::Busy { waited_ms });
                }
                // Creating it ahead failed, but may succeed here.
                _ => match self.create(with, start) {
                    Err(Error::Full { .. }) if self.let_go(self.ahead.len() + 1) => {
                        self.create(with, start)?
                    }
                    made => made?,
                },
            };
            self.coming.pop_front();
            self.ahead.push_back(file);
        }
        Ok(())
    }

    fn create(&self, with: &Appender<'_>, start: u64) -> Result<Arc<MappedFile>> {
        let directory = with.log.files.directory();
        with.disk.create_directory(directory)?;
        let path = with.log.files.path_of(start);
        let len = with.log.files.file_len();
        let step = RESERVE_STEP.min(len);
        let preparer = with.allocator.preparer();
        let try_with = |reserve| preparer.create(path.clone(), start, len, reserve, Use::Next);
        if with.log.state.is_shared()
            && let Some(file) = self.open_made(with, &path, start)?
        {
            return Ok(file);
        }
        let made = try_with(step).or_else(|_| try_with(BLANK_LEN as u64));
        made.map_err(|error| with_room(with, error, &path, step))
    }

    /// Requests what the next appends will need if they resemble the last one, of `len` bytes:
    /// blocks, faulted pages, files.
    #[inline]
    fn look_ahead(&mut self, with: &Appender<'_>, len: u64) {
        if with.log.state.is_shared() {
            // What one process has prepared, the others would not know of.
            return;
        }
        let Some(current) = &self.current else { return };
        let maps = !current.pooled && len < WRITE_LEN as u64;
        let step = self.bytes.min(POPULATE_MAX);
        let is_due = step >= POPULATE_MIN && self.position + step / 2 > self.populated;
        if self.populate && maps && is_due {
            let from = self.populated.max(self.position);
            let reserved = current.file.start() + current.file.reserved();
            let to = (from + step).min(reserved);
            if to > from {
                let start = from - current.file.start();
                with.allocator.populate(&current.file, start, to - from);
                self.populated = to;
            }
        }
        if self.position + RESERVE_STEP / 2 > self.asked_until && self.asked_until < current.end {
            self.asked_until = (self.asked_until + RESERVE_STEP).min(current.end);
            let end = self.asked_until - current.file.start();
            drop(with.allocator.reserve(&current.file, end));
        }
        let (end, len) = (current.end, current.file.len());
        let asked = self.ahead.len() + self.coming.len();
        if self.position < end - len / 2 || asked >= self.files_ahead {
            return;
        }
        for number in asked..self.files_ahead {
            let start = end + len * number as u64;
            let path = with.log.files.path_of(start);
            let needed = if number == 0 { Use::Next } else { Use::Later };
            let reserve = RESERVE_STEP.min(len);
            let latch = with.allocator.create(path, start, len, reserve, needed);
            self.coming.push_back(latch);
        }
    }

    /// The file that is appended to, if there is one.
    pub fn current_file(&self) -> Option<&Arc<MappedFile>> {
        self.current.as_ref().map(|current| &current.file)
    }

    /// The current file, and the range of whole pages after the end whose blocks are reserved.
    pub fn unused_pages(&self) -> Option<(&MappedFile, Range<u64>)> {
        let file = &self.current.as_ref()?.file;
        let end = (self.position - file.start()).next_multiple_of(PAGE as u64);
        (end < file.reserved()).then(|| (&**file, end..file.reserved()))
    }

    /// Takes the empty files that were created ahead of use.
    pub fn take_unused(&mut self) -> Vec<Arc<MappedFile>> {
        let coming = self
            .coming
            .drain(..)
            .filter_map(|latch| latch.wait(ALLOCATE_TIMEOUT)?.done());
        let coming: Vec<_> = coming.collect();
        self.ahead.drain(..).chain(coming).collect()
    }
}

/// Turns an error about lack of room into [`Error::Full`], which states the free space.
fn with_room(with: &Appender<'_>, error: Error, path: &Path, needed: u64) -> Error {
    if !error.is_out_of_room() {
        return error;
    }
    let directory = with.log.files.directory();
    Error::Full {
        path: path.to_path_buf(),
        needed,
        free: with.disk.free_space(directory).unwrap_or(0),
    }
}
