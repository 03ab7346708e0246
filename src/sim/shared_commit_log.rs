//! A commit log that processes share.

use super::disk::SimDisk;
use super::faults::Stop;
use super::frame::{Breach, ROOT, Sent, Story, hold};
use super::herd::{Deed, End, Herd, Opener, Shared, unless_dead};
use super::life::Lives;
use super::members::Members;
use super::model::Model;
use super::steps::new_disk;
use crate::engine::Atomicity;
use crate::engine::commit_log::CommitLog;
use crate::error::Result as Done;
use crate::options::{Mode, Options};
use crate::plant::Point;
use crate::record::Batch;
use std::path::Path;
use std::time::Duration;

impl Shared for Lives {
    fn shared(seed: u64) -> Lives {
        let mut lives = Lives::new(seed);
        lives.options = Options {
            mode: Mode::Share,
            transient_pool: 0,
            transient_pool_fail_fast: false,
            retention_bytes: None,
            roll_after: None,
            // Deaths are detected at once, and nobody else holds the lock.
            busy_timeout: Duration::from_secs(60),
            ..lives.options.clone()
        };
        lives
    }

    fn opener(&self) -> Opener<CommitLog> {
        let options = self.options.clone();
        Box::new(move |machine| CommitLog::open(machine, Path::new(ROOT), &options, Vec::new()))
    }

    fn encode(
        &mut self,
        rows: u64,
        engine: &CommitLog,
        atomicity: Atomicity,
    ) -> (Batch, Vec<Sent>) {
        Lives::encode(self, rows, engine, atomicity)
    }

    fn take(&mut self, sent: Vec<Sent>, _: Atomicity) -> Result<(), Breach> {
        // Messages with a place were published.
        let ends = sent.iter().map(|sent| sent.end);
        let end = ends.filter(|end| *end < u64::MAX).max();
        self.model.published = self.model.published.max(end.unwrap_or(0));
        self.model.take(sent)
    }

    fn doubt(&mut self, mut sent: Vec<Sent>, _: Atomicity) {
        for sent in &mut sent {
            (sent.position, sent.end, sent.certain) = (u64::MAX, u64::MAX, false);
        }
        if self.model.take(sent).is_err() {
            unreachable!("they take the offsets that are expected")
        }
    }

    fn find_out(&mut self, engine: &CommitLog, disk: &SimDisk) -> Result<(), Breach> {
        if self.world.random.chance(30)
            && unless_dead(disk, engine.led_parts(), "taking over")?.is_none()
        {
            return Ok(());
        }
        let (topic, queue) = self.model.sent.last().map_or(("", 0), |sent| sent.queue);
        match unless_dead(disk, engine.mended_end(topic, queue), "mending")? {
            Some((end, next)) => self.model.settle(end, next),
            None => Ok(()),
        }
    }

    fn acknowledge(&mut self, durable: u64) {
        self.model.acknowledge(durable);
    }

    fn flush(engine: &CommitLog) -> Done<bool> {
        let Some(parts) = engine.led_parts()? else {
            return Ok(false);
        };
        parts.flush_to(parts.log.published())?;
        parts.dispatcher.catch_up(parts.log.readable_end())?;
        Ok(true)
    }

    fn pass(engine: &CommitLog) -> Done<()> {
        match engine.led_parts()? {
            Some(parts) => parts.full_pass(),
            None => Ok(()),
        }
    }

    fn roll(engine: &CommitLog) -> Done<()> {
        engine.step_seal()
    }

    fn mend(engine: &CommitLog) -> Done<()> {
        engine.mended_end("", 0).map(drop)
    }
}

impl Model {
    /// Forgets messages of a dead process that are not in the log, given the end of the log and the
    /// next offset of their queue.
    fn settle(&mut self, end: u64, next: u64) -> Result<(), Breach> {
        let certain = self.sent.iter().filter(|sent| sent.certain);
        let known = certain.map(|sent| sent.end).max().unwrap_or(0);
        hold!(
            end >= known,
            "the log ends at {end}, with messages up to {known}"
        );
        let first = self.sent.iter().position(|sent| !sent.certain);
        let Some((first, place)) = first.map(|first| (first, self.sent[first].queue)) else {
            return Ok(());
        };
        let doubted = self.sent.split_off(first);
        let before = self.next_offset(place);
        let all = before + doubted.len() as u64;
        hold!(
            (before..=all).contains(&next),
            "{place:?} ends at {next}, with {before} messages of the living and {all} of all"
        );
        hold!(
            doubted[0].batch.is_none() || next == before || next == all,
            "{} of {} messages of an atomic batch were published",
            next - before,
            doubted.len()
        );
        let there = doubted.into_iter().take((next - before) as usize);
        self.sent.extend(there.map(|sent| Sent {
            end,
            certain: true,
            ..sent
        }));
        self.published = self.published.max(end);
        Ok(())
    }
}

/// [`Members::is_torn_by_the_dead`], in the middle of a batch.
pub fn torn_by_the_dead(seed: u64) -> Result<(), Breach> {
    let mut story = Members::<Lives>::new(seed);
    story.log.options.commitlog_file_size = Some(4096);
    let atomicity = story
        .world()
        .random
        .pick(&[Atomicity::Whole, Atomicity::Rows]);
    story.is_torn_by_the_dead(seed, atomicity)
}

/// Two processes share an empty log. One of them dies in its first append, perhaps when it begins
/// the first file. What the other one makes durable outlives a power loss.
pub fn begun_by_the_dead(seed: u64) -> Result<(), Breach> {
    let mut story = Members::<Lives>::new(seed);
    let disk = new_disk(seed, Stop::Power);
    let mut herd = Herd::new();
    story.join(&mut herd, &disk)?;
    story.join(&mut herd, &disk)?;
    // If the leader dies, the next one makes all names durable.
    let number = story.world().random.below(2) as usize;
    let deed = story.send(&herd, &disk, number)?;
    let end = End::After(story.world().random.below(40));
    story.die(&mut herd, &disk, number, deed, end)?;
    if !herd.living.is_empty() {
        let deed = story.send(&herd, &disk, 0)?;
        story.do_it(&herd, &disk, 0, deed)?;
        story.flush(&herd, &disk)?;
        story.take_note(&herd);
    }
    story.fail_power(herd, &disk)
}

/// A process dies inside an append, and the kernel stores the remains by itself. Another one erases
/// them, and dies before its sync. A third one recovers the store, and the power fails: nothing
/// comes back.
pub fn erased_by_the_dead(seed: u64) -> Result<(), Breach> {
    let mut story = Members::<Lives>::new(seed);
    let disk = new_disk(seed, Stop::Power);
    let mut herd = Herd::new();
    story.join(&mut herd, &disk)?;
    story.join(&mut herd, &disk)?;
    let deed = story.send(&herd, &disk, 0)?;
    story.fall(&mut herd, &disk, 0, deed, End::At(Point::Stored))?;
    disk.store_all();
    story.fall(&mut herd, &disk, 0, Deed::Mend, End::At(Point::Erased))?;
    story.find_out(&mut herd, &disk)?;
    story.fail_power(herd, &disk)
}
