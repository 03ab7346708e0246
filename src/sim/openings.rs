//! Openings in which one call fails: each opens the whole log, or fails with the cause and removes
//! nothing. Those of a commit log are in `rare.rs`.

use super::disk::{Image, SimDisk};
use super::faults::{Faults, Stop};
use super::frame::{Breach, Life, Stepped, Story, hold};
use super::partitions::Partitions;
use super::steps::{new_disk, said};
use crate::engine::Engine;
use crate::error::Error;
use crate::options::{Flush, Mode, Options};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A seed tries one of this many calls.
const CALL_STEP: u64 = 8;

/// Modes of openings. Some read, and so write nothing.
pub const MODES: [Mode; 3] = [Mode::Append, Mode::Append, Mode::Read];

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
    story.options.mode = story.world.random.pick(&MODES);
    let mut failing = 1 + story.world.random.below(CALL_STEP);
    let mut before = disk;
    loop {
        let faults = Faults {
            failing_call: Some(failing),
            ..Faults::none(Stop::Process)
        };
        let disk = Arc::new(before.restart(faults));
        story.world.kept = disk.was_kept();
        let image = disk.contents();
        let opened = story.open(&story.world.machine(&disk));
        let (_, calls) = disk.tried();
        disk.set_failing_calls(0);
        let mode = story.options.mode;
        match opened {
            Ok(engine) => story.check(&engine),
            Err(error) => check_failed(&disk, &image, mode, &error),
        }
        .map_err(|breach| format!("{mode:?}, call {failing}: {breach}"))?;
        if calls < failing {
            return Ok(());
        }
        failing += CALL_STEP;
        before = disk;
    }
}

/// Checks an opening that has failed: its error has the cause, and the log is as it was `before`.
pub fn check_failed(
    disk: &SimDisk,
    before: &Image,
    mode: Mode,
    error: &Error,
) -> Result<(), Breach> {
    let has_cause = matches!(error, Error::Io { source, .. } if source.raw_os_error().is_some());
    hold!(has_cause, "the error does not tell the cause: {error:?}");
    let after = disk.contents();
    if mode == Mode::Read {
        hold!(after == *before, "the opening that failed has written");
    }
    let left = logs(&after);
    for (path, bytes) in logs(before) {
        let is = left.get(path).map(|left| left.len());
        hold!(
            left.get(path) == Some(&bytes),
            "the opening that failed changed {path:?} with {} bytes, it has {is:?}",
            bytes.len()
        );
    }
    Ok(())
}

/// The log files with messages, and their bytes without zeros at the end.
fn logs(image: &Image) -> BTreeMap<&Path, &[u8]> {
    let is_log = |path: &Path| {
        path.extension().is_some_and(|it| it == "log")
            || path.parent().is_some_and(|it| it.ends_with("commitlog"))
    };
    let files = image.iter().filter(|(path, _)| is_log(path));
    let cut = files.filter_map(|(path, bytes)| {
        let bytes = bytes.as_deref()?;
        let last = bytes.iter().rposition(|byte| *byte != 0)?;
        Some((&**path, &bytes[..=last]))
    });
    cut.collect()
}
