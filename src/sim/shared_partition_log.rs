//! A partition log that processes share.

use super::disk::SimDisk;
use super::frame::{Breach, ROOT, Sent, Story, hold};
use super::herd::{Opener, Shared, unless_dead};
use super::members::Members;
use super::partitions::{Partitions, Place};
use crate::engine::partition_log::PartitionLog;
use crate::engine::service::durability::Durable;
use crate::engine::{Atomicity, QueueLogs};
use crate::error::Result as Done;
use crate::options::{Mode, Options};
use crate::record::Batch;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

impl Shared for Partitions {
    fn shared(seed: u64) -> Partitions {
        let mut partitions = Partitions::new(seed);
        partitions.options = Options {
            mode: Mode::Share,
            linger: Duration::ZERO,
            batch_bytes: None,
            segment_ms: None,
            retention: None,
            retention_bytes: None,
            keep_unarchived: false,
            // Deaths are detected at once, and nobody else holds the lock.
            busy_timeout: Duration::from_secs(60),
            ..partitions.options.clone()
        };
        partitions
    }

    fn opener(&self) -> Opener<PartitionLog> {
        let options = self.options.clone();
        Box::new(move |machine| PartitionLog::open(machine, Path::new(ROOT), &options))
    }

    fn encode(&mut self, rows: u64, engine: &PartitionLog, _: Atomicity) -> (Batch, Vec<Sent>) {
        Partitions::encode(self, rows, engine)
    }

    fn take(&mut self, sent: Vec<Sent>, atomicity: Atomicity) -> Result<(), Breach> {
        for sent in &sent {
            let next = self.next_of(sent.queue) as u64;
            let before = sent.offset.min(next);
            hold!(
                !sent.certain || sent.offset >= next,
                "got offset {before} instead of {next}"
            );
        }
        let batch = self.add(sent)?;
        if atomicity == Atomicity::Whole {
            self.whole.push(batch);
        }
        Ok(())
    }

    fn doubt(&mut self, mut sent: Vec<Sent>, atomicity: Atomicity) {
        for sent in &mut sent {
            (sent.position, sent.end, sent.certain) = (u64::MAX, u64::MAX, false);
        }
        if let Ok(batch) = self.add(sent)
            && atomicity == Atomicity::Whole
        {
            self.whole.push(batch);
        }
    }

    fn find_out(&mut self, engine: &PartitionLog, disk: &SimDisk) -> Result<(), Breach> {
        match unless_dead(disk, engine.mended_ends(), "mending")? {
            Some(ends) => self.settle(&ends),
            None => Ok(()),
        }
    }

    fn acknowledge(&mut self, durable: u64) {
        Partitions::acknowledge(self, durable);
    }

    fn flush(engine: &PartitionLog) -> Done<bool> {
        let leads = engine.try_lead()?;
        if leads {
            let parts = engine.parts();
            parts.flush_to(parts.published())?;
        }
        Ok(leads)
    }

    fn pass(engine: &PartitionLog) -> Done<()> {
        match engine.try_lead()? {
            true => engine.parts().full_pass(),
            false => Ok(()),
        }
    }

    fn roll(engine: &PartitionLog) -> Done<()> {
        engine.roll().map(drop)
    }

    fn mend(engine: &PartitionLog) -> Done<()> {
        engine.mended_ends().map(drop)
    }
}

/// [`Members::is_torn_by_the_dead`], in the middle of an atomic batch.
pub fn torn_by_the_dead(seed: u64) -> Result<(), Breach> {
    let mut story = Members::<Partitions>::new(seed);
    story.log.options.segment_bytes = Some(4096);
    story.is_torn_by_the_dead(seed, Atomicity::Whole)
}

impl Partitions {
    fn next_of(&self, place: Place) -> usize {
        self.sent.get(&place).map_or(0, Vec::len)
    }

    fn add(&mut self, sent: Vec<Sent>) -> Result<Vec<(Place, usize)>, Breach> {
        let mut batch = Vec::new();
        for sent in sent {
            let next = self.next_of(sent.queue);
            hold!(
                !sent.certain || sent.offset == next as u64,
                "got offset {} instead of {next}",
                sent.offset
            );
            batch.push((sent.queue, next));
            self.sent.entry(sent.queue).or_default().push(sent);
        }
        Ok(batch)
    }

    /// Forgets messages of a dead process that are not in the log, given the ends of the
    /// partitions.
    fn settle(&mut self, ends: &[(Arc<str>, u32, u64)]) -> Result<(), Breach> {
        let end_of = |place: &Place| {
            let mut ends = ends.iter();
            let found = ends.find(|(topic, queue, _)| (&**topic, *queue) == *place);
            found.map_or(0, |(.., end)| *end as usize)
        };
        for (place, all) in &mut self.sent {
            let (end, certain) = (end_of(place), all.iter().filter(|it| it.certain).count());
            hold!(
                (certain..=all.len()).contains(&end),
                "{place:?} ends at {end}, with {certain} messages of the living and {} of all",
                all.len()
            );
        }
        if let Some(batch) = self.whole.last() {
            let there = batch.iter().filter(|(place, at)| *at < end_of(place));
            let (there, all) = (there.count(), batch.len());
            hold!(
                there == 0 || there == all,
                "{there} of {all} messages of an atomic batch were published"
            );
            if there == 0 {
                self.whole.pop();
            }
        }
        for (place, all) in &mut self.sent {
            all.truncate(end_of(place));
            all.iter_mut().for_each(|sent| sent.certain = true);
        }
        Ok(())
    }
}
