//! Where a group begins in a queue that it has not consumed yet.

use crate::bound::{Bound, Bounded};
use crate::engine::{Engine, Point, Topic};
use crate::error::{Error, Result};
use std::collections::BTreeMap;

/// Where a group begins in a topic of which it has consumed nothing. Saved progress takes
/// precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// The same in every topic. The default is [`Bound::Earliest`], which skips nothing.
    Everywhere(Bound),
    /// By topic. Other topics are read from their first message.
    ByTopic(BTreeMap<String, Bound>),
}

impl Default for Start {
    fn default() -> Start {
        Start::Everywhere(Bound::Earliest)
    }
}

impl Start {
    /// Where to begin in a topic.
    pub fn of(&self, topic: &str) -> &Bound {
        match self {
            Start::Everywhere(bound) => bound,
            Start::ByTopic(bounds) => bounds.get(topic).unwrap_or(&Bound::Earliest),
        }
    }
}

/// Checks that the consumer reads the topics for which the argument `name` gives a start, and that
/// they have the given queues.
///
/// # Errors
///
/// [`Error::InvalidOption`]; [`Error::UnknownQueue`].
pub(super) fn check_named<T: AsRef<str>>(
    name: &str,
    bounds: &BTreeMap<String, Bound>,
    read: &[T],
    engine: &dyn Engine,
) -> Result<()> {
    for (topic, bound) in bounds {
        if !read.iter().any(|it| it.as_ref() == topic) {
            let reason = "the consumer does not read this topic";
            return Err(Error::option(name, format!("{topic:?}"), reason));
        }
        let topic = engine.topics().get(topic);
        if let (Some(topic), Bound::Offsets(offsets)) = (topic, bound) {
            let known = engine.queues(&topic);
            if let Some(queue) = offsets.keys().find(|queue| !known.contains(queue)) {
                return Err(topic.unknown_queue(*queue));
            }
        }
    }
    Ok(())
}

/// The offset of a queue where a read from `bound` begins.
///
/// # Errors
///
/// [`crate::Error::OffsetOutOfRange`] for an offset outside the queue; errors of reading.
pub(super) fn offset_of(
    bound: &Bound,
    engine: &dyn Engine,
    topic: &Topic,
    queue: u32,
) -> Result<u64> {
    let bounded = Bounded {
        topic: &topic.name,
        queue,
        offsets: engine.bounds(topic, queue)?.unwrap_or(0..0),
    };
    bounded.start(bound, |time| {
        engine.offset_at(topic, queue, Point::Time(time))
    })
}
