//! The log files that an archive may copy, and the walk that surveys one.

use crate::engine::archive::survey::{SealedFile, Survey, Surveyor};
use crate::engine::commit_log::log::sound::{Depth, Sound, SoundWalk};
use crate::engine::commit_log::parts::Parts;
use crate::engine::directory::page::Mark;
use crate::error::{At, Error, Op, Result};
use crate::mapped::MappedFile;

/// The log files that are full, durable and completely dispatched, oldest first. Never includes the
/// last file, which is in use, or one that retention is about to delete.
pub fn sealed(parts: &Parts) -> Vec<SealedFile> {
    let (min, end) = (parts.log.min_position(), sealed_end(parts));
    let files = parts.log.files.all();
    let full = files.iter().take_while(|file| file.end() <= end);
    let full = full.filter(|file| file.start() >= min);
    full.map(|file| SealedFile {
        path: file.path().to_path_buf(),
        start: file.start(),
        length: file.len(),
    })
    .collect()
}

fn sealed_end(parts: &Parts) -> u64 {
    let log = &parts.log;
    let durable = log.state.get(Mark::Durable);
    log.published()
        .min(durable)
        .min(parts.dispatcher.dispatched())
}

/// Walks the sealed file that begins at `start`.
///
/// # Errors
///
/// [`Error::NotFound`] if there is no such file, it is not sealed, or retention has deleted it
/// meanwhile.
pub fn survey(parts: &Parts, start: u64) -> Result<Survey> {
    let log = &parts.log;
    let file = log.files.find(start).filter(|file| file.start() == start);
    let file = file.filter(|file| file.end() <= sealed_end(parts));
    let gone = || Error::NotFound {
        path: log.files.path_of(start),
    };
    let file = file.ok_or_else(gone)?;
    let was_mapped = file.is_mapped();
    let surveyed = walk(parts, &file);
    if !was_mapped {
        file.unmap();
    }
    if start < log.min_position() {
        // Some of its records may have been skipped.
        return Err(gone());
    }
    surveyed
}

fn walk(parts: &Parts, file: &MappedFile) -> Result<Survey> {
    let mut surveyor = Surveyor::new(file);
    let range = file.start()..file.end();
    let mut walk = SoundWalk::new(&parts.log, range, Depth::Checksums);
    while let Some(met) = walk.next()? {
        match met {
            Sound::Record(record, place) => surveyor.add(place.position, &record.into()),
            Sound::Hole(hole) => surveyor.skip(&hole.range, &hole.flaw),
        }
    }
    let region = file.region()?;
    surveyor.finish(file, |start, len| {
        region.run(start, len).at(Op::Read, file.path())
    })
}
