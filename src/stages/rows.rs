//! The rows of a part, encoded for this log.

use super::stop::Stop;
use super::writer::Writer;
use crate::engine::topic::PERMISSION_WRITE;
use crate::engine::{Durability, Engine, Topic};
use crate::error::{Error, Result};
use crate::options::TOPIC_QUEUES_MAX;
use crate::record::{Batch, Labels, Row};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of topics whose memory is kept for the next part; each may hold as much as a
/// whole part.
const KEPT_MAX: usize = 4;

/// The rows of a part, by topic. Parts reuse this memory, because allocating it is expensive.
pub struct PartRows<'a> {
    writer: &'a Writer,
    clock_ms: i64,
    /// The topics, their rows, and the queue for rows that name neither queue nor key.
    topics: Vec<(Arc<Topic>, Batch, u32)>,
    /// Index of the topic of the last row.
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

    /// Begins a part: removes the rows and gives each topic its next queue.
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

    /// The rows by topic, without empty ones.
    pub fn by_topic(&mut self) -> impl Iterator<Item = (&Topic, &mut Batch)> {
        let topics = self.topics.iter_mut();
        let rows = topics.map(|(topic, batch, _)| (&**topic, batch));
        rows.filter(|(_, batch)| !batch.is_empty())
    }

    /// Index of the topic in the list.
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
        self.topics.push((topic, engine.form().batch(), turn));
        self.last = self.topics.len() - 1;
        self.numbers.insert(name.to_owned(), self.last);
        Ok(self.last)
    }

    /// Adds a staged and checked row.
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
        check_key(&*writer.engine, staged).map_err(Stop::refuse)?;
        let queue = queue_of(&*writer.engine, topic, staged, *turn)?;
        let pushed = batch.push_staged(&topic.name, queue, staged, writer.unique_ids, clock_ms);
        pushed.map_err(Stop::refuse)
    }
}

/// Fails for a row that [`PartRows::add`] would refuse. `checked`: the topic of the previous row.
pub fn check(engine: &dyn Engine, staged: &Row<'_>, checked: &mut Vec<u8>) -> Result<()> {
    if staged.topic() != checked {
        topic_of(engine, staged.topic())?;
        checked.clear();
        checked.extend_from_slice(staged.topic());
    }
    check_key(engine, staged)?;
    queue_named(staged)?;
    staged.properties_text().map(drop)
}

/// The name of a topic that may be written to or does not exist yet.
fn topic_of<'a>(engine: &dyn Engine, name: &'a [u8]) -> Result<&'a str> {
    let broken = |_| Error::option("topic", "staged", "not UTF-8");
    let name = str::from_utf8(name).map_err(broken)?;
    engine.meanings().check_topic(name)?;
    match engine.topics().get(name) {
        Some(topic) if topic.permissions() & PERMISSION_WRITE == 0 => {
            Err(Error::read_only_topic(name))
        }
        _ => Ok(name),
    }
}

/// The key by which a row is placed.
fn key_of<'a>(engine: &dyn Engine, staged: &Row<'a>) -> Option<Cow<'a, [u8]>> {
    if !engine.meanings().in_kafka_form {
        return staged.known().keys.map(Cow::Borrowed);
    }
    // The log keeps the bytes of the key, not their coded form.
    let mut labels = Labels::default();
    staged.read_labels(&mut labels, false);
    labels.key()
}

/// Refuses a row without a key for a topic that is compacted.
fn check_key(engine: &dyn Engine, staged: &Row<'_>) -> Result<()> {
    let Some(logs) = engine.queue_logs() else {
        return Ok(());
    };
    let topic = String::from_utf8_lossy(staged.topic());
    if !logs.needs_key(&topic) || key_of(engine, staged).is_some() {
        return Ok(());
    }
    let reason = format!("a row for topic {topic:?}, which is compacted, must have a key");
    Err(Error::option("key", "null", reason))
}

/// The queue that a row names.
fn queue_named(staged: &Row<'_>) -> Result<Option<u32>> {
    match u32::try_from(staged.queue_id()) {
        Ok(queue) if queue >= TOPIC_QUEUES_MAX => {
            let rule = format!("be between 0 and {}", TOPIC_QUEUES_MAX - 1);
            Err(Error::must("partition", queue, rule))
        }
        queue => Ok(queue.ok()),
    }
}

/// The queue of a row: the one that it names, which is added to the topic if missing; else by its
/// key; else `turn`.
fn queue_of(engine: &dyn Engine, topic: &Topic, staged: &Row<'_>, turn: u32) -> Result<u32, Stop> {
    let queues = topic.write_queues();
    let Some(queue) = queue_named(staged).map_err(Stop::refuse)? else {
        let key = key_of(engine, staged);
        return Ok(key.map_or(turn, |key| engine.meanings().queue_of_key(&key, queues)));
    };
    if queue >= queues {
        engine.create_topic(&topic.name, queue + 1, Durability::Written)?;
    }
    Ok(queue)
}
