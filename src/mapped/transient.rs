//! The transient pool: a small ring of locked buffers in front of the current file.
//!
//! ```text
//!   append --> [buffer] [buffer] ... --write-out: large writes--> file --flush--> disk
//!                  ^                       |
//!                  +------- ring <---------+
//! ```
//!
//! Appends touch no page of a file and so wait for none. What is not *written out* is lost when the
//! process dies, and nobody but the process can see it. Marks, each at most the one before it:
//! wrote (end of what was appended), written-out (the published end), flushed.
//!
//! A file that is written from the pool is not stored to through its map meanwhile: a store into a
//! page that a large write brought dirties far more than the page.

use super::MappedFile;
use crate::error::{Error, Op, Result};
use crate::num::index;
use crate::region::Region;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Length of a buffer, but no longer than a file.
const BUFFER_LEN: u64 = 4 << 20;

/// Bytes of one file that are not all written out.
#[derive(Debug)]
struct Chunk {
    file: Arc<MappedFile>,
    /// Byte of the file that the first of the buffer belongs to.
    start: u64,
    buffer: Arc<Region>,
    /// Bytes of the buffer that are written out.
    done: usize,
    /// Whether nothing more of the file comes behind it.
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

    /// Position after the bytes that are in the buffer.
    fn end(&self) -> u64 {
        self.file.start() + self.start + self.filled() as u64
    }
}

/// The ring, and what is on its way through it.
#[derive(Debug)]
pub struct TransientPool {
    buffer_len: usize,
    count: usize,
    free: Mutex<Vec<Arc<Region>>>,
    chunks: Mutex<VecDeque<Chunk>>,
    /// Held while chunks are written out, in their order.
    writing: Mutex<()>,
    wrote: AtomicU64,
}

impl TransientPool {
    /// A ring of `count` buffers for files of `file_len` bytes, of a log that ends at `end`.
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

    /// Locks the buffers in memory, as far as the process may; `forebay doctor` tells how far.
    pub fn lock(&self) {
        for buffer in self.free.lock().iter() {
            let _ = buffer.lock();
        }
    }

    fn buffer(&self) -> io::Result<Arc<Region>> {
        let name = Path::new("a buffer of the transient pool");
        Region::anonymous(self.buffer_len, name).map(Arc::new)
    }

    /// End of what was appended.
    #[inline]
    pub fn wrote(&self) -> u64 {
        self.wrote.load(Ordering::Acquire)
    }

    /// Says that all below `end` was appended. The caller holds the append lock.
    #[inline]
    pub fn set_wrote(&self, end: u64) {
        self.wrote.store(end, Ordering::Release);
    }

    /// Buffers that are missing for `bytes` that go over into the next file `rolls` times.
    pub fn lacking(&self, bytes: usize, rolls: usize) -> usize {
        let room = match rolls {
            0 => self.chunks.lock().back().map_or(0, Chunk::room),
            _ => 0,
        };
        // Each file ends in a buffer of its own, and its filler may need one more.
        let need = bytes.saturating_sub(room).div_ceil(self.buffer_len) + 2 * rolls;
        need.saturating_sub(self.free.lock().len())
    }

    /// Whether nothing is on its way: all is written out.
    pub fn is_idle(&self) -> bool {
        let written = |chunk: &Chunk| chunk.done == chunk.filled();
        self.chunks.lock().iter().all(written)
    }

    /// Makes buffers beyond the ring; they are not kept.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] where there is no memory.
    pub fn add(&self, buffers: usize) -> Result<()> {
        for _ in 0..buffers {
            let made = self.buffer();
            let made = made.map_err(|e| Error::io(Op::Make, Path::new("a buffer"), e))?;
            self.free.lock().push(made);
        }
        Ok(())
    }

    /// Whether a buffer is full: time for a large write.
    pub fn has_full(&self) -> bool {
        self.chunks.lock().len() > 1
    }

    /// Takes the bytes that belong at `start` of `file`, behind those taken before. The caller has
    /// seen to it that nothing is [`TransientPool::lacking`].
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
                    unreachable!("buffers were secured")
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

    /// Says that nothing more of `file` comes.
    pub fn end_file(&self, file: &Arc<MappedFile>) {
        if let Some(chunk) = self.chunks.lock().back_mut()
            && Arc::ptr_eq(&chunk.file, file)
        {
            chunk.last = true;
        }
    }

    /// Lets go of the buffer of a file that is given up, all of which is written out. Nobody
    /// appends meanwhile.
    pub fn let_go(&self) {
        let _alone = self.writing.lock();
        let chunks = std::mem::take(&mut *self.chunks.lock());
        for chunk in chunks {
            chunk.file.end_writing();
            self.give_back(chunk);
        }
    }

    /// Puts a buffer back into the ring, unless it is one beyond it.
    fn give_back(&self, mut chunk: Chunk) {
        let mut free = self.free.lock();
        if free.len() < self.count
            && let Some(buffer) = Arc::get_mut(&mut chunk.buffer)
        {
            buffer.reuse();
            free.push(chunk.buffer);
        }
    }

    /// Writes out what was appended so far and calls `publish` with its end, unless others have
    /// done so.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; what was not written out stays in the buffers.
    pub fn write_out(&self, publish: impl FnOnce(u64)) -> Result<()> {
        let _alone = self.writing.lock();
        let end = self.wrote();
        loop {
            // Chunks are taken from the front here alone, so the first stays where it is.
            let mut chunks = self.chunks.lock();
            let Some(chunk) = chunks.front_mut() else {
                break;
            };
            let upto = index(end.min(chunk.end()) - chunk.file.start() - chunk.start);
            // A file that has just ended goes on with a filler that is not appended yet.
            if upto <= chunk.done {
                break;
            }
            let (file, start) = (Arc::clone(&chunk.file), chunk.start + chunk.done as u64);
            let (buffer, done) = (Arc::clone(&chunk.buffer), chunk.done);
            // The lock is not held over a write: senders go on meanwhile.
            drop(chunks);
            let bytes = buffer.slice_again(done, upto - done).unwrap_or_default();
            let written = file.write(start, bytes);
            written.map_err(|e| Error::io(Op::Write, file.path(), e))?;
            file.publish(start + bytes.len() as u64);
            drop(buffer);
            self.finish(upto);
        }
        publish(end);
        Ok(())
    }

    /// Takes the first chunk for written out up to byte `done`.
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
    fn a_file_that_ends_during_a_write_out_does_not_hold_it_up() {
        let dir = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let path = dir.path().join("file");
        let file = Arc::new(MappedFile::create(&disk, path, 0, 4096, 4096).unwrap());
        let pool = TransientPool::new(2, 4096, 0).unwrap();
        pool.take(&file, 0, &[7; 100]).unwrap();
        pool.set_wrote(100);
        // The filler is there, and the appender has not said so yet.
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
