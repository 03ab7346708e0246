//! Markers: rows of a system topic that record which parts of which commits the log holds.
//!
//! ```text
//! topic  rmq_sys_forebay_commits, queue 0
//! keys   <query> and <query>:<batch>:<part>
//! body   {"query": ..., "batch": ..., "part": 0 to n, "parts": n, "kind": ..., "commit": ...,
//!         "rows": ..., "sum": ...}
//! ```
//!
//! The last marker of a query decides. Its batch may be lower than an earlier one if that was
//! accepted (`batchConflict`). The parts of a batch are appended in order. Part 0 means that
//! existing parts of the batch do not count. The search reads the newest markers directly, then
//! asks the index, then walks the rest of the topic's queue backwards.
//!
//! The first key is that of the message in a partition log, so compaction keeps the last marker of
//! each query.
//!
//! Rows and sum are those of the whole batch. A batch that runs again has the same values; one with
//! other values under a number in the log is not a retry. Markers of release 0.1.0 have neither;
//! for them the number alone decides.

use super::manifest::{CommitKind, Manifest, Resolution, read_contents, write_contents};
use super::name::Name;
use super::place::is_query;
use super::writer::Writer;
use crate::engine::{Atomicity, Check, Engine, Filter, Point, Rows, Topic};
use crate::error::Result;
use crate::plant::{Bug, planted};
use crate::record::{Batch, Contents, Draft, Row};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::ops::Range;

/// The topic of the markers.
pub const TOPIC: &str = "rmq_sys_forebay_commits";
/// The queue of the markers.
pub const QUEUE: u32 = 0;
/// Number of markers of a query requested from the index. Only the newest counts, but a repair may
/// have put keys in another order.
const ASKED: usize = 16;
/// Number of queue entries read at a time.
const WALK: u64 = 256;
/// At least this many of the newest markers of a partition log are kept.
const KEPT: u64 = if cfg!(test) { 8 } else { 1024 };

/// A marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The query.
    pub query: String,
    /// The batch.
    pub batch: u64,
    /// The part, from 1; 0 if existing parts of the batch do not count.
    pub part: u64,
    /// How many parts the batch has.
    pub parts: u64,
    /// Whether the batch belongs to a stream.
    pub kind: CommitKind,
    /// Distinguishes the commit from another attempt at the batch.
    pub commit: String,
    /// Fingerprint of the batch's rows; `None` in a marker of 0.1.0.
    pub contents: Option<Contents>,
}

impl Marker {
    /// The marker of part `part` of a commit, from 1.
    pub fn new(manifest: &Manifest, part: usize) -> Marker {
        let part = match manifest.resolution {
            Some(Resolution::Again) => 0,
            _ => part as u64,
        };
        Marker {
            query: manifest.query.clone(),
            batch: manifest.batch,
            part,
            parts: manifest.parts.len() as u64,
            kind: manifest.kind,
            commit: manifest.id.clone(),
            contents: manifest.contents,
        }
    }

    /// Parses a record; `None` if it is not a marker.
    pub fn of(record: &Row<'_>) -> Option<Marker> {
        if record.topic() != TOPIC.as_bytes() {
            return None;
        }
        let value: Value = serde_json::from_slice(record.stored_body()).ok()?;
        let number = |name: &str| value.get(name).and_then(Value::as_u64);
        let word = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Marker {
            query: word("query").filter(|query| is_query(query))?,
            batch: number("batch")?,
            part: number("part")?,
            parts: number("parts")?,
            kind: CommitKind::of(&word("kind")?)?,
            commit: word("commit")?,
            contents: read_contents(&value),
        })
    }

    /// Whether the whole batch is in the log.
    pub fn is_whole(&self) -> bool {
        self.part >= self.parts
    }

    /// Whether a commit of the same batch may be a retry of this one.
    pub fn is_of(&self, manifest: &Manifest) -> bool {
        match (self.contents, manifest.contents) {
            (Some(own), Some(other)) => own == other || planted(Bug::TrustNumbers),
            _ => true,
        }
    }

    /// The body of its record.
    pub fn body(&self) -> String {
        let mut body = json!({
            "query": self.query,
            "batch": self.batch,
            "part": self.part,
            "parts": self.parts,
            "kind": self.kind.word(),
            "commit": self.commit,
        });
        if let Some(contents) = self.contents {
            write_contents(contents, &mut body);
        }
        body.to_string()
    }

    /// Encodes it as a record to append.
    pub fn encode(&self, engine: &dyn Engine, clock_ms: i64) -> Result<Batch> {
        let body = self.body();
        let own = format!("{}:{}:{}", self.query, self.batch, self.part);
        let draft = Draft {
            body: body.as_bytes(),
            keys: &[&self.query, &own],
            ..Draft::default()
        };
        let mut batch = engine.form().batch();
        batch.push(TOPIC, QUEUE, &draft, clock_ms)?;
        Ok(batch)
    }
}

/// The last readable marker of a query, and its offset: see
/// [`Staging::make_readable`](crate::engine::Staging::make_readable). `indexed`: whether to ask the
/// index.
pub fn last(engine: &dyn Engine, query: &str, indexed: bool) -> Result<Option<(Marker, u64)>> {
    if planted(Bug::ForgetMarkers) {
        return Ok(None);
    }
    let Some(Range { start, end }) = bounds(engine)? else {
        return Ok(None);
    };
    // An index that lost an entry would return an older marker, and rows would be appended twice.
    // So the newest markers are read directly.
    let recent = end.saturating_sub(WALK).max(start);
    let is_its = |marker: &Marker| marker.query == query;
    let mut found = by_walk(engine, is_its, recent..end)?;
    if found.is_none() && indexed {
        found = by_index(engine, query, is_its)?;
    }
    match found {
        None => by_walk(engine, is_its, start..recent),
        found => Ok(found),
    }
}

/// The last readable marker of a batch of a query: see
/// [`Staging::make_readable`](crate::engine::Staging::make_readable).
pub fn last_of_batch(engine: &dyn Engine, query: &str, batch: u64) -> Result<Option<Marker>> {
    let Some(range) = bounds(engine)? else {
        return Ok(None);
    };
    // Walks the queue, because the keys in the index include the part, which is unknown here. This
    // is rarely needed.
    let is_its = |marker: &Marker| marker.query == query && marker.batch == batch;
    let found = by_walk(engine, is_its, range)?;
    Ok(found.map(|(marker, _)| marker))
}

/// The last readable marker of a batch after which markers of lower batches were appended.
/// `indexed`: whether to ask the index; else only the newest markers are searched.
pub fn buried(
    engine: &dyn Engine,
    query: &str,
    batch: u64,
    indexed: bool,
) -> Result<Option<Marker>> {
    let Some(Range { start, end }) = bounds(engine)? else {
        return Ok(None);
    };
    let is_its = |marker: &Marker| marker.query == query && marker.batch == batch;
    let recent = end.saturating_sub(WALK).max(start);
    if let Some((found, _)) = by_walk(engine, is_its, recent..end)? {
        return Ok(Some(found));
    }
    // Every batch that is in the log has a first part.
    let first = format!("{query}:{batch}:1");
    match indexed && by_index(engine, &first, is_its)?.is_some() {
        true => last_of_batch(engine, query, batch),
        false => Ok(None),
    }
}

/// Whether the durable log holds all of a batch. If its marker has contents, they must be equal.
/// `skips`: the batch with other rows, or a higher batch, counts too.
pub fn holds(
    engine: &dyn Engine,
    (query, batch): (&str, u64),
    contents: Contents,
    skips: bool,
) -> Result<bool> {
    if planted(Bug::TrustGone) {
        return Ok(true);
    }
    engine.refresh(Some(TOPIC))?;
    let Some(topic) = engine.topics().get(TOPIC) else {
        return Ok(false);
    };
    let durable = engine.bounds_below(&topic, QUEUE, engine.durable_position())?;
    let is_of_it = |marker: &Marker| {
        let is_whole = marker.batch == batch && marker.is_whole();
        let has_them = skips || marker.contents.is_none_or(|own| own == contents);
        marker.query == query && (is_whole && has_them || skips && marker.batch > batch)
    };
    match durable {
        Some(range) => Ok(by_walk(engine, is_of_it, range)?.is_some()),
        None => Ok(false),
    }
}

/// The last marker with a key that `is_its`.
fn by_index(
    engine: &dyn Engine,
    key: &str,
    is_its: impl Fn(&Marker) -> bool,
) -> Result<Option<(Marker, u64)>> {
    let Some(topic) = engine.topics().get(TOPIC) else {
        return Ok(None);
    };
    let found = engine.query(
        &topic,
        key.as_bytes(),
        i64::MIN,
        i64::MAX,
        ASKED,
        &mut || true,
    )?;
    let markers = found.iter().filter_map(|message| {
        let record = message.record();
        let marker = Marker::of(&record).filter(&is_its)?;
        Some((marker, record.queue_offset().cast_unsigned()))
    });
    Ok(markers.max_by_key(|(_, offset)| *offset))
}

fn by_walk(
    engine: &dyn Engine,
    is_its: impl Fn(&Marker) -> bool,
    range: Range<u64>,
) -> Result<Option<(Marker, u64)>> {
    let (mut last, mut end) = (None, range.end);
    while end > range.start && last.is_none() {
        let start = end.saturating_sub(WALK).max(range.start);
        each(engine, start..end, |marker, offset| {
            if is_its(&marker) {
                last = Some((marker, offset));
            }
        })?;
        end = start;
    }
    Ok(last)
}

fn bounds(engine: &dyn Engine) -> Result<Option<Range<u64>>> {
    match engine.topics().get(TOPIC) {
        Some(topic) => engine.bounds(&topic, QUEUE),
        None => Ok(None),
    }
}

/// Calls `visit` with the markers in a range of offsets, and their offsets.
fn each(engine: &dyn Engine, range: Range<u64>, mut visit: impl FnMut(Marker, u64)) -> Result<()> {
    let Some(topic) = engine.topics().get(TOPIC) else {
        return Ok(());
    };
    let filter = Filter::default();
    let mut cursor = engine.cursor(&topic, QUEUE, range, &filter, Check::Full)?;
    let mut rows = Rows::default();
    while cursor.refill(64, &mut rows)? {
        for record in rows.rows.iter().filter_map(|row| rows.record(row)) {
            if let Some(marker) = Marker::of(&record) {
                visit(marker, record.queue_offset().cast_unsigned());
            }
        }
    }
    Ok(())
}

/// Durably appends again the last marker of each query that would be deleted with the log below the
/// position `until`: of streams, whose next batch must find it, and of queries that still have a
/// manifest. No manifests may be taken up meanwhile.
pub fn keep(writer: &Writer, until: u64) -> Result<()> {
    let engine = &*writer.engine;
    let Some(topic) = engine
        .topics()
        .get(TOPIC)
        .filter(|_| !planted(Bug::RetireMarkers))
    else {
        return Ok(());
    };
    engine.make_readable(u64::MAX)?;
    let Some(range) = bounds(engine)? else {
        return Ok(());
    };
    let until = engine.offset_at(&topic, QUEUE, Point::Position(until))?;
    append_again(writer, &topic, range.start..until)
}

/// The offset from which a partition log must keep its markers. Markers that are needed and lie far
/// before the last one are first durably appended again, so that a query that has ended does not
/// make the log keep all later ones. `before`: the result of the last call, 0 before the first. No
/// manifests may be taken up meanwhile.
pub fn keep_from(writer: &Writer, before: u64) -> Result<u64> {
    let engine = &*writer.engine;
    if planted(Bug::RetireMarkers) {
        return Ok(u64::MAX);
    }
    let (Some(topic), Some(range)) = (engine.topics().get(TOPIC), bounds(engine)?) else {
        return Ok(0);
    };
    let from = before.max(range.start);
    if range.end.saturating_sub(from) < 2 * KEPT {
        return Ok(from);
    }
    let until = range.end - KEPT;
    append_again(writer, &topic, range.start..until)?;
    Ok(until)
}

/// Durably appends again the markers among these offsets that are needed.
fn append_again(writer: &Writer, topic: &Topic, range: Range<u64>) -> Result<()> {
    let (engine, until) = (&*writer.engine, range.end);
    let mut queries = HashSet::new();
    each(engine, range, |marker, _| {
        if marker.kind == CommitKind::Stream || is_pending(writer, &marker) {
            queries.insert(marker.query);
        }
    })?;
    let clock_ms = writer.machine.clock.now_ms();
    let mut kept = None;
    for query in queries {
        if let Some((marker, offset)) = last(engine, &query, writer.indexed)?
            && offset < until
        {
            let mut batch = marker.encode(engine, clock_ms)?;
            let batches = &mut [(topic, &mut batch)];
            kept = Some(engine.append_staged(batches, Atomicity::Rows)?);
        }
    }
    if let Some(end) = kept {
        engine.flush_to(end)?;
        // A waiting driver searches the queue for its marker, and the older one will be deleted.
        engine.make_readable(end)?;
    }
    Ok(())
}

/// Whether the manifest of a marker exists. True if that cannot be checked.
fn is_pending(writer: &Writer, marker: &Marker) -> bool {
    let Ok(place) = writer.place.query(&marker.query) else {
        return true;
    };
    [Name::Commit(marker.batch), Name::Taken(marker.batch)]
        .into_iter()
        .any(|name| !matches!(writer.disk().stat(&place.path(&name.text())), Ok(None)))
}
