//! Openings of a partition log in which one call fails: each opens the whole log, or fails with the
//! cause and removes nothing.

use super::disk::{Image, SimDisk};
use super::faults::{Faults, Stop};
use super::frame::{Breach, Life, Stepped, Story, hold};
use super::partitions::Partitions;
use super::steps::{new_disk, said};
use crate::engine::Engine;
use crate::error::Error;
use crate::options::{Flush, Options};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A seed tries one of this many calls.
const CALL_STEP: u64 = 8;

/// A process dies with messages in the page cache. The next ones open the log while a call fails, a
/// different one each time, including calls that only read.
pub fn failing_call(seed: u64) -> Result<(), Breach> {
    let mut story = Partitions::new(seed);
    story.options = Options {
        flush: Some(Flush::Async),
        linger: Duration::ZERO,
        batch_bytes: None,
        retention: None,
        retention_bytes: None,
        ..story.options
    };
    let disk = new_disk(seed, Stop::Process);
    let engine = story.open(&story.world.machine(&disk)).map_err(said)?;
    let mut life = Life::new(&disk, engine);
    for number in 0..3 {
        let rows = 1 + story.world.random.below(12);
        story.send(&mut life, rows)?;
        if number == 1 {
            life.engine.flush(&mut || true).map_err(said)?;
        }
    }
    story.take_note(&mut life, false)?;
    let mut failing = 1 + story.world.random.below(CALL_STEP);
    let mut before = disk;
    loop {
        let faults = Faults {
            failing_call: Some(failing),
            ..Faults::none(Stop::Process)
        };
        let disk = Arc::new(before.restart(faults));
        story.world.kept = disk.was_kept();
        let logs = logs(&disk);
        let opened = story.open(&story.world.machine(&disk));
        let (_, calls) = disk.tried();
        disk.set_failing_calls(0);
        match opened {
            Ok(engine) => story.check(&engine),
            Err(error) => {
                let has_cause = matches!(&error, Error::Io { source, .. }
                    if source.raw_os_error().is_some());
                hold!(has_cause, "the error does not tell the cause: {error:?}");
                let left = self::logs(&disk);
                let gone = logs
                    .iter()
                    .find(|(path, all)| left.get(*path) != Some(*all));
                hold!(
                    gone.is_none(),
                    "the opening that failed changed {:?}",
                    gone.map(|(path, _)| path)
                );
                Ok(())
            }
        }
        .map_err(|breach| format!("call {failing}: {breach}"))?;
        if calls < failing {
            return Ok(());
        }
        failing += CALL_STEP;
        before = disk;
    }
}

/// The bytes of all segments, without zeros at the end.
fn logs(disk: &SimDisk) -> Image {
    let is_log = |path: &Path| path.extension().is_some_and(|it| it == "log");
    let all = disk.contents().into_iter();
    let logs = all.filter(|(path, _)| is_log(path));
    let cut = |bytes: Vec<u8>| {
        let len = bytes.iter().rposition(|byte| *byte != 0);
        bytes[..len.map_or(0, |last| last + 1)].to_vec()
    };
    logs.map(|(path, bytes)| (path, bytes.map(cut))).collect()
}
