//! The walk over the log from record to record.

use super::Log;
use super::blank::is_blank;
use crate::error::{Error, Op, Result};
use crate::num::index;
use crate::plant::{Bug, planted};
use crate::record::Flaw;
use crate::record::rocketmq::layout::{BLANK_LEN, MAGIC_BLANK, extent};
use crate::record::rocketmq::{Layout, Record};
use crate::region::{Region, Window};
use std::sync::Arc;

/// What a [`Walker`] met.
#[derive(Debug)]
pub enum Step {
    /// A record of sound structure, at this byte of the region; checksums are not checked.
    Record(usize, Layout),
    /// A filler, or files that retention has taken away: the walk goes on in the next file.
    Blank,
    /// Something that is no record. The walk stays where it is.
    Flawed(Flaw),
    /// The end of the walk.
    End,
}

/// Walks the log from record to record. Keeps the map of the file it is in.
#[derive(Debug)]
pub struct Walker {
    log: Arc<Log>,
    position: u64,
    end: u64,
    /// Whether files may be retired meanwhile.
    retires: bool,
    current: Option<(u64, Window)>,
}

impl Walker {
    /// A walk over `position..end`.
    pub fn new(log: &Arc<Log>, position: u64, end: u64) -> Walker {
        Walker {
            log: Arc::clone(log),
            position,
            end,
            retires: true,
            current: None,
        }
    }

    /// A walk of recovery, while nothing is retired: a file that is missing is a flaw, also where
    /// it would be the first of the log.
    pub fn recovering(log: &Arc<Log>, position: u64, end: u64) -> Walker {
        Walker {
            retires: false,
            ..Walker::new(log, position, end)
        }
    }

    /// Where the next step begins.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes on elsewhere.
    pub fn move_to(&mut self, position: u64) {
        self.position = position;
    }

    /// Moves the end of the walk.
    pub fn extend(&mut self, end: u64) {
        self.end = end;
        if let Some((_, window)) = &mut self.current {
            window.refresh();
        }
    }

    /// The file that the last step was in.
    #[inline]
    pub fn region(&self) -> Option<&Arc<Region>> {
        self.current.as_ref().map(|(_, window)| window.region())
    }

    /// Maps the file of the position; the byte of the file that the position is. `None` where there
    /// is no such file, or no more.
    #[inline]
    fn enter(&mut self) -> Result<Option<usize>> {
        let start = self.log.files.start_of(self.position);
        if self.current.as_ref().is_none_or(|(at, _)| *at != start) {
            let Some(file) = self.log.files.find(self.position) else {
                return Ok(None);
            };
            let region = match self.log.files.map(&file) {
                Err(error) if self.log.is_retired(&file, &error) => return Ok(None),
                Err(_) if planted(Bug::TakeErrorForAbsence) => return Ok(None),
                mapped => mapped?,
            };
            self.current = Some((start, Window::new(region)));
        }
        Ok(Some(index(self.position - start)))
    }

    /// Reads the next record and moves past it.
    #[inline]
    pub fn step(&mut self) -> Result<Step> {
        if self.position >= self.end {
            return Ok(Step::End);
        }
        let Some(at) = self.enter()? else {
            let min = self.log.min_position();
            if self.retires && self.position < min {
                self.position = min;
                return Ok(Step::Blank);
            }
            return Ok(Step::Flawed(Flaw::Empty));
        };
        let Some((start, window)) = &self.current else {
            return Ok(Step::End);
        };
        let bytes = extent(|len| window.run(at, len));
        let bytes = bytes.map_err(|e| Error::io(Op::Read, window.region().path(), e))?;
        let file_len = window.region().len();
        let is_full_length = file_len as u64 == self.log.files.file_len();
        if is_full_length && file_len - at < BLANK_LEN {
            // Not even a filler fits here.
            self.position = start + file_len as u64;
            return Ok(Step::Blank);
        }
        match Layout::parse(bytes) {
            Ok(layout) => {
                self.position += u64::from(layout.total_len);
                Ok(Step::Record(at, layout))
            }
            Err(Flaw::Magic(MAGIC_BLANK)) if is_blank(bytes, file_len - at) => {
                self.position = start + file_len as u64;
                Ok(Step::Blank)
            }
            Err(flaw) => Ok(Step::Flawed(flaw)),
        }
    }

    /// The record of the last step.
    pub fn record(&self, at: usize, layout: Layout) -> Option<Record<'_>> {
        let (_, window) = self.current.as_ref()?;
        let bytes = window.slice_again(at, layout.total_len as usize)?;
        Record::with_layout(bytes, layout).ok()
    }
}
