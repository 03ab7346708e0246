//! The transient pool: a small ring of locked buffers in front of the current file.
//!
//! ```text
//!   append --> [buffer] [buffer] ... --write-out: large writes--> file --flush--> disk
//!                  ^                       |
//!                  +------- ring <---------+
//! ```
//!
//! Appends touch no page of a file and so never wait for one. Bytes that are not *written out* are
//! lost when the process dies and are invisible to other processes. Marks, in falling order: wrote
//! (end of appended bytes), written-out (the published end), flushed.
//!
//! A file that is written from the pool is not stored to through its map: a store to a page that
//! was cached by a large write dirties far more than that page.

use super::MappedFile;
use crate::error::{At, Op, Result};
use crate::num::index;
use crate::region::Region;
use crate::sync::Mutex;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Length of a buffer, or of a file if that is shorter.
const BUFFER_LEN: u64 = 4 << 20;

/// Bytes of one file, not all of which are written out.
#[derive(Debug)]
struct Chunk {
    file: Arc<MappedFile>,
    /// Byte of the file where the buffer begins.
    start: u64,
    buffer: Arc<Region>,
    /// Bytes of the buffer that are written out.
    done: usize,
    /// Whether this is the last chunk of the file.
    last: bool,
}

impl Chunk {
    fn filled(&self) -> usize {
        self.buffer.readable()
    }

    fn room(&self) -> usize {
        match self.last {
            true => 0,
            false => self.buffer.len() - self.filled(),
        }
    }

    /// Position after the last byte in the buffer.
    fn end(&self) -> u64 {
        self.file.start() + self.start + self.filled() as u64
    }
}

/// The ring of buffers, and the chunks not yet written out.
#[derive(Debug)]
pub struct TransientPool {
    buffer_len: usize,
    count: usize,
    free: Mutex<Vec<Arc<Region>>>,
    chunks: Mutex<VecDeque<Chunk>>,
    /// Held while chunks are written out, in order.
    writing: Mutex<()>,
    wrote: AtomicU64,
}

impl TransientPool {
    /// A ring of `count` buffers for a log of files of `file_len` bytes that ends at `end`.
    pub fn new(count: usize, file_len: u64, end: u64) -> io::Result<TransientPool> {
        let buffer_len = index(BUFFER_LEN.min(file_len));
        let pool = TransientPool {
            buffer_len,
            count,
            free: Mutex::new(Vec::with_capacity(count)),
            chunks: Mutex::default(),
            writing: Mutex::new(()),
            wrote: AtomicU64::new(end),
        };
        for _ in 0..count {
            let buffer = pool.buffer()?;
            pool.free.lock().push(buffer);
        }
        Ok(pool)
    }

    /// Locks the buffers in memory as far as the process is allowed to; `forebay doctor` reports
    /// the limit.
    pub fn lock(&self) {
        for buffer in self.free.lock().iter() {
            let _ = buffer.lock();
        }
    }

    fn buffer(&self) -> io::Result<Arc<Region>> {
        let name = Path::new("a buffer of the transient pool");
        Region::anonymous(self.buffer_len, name).map(Arc::new)
    }

    /// End of the appended bytes.
    #[inline]
    pub fn wrote(&self) -> u64 {
        self.wrote.load(Ordering::Acquire)
    }

    /// Sets the end of the appended bytes. The caller holds the append lock.
    #[inline]
    pub fn set_wrote(&self, end: u64) {
        self.wrote.store(end, Ordering::Release);
    }

    /// Number of buffers missing to append `bytes` bytes that roll to another file `rolls` times.
    pub fn lacking(&self, bytes: usize, rolls: usize) -> usize {
        let room = match rolls {
            0 => self.chunks.lock().back().map_or(0, Chunk::room),
            _ => 0,
        };
        // Each file ends its last buffer, and its BLANK may need one more.
        let need = bytes.saturating_sub(room).div_ceil(self.buffer_len) + 2 * rolls;
        need.saturating_sub(self.free.lock().len())
    }

    /// Whether everything is written out.
    pub fn is_idle(&self) -> bool {
        let written = |chunk: &Chunk| chunk.done == chunk.filled();
        self.chunks.lock().iter().all(written)
    }

    /// Adds buffers above the size of the ring; they are freed after use.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if memory is exhausted.
    pub fn add(&self, buffers: usize) -> Result<()> {
        for _ in 0..buffers {
            let made = self.buffer().at(Op::Make, "a buffer")?;
            self.free.lock().push(made);
        }
        Ok(())
    }

    /// Whether a buffer is full and should be written out.
    pub fn has_full(&self) -> bool {
        self.chunks.lock().len() > 1
    }

    /// Appends bytes that belong at `start` of `file`, after those of the last call. The caller has
    /// made sure that no buffer is [`TransientPool::lacking`].
    pub fn take(&self, file: &Arc<MappedFile>, start: usize, mut bytes: &[u8]) -> io::Result<()> {
        let mut chunks = self.chunks.lock();
        let mut start = start as u64;
        while !bytes.is_empty() {
            let fits = |chunk: &&mut Chunk| {
                chunk.room() > 0
                    && Arc::ptr_eq(&chunk.file, file)
                    && chunk.start + chunk.filled() as u64 == start
            };
            let Some(chunk) = chunks.back_mut().filter(fits) else {
                let Some(buffer) = self.free.lock().pop() else {
                    unreachable!("the caller added missing buffers")
                };
                chunks.push_back(Chunk {
                    file: Arc::clone(file),
                    start,
                    buffer,
                    done: 0,
                    last: false,
                });
                continue;
            };
            let at = chunk.filled();
            let (now, later) = bytes.split_at(bytes.len().min(chunk.room()));
            chunk.buffer.write(at, now)?;
            chunk.buffer.publish_alone(at + now.len());
            start += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    /// Marks `file` as complete.
    pub fn end_file(&self, file: &Arc<MappedFile>) {
        if let Some(chunk) = self.chunks.lock().back_mut()
            && Arc::ptr_eq(&chunk.file, file)
        {
            chunk.last = true;
        }
    }

    /// Drops the buffer of an abandoned file, whose bytes are all written out. Nobody may append
    /// meanwhile.
    pub fn let_go(&self) {
        let _alone = self.writing.lock();
        let chunks = std::mem::take(&mut *self.chunks.lock());
        for chunk in chunks {
            chunk.file.end_writing();
            self.give_back(chunk);
        }
    }

    /// Returns a buffer to the ring, or frees it if the ring is full.
    fn give_back(&self, mut chunk: Chunk) {
        let mut free = self.free.lock();
        if free.len() < self.count
            && let Some(buffer) = Arc::get_mut(&mut chunk.buffer)
        {
            buffer.reuse();
            free.push(chunk.buffer);
        }
    }

    /// Writes out everything appended so far and calls `publish` with its end. Skips what other
    /// callers have written out.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; bytes that were not written out stay in the buffers.
    pub fn write_out(&self, publish: impl FnOnce(u64)) -> Result<()> {
        let _alone = self.writing.lock();
        let end = self.wrote();
        loop {
            // Only this function removes chunks from the front, so the first one stays in place.
            let mut chunks = self.chunks.lock();
            let Some(chunk) = chunks.front_mut() else {
                break;
            };
            let upto = index(end.min(chunk.end()) - chunk.file.start() - chunk.start);
            // A file that has just ended continues with a BLANK that is not appended yet.
            if upto <= chunk.done {
                break;
            }
            let (file, start) = (Arc::clone(&chunk.file), chunk.start + chunk.done as u64);
            let (buffer, done) = (Arc::clone(&chunk.buffer), chunk.done);
            // The lock is not held during the write, so that senders can continue.
            drop(chunks);
            let bytes = buffer.slice_again(done, upto - done).unwrap_or_default();
            file.write(start, bytes)?;
            file.publish(start + bytes.len() as u64);
            drop(buffer);
            self.finish(upto);
        }
        publish(end);
        Ok(())
    }

    /// Marks the first chunk as written out up to byte `done`.
    fn finish(&self, done: usize) {
        let mut chunks = self.chunks.lock();
        let Some(chunk) = chunks.front_mut() else {
            return;
        };
        chunk.done = done;
        if chunk.last && done == chunk.filled() {
            chunk.file.publish(chunk.file.len());
            chunk.file.end_writing();
        }
        if chunk.room() == 0 && done == chunk.filled() {
            let done = chunks.pop_front();
            done.into_iter().for_each(|chunk| self.give_back(chunk));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, RealDisk};

    #[test]
    fn a_file_that_ends_during_a_write_out_does_not_block_it() {
        let dir = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let path = dir.path().join("file");
        let file = Arc::new(MappedFile::create(&disk, path, 0, 4096, 4096).unwrap());
        let pool = TransientPool::new(2, 4096, 0).unwrap();
        pool.take(&file, 0, &[7; 100]).unwrap();
        pool.set_wrote(100);
        // The BLANK is in the buffer, but the appender has not moved the mark.
        pool.take(&file, 100, &[9; 8]).unwrap();
        pool.end_file(&file);
        let mut published = 0;
        pool.write_out(|end| published = end).unwrap();
        assert_eq!((published, file.wrote()), (100, 100));
        assert!(!pool.is_idle());
        pool.set_wrote(4096);
        pool.write_out(|end| published = end).unwrap();
        assert_eq!((published, file.wrote()), (4096, 4096));
        assert!(pool.is_idle() && !pool.has_full());
    }
}
