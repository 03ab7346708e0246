//! An open segment: what lies at a position of it, and whether a batch is whole.
//!
//! Files are read by `pread` into a buffer: a live broker truncates its files, and a load from a
//! map of a truncated file fails. A segment that is being read stays readable when the broker
//! renames or deletes it.

use super::lender::{LENT_LEN, Lender};
use super::segment::Segment;
use super::window::Window;
use crate::disk::{Disk, OpenFile};
use crate::error::Result;
use crate::num::index;
use crate::plant::{Bug, planted};
use crate::record::Flaw;
use crate::record::kafka::header::{LEN_END, MAGIC_END};
use crate::record::kafka::{HEAD_LEN, Header, Lent};
use std::sync::Arc;

/// Bytes read at once.
const WINDOW_LEN: usize = 32 << 10;
/// Bytes read at once if the read continues the one before.
const NEXT_WINDOW_LEN: usize = 96 << 10;
static ZEROS: [u8; WINDOW_LEN] = [0; WINDOW_LEN];

/// What lies at a position of a segment.
#[derive(Clone, Copy, Debug)]
pub enum Here {
    /// A batch.
    Batch(Header),
    /// Nothing, or too few bytes for a batch.
    End,
    /// Bytes that are not a batch. If the length can be believed, another batch may follow.
    Flawed(Flaw),
}

/// What the header of a batch states that is not whole.
#[derive(Clone, Copy, Debug)]
pub struct Stated {
    /// Where the batch ends.
    pub end: u64,
    /// The offset after it.
    pub after: u64,
}

/// An open segment.
#[derive(Debug)]
pub struct Reader {
    file: OpenFile,
    /// The segment.
    pub segment: Arc<Segment>,
    /// Bytes of the segment that the file has.
    pub len: u64,
    /// Length of the file.
    pub file_len: u64,
    /// All bytes from here on are zero, as far as that is known.
    pub zeros_from: u64,
    window: Window,
    /// Lends the memory of the window to rows.
    pub lender: Option<Lender>,
}

impl Reader {
    /// Opens a segment.
    pub fn open(disk: &dyn Disk, segment: &Arc<Segment>) -> Result<Reader> {
        let file = disk.open(&segment.path)?;
        // The file of a writer is longer than its contents.
        let file_len = file.first_len()?;
        let len = file_len.min(segment.len);
        Ok(Reader {
            file,
            segment: Arc::clone(segment),
            len,
            file_len,
            zeros_from: u64::MAX,
            window: Window::default(),
            lender: None,
        })
    }

    /// What lies at a position.
    pub fn here(&mut self, position: u64) -> Result<Here> {
        #[cfg(test)]
        counted::position();
        let left = self.len.saturating_sub(position);
        if left == 0 {
            return Ok(Here::End);
        }
        let bytes = match self.head(position) {
            Err(_) if planted(Bug::TakeErrorForAbsence) => return Ok(Here::End),
            read => read?,
        };
        let header = match Header::parse(bytes) {
            Ok(header) => header,
            Err(_) if left < MAGIC_END as u64 => return Ok(Here::End),
            Err(flaw) => return Ok(Here::Flawed(flaw)),
        };
        if u64::from(header.len) > left {
            return Ok(Here::End);
        }
        Ok(match self.segment.can_hold(header.last_offset()) {
            true => Here::Batch(header),
            false => Here::Flawed(Flaw::Field("offset")),
        })
    }

    /// What the header at a position states, even if the file ends within its batch; `None` if
    /// there is no header.
    pub(super) fn stated(&mut self, position: u64) -> Result<Option<Stated>> {
        let header = Header::parse(self.head(position)?).ok();
        let header = header.filter(|header| self.segment.can_hold(header.last_offset()));
        Ok(header.map(|header| Stated {
            end: position + u64::from(header.len),
            after: header.last_offset() + 1,
        }))
    }

    /// Up to [`HEAD_LEN`] bytes at a position.
    fn head(&mut self, position: u64) -> Result<&[u8]> {
        let want = (position + HEAD_LEN as u64).min(self.len);
        if position < self.window.at || want > self.window.end() {
            self.fill(position)?;
        }
        let rest = self.window.ready(position);
        Ok(rest.get(..HEAD_LEN.min(rest.len())).unwrap_or_default())
    }

    /// Reads bytes of the file from a position on.
    fn fill(&mut self, position: u64) -> Result<()> {
        let window = &mut self.window;
        let file = &self.file;
        let before = window.at..=window.end();
        let goes_on = !std::mem::take(&mut window.bytes).is_empty() && before.contains(&position);
        window.at = position;
        window.lent = None;
        if let Some(lender) = self.lender.as_mut().filter(|lender| lender.is_on) {
            // Bytes after the segment distinguish a header that it ends in from damage.
            let left = self.len.saturating_sub(position) + HEAD_LEN as u64;
            let region = lender.fill(position, left, |room| read(file, position, room))?;
            window.bytes = lender.preface_len()..region.readable();
            window.lent = Some(region);
            return Ok(());
        }
        let len = match goes_on {
            true => NEXT_WINDOW_LEN,
            false => WINDOW_LEN,
        };
        // Asking for more than the file has would cost another call.
        let left = usize::try_from(self.file_len.saturating_sub(position));
        let len = left.map_or(len, |left| len.min(left));
        if window.own.len() < len {
            window.own.resize(len, 0);
        }
        let room = window.own.get_mut(..len).unwrap_or_default();
        window.bytes = 0..read(file, position, room)?;
        Ok(())
    }

    /// The batch at a position, in place; `None` if rows cannot keep the memory that it was read
    /// into.
    pub fn lend(&mut self, position: u64, header: &Header) -> Result<Option<Lent>> {
        let Some(lender) = self.lender.as_mut().filter(|lender| lender.is_on) else {
            return Ok(None);
        };
        let len = header.len as usize;
        let (topic_len, begin) = (lender.topic_len(), lender.preface_len());
        // Batches that are longer than a window do not gain from lent windows.
        lender.is_on = len <= LENT_LEN - begin;
        if header.magic != 2 || !lender.is_on {
            return Ok(None);
        }
        let is_there =
            |window: &Window| window.lent.is_some() && window.ready(position).len() >= len;
        if !is_there(&self.window) {
            self.fill(position)?;
        }
        let start = begin + index(position - self.window.at);
        let region = self.window.lent.clone();
        let region = region.filter(|_| is_there(&self.window));
        Ok(region.map(|region| Lent {
            region,
            topic_len,
            bytes: start..start + len,
        }))
    }

    /// The bytes of the batch at a position; fewer if the file was truncated meanwhile.
    pub fn batch(&self, position: u64, header: &Header) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_batch(position, header, &mut bytes)?;
        Ok(bytes)
    }

    /// Replaces `bytes` by those of [`Reader::batch`].
    pub fn read_batch(&self, position: u64, header: &Header, bytes: &mut Vec<u8>) -> Result<()> {
        let len = header.len as usize;
        match self.window.ready(position).get(..len) {
            Some(ready) => {
                bytes.clear();
                bytes.extend_from_slice(ready);
            }
            None => {
                bytes.resize(len, 0);
                let have = read(&self.file, position, bytes)?;
                bytes.truncate(have);
            }
        }
        Ok(())
    }

    /// Bytes of the file at a position; fewer where it ends.
    pub fn bytes(&self, position: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let have = read(&self.file, position, &mut bytes)?;
        bytes.truncate(have);
        Ok(bytes)
    }

    /// Whether the batch at a position is whole: its checksum is right.
    pub fn is_whole(&self, position: u64, header: &Header) -> Result<bool> {
        let stored = self.stored(position, header);
        if stored < u64::from(header.len) {
            let bytes = self.bytes(position, index(stored))?;
            return Ok(bytes.len() as u64 == stored && header.has_crc_with_zeros(&bytes));
        }
        let bytes = self.batch(position, header)?;
        Ok(bytes.len() == header.len as usize && header.has_crc_of(&bytes))
    }

    /// How many bytes of the batch at a position must be read to check it: all but the zeros at the
    /// end of the segment.
    pub(super) fn stored(&self, position: u64, header: &Header) -> u64 {
        let stored = self.zeros_from.saturating_sub(position);
        stored.min(header.len.into())
    }

    /// Finds the end of the data that takes space: only zeros follow. Nobody writes to the file.
    pub fn find_zeros(&mut self, disk: &dyn Disk) -> Result<()> {
        let mut end = 0;
        while end < self.len
            && let Some(data) = disk.next_data(&self.segment.path, end)?
        {
            end = data.end.max(end + 1);
        }
        self.zeros_from = end;
        Ok(())
    }

    /// The end of the last byte from `from` on that is not zero; `from` if there is none.
    pub fn data_end(&self, disk: &dyn Disk, from: u64) -> Result<u64> {
        let (mut at, mut end) = (from, from);
        let mut buffer = vec![0; WINDOW_LEN];
        while at < self.len
            && let Some(data) = disk.next_data(&self.segment.path, at)?
        {
            at = data.start.max(at);
            let data_end = data.end.clamp(at, self.len.max(at));
            while at < data_end {
                let len = index((data_end - at).min(WINDOW_LEN as u64));
                let have = read(&self.file, at, buffer.get_mut(..len).unwrap_or_default())?;
                let bytes = buffer.get(..have).unwrap_or_default();
                // A comparison of memory is many times as fast as a loop over bytes.
                if ZEROS.get(..have) != Some(bytes)
                    && let Some(last) = bytes.iter().rposition(|byte| *byte != 0)
                {
                    end = at + last as u64 + 1;
                }
                if have < len {
                    return Ok(end);
                }
                at += have as u64;
            }
            at = at.max(data.end).max(data.start + 1);
        }
        Ok(end)
    }

    /// How many bytes to skip at a position with zeros: a length is not 0, so no batch begins among
    /// them. A sparse file has many zeros that take no space.
    pub(super) fn zeros(&self, position: u64) -> u64 {
        let rest = self.window.ready(position);
        let rest = rest.get(..ZEROS.len()).unwrap_or(rest);
        // A comparison of memory is many times as fast as a loop over bytes.
        let zeros = match ZEROS.get(..rest.len()) == Some(rest) {
            true => rest.len(),
            false => rest.iter().take_while(|byte| **byte == 0).count(),
        };
        (zeros as u64).saturating_sub(LEN_END as u64 - 1)
    }
}

fn read(file: &OpenFile, position: u64, buffer: &mut [u8]) -> Result<usize> {
    let have = file.read_at(position, buffer)?;
    #[cfg(test)]
    counted::add(have);
    Ok(have)
}

/// How many bytes of segments this thread has read.
#[cfg(test)]
pub mod counted {
    use std::cell::Cell;

    thread_local! {
        static BYTES: Cell<u64> = const { Cell::new(0) };
        static POSITIONS: Cell<u64> = const { Cell::new(0) };
    }

    pub fn position() {
        POSITIONS.set(POSITIONS.get() + 1);
    }

    /// How many positions this thread has read since the last call.
    pub fn positions() -> u64 {
        POSITIONS.take()
    }

    pub fn add(bytes: usize) {
        BYTES.set(BYTES.get() + bytes as u64);
    }

    /// Their number since the last call.
    pub fn take() -> u64 {
        BYTES.take()
    }
}
