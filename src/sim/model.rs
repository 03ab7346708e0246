//! The messages that were sent, and the checks of an opened store against them.

use super::frame::{Breach, Sent, World, body, hold, verified};
use crate::engine::commit_log::CommitLog;
use crate::engine::{Atomicity, Check, Engine, Rows};
use crate::record::{Batch, Draft};
use std::collections::BTreeMap;

/// Names of the topics.
pub const TOPICS: [&str; 3] = ["orders", "bills", "mail"];
/// Queues of each topic.
pub const QUEUES: u32 = 2;
/// Topic of the records around an atomic batch.
const MARKERS: &str = "rmq_sys_forebay_atomic";

/// The messages in log order.
#[derive(Debug, Default)]
pub struct Model {
    /// All messages that may be in the log.
    pub sent: Vec<Sent>,
    /// The last known end of the log: later bytes are in buffers of the process.
    pub published: u64,
    /// How many of them must be in the log or retired.
    pub acknowledged: usize,
    /// How many of them are retired.
    pub retired: usize,
    /// Length of every body, if all records have the same length: old records after the end of the
    /// log then line up with the records of the next life.
    pub alike: Option<usize>,
    /// Bodies are shorter than this.
    pub body_max: u64,
}

fn row_position(message: &crate::record::Message) -> u64 {
    message.record().position() as u64
}

impl Model {
    /// The body of a message.
    pub fn body(&self, id: u64) -> Vec<u8> {
        body(id, self.alike, self.body_max)
    }

    /// The key of a message; one of three has none, unless all records have the same length.
    pub fn key(&self, id: u64) -> Option<String> {
        (self.alike.is_none() && !id.is_multiple_of(3)).then(|| format!("key-{id}"))
    }

    /// Adds messages of one topic and queue to a batch.
    pub fn encode(
        &self,
        world: &mut World,
        mut batch: Batch,
        rows: u64,
        atomicity: Atomicity,
    ) -> (Batch, Vec<Sent>) {
        let topic = match self.alike {
            Some(_) => TOPICS[0],
            None => world.random.pick(&TOPICS),
        };
        let queue = world.random.below(u64::from(QUEUES)) as u32;
        let mut sent = Vec::new();
        for _ in 0..rows {
            let id = world.next_id();
            let key = self.key(id);
            let keys: Vec<&str> = key.iter().map(String::as_str).collect();
            let draft = Draft {
                body: &self.body(id),
                keys: &keys,
                ..Draft::default()
            };
            sent.push(world.push(&mut batch, id, (topic, queue), &draft));
        }
        if atomicity == Atomicity::Whole {
            let number = sent[0].id;
            sent.iter_mut().for_each(|sent| sent.batch = Some(number));
        }
        (batch, sent)
    }

    /// Adds messages that may be in the log.
    pub fn take(&mut self, all: Vec<Sent>) -> Result<(), Breach> {
        for mut sent in all {
            let expected = self.next_offset(sent.queue);
            if !sent.certain && sent.end == u64::MAX {
                sent.offset = expected;
            }
            hold!(
                sent.offset == expected,
                "got offset {} instead of {expected}",
                sent.offset
            );
            self.sent.push(sent);
        }
        Ok(())
    }

    /// The expected offset of the next message of a queue.
    pub fn next_offset(&self, queue: (&str, u32)) -> u64 {
        self.sent.iter().filter(|sent| sent.queue == queue).count() as u64
    }

    /// Notes that messages that end at or below `durable` must survive a power loss.
    pub fn acknowledge(&mut self, durable: u64) {
        let covered = self.sent.partition_point(|sent| sent.end <= durable);
        self.acknowledged = self.acknowledged.max(covered);
    }

    /// Checks a store that was just opened for writing, and adopts its contents as the current
    /// state. With `kept`, nothing that was written may be missing, because only the process died.
    pub fn check(&mut self, engine: &CommitLog, kept: bool) -> Result<(), Breach> {
        let damage = engine.report().damage();
        hold!(damage.is_empty(), "reported damage: {damage:?}");
        self.retire(engine);
        let (found, markers) = self.check_log(engine)?;
        hold!(
            found >= self.acknowledged,
            "{found} messages in the log, {} acknowledged",
            self.acknowledged
        );
        let certain = |sent: &&Sent| sent.certain && sent.end <= self.published;
        let certain = self.sent.iter().filter(certain).count();
        hold!(
            !kept || found >= certain,
            "{found} of {certain} survived the process"
        );
        let torn = found
            .checked_sub(1)
            .and_then(|last| self.sent.get(last)?.batch);
        let next = self.sent.get(found).and_then(|sent| sent.batch);
        hold!(
            torn.is_none() || torn != next,
            "an atomic batch is incomplete"
        );
        self.sent.truncate(found);
        let (durable, published) = (engine.durable_position(), engine.stats().published);
        hold!(
            durable == published,
            "published is {published}, durable is {durable}"
        );
        self.acknowledged = found;
        self.published = published;
        for sent in &mut self.sent {
            sent.certain = true;
            // The rest of the message's batch may be lost.
            sent.end = sent.end.min(published);
        }
        self.check_caches(engine, markers)
    }

    /// Records what was retired, all of which was durable. A power loss may restore a
    /// file whose directory was not synced.
    pub fn retire(&mut self, engine: &CommitLog) {
        let min = engine.stats().min_position;
        self.retired = self.sent.partition_point(|sent| sent.position < min);
        self.acknowledged = self.acknowledged.max(self.retired);
    }

    /// Compares the log with the sent messages. Returns the number of messages, including retired
    /// ones, and of markers.
    fn check_log(&mut self, engine: &CommitLog) -> Result<(usize, u64), Breach> {
        let failed = |error| format!("the log cannot be read: {error}");
        let mut cursor = engine.log_cursor(Check::Full).map_err(failed)?;
        let mut rows = Rows::default();
        let (mut found, mut markers) = (self.retired, 0);
        while cursor.refill(64, &mut rows).map_err(failed)? {
            for row in &rows.rows {
                let Some(message) = rows.message(row) else {
                    return Err("a row without a message".to_owned());
                };
                if message.topic() == MARKERS {
                    markers += 1;
                    continue;
                }
                let Some(sent) = self.sent.get_mut(found) else {
                    return Err(format!("message {found} was never sent"));
                };
                sent.position = row_position(&message);
                let sent = &self.sent[found];
                let record = message.record();
                let queue = (message.topic(), record.queue_id() as u32);
                let body = message.body().map_err(failed)?;
                hold!(
                    body == self.body(sent.id) && queue == (sent.queue.0.into(), sent.queue.1),
                    "message {found} differs from the one that was sent"
                );
                let offset = record.queue_offset() as u64;
                hold!(offset == sent.offset, "message {found} is at {offset}");
                found += 1;
            }
        }
        Ok((found, markers))
    }

    /// Checks that queues and index agree with the log, entry by entry.
    fn check_caches(&self, engine: &CommitLog, markers: u64) -> Result<(), Breach> {
        let verified = verified(engine)?;
        let messages = (self.sent.len() - self.retired) as u64;
        hold!(
            verified.queue_entries == messages + markers,
            "{} queue entries for {messages} messages and {markers} markers",
            verified.queue_entries
        );
        let keys = self.sent[self.retired..]
            .iter()
            .filter(|sent| self.key(sent.id).is_some());
        let keys = keys.count() as u64;
        hold!(
            verified.index_entries == keys,
            "{} index entries for {keys} keys",
            verified.index_entries
        );
        let mut counts = BTreeMap::new();
        for (number, sent) in self.sent.iter().enumerate() {
            let (min, max) = counts.entry(sent.queue).or_insert((0, 0));
            *max += 1;
            if number < self.retired {
                *min = *max;
            }
        }
        for (queue, (min, max)) in counts {
            let topic = engine.topics().get(queue.0);
            let topic = topic.ok_or_else(|| format!("topic {} is missing", queue.0))?;
            let bounds = engine.bounds(&topic, queue.1);
            let bounds = bounds.map_err(|error| format!("no bounds: {error}"))?;
            hold!(
                bounds == Some(min..max),
                "bounds of {queue:?} are {bounds:?}, expected {min}..{max}"
            );
        }
        Ok(())
    }

    /// Reads one message by its offset and by its key.
    pub fn check_one(&self, engine: &CommitLog, number: usize) -> Result<(), Breach> {
        let Some(sent) = self.sent.get(number).filter(|_| number >= self.retired) else {
            return Ok(());
        };
        let failed = |error| format!("message {number} cannot be read: {error}");
        let Some(topic) = engine.topics().get(sent.queue.0) else {
            return Err(format!("topic {} is missing", sent.queue.0));
        };
        let found = engine
            .get(&topic, sent.queue.1, sent.offset)
            .map_err(failed)?;
        let Some(found) = found else {
            return Err(format!("message {number} is missing"));
        };
        let body = found.body().map_err(failed)?;
        hold!(
            body == self.body(sent.id),
            "message {number} has the wrong body"
        );
        if let Some(key) = self.key(sent.id) {
            let found = engine.query(&topic, key.as_bytes(), i64::MIN, i64::MAX, 8, &mut || true);
            let found = found.map_err(failed)?;
            hold!(found.len() == 1, "key {key} finds {} messages", found.len());
        }
        Ok(())
    }
}
