//! Builds a table of blocks from records and holes, given in order of position.

use super::blocks::{Block, BlockTable, Run, SkippedRange};
use crate::num::{index, short};
use crate::record::Flaw;
use std::ops::Range;

/// A block ends with the record that makes it at least this long.
pub const BLOCK_LEN: u64 = 1 << 20;
/// Times of a block without records.
const NO_TIMES: (i64, i64) = (i64::MAX, i64::MIN);

/// A table, and the block that is being filled.
pub struct BlockBuilder {
    /// The table, without the current block.
    pub table: BlockTable,
    /// The current block. Its length, checksum and runs are not known yet.
    pub block: Block,
}

impl BlockBuilder {
    /// Begins the first block of a table without blocks.
    pub fn new(table: BlockTable) -> BlockBuilder {
        let block = begin(table.start);
        BlockBuilder { table, block }
    }

    /// Whether the current block is full at `position`, where a record begins.
    pub fn is_full(&self, position: u64) -> bool {
        position - self.block.position >= BLOCK_LEN
    }

    /// Adds a time to those of the current block.
    pub fn add_times(&mut self, (first, last): (i64, i64)) {
        let (least, greatest) = self.block.times;
        self.block.times = (least.min(first), greatest.max(last));
    }

    /// Ends the current block at `position`, where the next one begins. Does nothing if it is
    /// empty.
    pub fn close(&mut self, position: u64, runs: impl IntoIterator<Item = Run>) {
        if position == self.block.position {
            return;
        }
        let first = self.table.runs.len();
        self.table.runs.extend(runs);
        self.block.runs = first..self.table.runs.len();
        self.block.length = short(index(position - self.block.position));
        let closed = std::mem::replace(&mut self.block, begin(position));
        self.table.blocks.push(closed);
    }

    /// Ends the current block, which has the given runs, and puts the bytes of a hole into blocks
    /// of their own, which no reader fetches.
    pub fn skip(&mut self, hole: &Range<u64>, flaw: &Flaw, runs: impl IntoIterator<Item = Run>) {
        self.table.holes.push(SkippedRange {
            position: hole.start,
            length: hole.end - hole.start,
            reason: flaw.to_string(),
        });
        self.close(hole.start, runs);
        let mut at = hole.start;
        while at < hole.end {
            at = hole.end.min(at + BLOCK_LEN);
            self.close(at, None);
        }
    }
}

fn begin(position: u64) -> Block {
    Block {
        position,
        times: NO_TIMES,
        ..Block::default()
    }
}
