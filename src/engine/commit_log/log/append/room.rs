//! Room for appends: files exist and blocks are reserved before the first byte is stored, and those
//! that the next appends will need are requested ahead of use.

use super::{Appender, Current, RESERVE_STEP, Tail, WRITE_LEN};
use crate::engine::Topic;
use crate::error::{Awaited, Error, Result};
use crate::mapped::{MappedFile, Ready, TransientPool, Use};
use crate::num::index;
use crate::record::Batch;
use crate::record::rocketmq::layout::BLANK_LEN;
use crate::region::PAGE;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// If `populate` is set, pages after the end are faulted in ahead: as many bytes at once as were
/// appended since opening, and at most this many.
const POPULATE_MAX: u64 = 8 << 20;
/// Pages are faulted in ahead only after this many bytes were appended: the kernel writes unused
/// pages as zeros, and an opening after a crash searches them for records.
const POPULATE_MIN: u64 = 256 << 10;
/// Bytes that the appender itself faults in at once.
const POPULATE_HERE: u64 = 64 << 10;
/// How long a roll waits for a file that the allocator is creating.
const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(5);

impl Tail {
    /// Prepares files and blocks for all rows and for the BLANK after them.
    #[inline]
    pub(super) fn secure(
        &mut self,
        with: &Appender<'_>,
        parts: &[(&Topic, &mut Batch)],
    ) -> Result<()> {
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
            // A roll happens only if the next record does not fit, so any two consecutive files
            // together take about a file length of records or more.
            false => 2 * total / index(with.log.files.file_len()) + 2,
        };
        self.have_buffers(with, pool, total, rolls)
    }

    /// Prepares buffers for `total` bytes that continue in another file `rolls` times.
    pub(super) fn have_buffers(
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
            return Err(Error::Busy {
                what: Awaited::Log,
                waited_ms: 0,
            });
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
    pub(super) fn reserve(
        &mut self,
        with: &Appender<'_>,
        ahead: usize,
        position: u64,
    ) -> Result<()> {
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
    pub(super) fn have_ahead(&mut self, with: &Appender<'_>, count: usize) -> Result<()> {
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
                    return Err(Error::Busy {
                        what: Awaited::Log,
                        waited_ms,
                    });
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
    pub(super) fn look_ahead(&mut self, with: &Appender<'_>, len: u64) {
        if self.populate && self.position > self.present && len < WRITE_LEN as u64 {
            self.populate_here();
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
        if with.log.state.is_shared() {
            // Other processes would not know of blocks and files that this one has prepared.
            return;
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

    /// Faults in pages after the end if the allocator, which is late on a busy machine, has not
    /// done so. Faulting in many pages at once takes less time per page than leaving each to a
    /// store.
    #[cold]
    fn populate_here(&mut self) {
        let Some(current) = self.current.as_ref().filter(|it| !it.pooled) else {
            return;
        };
        let start = current.file.start();
        let at = self.position - start;
        let until = (at + POPULATE_HERE).min(current.file.reserved());
        if current.file.populated() <= at && self.bytes >= POPULATE_MIN && at < until {
            current.file.populate(at, until - at);
        }
        // If nothing was faulted in, the stores to the next page fault it in, and this runs again
        // after that page.
        self.present = start + current.file.populated().max(at + PAGE as u64);
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
