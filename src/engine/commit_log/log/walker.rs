//! Steps through the log from record to record.

use super::Log;
use super::blank::is_blank;
use crate::error::{At, Op, Result};
use crate::num::index;
use crate::plant::{Bug, planted};
use crate::record::Flaw;
use crate::record::rocketmq::layout::{BLANK_LEN, MAGIC_BLANK, extent};
use crate::record::rocketmq::{Layout, Record};
use crate::region::{Region, Window};
use std::sync::Arc;

/// One step of a [`Walker`].
#[derive(Debug)]
pub enum Step {
    /// A record of sound structure, at this byte of the region. Checksums are not verified.
    Record(usize, Layout),
    /// A BLANK, or files that retention has deleted: the walk continues in the next file.
    Blank,
    /// Bytes that are not a record. The walk stays at its position.
    Flawed(Flaw),
    /// The end of the walk.
    End,
}

/// Steps through the log from record to record. Keeps the map of the current file.
#[derive(Debug)]
pub struct Walker {
    log: Arc<Log>,
    position: u64,
    end: u64,
    /// Whether files may be deleted meanwhile.
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

    /// A walk for recovery, during which nothing is deleted: a missing file is a flaw, even if it
    /// would be the first of the log.
    pub fn recovering(log: &Arc<Log>, position: u64, end: u64) -> Walker {
        Walker {
            retires: false,
            ..Walker::new(log, position, end)
        }
    }

    /// Position of the next step.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Continues at `position`.
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

    /// The file of the last step.
    #[inline]
    pub fn region(&self) -> Option<&Arc<Region>> {
        self.current.as_ref().map(|(_, window)| window.region())
    }

    /// Maps the file that contains the position, and returns the byte in the file. `None` if the
    /// file does not exist or was deleted.
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
        let bytes = bytes.at(Op::Read, window.region().path())?;
        let file_len = window.region().len();
        let is_full_length = file_len as u64 == self.log.files.file_len();
        if is_full_length && file_len - at < BLANK_LEN {
            // Not even a BLANK fits here.
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
