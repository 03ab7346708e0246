//! Recovers a directory, and marks it as being written.
//!
//! ```text
//!   the mark of a clean stop goes, durably --> each partition is opened
//!   --> the durable ends are saved --> mark of Forebay
//! ```

use super::ends::Ends;
use super::files::{self, Checkpoint, RECOVERY_POINT};
use super::gone::{self, Gone};
use super::intent;
use super::opening::{Known, Opening};
use super::recovery::Recovered;
use super::restore::restore_missing;
use super::room::cut_room;
use super::rules::Rules;
use super::tables;
use super::tail::Tail;
use super::writing::Start;
use crate::disk::Disk;
use crate::engine::directory::kept_options::Kept;
use crate::engine::directory::recognise::Maker;
use crate::engine::partition_log::segments::names::{self, CLEAN, LOG_START};
use crate::engine::{Damage, DamageKind, Recovery, RepairStep, Report, Topic, Topics};
use crate::error::Result;
use crate::machine::Machine;
use crate::options::{EngineKind, Options};
use crate::plant::{Bug, planted};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A partition that opening found.
pub struct Opened {
    /// The topic.
    pub topic: Arc<Topic>,
    /// Its number in the topic.
    pub queue: u32,
    /// Where it begins and ends.
    pub ends: Arc<Ends>,
}

/// A directory that was recovered, and marked as being written.
pub(super) struct Begun {
    pub options: Options,
    pub rules: Rules,
    pub seed: u64,
    pub known_times: Vec<i64>,
    pub mended: Vec<RepairStep>,
    pub opened: Vec<Opened>,
    pub gone: Gone,
    pub recovery: Recovery,
}

/// Recovers a directory that no other process writes, and marks it as being written.
pub(super) fn begin(
    (machine, options, maker): (&Machine, &Options, Maker),
    root: &Path,
    (topics, report): (&Topics, &Report),
    tail: &mut Tail,
) -> Result<Begun> {
    let disk = &machine.disk;
    let is_clean = take_clean_mark(&**disk, root)?;
    let damaged = tables::keep(&**disk, root, report)?;
    let known = files::read_seed(&**disk, root)?;
    let seed = known.unwrap_or_else(|| machine.clock.now_ns());
    if maker == Maker::Nobody {
        files::save_seed(&**disk, root, seed)?;
    }
    let kept = Kept::load(&**disk, root, options, EngineKind::PartitionLog)?;
    kept.damage.iter().for_each(|it| report.add(it.clone()));
    let options = &kept.options;
    let written = modified(&**disk, &root.join(RECOVERY_POINT))?;
    let rules = Rules::new(options);
    let opening = Opening {
        disk,
        rules: &rules,
        report,
        is_clean: is_clean || maker == Maker::Nobody,
        is_own: maker != Maker::Other,
        are_points_known: true,
    };
    let (opened, gone, recovery) = open_partitions(&opening, root, topics, tail)?;
    let line = |it: &'_ Opened| {
        (
            it.topic.name.to_string(),
            it.queue,
            it.ends.next_offset(true),
        )
    };
    let mut lines: Vec<_> = opened.iter().map(line).collect();
    lines.sort();
    let mut lines: Vec<_> = lines.iter().map(|it| (&*it.0, it.1, it.2)).collect();
    gone.add_to(&mut lines);
    files::save_checkpoint(&**disk, root, RECOVERY_POINT, &lines)?;
    if maker == Maker::Other {
        // Written last: until everything is recovered, each opening recovers the directory as a
        // broker does.
        files::save_seed(&**disk, root, seed)?;
    }
    kept.save(&**disk, &report.warnings)?;
    let mut known_times = Vec::from_iter(written);
    if options.retention.is_some() {
        let now_ms = machine.clock.now_ms();
        known_times.extend(files::add_opening(&**disk, root, seed, now_ms)?);
    }
    Ok(Begun {
        options: options.clone(),
        rules,
        seed,
        known_times,
        mended: mended(damaged),
        opened,
        gone,
        recovery,
    })
}

/// Removes the mark of a clean stop, durably. Returns whether there was one.
fn take_clean_mark(disk: &dyn Disk, root: &Path) -> Result<bool> {
    let clean = root.join(CLEAN);
    let is_clean = disk.stat(&clean)?.is_some();
    if is_clean && !planted(Bug::KeepCleanMark) {
        disk.unlink(&clean)?;
    }
    // A process may have removed the mark and died before that was durable.
    disk.sync_directory(root)?;
    Ok(is_clean)
}

/// The repair of the recovery points, which opening writes again if they were damaged.
fn mended(damaged: Vec<(Damage, Option<PathBuf>)>) -> Vec<RepairStep> {
    let points = damaged.into_iter();
    let points = points.filter(|it| it.0.path.ends_with(RECOVERY_POINT));
    let what = "rewritten with the ends of the queues, when the store was opened";
    let step = |(damage, saved): (Damage, _)| RepairStep::of_file(&damage, what, saved);
    points.map(step).collect()
}

/// When a file was last modified; `None` if it does not exist or has no known time.
pub(super) fn modified(disk: &dyn Disk, path: &Path) -> Result<Option<i64>> {
    match disk.modified_ms(path) {
        Err(error) if error.is_not_found() => Ok(None),
        modified => modified,
    }
}

/// Opens all partitions.
fn open_partitions(
    opening: &Opening<'_>,
    root: &Path,
    topics: &Topics,
    tail: &mut Tail,
) -> Result<(Vec<Opened>, Gone, Recovery)> {
    let disk = &**opening.disk;
    let mut named = names::partitions(disk, root)?;
    named.sort();
    // A store of Forebay has this checkpoint before it has partitions.
    let is_due = opening.is_own && !named.is_empty();
    let points = offsets_of(opening, root, RECOVERY_POINT, is_due)?;
    let opening = &Opening {
        are_points_known: points.is_some(),
        ..*opening
    };
    let mut points = points.unwrap_or_default();
    let starts = starts_of(opening, root, &named)?;
    let cut = intent::complete(opening, root, &mut points, &starts)?;
    let lines = points.iter().map(|(key, at)| (key.0.clone(), key.1, *at));
    let gone = Gone::new(lines, &named);
    gone.tell(root, opening.report);
    let mut recovery = Recovery {
        clean: opening.is_clean,
        truncated_bytes: cut,
        ..Recovery::default()
    };
    let mut opened = Vec::with_capacity(named.len());
    for (name, queue) in named {
        let folder = root.join(format!("{name}-{queue}"));
        let (topic, _) = topics.get_or_add(&name, queue.saturating_add(1));
        if topic.write_queues() <= queue {
            let queues = queue.saturating_add(1);
            topic.configure(queues, queues, topic.permissions());
        }
        let key = (name, queue);
        let of = |table: &HashMap<_, u64>| table.get(&key).copied().unwrap_or_default();
        let known = Known {
            point: of(&points),
            start: of(&starts),
            limit: u64::MAX,
            followed: 0,
            doubted: u64::MAX,
        };
        let found = opening.open(folder, known)?;
        if !opening.is_clean {
            restore_missing(disk, &found.ends, opening.rules)?;
        }
        cut_room(disk, &found.ends, opening.rules)?;
        if known.start > 0 {
            // Recovery may have made the table of epochs anew.
            files::begin_epochs(disk, &found.ends.folder, found.ends.start())?;
        }
        if has_no_file(&found) && known.start < known.point {
            let damage = gone::damage(root, (&key.0, key.1), known.point);
            opening.report.add(damage);
        }
        recovery.records_checked += found.checked;
        recovery.truncated_bytes += found.truncated;
        let start = Start {
            end: found.end,
            continues: found.continues,
            id: None,
        };
        tail.add((topic.id, queue), &key.0, &found.ends, start);
        let ends = found.ends;
        opened.push(Opened { topic, queue, ends });
    }
    Ok((opened, gone, recovery))
}

/// The offsets in a checkpoint; `None` if it is missing or damaged. Reports that it is missing if
/// it `is_due`; damage was reported before.
fn offsets_of(
    opening: &Opening<'_>,
    root: &Path,
    name: &str,
    is_due: bool,
) -> Result<Option<intent::Table>> {
    let path = root.join(name);
    match files::load_checkpoint(&**opening.disk, &path)? {
        Checkpoint::Lines(lines) => {
            let offsets = lines.into_iter();
            let offset = |(topic, queue, at)| ((topic, queue), at);
            return Ok(Some(offsets.map(offset).collect()));
        }
        Checkpoint::Missing if is_due => {
            let damage = Damage::new(DamageKind::Checkpoint, path, 0..0, "the file is missing");
            opening.report.add(damage);
        }
        Checkpoint::Missing | Checkpoint::Damaged => {}
    }
    Ok(None)
}

/// The first offsets of these partitions, which are in order.
fn starts_of(opening: &Opening<'_>, root: &Path, named: &[(String, u32)]) -> Result<intent::Table> {
    let disk = &**opening.disk;
    if tables::lacks_starts(disk, root, opening.is_own)? {
        return tables::starts_by_epochs(disk, root, named);
    }
    let mut starts = offsets_of(opening, root, LOG_START, false)?.unwrap_or_default();
    starts.retain(|key, _| named.binary_search(key).is_ok());
    // A wrong one was reported with the damage of other tables.
    tables::limit_starts(disk, root, &mut starts)?;
    Ok(starts)
}

/// Whether a partition has no log file.
fn has_no_file(found: &Recovered) -> bool {
    found.end.len == 0 && !found.continues && found.ends.complete().0.is_empty()
}
