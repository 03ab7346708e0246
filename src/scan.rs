//! Scans: a selection of messages, with columns and batch sizes. A [`Scan`] is only a description;
//! each [`Scan::stream`] reads the current state of the store.
//!
//! | selection | source | order |
//! |---|---|---|
//! | a key | the index | topic as requested, queue, offset |
//! | all topics entirely | the log | position |
//! | anything else | queue entries | topic as requested, queue, offset |
//!
//! A stream is a snapshot: its half-open bounds are fixed when it begins, and later messages are
//! not in it. All cursors are created at once, one for each queue that has messages to return. A
//! stream cannot create them later: it holds no handle of the store, because it must not keep the
//! store open. So a cursor is cheap to create and small until it is first used.

use crate::arrow::schema::BatchShape;
use crate::arrow::source::Source;
use crate::arrow::stream::{DamageList, Stream};
use crate::arrow::{BodyType, Column, Dialect};
use crate::bound::{Bound, Bounded};
use crate::engine::{Check, Damage, Engine, Filter, Point, Topic};
use crate::error::{Error, Result};
use crate::record::{Message, Row};
use crate::store::Store;
use arrow_schema::SchemaRef;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Upper limit of rows per batch.
pub const BATCH_ROWS_MAX: usize = 1 << 20;
/// Upper limit of body bytes per batch; Arrow's offsets have 31 bits.
pub const BATCH_BYTES_MAX: usize = 1 << 30;

/// What to scan, and the form of the result.
#[derive(Clone, Debug)]
pub struct ScanSpec {
    /// Topics in order; `None`: all.
    pub topics: Option<Vec<String>>,
    /// Columns in order; `None`: [`Column::defaults`].
    pub columns: Option<Vec<Column>>,
    /// Queues; `None`: all.
    pub queues: Option<Vec<u32>>,
    /// Where each queue begins.
    pub start: Bound,
    /// Where each queue ends, exclusive.
    pub end: Bound,
    /// Return messages with one of these tags; all if it is empty.
    pub tags: Vec<String>,
    /// Return messages with this key.
    pub key: Option<Vec<u8>>,
    /// Maximum rows per batch, 1 to [`BATCH_ROWS_MAX`].
    pub batch_rows: usize,
    /// Maximum body bytes per batch, 1 to [`BATCH_BYTES_MAX`]; a longer body gets its own batch.
    pub batch_bytes: usize,
    /// Arrow type of bodies.
    pub body_type: BodyType,
    /// Names and types of the columns.
    pub dialect: Dialect,
    /// Whether checksums are checked.
    pub verify: bool,
}

impl Default for ScanSpec {
    fn default() -> ScanSpec {
        ScanSpec {
            topics: None,
            columns: None,
            queues: None,
            start: Bound::Earliest,
            end: Bound::Latest,
            tags: Vec::new(),
            key: None,
            batch_rows: 65_536,
            batch_bytes: 16 << 20,
            body_type: BodyType::Binary,
            dialect: Dialect::Arrow,
            verify: true,
        }
    }
}

/// A scan of a store. It shares the store like any handle; its streams do not.
#[derive(Clone)]
pub struct Scan {
    store: Store,
    spec: ScanSpec,
    shape: BatchShape,
    schema: SchemaRef,
    damage: DamageList,
}

impl Scan {
    /// A scan with this `spec`. An unknown topic is reported only by [`Scan::stream`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for an invalid `spec`; [`Error::Closed`], [`Error::Forked`].
    pub fn new(store: &Store, spec: ScanSpec) -> Result<Scan> {
        store.engine()?;
        let shape = spec.shape()?;
        Ok(Scan {
            store: store.clone(),
            spec,
            schema: shape.schema(),
            shape,
            damage: DamageList::default(),
        })
    }

    /// The description of the scan.
    pub fn spec(&self) -> &ScanSpec {
        &self.spec
    }

    /// Schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Rows that streams of this scan skipped because their compressed bodies are damaged. Other
    /// damage is in [`Store::damage`].
    pub fn damage(&self) -> Vec<Damage> {
        self.damage.lock().clone()
    }

    /// A stream over the current contents of the store.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownTopic`]; [`Error::UnknownQueue`] for a queue that a topic requested by name
    /// does not have; [`Error::OffsetOutOfRange`] for a start that was retired or lies after the
    /// end of its queue; [`Error::Closed`], [`Error::Forked`].
    pub fn stream(&self) -> Result<Stream> {
        let engine = self.store.engine()?;
        match (&self.spec.topics, &self.spec.key) {
            // Refreshing every topic takes long in a store that has many.
            (Some(names), None) => names
                .iter()
                .try_for_each(|name| engine.refresh(Some(name)))?,
            _ => engine.refresh(None)?,
        }
        let source = self.source(engine)?;
        let damage = Arc::clone(&self.damage);
        let stream = Stream::new(source, self.shape.clone(), damage);
        Ok(stream.warning(&engine.report().warnings))
    }

    fn source(&self, engine: &dyn Engine) -> Result<Source> {
        let spec = &self.spec;
        let topics = self.topics(engine)?;
        let whole = spec.start == Bound::Earliest && spec.end == Bound::Latest;
        if let (Some(key), true) = (&spec.key, self.store.options().index()) {
            return self.by_key(engine, &topics, key).map(Source::found);
        }
        let (filter, check) = spec.filter();
        if whole && spec.topics.is_none() && spec.queues.is_none() {
            let end = engine.readable_position();
            return Ok(Source::log(engine.log_cursor(check)?, end, filter));
        }
        let mut cursors = Vec::new();
        for topic in &topics {
            for (queue, range) in self.ranges(engine, topic)? {
                cursors.push(engine.cursor(topic, queue, range, &filter, check)?);
            }
        }
        Ok(Source::queues(cursors))
    }

    fn topics(&self, engine: &dyn Engine) -> Result<Vec<Arc<Topic>>> {
        let Some(names) = &self.spec.topics else {
            return Ok(engine.topics().all());
        };
        let topic = |name: &String| {
            let found = engine.topics().get(name);
            found.ok_or_else(|| Error::UnknownTopic {
                topic: name.clone(),
            })
        };
        names.iter().map(topic).collect()
    }

    /// The requested queues of a topic.
    fn queues(&self, engine: &dyn Engine, topic: &Topic) -> Result<Vec<u32>> {
        let mut there = engine.queues(topic);
        there.sort_unstable();
        if self.spec.topics.is_some() {
            let named = self.spec.named_queues();
            if let Some(queue) = named.into_iter().find(|q| there.binary_search(q).is_err()) {
                return Err(Error::UnknownQueue {
                    topic: topic.name.to_string(),
                    queue,
                    queues: there.last().map_or(0, |last| last + 1),
                });
            }
        }
        if let Some(queues) = &self.spec.queues {
            there.retain(|queue| queues.contains(queue));
        }
        Ok(there)
    }

    /// The requested offsets of each queue of a topic, without empty ranges, in queue order.
    fn ranges(&self, engine: &dyn Engine, topic: &Topic) -> Result<Vec<(u32, Range<u64>)>> {
        let mut ranges = Vec::new();
        for queue in self.queues(engine, topic)? {
            let bounds = engine.bounds(topic, queue)?.unwrap_or_default();
            let there = Bounded {
                topic: &topic.name,
                queue,
                offsets: bounds,
            };
            let offset_at = |time| engine.offset_at(topic, queue, Point::Time(time));
            let range = there.range(&self.spec.start, &self.spec.end, offset_at)?;
            if !range.is_empty() {
                ranges.push((queue, range));
            }
        }
        Ok(ranges)
    }

    /// The messages with this key, found by the index.
    fn by_key(
        &self,
        engine: &dyn Engine,
        topics: &[Arc<Topic>],
        key: &[u8],
    ) -> Result<Vec<Message>> {
        let by_tag = Filter {
            tags: self.spec.tags.clone(),
            key: None,
        };
        let mut all = Vec::new();
        for topic in topics {
            let ranges = self.ranges(engine, topic)?;
            let mut found =
                engine.query(topic, key, i64::MIN, i64::MAX, usize::MAX, &mut || true)?;
            found.retain(|message| {
                let record = message.record();
                is_within(&record, &ranges)
                    && record.is_queued()
                    && (by_tag.is_empty() || by_tag.passes(&record))
            });
            found.sort_by_key(|message| {
                let record = message.record();
                (record.queue_id(), record.queue_offset())
            });
            all.append(&mut found);
        }
        Ok(all)
    }
}

impl ScanSpec {
    /// Schema of the batches.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for an invalid argument.
    pub fn schema(&self) -> Result<SchemaRef> {
        Ok(self.shape()?.schema())
    }

    /// Columns and sizes of the batches, checked.
    pub(crate) fn shape(&self) -> Result<BatchShape> {
        self.check()?;
        Ok(BatchShape {
            columns: match &self.columns {
                Some(columns) => columns.clone(),
                None => Column::defaults().collect(),
            },
            body_type: self.body_type,
            dialect: self.dialect,
            batch_rows: self.batch_rows,
            batch_bytes: self.batch_bytes,
        })
    }

    /// Which messages pass, and how far they are checked.
    pub(crate) fn filter(&self) -> (Filter, Check) {
        let filter = Filter {
            tags: self.tags.clone(),
            key: self.key.clone(),
        };
        let check = match self.verify {
            true => Check::Full,
            false => Check::Structure,
        };
        (filter, check)
    }

    fn check(&self) -> Result<()> {
        check_range("batch_rows", self.batch_rows, BATCH_ROWS_MAX)?;
        check_range("batch_bytes", self.batch_bytes, BATCH_BYTES_MAX)?;
        if let Some(topics) = &self.topics {
            if topics.is_empty() {
                return Err(Error::must("topics", "[]", "name at least one topic"));
            }
            check_distinct("topics", topics.iter())?;
        }
        if let Some(queues) = &self.queues {
            check_distinct("queues", queues.iter())?;
        }
        if let Some(columns) = &self.columns {
            check_distinct("columns", columns.iter().map(|column| column.name()))?;
            if let Some(column) = columns.iter().find(|column| !column.is_of(self.dialect)) {
                let reason = "available only in Spark's dialect";
                return Err(Error::option(
                    "columns",
                    format!("{:?}", column.name()),
                    reason,
                ));
            }
        }
        if self.dialect == Dialect::Spark && self.body_type == BodyType::BinaryView {
            let rule = "be \"binary\" for Spark";
            return Err(Error::must("body_type", "\"binary_view\"", rule));
        }
        if self.key.as_ref().is_some_and(Vec::is_empty) {
            return Err(Error::must("key", "\"\"", "have at least one character"));
        }
        Ok(())
    }

    /// All queues listed in `queues` or in an offset bound.
    fn named_queues(&self) -> Vec<u32> {
        let mut named = self.queues.clone().unwrap_or_default();
        for bound in [&self.start, &self.end] {
            if let Bound::Offsets(offsets) = bound {
                named.extend(offsets.keys());
            }
        }
        named
    }
}

/// Whether a record lies in one of these ranges, which are sorted by queue.
fn is_within(record: &Row<'_>, ranges: &[(u32, Range<u64>)]) -> bool {
    let (Ok(queue), Ok(offset)) = (
        u32::try_from(record.queue_id()),
        u64::try_from(record.queue_offset()),
    ) else {
        return false;
    };
    let at = ranges.binary_search_by_key(&queue, |(queue, _)| *queue);
    let range = at.ok().and_then(|at| ranges.get(at));
    range.is_some_and(|(_, range)| range.contains(&offset))
}

fn check_range(name: &str, value: usize, max: usize) -> Result<()> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(Error::must(name, value, format!("be between 1 and {max}")))
}

fn check_distinct<T: Ord + std::fmt::Debug>(
    name: &str,
    values: impl Iterator<Item = T>,
) -> Result<()> {
    let mut seen = BTreeSet::new();
    for value in values {
        let shown = format!("{value:?}");
        if !seen.insert(value) {
            return Err(Error::option(name, shown, "listed twice"));
        }
    }
    Ok(())
}
