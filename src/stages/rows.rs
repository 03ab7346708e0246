//! The rows of a part, encoded for this log.

use super::stop::Stop;
use super::writer::Writer;
use crate::engine::topic::PERMISSION_WRITE;
use crate::engine::{Durability, Engine, Topic};
use crate::error::{Error, Result};
use crate::options::TOPIC_QUEUES_MAX;
use crate::record::{Batch, Row, check_topic, java_hash};
use std::collections::HashMap;
use std::sync::Arc;

/// Room for so many topics is kept from one part to the next; each may have that of a whole part.
const KEPT_MAX: usize = 4;

/// The rows of a part, by topic. Parts reuse its memory, which is expensive to allocate.
pub struct PartRows<'a> {
    writer: &'a Writer,
    clock_ms: i64,
    /// The topic, its rows, and the queue of those that name neither queue nor key.
    topics: Vec<(Arc<Topic>, Batch, u32)>,
    /// Of them, the one that the last row went to.
    last: usize,
    numbers: HashMap<String, usize, foldhash::fast::RandomState>,
}

impl<'a> PartRows<'a> {
    /// No rows.
    pub fn new(writer: &'a Writer) -> PartRows<'a> {
        PartRows {
            writer,
            clock_ms: 0,
            topics: Vec::new(),
            last: 0,
            numbers: HashMap::default(),
        }
    }

    /// Begins a part: no rows, and another turn for each topic.
    pub fn begin(&mut self, clock_ms: i64) {
        self.clock_ms = clock_ms;
        if self.topics.len() > KEPT_MAX {
            self.topics.clear();
            self.numbers.clear();
        }
        for (topic, batch, turn) in &mut self.topics {
            batch.clear();
            *turn = topic.next_queue();
        }
    }

    /// When the part was begun, in ms.
    pub fn clock_ms(&self) -> i64 {
        self.clock_ms
    }

    /// The rows by topic; none is empty.
    pub fn by_topic(&mut self) -> impl Iterator<Item = (&Topic, &mut Batch)> {
        let topics = self.topics.iter_mut();
        let rows = topics.map(|(topic, batch, _)| (&**topic, batch));
        rows.filter(|(_, batch)| !batch.is_empty())
    }

    /// Where the rows of a topic are gathered.
    fn number_of(&mut self, name: &[u8]) -> Result<usize, Stop> {
        let is_it = |it: &(Arc<Topic>, Batch, u32)| it.0.name.as_bytes() == name;
        if self.topics.get(self.last).is_some_and(is_it) {
            return Ok(self.last);
        }
        let engine = &*self.writer.engine;
        let name = topic_of(engine, name).map_err(Stop::refuse)?;
        if let Some(number) = self.numbers.get(name) {
            self.last = *number;
            return Ok(self.last);
        }
        let topic = engine.topic_for_append(name)?;
        let turn = topic.next_queue();
        self.topics.push((topic, engine.batch(), turn));
        self.last = self.topics.len() - 1;
        self.numbers.insert(name.to_owned(), self.last);
        Ok(self.last)
    }

    /// Adds a row that was staged, and checked.
    ///
    /// # Errors
    ///
    /// [`Stop::Refuse`] for a row that cannot be appended.
    pub fn add(&mut self, staged: &Row<'_>) -> Result<(), Stop> {
        let number = self.number_of(staged.topic())?;
        let (writer, clock_ms) = (self.writer, self.clock_ms);
        let Some((topic, batch, turn)) = self.topics.get_mut(number) else {
            unreachable!("the topic was just numbered")
        };
        let queue = queue_of(&*writer.engine, topic, staged, *turn)?;
        let pushed = batch.push_staged(&topic.name, queue, staged, writer.unique_ids, clock_ms);
        pushed.map_err(Stop::refuse)
    }
}

/// Refuses what [`PartRows::add`] would refuse of a row. `checked`: the topic of the row before.
pub fn check(engine: &dyn Engine, staged: &Row<'_>, checked: &mut Vec<u8>) -> Result<()> {
    if staged.topic() != checked {
        topic_of(engine, staged.topic())?;
        checked.clear();
        checked.extend_from_slice(staged.topic());
    }
    queue_named(staged)?;
    staged.properties_text().map(drop)
}

/// The name of a topic that may be written to, or is not there yet.
fn topic_of<'a>(engine: &dyn Engine, name: &'a [u8]) -> Result<&'a str> {
    let broken = |_| Error::option("topic", "staged", "it is not text");
    let name = str::from_utf8(name).map_err(broken)?;
    check_topic(name)?;
    match engine.topics().get(name) {
        Some(topic) if topic.permissions() & PERMISSION_WRITE == 0 => Err(Error::ReadOnly {
            what: format!("topic {name:?}"),
        }),
        _ => Ok(name),
    }
}

/// The queue that a row names.
fn queue_named(staged: &Row<'_>) -> Result<Option<u32>> {
    match u32::try_from(staged.queue_id()) {
        Ok(queue) if queue >= TOPIC_QUEUES_MAX => {
            let reason = format!("it lies between 0 and {}", TOPIC_QUEUES_MAX - 1);
            Err(Error::option("partition", queue, reason))
        }
        queue => Ok(queue.ok()),
    }
}

/// The queue of a row: the one that it names, which the topic gets if it has not; else by its key;
/// else `turn`.
fn queue_of(engine: &dyn Engine, topic: &Topic, staged: &Row<'_>, turn: u32) -> Result<u32, Stop> {
    let queues = topic.write_queues();
    let Some(queue) = queue_named(staged).map_err(Stop::refuse)? else {
        let keys = staged.known().keys;
        return Ok(keys.map_or(turn, |key| {
            (java_hash(key).cast_unsigned() & 0x7FFF_FFFF) % queues.max(1)
        }));
    };
    if queue >= queues {
        engine.create_topic(&topic.name, queue + 1, Durability::Written)?;
    }
    Ok(queue)
}
