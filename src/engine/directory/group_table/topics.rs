//! The topics of all groups, and which consumers read them.
//!
//! ```text
//! at   width   field
//! 0    u32     bytes of the group's name
//! 4    u32     bytes of the topic's name
//! 8    16 u64  a bit for each consumer that reads the topic
//! 136  120     the group
//! 256  256     the topic
//! ```
//!
//! Entries are added and never removed. The number of topics is raised last, so an entry below it
//! is whole.

use super::{AT_TOPICS, AT_TOPICS_LEN, GroupTable, MEMBERS_MAX, entry_at};
use crate::error::{Error, Result};
use crate::num::short;

/// How many topics all groups may read together.
pub(super) const TOPICS_MAX: u32 = 16_384;
/// Length of an entry.
pub(super) const TOPIC_LEN: usize = 512;
/// Maximum length of the name of a group.
const GROUP_NAME_LEN: usize = 120;
/// Maximum length of the name of a topic.
const TOPIC_NAME_LEN: usize = 256;
const AT_TOPIC_LEN: usize = 4;
const AT_READERS: usize = 8;
const AT_GROUP: usize = AT_READERS + MEMBERS_MAX as usize / 8;
const AT_TOPIC: usize = AT_GROUP + GROUP_NAME_LEN;
const _: () = assert!(AT_TOPIC + TOPIC_NAME_LEN <= TOPIC_LEN);

/// A topic that a group reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupTopic {
    /// The group.
    pub group: Box<str>,
    /// The topic.
    pub topic: Box<str>,
}

impl GroupTable {
    fn topic_at(entry: u32) -> usize {
        entry_at(AT_TOPICS, TOPIC_LEN, entry % TOPICS_MAX)
    }

    /// Number of topics.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn topics(&self) -> Result<u32> {
        let len = self.fields.word(AT_TOPICS_LEN);
        self.check()?;
        match len <= TOPICS_MAX {
            true => Ok(len),
            false => Err(self.fields.corrupt(
                AT_TOPICS_LEN,
                format!("{len} topics of groups, at most {TOPICS_MAX}"),
            )),
        }
    }

    /// The group and topic of an entry.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn topic(&self, entry: u32) -> Result<GroupTopic> {
        let at = GroupTable::topic_at(entry);
        let found = GroupTopic {
            group: self.name::<GROUP_NAME_LEN>(at, at + AT_GROUP)?,
            topic: self.name::<TOPIC_NAME_LEN>(at + AT_TOPIC_LEN, at + AT_TOPIC)?,
        };
        self.check()?;
        Ok(found)
    }

    fn name<const LEN: usize>(&self, len_at: usize, at: usize) -> Result<Box<str>> {
        let len = self.fields.word(len_at) as usize;
        let bytes = self.fields.words::<LEN>(at);
        let name = bytes.get(..len).filter(|name| !name.is_empty());
        let name = name.and_then(|name| str::from_utf8(name).ok());
        let legal = name.filter(|name| name.chars().all(is_legal));
        let name =
            legal.ok_or_else(|| self.fields.corrupt(len_at, "no name of a group or topic"))?;
        Ok(name.into())
    }

    /// Adds a topic that no consumer reads. The caller holds the lock.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there are too many; [`Error::Full`], [`Error::Io`].
    pub fn add_topic(&self, group: &str, topic: &str) -> Result<u32> {
        let entry = self.topics()?;
        if entry == TOPICS_MAX {
            let what = format!(
                "groups that read more than {TOPICS_MAX} topics in {}",
                self.path().display()
            );
            return Err(Error::Unsupported { what });
        }
        let at = GroupTable::topic_at(entry);
        self.reserve(AT_TOPICS, at)?;
        // Cleared first, because a process may have died here.
        self.fields.set_words(at, &[0; TOPIC_LEN]);
        for (len_at, (name_at, space), name) in [
            (at, (at + AT_GROUP, GROUP_NAME_LEN), group),
            (at + AT_TOPIC_LEN, (at + AT_TOPIC, TOPIC_NAME_LEN), topic),
        ] {
            let mut bytes = name.as_bytes().to_vec();
            bytes.resize(space, 0);
            self.fields.set_words(name_at, &bytes);
            self.fields.set_word(len_at, short(name.len()));
        }
        self.fields.set_word(AT_TOPICS_LEN, entry + 1);
        self.check()?;
        Ok(entry)
    }

    /// Whether the consumer at a place reads a topic.
    pub fn reads(&self, entry: u32, place: u32) -> bool {
        self.fields.load(readers_at(entry, place)) & bit_of(place) != 0
    }

    /// Notes whether the consumer at a place reads a topic. The caller holds the lock.
    pub fn set_reads(&self, entry: u32, place: u32, reads: bool) {
        let at = readers_at(entry, place);
        let before = self.fields.load(at);
        self.fields.store(
            at,
            match reads {
                true => before | bit_of(place),
                false => before & !bit_of(place),
            },
        );
    }
}

fn readers_at(entry: u32, place: u32) -> usize {
    GroupTable::topic_at(entry) + AT_READERS + (place % MEMBERS_MAX / u64::BITS) as usize * 8
}

fn bit_of(place: u32) -> u64 {
    1 << (place % u64::BITS)
}

/// Whether the name of a group or topic may have this character.
fn is_legal(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || "%|-_.".contains(sign)
}
