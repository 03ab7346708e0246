//! Markers: rows of a system topic that say which parts of which commits the log holds.
//!
//! ```text
//! topic  rmq_sys_forebay_commits, queue 0
//! keys   <query> and <query>:<batch>:<part>
//! body   {"query": ..., "batch": ..., "part": 0 to n, "parts": n, "kind": ..., "commit": ...,
//!         "rows": ..., "sum": ...}
//! ```
//!
//! The last marker of a query decides; its batch is lower than an earlier one where that was
//! accepted (`batchConflict`). The parts of a batch are appended in order; part 0 says that what is
//! there of the batch does not count. The newest markers are looked at themselves, then the index
//! is asked, then the rest of the topic's queue is walked back.
//!
//! Rows and sum are those of the whole batch. A batch that is run again has the same; what has
//! others under a number that the log holds was never a retry. Markers of 0.1.0 have neither, and
//! there the number alone decides.

use super::manifest::{
    CommitKind, DIRECTORY, Manifest, Name, Resolution, is_query, read_contents, write_contents,
};
use crate::disk::Disk;
use crate::engine::commit_log::parts::Parts;
use crate::engine::commit_log::read::cursor::QueueCursor;
use crate::engine::commit_log::read::follow;
use crate::engine::commit_log::read::query::{Question, by_key};
use crate::engine::directory::page::Mark;
use crate::engine::{Appended, Check, Cursor, Filter, Rows};
use crate::error::Result;
use crate::plant::{Bug, planted};
use crate::record::{Batch, Contents, Draft, Row};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// The topic of the markers.
pub const TOPIC: &str = "rmq_sys_forebay_commits";
const QUEUE: u32 = 0;
/// Markers of a query that the index is asked for. The newest is the last one; more are looked at
/// because a repair may have put keys in another order.
const ASKED: usize = 16;
/// Entries of the queue that are looked at together.
const WALK: u64 = 256;

/// A marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The query.
    pub query: String,
    /// The batch.
    pub batch: u64,
    /// The part, from 1; 0 where what is there of the batch does not count.
    pub part: u64,
    /// How many parts the batch has.
    pub parts: u64,
    /// What the commit is one of.
    pub kind: CommitKind,
    /// What tells the commit from another attempt at the batch.
    pub commit: String,
    /// Of the rows of the batch; `None` in a marker of 0.1.0.
    pub contents: Option<Contents>,
}

impl Marker {
    /// The marker of part `part`, from 1, of a commit.
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

    /// The marker that a record is.
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

    /// Whether a commit of the same batch may be one that was run again.
    pub fn is_of(&self, manifest: &Manifest) -> bool {
        match (self.contents, manifest.contents) {
            (Some(own), Some(other)) => own == other || planted(Bug::TrustNumbers),
            _ => true,
        }
    }

    /// Its record, ready to be appended.
    pub fn encode(&self, store: &Parts, clock_ms: i64) -> Result<Batch> {
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
        let body = body.to_string().into_bytes();
        let own = format!("{}:{}:{}", self.query, self.batch, self.part);
        let draft = Draft {
            body: &body,
            keys: &[&self.query, &own],
            ..Draft::default()
        };
        let mut batch = store.batch();
        batch.push(TOPIC, QUEUE, &draft, clock_ms)?;
        Ok(batch)
    }
}

/// Lets queues and index hold all that is in the log: what is looked up next is complete.
pub fn complete(store: &Parts) -> Result<()> {
    match store.log.sync {
        // There readers see what is durable alone.
        true => store.flush_to(store.wrote())?,
        false => store.write_out()?,
    }
    store.dispatcher.catch_up(store.log.readable_end())
}

/// The last marker of a query, and its position. See [`complete`].
pub fn last(store: &Parts, query: &str) -> Result<Option<(Marker, u64)>> {
    if planted(Bug::ForgetMarkers) {
        return Ok(None);
    }
    let Some((min, max)) = bounds(store) else {
        return Ok(None);
    };
    // An index that has lost an entry would tell of an older marker, and rows would be appended
    // twice. The newest markers are looked at themselves.
    let recent = max.saturating_sub(WALK).max(min);
    let is_its = |marker: &Marker, _| marker.query == query;
    let mut found = by_walk(store, is_its, recent, max)?;
    if found.is_none() {
        found = by_index(store, query)?;
    }
    match found {
        None => by_walk(store, is_its, min, recent),
        found => Ok(found),
    }
}

/// The last marker of a batch of a query. See [`complete`].
pub fn last_of_batch(store: &Parts, query: &str, batch: u64) -> Result<Option<Marker>> {
    let Some((min, max)) = bounds(store) else {
        return Ok(None);
    };
    // Seldom asked for: no key of the index says how many parts the batch has.
    let is_its = |marker: &Marker, _| marker.query == query && marker.batch == batch;
    let found = by_walk(store, is_its, min, max)?;
    Ok(found.map(|(marker, _)| marker))
}

/// Whether the durable log holds all of a batch, with these contents where its marker has any.
/// `skips`: whether the batch with other rows, or a higher one, will do.
pub fn holds(
    store: &Parts,
    (query, batch): (&str, u64),
    contents: Contents,
    skips: bool,
) -> Result<bool> {
    if planted(Bug::TrustGone) {
        return Ok(true);
    }
    follow::refresh_topic(store, TOPIC)?;
    let Some(topic) = store.topics.get(TOPIC) else {
        return Ok(false);
    };
    let Some(queue) = store.queues.get(&topic, QUEUE) else {
        return Ok(false);
    };
    follow::extend(store, &topic, &queue)?;
    let durable = store.log.state.get(Mark::Durable);
    let is_of_it = |marker: &Marker, position: u64| {
        let is_whole = marker.batch == batch && marker.is_whole();
        let has_them = skips || marker.contents.is_none_or(|own| own == contents);
        marker.query == query
            && position < durable
            && (is_whole && has_them || skips && marker.batch > batch)
    };
    Ok(by_walk(store, is_of_it, queue.min(), queue.max())?.is_some())
}

fn by_index(store: &Parts, query: &str) -> Result<Option<(Marker, u64)>> {
    let Some(topic) = store.topics.get(TOPIC).filter(|_| store.index.is_some()) else {
        return Ok(None);
    };
    let _complete = store.rebuilding.read();
    let question = Question {
        topic: &topic,
        key: query,
        begin: i64::MIN,
        end: i64::MAX,
        max: ASKED,
    };
    let found = by_key(store, &question, 0..0)?;
    let markers = found.iter().filter_map(|message| {
        let record = message.record();
        let marker = Marker::of(&record).filter(|marker| marker.query == query)?;
        Some((marker, record.position().cast_unsigned()))
    });
    Ok(markers.max_by_key(|(_, position)| *position))
}

fn by_walk(
    store: &Parts,
    is_its: impl Fn(&Marker, u64) -> bool,
    min: u64,
    mut end: u64,
) -> Result<Option<(Marker, u64)>> {
    let mut last = None;
    while end > min && last.is_none() {
        let start = end.saturating_sub(WALK).max(min);
        each(store, start, end, |marker, position| {
            if is_its(&marker, position) {
                last = Some((marker, position));
            }
            true
        })?;
        end = start;
    }
    Ok(last)
}

fn bounds(store: &Parts) -> Option<(u64, u64)> {
    let topic = store.topics.get(TOPIC)?;
    let queue = store.queues.get(&topic, QUEUE)?;
    Some((queue.min(), queue.max()))
}

/// Calls `look` with the markers from offset `start` to `end`, and their positions, until it
/// returns false.
fn each(
    store: &Parts,
    start: u64,
    end: u64,
    mut look: impl FnMut(Marker, u64) -> bool,
) -> Result<()> {
    let Some(topic) = store.topics.get(TOPIC) else {
        return Ok(());
    };
    let Some(queue) = store.queues.get(&topic, QUEUE) else {
        return Ok(());
    };
    let (log, report) = (&store.log, &store.report);
    let (filter, check) = (Filter::default(), Check::Full);
    let range = start..end;
    let topic = Arc::clone(&topic);
    let mut cursor = QueueCursor::new(log, topic, queue, range, &filter, check, report);
    let mut rows = Rows::default();
    loop {
        rows.clear();
        cursor.next(64, &mut rows)?;
        if rows.rows.is_empty() {
            return Ok(());
        }
        for record in rows.rows.iter().filter_map(|row| rows.record(row)) {
            let position = record.position().cast_unsigned();
            if let Some(marker) = Marker::of(&record)
                && !look(marker, position)
            {
                return Ok(());
            }
        }
    }
}

/// Appends again the last marker of each query that would go with the log below `until`, durably:
/// of streams, whose next batch has to find it, and of whatever has a manifest yet. Nobody takes
/// manifests up meanwhile.
pub fn keep(store: &Parts, until: u64) -> Result<()> {
    if store.topics.get(TOPIC).is_none() || planted(Bug::RetireMarkers) {
        return Ok(());
    }
    complete(store)?;
    let Some((min, end)) = bounds(store) else {
        return Ok(());
    };
    let mut queries = HashSet::new();
    each(store, min, end, |marker, position| {
        let goes = position < until;
        if goes && (marker.kind == CommitKind::Stream || is_pending(&*store.disk, store, &marker)) {
            queries.insert(marker.query);
        }
        goes
    })?;
    let clock_ms = store.clock.now_ms();
    let topic = store.topic_for_append(TOPIC);
    let mut kept = None;
    for query in queries {
        if let Some((marker, position)) = last(store, &query)?
            && position < until
        {
            let mut batch = marker.encode(store, clock_ms)?;
            let mut appended = Appended::default();
            store.append(&mut [(&topic, &mut batch)], clock_ms, &mut appended)?;
            store.announce(appended.end);
            kept = Some(appended.end);
        }
    }
    if let Some(end) = kept {
        store.flush_to(end)?;
        // A driver that waits looks for its marker in the queue, from which the older one goes.
        store.dispatcher.catch_up(end)?;
    }
    Ok(())
}

/// Whether the manifest of a marker is there. Where that cannot be seen it may be.
fn is_pending(disk: &dyn Disk, store: &Parts, marker: &Marker) -> bool {
    let directory = store.root.join(DIRECTORY).join(&marker.query);
    [Name::Commit(marker.batch), Name::Taken(marker.batch)]
        .into_iter()
        .any(|name| !matches!(disk.stat(&directory.join(name.text())), Ok(None)))
}
