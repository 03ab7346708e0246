//! Deletes and archives messages, beginning with the first one of a partition.

use super::disk::{SimDisk, shared};
use super::frame::{Breach, Life, ROOT, hold};
use super::partitions::{Partitions, Place, TOPICS};
use crate::disk::{FileSystem, Synced};
use crate::engine::partition_log::PartitionLog;
use crate::engine::{Engine, QueueLogs};
use crate::error::Result as Done;
use crate::machine::Machine;
use crate::options::{EngineKind, Mode, Options};
use std::path::Path;

impl Partitions {
    /// Deletes the first messages of a partition.
    pub fn delete(&mut self, life: &Life<PartitionLog>) {
        let places: Vec<Place> = self.sent.keys().copied().collect();
        if places.is_empty() || life.engine.flush(&mut || true).is_err() || life.disk.is_dead() {
            return;
        }
        let place = self.world.random.pick(&places);
        let Some(topic) = life.engine.topics().get(place.0) else {
            return;
        };
        let Ok(Some(bounds)) = life.engine.bounds(&topic, place.1) else {
            return;
        };
        let until = self.world.random.below(bounds.end + 1);
        let asked = self.asked.entry(place).or_default();
        *asked = until.max(*asked);
        // The next removal or the next opening removes what a stopped removal has left.
        let stops = self.world.random.chance(30);
        let starts = [(place.1, until)];
        let done = life.engine.delete_before(&topic, &starts, &mut || !stops);
        if done.is_ok() && !life.disk.is_dead() {
            let start = self.starts.entry(place).or_default();
            *start = until.max(*start);
        }
        self.see_starts(life);
    }

    /// Archives complete segments, from this process or another.
    pub fn archive(&mut self, life: &Life<PartitionLog>) -> Result<(), Breach> {
        let is_beside = self.world.random.chance(50);
        let options = Options {
            mode: Mode::Read,
            engine: Some(EngineKind::PartitionLog),
            ..Options::default()
        };
        let surveyed = || -> Done<Vec<(Place, usize)>> {
            let reader = match is_beside {
                true => {
                    let machine = Machine::stepped(shared(&life.disk));
                    Some(PartitionLog::open(&machine, Path::new(ROOT), &options)?)
                }
                false => None,
            };
            let engine = reader.as_ref().unwrap_or(&life.engine);
            let mut found = Vec::new();
            for segment in engine.sealed_segments(None)? {
                let survey = engine.survey_segment(&segment, None)?;
                let name = TOPICS.iter().find(|name| ***name == *segment.topic);
                if let Some(name) = name.filter(|_| survey.table.holes.is_empty()) {
                    found.push(((*name, segment.queue), segment.end as usize));
                }
            }
            Ok(found)
        };
        let surveyed = surveyed();
        if life.disk.is_dead() {
            return Ok(());
        }
        hold!(
            surveyed.is_ok() || life.disk.has_faults(),
            "archiving failed: {surveyed:?}"
        );
        for (place, end) in surveyed.unwrap_or_default() {
            let known = self.archived.entry(place).or_default();
            *known = end.max(*known);
        }
        // Recorded as by `store.archive`, unless that dies before.
        if self.world.random.chance(80) {
            let offsets = self.archived.iter();
            let offsets = offsets.map(|((topic, queue), end)| format!("\"{topic}-{queue}\":{end}"));
            let offsets: Vec<String> = offsets.collect();
            let text = format!("{{\"targets\":{{\"a\":{{{}}}}}}}", offsets.join(","));
            let _ = note(&life.disk, &text);
        }
        Ok(())
    }

    /// Notes the first offsets that readers see: no later reader may see a message before them.
    pub fn see_starts(&mut self, life: &Life<PartitionLog>) {
        if life.disk.is_dead() {
            return;
        }
        for place in self.sent.keys() {
            let topic = life.engine.topics().get(place.0);
            let bounds = topic.and_then(|topic| life.engine.bounds(&topic, place.1).ok()?);
            let start = self.starts.entry(*place).or_default();
            *start = bounds.map_or(0, |bounds| bounds.start).max(*start);
        }
    }
}

/// Records archives as the archiving program does, whose calls do not belong to the store.
fn note(disk: &SimDisk, text: &str) -> std::io::Result<()> {
    let path = Path::new(ROOT).join("forebay.archived");
    let fresh = path.with_extension("archived.new");
    disk.write_at(&fresh, 0, text.as_bytes())?;
    disk.set_len(&fresh, text.len() as u64)?;
    disk.sync(Synced::File(&fresh))?;
    disk.rename(&fresh, &path)?;
    disk.sync(Synced::Directory(Path::new(ROOT)))
}
