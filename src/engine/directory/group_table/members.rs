//! The consumers of all groups.
//!
//! ```text
//! at   width  field
//! 0    u64    number of the consumer, 0 if the place is free; its low 10 bits are the place
//! 8    u32    slot of its process
//! 12   u32    process id
//! 16   u32    session time-out in ms
//! 24   i64    when it joined, in ms since 1970
//! 32   u64    which messages it wants: the same for all that want the same; 0 if unknown
//! ```
//!
//! The number is stored last and cleared first, so a consumer that is listed is whole.

use super::{AT_LAST_NUMBER, AT_MEMBERS, GroupTable, entry_at};
use crate::engine::service::shared_lock::SLOTS;
use crate::error::{Error, Result};

/// How many consumers the processes that share a store may have.
pub const MEMBERS_MAX: u32 = 1024;
/// Length of an entry.
pub(super) const MEMBER_LEN: usize = 64;
const PLACE_BITS: u32 = MEMBERS_MAX.ilog2();
const _: () = assert!(1 << PLACE_BITS == MEMBERS_MAX);

const AT_SLOT: usize = 8;
const AT_PID: usize = 12;
const AT_SESSION: usize = 16;
const AT_JOINED: usize = 24;
const AT_WANTED: usize = 32;
const _: () = assert!(AT_WANTED + size_of::<u64>() <= MEMBER_LEN);

/// A consumer of some process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number, which no other consumer gets.
    pub number: u64,
    /// The slot of its process.
    pub slot: u32,
    /// Its process.
    pub pid: u32,
    /// How long its process may show no sign of life, in ms.
    pub session_ms: u32,
    /// When it joined, in ms.
    pub joined: i64,
    /// Which messages it wants: the same number for all that want the same; 0 if unknown.
    pub wanted: u64,
}

impl Member {
    /// The place of a consumer, by its number.
    pub fn place(number: u64) -> u32 {
        crate::num::low_u32(number) & (MEMBERS_MAX - 1)
    }

    /// Rank of a consumer, by its number: 1 for the first consumer that joined, 2 for the second.
    pub fn rank(number: u64) -> u64 {
        number >> PLACE_BITS
    }
}

impl GroupTable {
    fn member_at(place: u32) -> usize {
        entry_at(AT_MEMBERS, MEMBER_LEN, place % MEMBERS_MAX)
    }

    /// Number of the consumer at a place; `None` if the place is free, or holds what no process
    /// stores.
    #[inline]
    pub fn number_at(&self, place: u32) -> Option<u64> {
        if place >= MEMBERS_MAX {
            return None;
        }
        let number = self.fields.load(GroupTable::member_at(place));
        (number != 0 && Member::place(number) == place).then_some(number)
    }

    /// The consumer at a place.
    pub fn member(&self, place: u32) -> Option<Member> {
        let number = self.number_at(place)?;
        let at = GroupTable::member_at(place);
        let member = Member {
            number,
            slot: self.fields.word(at + AT_SLOT),
            pid: self.fields.word(at + AT_PID),
            session_ms: self.fields.word(at + AT_SESSION),
            joined: self.fields.load(at + AT_JOINED).cast_signed(),
            wanted: self.fields.load(at + AT_WANTED),
        };
        (1..=SLOTS).contains(&member.slot).then_some(member)
    }

    /// All consumers.
    pub fn members(&self) -> impl Iterator<Item = Member> {
        (0..MEMBERS_MAX).filter_map(|place| self.member(place))
    }

    /// Adds a consumer of this process. The caller holds the lock.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there are too many.
    pub fn add_member(&self, session_ms: u32, wanted: u64, joined: i64) -> Result<u64> {
        let mut places = 0..MEMBERS_MAX;
        let free = places.find(|place| self.fields.load(GroupTable::member_at(*place)) == 0);
        let Some(place) = free else {
            let what = format!(
                "more than {MEMBERS_MAX} consumers in {}",
                self.path().display()
            );
            return Err(Error::Unsupported { what });
        };
        // Skips numbers that would be 0 or lose bits, if the word was overwritten.
        let last = self.fields.load(AT_LAST_NUMBER) & (u64::MAX >> PLACE_BITS);
        let rank = match last.wrapping_add(1) & (u64::MAX >> PLACE_BITS) {
            0 => 1,
            rank => rank,
        };
        self.fields.store(AT_LAST_NUMBER, rank);
        let at = GroupTable::member_at(place);
        self.fields.set_word(at + AT_SLOT, self.own_slot());
        self.fields.set_word(at + AT_PID, std::process::id());
        self.fields.set_word(at + AT_SESSION, session_ms);
        self.fields.store(at + AT_JOINED, joined.cast_unsigned());
        self.fields.store(at + AT_WANTED, wanted);
        let number = rank << PLACE_BITS | u64::from(place);
        self.fields.store(at, number);
        self.check()?;
        Ok(number)
    }

    /// Removes what stands at a place. The caller holds the lock.
    pub fn clear_member(&self, place: u32) {
        if place < MEMBERS_MAX {
            self.fields.store(GroupTable::member_at(place), 0);
        }
    }
}
