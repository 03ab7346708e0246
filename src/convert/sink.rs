//! Appends copies of messages to the target, in batches.

use super::names::Renamed;
use super::{ConvertSpec, OFFSET, STORE_TIME};
use crate::engine::{Atomicity, Durability, Engine, Topic};
use crate::error::{Error, Result};
use crate::options::EngineKind;
use crate::record::names::{DEAD_ORIGIN_TOPIC, REAL_TOPIC, RETRY_TOPIC};
use crate::record::{Batch, Copied, Row};
use smallvec::SmallVec;
use std::sync::Arc;

/// Records are appended when there are this many bytes of them.
const BATCH_LEN: usize = 512 << 10;
/// Properties that belong to an earlier conversion.
const FORMER: [&str; 2] = [OFFSET, STORE_TIME];
/// Properties that name a topic.
const NAMING: [&str; 3] = [REAL_TOPIC, RETRY_TOPIC, DEAD_ORIGIN_TOPIC];

/// The target.
pub struct Sink<'a> {
    engine: &'a dyn Engine,
    renumber: bool,
    /// Whether the target stores the time of each append.
    stores_times: bool,
    renamed: Renamed,
    topics: Vec<Out>,
    /// The topics that have records which are not appended yet.
    waiting: Vec<usize>,
    len: usize,
    /// Store time of these records, in ms.
    time: i64,
    messages: u64,
}

/// A topic of the target, and its records that are not appended yet.
struct Out {
    topic: Arc<Topic>,
    batch: Batch,
    /// Their offsets, if they are to be kept.
    offsets: Vec<u64>,
}

impl<'a> Sink<'a> {
    /// A sink with topics of these names, which must exist. `renamed` gives the target's names of
    /// topics that messages mention.
    pub fn new<'n>(
        engine: &'a dyn Engine,
        (topics, renamed): (impl Iterator<Item = &'n str>, Renamed),
        spec: &ConvertSpec,
    ) -> Result<Sink<'a>> {
        let topics = topics.map(|name| {
            Ok(Out {
                topic: engine.topic_for_append(name)?,
                batch: engine.form().batch(),
                offsets: Vec::new(),
            })
        });
        Ok(Sink {
            engine,
            renumber: spec.renumber,
            stores_times: spec.engine == EngineKind::CommitLog,
            renamed,
            topics: topics.collect::<Result<_>>()?,
            waiting: Vec::new(),
            len: 0,
            time: 0,
            messages: 0,
        })
    }

    /// Whether messages may get other offsets.
    pub fn renumbers(&self) -> bool {
        self.renumber
    }

    /// How many messages were appended.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Copies a message to a topic, by its number. `time`: when it was stored, in ms.
    ///
    /// # Errors
    ///
    /// Errors of the copy, which name the message; errors of appending.
    pub fn add(&mut self, topic: usize, row: &Row<'_>, time: i64) -> Result<()> {
        let time = if self.stores_times { time } else { 0 };
        let len = row.layout().total_len() as usize;
        if self.len > 0 && (time > self.time || self.len + len > BATCH_LEN) {
            self.append()?;
        }
        // Store times never decrease.
        self.time = self.time.max(time);
        let renamed = self.renamed(row);
        let Some(out) = self.topics.get_mut(topic) else {
            unreachable!("the sink has a place for each of its topics")
        };
        let offset = row.queue_offset();
        let (old, stored) = (offset.to_string(), row.store_timestamp().to_string());
        let mut with: SmallVec<[(&str, &str); 5]> = SmallVec::new();
        if self.renumber {
            with.push((OFFSET, old.as_str()));
        }
        if !self.stores_times && row.store_timestamp() != row.born_timestamp() {
            with.push((STORE_TIME, stored.as_str()));
        }
        with.extend(
            renamed
                .iter()
                .map(|(property, to)| (*property, to.as_str())),
        );
        let former = FORMER.into_iter();
        let without: SmallVec<[&str; 5]> = former.chain(renamed.iter().map(|it| it.0)).collect();
        let to = Copied {
            topic: &out.topic.name,
            queue: row.queue_id().cast_unsigned(),
            without: &without,
            with: &with,
            reconsume_times: row.reconsume_times(),
            clock_ms: self.time,
        };
        if let Err(error) = out.batch.push_copy(row, &to) {
            return Err(of_message(row, error));
        }
        if out.batch.len() == 1 {
            self.waiting.push(topic);
        }
        if !self.renumber {
            out.offsets.push(offset.cast_unsigned());
        }
        self.len += len;
        Ok(())
    }

    /// The properties of a message whose topic has another name in the target, with that name.
    fn renamed(&self, row: &Row<'_>) -> SmallVec<[(&'static str, String); 3]> {
        let to = |property: &'static str| {
            let topic = str::from_utf8(row.property(property)?).ok()?;
            Some((property, self.renamed.of(topic)?))
        };
        NAMING.into_iter().filter_map(to).collect()
    }

    /// Appends the records that were added.
    pub fn append(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.waiting.sort_unstable();
        let waiting = std::mem::take(&mut self.waiting);
        let outs = self.topics.iter_mut().enumerate();
        let outs = outs.filter(|(number, _)| waiting.binary_search(number).is_ok());
        let mut outs: Vec<&mut Out> = outs.map(|(_, out)| out).collect();
        let mut batches: Vec<(&Topic, &mut Batch)> = Vec::with_capacity(outs.len());
        let mut expected: Vec<&[u64]> = Vec::with_capacity(outs.len());
        for out in &mut outs {
            batches.push((&out.topic, &mut out.batch));
            expected.push(&out.offsets);
        }
        let appended = self
            .engine
            .append(&mut batches, Atomicity::Rows, Durability::Written)?;
        self.messages += appended.rows.len() as u64;
        if !self.renumber {
            let expected = expected.into_iter().flatten();
            for (place, offset) in appended.rows.iter().zip(expected) {
                if place.offset != *offset {
                    let reason = format!("a message of offset {offset} got {}", place.offset);
                    return Err(Error::option("target", "changed", reason));
                }
            }
        }
        for out in outs {
            out.batch.clear();
            out.offsets.clear();
            if out.batch.capacity() > BATCH_LEN {
                out.batch = self.engine.form().batch();
            }
        }
        self.len = 0;
        Ok(())
    }
}

/// When a message was stored, in ms, as its record states.
pub fn time_of(row: &Row<'_>) -> i64 {
    let kept = row.property(STORE_TIME);
    let kept = kept.and_then(|text| str::from_utf8(text).ok()?.parse().ok());
    kept.unwrap_or_else(|| row.store_timestamp()).max(0)
}

/// The error of a message that cannot be copied.
fn of_message(row: &Row<'_>, error: Error) -> Error {
    let place = format!(
        "{} queue {} offset {}",
        String::from_utf8_lossy(row.topic()),
        row.queue_id(),
        row.queue_offset()
    );
    match error {
        Error::TooLarge { what, size, limit } => Error::TooLarge {
            what: format!("{what} of {place}"),
            size,
            limit,
        },
        Error::InvalidOption {
            name,
            value,
            reason,
        } => Error::InvalidOption {
            name: format!("{name} of {place}"),
            value,
            reason,
        },
        other => other,
    }
}
