//! What the consumers of a group that read the same topic have in common.
//!
//! A message that the owner of its queue does not want counts as settled for the whole group, so
//! another consumer of the group that wants it would never get it. As in RocketMQ, all consumers
//! that read a topic at the same time need the same tags. They also need the same order, because a
//! queue may change owners at any moment. Consumers that follow one another may differ.

use super::order::Order;
use crate::engine::Filter;
use crate::error::{Error, Result};

/// In every word. Nothing is known of a consumer without it.
const KNOWN: u64 = 1;
const IN_ORDER: u64 = 2;
const AT_CHECKSUM: u32 = 32;

/// The messages that a consumer wants, and in which order.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    topics: Vec<Box<str>>,
    tags: String,
    order: Order,
    word: u64,
}

impl Wanted {
    /// What a consumer of `topics` wants.
    pub(super) fn new(topics: &[Box<str>], filter: &Filter, order: Order) -> Wanted {
        let mut tags = filter.tags.clone();
        tags.sort_unstable();
        tags.dedup();
        let tags = tags.join(" || ");
        let mut text = tags.clone().into_bytes();
        if let Some(key) = &filter.key {
            text.push(0);
            text.extend(key);
        }
        let in_order = match order {
            Order::None => 0,
            Order::Queue => IN_ORDER,
        };
        Wanted {
            topics: topics.to_vec(),
            tags,
            order,
            word: u64::from(crc32fast::hash(&text)) << AT_CHECKSUM | in_order | KNOWN,
        }
    }

    /// The topics that the consumer names. It also reads the retry topic of its group, unfiltered.
    pub(super) fn topics(&self) -> &[Box<str>] {
        &self.topics
    }

    /// A number that is the same for all consumers that want the same.
    pub(super) fn word(&self) -> u64 {
        self.word
    }

    /// Compares this with the word of another consumer of `group` that reads `topic`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] if they differ.
    pub(super) fn check(&self, word: u64, group: &str, topic: &str) -> Result<()> {
        if word == self.word || word & KNOWN == 0 {
            return Ok(());
        }
        let rule = format!(
            "be the same in all consumers of group {group:?} that read topic {topic:?} at the same \
             time"
        );
        let in_order = match self.order {
            Order::None => "\"none\"",
            Order::Queue => "\"queue\"",
        };
        let tags = match self.tags.is_empty() {
            true => "None".to_owned(),
            false => format!("{:?}", self.tags),
        };
        Err(match (word ^ self.word) & IN_ORDER {
            0 => Error::must("tags", tags, rule),
            _ => Error::must("order", in_order, rule),
        })
    }
}
