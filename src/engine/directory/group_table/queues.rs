//! The queues of all groups: owner, heir and progress.
//!
//! ```text
//! at   width  field
//! 0    u64    epoch and committed offset; see `service/fence.rs`
//! 8    u32    place of the owner, plus 1; 0 if nobody owns the queue
//! 12   u32    place of the heir, plus 1; 0 if there is none
//! 16   u32    entry of the topic
//! 20   u32    the queue
//! 24   i64    since when the owner has it, in ms since 1970
//! 32   i64    when `committed` last moved, 0 if never
//! 40   u32    messages that are delivered and not settled
//! 44   u32    messages that were refused, or not settled in time
//! ```
//!
//! Owner and heir change under the lock. The owner stores the last three fields, for processes that
//! inspect the group.

use super::{AT_QUEUES, AT_QUEUES_LEN, GroupTable, MEMBERS_MAX, entry_at};
use crate::engine::service::fence::{COMMITTED_MAX, Fence, Fenced};
use crate::error::{Error, Result};

/// How many queues all groups may read together.
pub(super) const QUEUES_MAX: u32 = 262_144;
/// Length of an entry.
pub(super) const QUEUE_LEN: usize = 64;
const AT_OWNER: usize = 8;
const AT_HEIR: usize = 12;
const AT_TOPIC: usize = 16;
const AT_QUEUE: usize = 20;
const AT_SINCE: usize = 24;
const AT_MOVED: usize = 32;
const AT_UNSETTLED: usize = 40;
const AT_RETRIES: usize = 44;

/// A queue of a group.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    table: &'a GroupTable,
    at: usize,
}

impl GroupTable {
    /// Number of queues.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn queues(&self) -> Result<u32> {
        let len = self.fields.word(AT_QUEUES_LEN);
        self.check()?;
        match len <= QUEUES_MAX {
            true => Ok(len),
            false => Err(self.fields.corrupt(
                AT_QUEUES_LEN,
                format!("{len} queues of groups, at most {QUEUES_MAX}"),
            )),
        }
    }

    /// A queue.
    pub fn row(&self, number: u32) -> Row<'_> {
        Row {
            table: self,
            at: entry_at(AT_QUEUES, QUEUE_LEN, number % QUEUES_MAX),
        }
    }

    /// Topic entry and number of a queue.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn queue(&self, number: u32) -> Result<(u32, u32)> {
        let at = self.row(number).at;
        let (topic, queue) = (
            self.fields.word(at + AT_TOPIC),
            self.fields.word(at + AT_QUEUE),
        );
        match topic < self.topics()? {
            true => Ok((topic, queue)),
            false => Err(self
                .fields
                .corrupt(at + AT_TOPIC, format!("a queue of topic entry {topic}"))),
        }
    }

    /// Adds a queue that nobody owns. The caller holds the lock.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there are too many, or the offset does not fit; [`Error::Full`],
    /// [`Error::Io`].
    pub fn add_queue(&self, topic: u32, queue: u32, committed: u64) -> Result<u32> {
        let number = self.queues()?;
        if number == QUEUES_MAX {
            let what = format!(
                "groups that read more than {QUEUES_MAX} queues in {}",
                self.path().display()
            );
            return Err(Error::Unsupported { what });
        }
        check_offset(committed)?;
        let at = self.row(number).at;
        self.reserve(AT_QUEUES, at)?;
        // Cleared first, because a process may have died here.
        self.fields.set_words(at, &[0; QUEUE_LEN]);
        self.fields.set_word(at + AT_TOPIC, topic);
        self.fields.set_word(at + AT_QUEUE, queue);
        let epoch = 0;
        self.fields.store(at, Fence { epoch, committed }.word());
        self.fields.set_word(AT_QUEUES_LEN, number + 1);
        self.check()?;
        Ok(number)
    }
}

/// Checks that an offset fits.
///
/// # Errors
///
/// [`Error::Unsupported`].
pub fn check_offset(offset: u64) -> Result<()> {
    match offset <= COMMITTED_MAX {
        true => Ok(()),
        false => Err(Error::Unsupported {
            what: format!("offset {offset} of a group in a shared store, at most {COMMITTED_MAX}"),
        }),
    }
}

impl Row<'_> {
    /// Epoch and progress.
    #[inline]
    pub fn fence(&self) -> Fence {
        Fence::of(self.table.fields.load(self.at))
    }

    /// Number of the consumer that owns the queue.
    pub fn owner(&self) -> Option<u64> {
        self.member(AT_OWNER)
    }

    /// Number of the consumer that gets the queue when its owner has settled what it holds.
    #[inline]
    pub fn heir(&self) -> Option<u64> {
        self.member(AT_HEIR)
    }

    #[inline]
    fn member(&self, at: usize) -> Option<u64> {
        let place = self.table.fields.word(self.at + at).checked_sub(1)?;
        self.table.number_at(place)
    }

    /// Whether an owner is stored, even one that is gone.
    pub fn has_owner(&self) -> bool {
        self.table.fields.word(self.at + AT_OWNER) != 0
    }

    /// Stores the owner. The caller holds the lock, and has revoked the queue from an owner before
    /// it stores another.
    pub fn set_owner(&self, number: Option<u64>, since: i64) {
        self.table
            .fields
            .store(self.at + AT_SINCE, since.cast_unsigned());
        self.table
            .fields
            .set_word(self.at + AT_OWNER, word_of(number));
    }

    /// Stores the heir. The caller holds the lock.
    pub fn set_heir(&self, number: Option<u64>) {
        self.table
            .fields
            .set_word(self.at + AT_HEIR, word_of(number));
    }

    /// Since when the owner has the queue, in ms.
    pub fn since(&self) -> i64 {
        self.table.fields.load(self.at + AT_SINCE).cast_signed()
    }

    /// When `committed` last moved, in ms.
    pub fn moved(&self) -> Option<i64> {
        let moved = self.table.fields.load(self.at + AT_MOVED).cast_signed();
        (moved != 0).then_some(moved)
    }

    /// Messages that are unsettled, and those that were refused or not settled in time.
    pub fn counts(&self) -> (u32, u32) {
        let word = |at| self.table.fields.word(self.at + at);
        (word(AT_UNSETTLED), word(AT_RETRIES))
    }

    /// Shows what the owner knows.
    pub fn show(&self, moved: Option<i64>, unsettled: u32, retries: u32) {
        if let Some(moved) = moved {
            self.table
                .fields
                .store(self.at + AT_MOVED, moved.cast_unsigned());
        }
        self.table
            .fields
            .set_word(self.at + AT_UNSETTLED, unsettled);
        self.table.fields.set_word(self.at + AT_RETRIES, retries);
    }
}

impl Fenced for Row<'_> {
    #[inline]
    fn load(&self) -> u64 {
        self.table.fields.load(self.at)
    }

    #[inline]
    fn exchange(&self, old: u64, new: u64) -> bool {
        self.table.fields.exchange(self.at, old, new)
    }

    fn is_mine(&self) -> bool {
        let place = self.table.fields.word(self.at + AT_OWNER).checked_sub(1);
        let owner = place.and_then(|place| self.table.member(place));
        owner.is_some_and(|owner| owner.slot == self.table.own_slot())
    }
}

fn word_of(number: Option<u64>) -> u32 {
    number.map_or(0, |number| super::Member::place(number) + 1)
}

const _: () = assert!(MEMBERS_MAX < u32::MAX);
