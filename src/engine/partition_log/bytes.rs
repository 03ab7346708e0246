//! A cursor over bytes that were read from an archive: whole blocks of a segment.

use super::taken::Taken;
use crate::engine::fetched::{Expected, Fetched};
use crate::engine::{Check, Cursor, Damage, Filter, Rows};
use crate::error::Result;
use crate::record::Flaw;
use crate::record::kafka::{Header, Home, Opened};
use crate::sync::Mutex;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Walks batches in order of position and returns the wanted messages.
///
/// Bytes that are not batches are skipped and reported as damage, and so are blocks that differ
/// from what was archived. Each block begins with a batch, so reading continues at the next block
/// at the latest.
pub struct BatchCursor {
    bytes: Vec<u8>,
    /// Where they are from.
    from: Fetched,
    /// Where blocks begin.
    blocks: Vec<usize>,
    topic: String,
    queue: u32,
    wanted: Vec<Range<u64>>,
    filter: Filter,
    check: Check,
    at: usize,
    /// The batch that is being read, and where it begins.
    open: Option<(Opened, usize)>,
    taken: Taken,
}

impl BatchCursor {
    /// A cursor over a copy of `bytes`, which begin at `position` of a segment of this topic and
    /// queue and were read from `path`. `blocks`: their expected lengths and checksums; the
    /// checksums are compared only if `check` asks for them.
    pub fn new(
        bytes: &[u8],
        (position, path): (u64, &Path),
        blocks: &[Expected],
        (topic, queue, wanted): (&str, u32, Vec<Range<u64>>),
        (filter, check): (Filter, Check),
        damage: &Arc<Mutex<Vec<Damage>>>,
    ) -> BatchCursor {
        let cursor = BatchCursor {
            bytes: bytes.to_vec(),
            from: Fetched {
                path: path.to_owned(),
                position,
                damage: Arc::clone(damage),
            },
            blocks: begins(blocks),
            topic: topic.to_owned(),
            queue,
            wanted,
            filter,
            check,
            at: 0,
            open: None,
            taken: Taken::default(),
        };
        cursor.from.compare(blocks, check, |at, length| {
            let end = cursor.bytes.len().min(at + length);
            cursor.bytes.get(at..end).unwrap_or_default()
        });
        cursor
    }

    /// Takes the next message, or goes to the next batch; `false` at the end.
    fn step(&mut self, rows: &mut Rows) -> Result<bool> {
        if self.open.is_some() {
            self.take(rows)?;
            return Ok(true);
        }
        if self.at >= self.bytes.len() {
            return Ok(false);
        }
        let at = self.at;
        match self.batch(at) {
            Ok((header, opened)) => {
                self.at += header.len as usize;
                let first = header.first_offset();
                let is_wanted =
                    |range: &Range<u64>| range.start <= header.last_offset() && first < range.end;
                if !header.is_control() && self.wanted.iter().any(is_wanted) {
                    self.open = Some((opened, at));
                }
            }
            Err(flaw) => self.pass_over(at, &flaw),
        }
        Ok(true)
    }

    /// The batch that begins at a place.
    fn batch(&self, at: usize) -> Result<(Header, Opened), Flaw> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let header = Header::parse(rest)?;
        let bytes = rest.get(..header.len as usize);
        let bytes = bytes.ok_or(Flaw::Length(header.len.into()))?;
        let opened = Opened::open(bytes.to_vec(), self.check == Check::Full)?;
        Ok((header, opened))
    }

    /// Reports what is not a batch, up to the next batch.
    fn pass_over(&mut self, at: usize, flaw: &Flaw) {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let next_block = self.blocks.iter().find(|block| **block > at);
        let next_block = next_block.copied().unwrap_or(self.bytes.len());
        let next_block = next_block.min(self.bytes.len());
        // If the length of this batch is right, another one begins after it.
        let after = Header::parse(rest).map_or(next_block, |header| at + header.len as usize);
        let is_there = after <= next_block && (after == next_block || self.batch(after).is_ok());
        self.at = match is_there {
            true => after,
            false => next_block,
        };
        self.from.tell(at, self.at - at, flaw.to_string());
    }

    /// Takes the next record of the open batch.
    fn take(&mut self, rows: &mut Rows) -> Result<()> {
        let Some((opened, at)) = &mut self.open else {
            return Ok(());
        };
        let (at, header) = (*at, *opened.header());
        let home = Home {
            topic: &self.topic,
            queue: self.queue,
            position: self.from.position + at as u64,
        };
        let added = match opened.next() {
            Ok(None) => {
                self.open = None;
                return Ok(());
            }
            Ok(Some(entry)) if self.wanted.iter().any(|it| it.contains(&entry.offset)) => {
                let place = (&home, &header);
                let added = self.taken.add(place, &entry, &self.filter, rows)?;
                added.map(drop)
            }
            Ok(Some(_)) => Ok(()),
            Err(flaw) => Err(flaw),
        };
        if let Err(flaw) = added {
            self.open = None;
            self.from.tell(at, header.len as usize, flaw.to_string());
        }
        Ok(())
    }
}

/// Where blocks of these lengths begin.
fn begins(blocks: &[Expected]) -> Vec<usize> {
    let next = |at: &mut usize, (length, _): &Expected| {
        let after = *at + *length as usize;
        Some(std::mem::replace(at, after))
    };
    blocks.iter().scan(0, next).collect()
}

impl Cursor for BatchCursor {
    fn next(&mut self, max_rows: usize, rows: &mut Rows) -> Result<()> {
        self.taken.begin(max_rows);
        while !self.taken.is_full() && self.step(rows)? {}
        self.taken.hand_out(rows)
    }

    fn offset(&self) -> u64 {
        self.from.position + self.at as u64
    }
}
