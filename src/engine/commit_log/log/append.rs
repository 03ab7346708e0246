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

mod room;
mod shared;

use super::Log;
use super::blank::blank;
use crate::engine::commit_log::queues::table::QueueTable;
use crate::engine::directory::page::Mark;
use crate::engine::{Appended, Place, Topic, Topics};
use crate::error::{At, Op, Result};
use crate::mapped::{Allocator, Latch, MappedFile, TransientPool};
use crate::num::index;
use crate::plant::{Point, pass};
use crate::record::rocketmq::layout::BLANK_LEN;
use crate::record::{Batch, rocketmq};
use crate::region::Region;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Disk blocks of a log file are reserved in steps of this many bytes.
pub const RESERVE_STEP: u64 = 64 << 20;
/// Appends of at least this many bytes use write calls, which fill pages without zeroing them or
/// faulting. Smaller ones are copied into the map, which needs no system call.
const WRITE_LEN: usize = if cfg!(test) { 1 << 10 } else { 128 << 10 };
/// Sealed records are stored once they reach this many bytes, while they are in the processor's
/// cache.
const RUN_LEN: usize = 4 * WRITE_LEN;
/// Number of files created ahead of use.
const FILES_AHEAD: usize = 2;

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
    /// Position up to which pages are faulted in, as far as this is known.
    present: u64,
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
            present: position,
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

    /// Position up to which pages are known to be faulted in.
    #[cfg(test)]
    pub fn present(&self) -> u64 {
        self.present
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

    /// The queues that have given offsets, and the next offset of each.
    pub fn next_offsets(&self, topics: &Topics) -> Vec<(Arc<Topic>, u32, u64)> {
        let mut found = Vec::new();
        for topic in topics.all() {
            let queues = self.offsets.of(topic.id);
            found.extend(queues.map(|(queue, next)| (Arc::clone(&topic), queue, *next)));
        }
        found
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
        self.present = self.position;
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
    /// empty. On an error nothing was stored, unless a store to memory faulted
    /// ([`crate::Error::is_fault`]): then nothing is published, and nothing more may be appended.
    ///
    /// `appended` is filled in place. Returning it would copy bytes that were just stored with
    /// other widths. Such a copy stalls until all earlier stores, including those to the log, have
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

    /// The file that is appended to, if there is one.
    pub fn current_file(&self) -> Option<&Arc<MappedFile>> {
        self.current.as_ref().map(|current| &current.file)
    }
}
