//! Cases that long stories reach too seldom.

use super::faults::Stop;
use super::frame::{Breach, Life, ROOT, Stepped, Story, hold};
use super::partitions::{Partitions, TOPICS};
use super::steps::{new_disk, next, said};
use crate::clock::Clock;
use crate::disk::{FileSystem, Synced};
use crate::engine::{Durability, Engine, QueueLogs};
use crate::options::Flush;
use std::path::Path;
use std::time::Duration;

/// A process begins the first segment of a partition, does not use it, removes it, and dies before
/// that is durable. The next one opens the store and stops cleanly, and the power fails: the
/// segment does not come back.
pub fn unlinked_by_the_dead(seed: u64) -> Result<(), Breach> {
    let mut story = Partitions::new(seed);
    story.options.flush = Some(Flush::Async);
    let disk = new_disk(seed, Stop::Process);
    let open = |disk| story.open(&story.world.machine(disk)).map_err(said);
    let engine = open(&disk)?;
    engine.topic_for_append(TOPICS[0]).map_err(said)?;
    // The first close of a partition without messages syncs its folder, and no later one does.
    engine.close().map_err(said)?;
    let engine = open(&disk)?;
    let folder = Path::new(ROOT).join(format!("{}-0", TOPICS[0]));
    let stray = folder.join(format!("{:020}.log", 0));
    let created = disk.create(&stray, 4096);
    created.map_err(|error| error.to_string())?;
    let synced = disk.sync(Synced::Directory(&folder));
    synced.map_err(|error| error.to_string())?;
    let removed = disk.unlink(&stray);
    removed.map_err(|error| error.to_string())?;
    let disk = next(&disk, Stop::Power);
    drop(engine);
    open(&disk)?.close().map_err(said)?;
    let disk = next(&disk, Stop::Power);
    let engine = open(&disk)?;
    let found = disk.contents().contains_key(&stray);
    hold!(
        !found && engine.report().recovery().clean,
        "the segment has come back"
    );
    story.check(&engine)
}

/// The power fails during a step of retention, so that any of the segments before the first offset
/// may be left. Later segments are still there.
pub fn removed_in_part(seed: u64) -> Result<(), Breach> {
    let mut story = Partitions::new(seed);
    story.options.segment_bytes = Some(4096);
    (story.options.retention_bytes, story.options.keep_unarchived) = (Some(1), false);
    (story.options.linger, story.options.batch_bytes) = (Duration::ZERO, None);
    let disk = new_disk(seed, Stop::Power);
    let engine = story.open(&story.world.machine(&disk)).map_err(said)?;
    let mut life = Life::new(&disk, engine);
    for _ in 0..12 {
        story.send(&mut life, 6)?;
    }
    if story.world.random.chance(30) {
        life.engine.roll().map_err(said)?;
    }
    life.engine.flush(&mut || true).map_err(said)?;
    story.take_note(&mut life, false)?;
    disk.end_within(1 + story.world.random.below(80));
    life.time += Duration::from_secs(2);
    let wall_ms = story.world.clock.now_ms();
    life.engine.step_retention(wall_ms, life.time);
    let disk = next(&disk, Stop::Power);
    drop(life);
    let opened = story.open(&story.world.machine(&disk)).map_err(said)?;
    story.world.kept = false;
    story.check(&opened)
}

/// A topic that was created explicitly has all its queues after the power fails.
pub fn created_explicitly(seed: u64) -> Result<(), Breach> {
    const CREATED: u32 = 5;
    let story = Partitions::new(seed);
    let disk = new_disk(seed, Stop::Power);
    let open = |disk| story.open(&story.world.machine(disk)).map_err(said);
    let engine = open(&disk)?;
    engine.topic_for_append(TOPICS[0]).map_err(said)?;
    let created = engine.create_topic(TOPICS[0], CREATED, Durability::Flushed);
    created.map_err(said)?;
    let disk = next(&disk, Stop::Power);
    drop(engine);
    let engine = open(&disk)?;
    let topic = engine.topics().get(TOPICS[0]).ok_or("the topic is gone")?;
    let queues = engine.queues(&topic);
    hold!(
        queues.iter().copied().eq(0..CREATED),
        "the topic has the queues {queues:?}"
    );
    Ok(())
}
