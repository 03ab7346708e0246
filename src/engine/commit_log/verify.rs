//! Verification: every record, queue entry and index entry, each against the log.

use super::consume_queue::{ConsumeQueue, FILLER_SIZE};
use super::index_file::IndexFile;
use super::log::{Log, Step, Walker};
use super::recover::next_record;
use super::shared::Shared;
use crate::engine::{Damage, Topic, Verification};
use crate::error::Result;
use crate::record::properties::{Known, index_hash};
use crate::record::{Flaw, Freshness, Record};
use std::sync::Arc;

/// Bytes of the log between two reports of progress.
const PROGRESS_STEP: u64 = 16 << 20;

/// Checks a store as it is now. `progress` hears of bytes done and in all; false ends the check.
pub fn verify(shared: &Shared, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verification> {
    let mut found = Verification::default();
    if !records(&shared.log, &mut found, progress)? {
        return Ok(found);
    }
    for (topic, queue) in shared.queues.all(&shared.topics) {
        entries(&shared.log, &topic, &queue, &mut found)?;
    }
    for file in shared.index.iter().flat_map(|index| index.files()) {
        index_entries(&shared.log, &file, &mut found)?;
    }
    for damage in shared.report.all() {
        if !found
            .damage
            .iter()
            .any(|known| known.path == damage.path && known.position == damage.position)
        {
            found.damage.push(damage);
        }
    }
    Ok(found)
}

fn records(
    log: &Arc<Log>,
    found: &mut Verification,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<bool> {
    let (start, end) = (log.min_position(), log.published());
    let mut walker = Walker::new(log, start, end);
    let mut told = start;
    loop {
        let position = walker.position();
        if position >= told + PROGRESS_STEP {
            told = position;
            if !progress(position - start, end - start) {
                return Ok(false);
            }
        }
        let flaw = match walker.step()? {
            Step::End => break,
            Step::Blank => continue,
            Step::Flawed(flaw) => flaw,
            Step::Record(at, layout) => {
                let Some(record) = walker.record(at, layout) else {
                    break;
                };
                let checked = record
                    .check(position)
                    .and_then(|freshness| record.check_body().map(|()| freshness));
                match checked {
                    Ok(freshness) => {
                        found.records += 1;
                        found.stale_checksums += u64::from(freshness == Freshness::Stale);
                        continue;
                    }
                    Err(flaw) => flaw,
                }
            }
        };
        let next = next_record(log, position + 1, end)?.unwrap_or(end);
        found.damage.push(Damage {
            path: log.files.path_of(log.files.start_of(position)),
            position,
            length: next - position,
            reason: flaw.to_string(),
            lost: Vec::new(),
        });
        walker.move_to(next);
    }
    progress(end - start, end - start);
    Ok(true)
}

fn entries(log: &Log, topic: &Topic, queue: &ConsumeQueue, found: &mut Verification) -> Result<()> {
    let end = log.published();
    for number in queue.min()..queue.max() {
        let entry = queue.entry(number)?;
        let reason = match entry {
            None => "no entry".to_owned(),
            Some(entry) if entry.size == FILLER_SIZE => continue,
            Some(entry) if !entry.is_message(end) => "the entry leads out of the log".to_owned(),
            Some(entry) => match log.record_at(entry.position) {
                Ok(message) if leads_to(&message.record(), topic, queue.id, number) => {
                    found.queue_entries += 1;
                    continue;
                }
                Ok(_) => "the entry leads to another's record".to_owned(),
                Err(error) => error.to_string(),
            },
        };
        found.damage.push(Damage {
            path: queue.directory().to_path_buf(),
            position: number * super::consume_queue::ENTRY_LEN,
            length: super::consume_queue::ENTRY_LEN,
            reason,
            lost: vec![(topic.name.to_string(), queue.id, number)],
        });
    }
    Ok(())
}

fn leads_to(record: &Record<'_>, topic: &Topic, queue: u32, offset: u64) -> bool {
    record.topic() == topic.name.as_bytes()
        && record.queue_id() == queue as i32
        && record.queue_offset() == offset as i64
}

fn index_entries(log: &Log, file: &IndexFile, found: &mut Verification) -> Result<()> {
    let min = log.min_position();
    for number in 1..file.count() {
        let entry = file.entry(number);
        if entry.position < min {
            continue;
        }
        let message = log.record_at(entry.position);
        let holds = message.as_ref().is_ok_and(|message| {
            let record = message.record();
            let known = Known::read(record.raw_properties());
            let topic = record.topic();
            let tag = known.tags.map(|tags| [b"T#", tags].concat());
            known
                .index_keys()
                .any(|key| index_hash(topic, key) == entry.hash)
                || tag.is_some_and(|tag| index_hash(topic, &tag) == entry.hash)
        });
        if holds {
            found.index_entries += 1;
            continue;
        }
        let reason = match message {
            Ok(_) => Flaw::Field("index entry: the record has no such key").to_string(),
            Err(error) => error.to_string(),
        };
        found.damage.push(Damage {
            path: file.path().to_path_buf(),
            position: u64::from(number),
            length: super::index_file::ENTRY_LEN as u64,
            reason,
            lost: Vec::new(),
        });
    }
    Ok(())
}
