//! The indexes of partitions that processes share: the leader walks what all have appended, and
//! writes the index files.

use super::ends::{End, Ends};
use super::files;
use super::indexes::Indexes;
use super::rules::Rules;
use crate::disk::Disk;
use crate::engine::partition_log::segments::reader::Reader;
use crate::engine::partition_log::segments::segment::Segment;
use crate::engine::partition_log::segments::walk::{Step, Walk};
use crate::error::Result;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A topic and a queue.
pub type Name = (Arc<str>, u32);

/// How far the indexes of all partitions are written.
#[derive(Debug, Default)]
pub struct Indexing {
    /// Recovery points that an earlier leader has saved; `None` if they were not read yet.
    points: Option<HashMap<(String, u32), u64>>,
    known: HashMap<Name, Known>,
}

/// The indexes of the last segment of a partition.
#[derive(Debug)]
struct Known {
    base: u64,
    /// The batches before this position are in the indexes.
    position: u64,
    indexes: Indexes,
}

impl Indexing {
    /// Writes what the index files of a partition lack. Those of complete segments are durable on
    /// return.
    ///
    /// # Errors
    ///
    /// Those of the disk.
    pub fn follow(
        &mut self,
        disk: &dyn Disk,
        (root, rules): (&Path, &Rules),
        name: &Name,
        ends: &Ends,
    ) -> Result<()> {
        let (mut segments, last) = ends.all_segments();
        segments.extend(last.clone());
        let first = self.first(disk, root, name, &segments)?;
        for segment in segments.iter().filter(|segment| segment.base >= first) {
            let is_last = last.as_ref().is_some_and(|last| last.base == segment.base);
            match self.index(disk, rules, name, segment, is_last) {
                // Retention has removed it.
                Err(error) if error.is_not_found() && !is_last => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// The base of the first segment whose index files may lack something.
    fn first(
        &mut self,
        disk: &dyn Disk,
        root: &Path,
        name: &Name,
        segments: &[Arc<Segment>],
    ) -> Result<u64> {
        if let Some(known) = self.known.get(name) {
            return Ok(known.base);
        }
        if self.points.is_none() {
            let lines = files::read_checkpoint(disk, &root.join(files::RECOVERY_POINT))?;
            let lines = lines.into_iter();
            self.points = Some(
                lines
                    .map(|(topic, queue, at)| ((topic, queue), at))
                    .collect(),
            );
        }
        let key = (name.0.to_string(), name.1);
        let point = self.points.as_ref().and_then(|points| points.get(&key));
        let point = point.copied().unwrap_or_default();
        // A segment that ends at the point may have been completed after the point was saved.
        let after = segments.partition_point(|segment| segment.base < point);
        let before = after.checked_sub(1).and_then(|number| segments.get(number));
        Ok(before.map_or(0, |segment| segment.base))
    }

    fn index(
        &mut self,
        disk: &dyn Disk,
        rules: &Rules,
        name: &Name,
        segment: &Arc<Segment>,
        is_last: bool,
    ) -> Result<()> {
        let mut known = match self.known.remove(name) {
            Some(known) if known.base == segment.base => known,
            _ => Known {
                base: segment.base,
                position: 0,
                indexes: Indexes::new(segment.base, rules),
            },
        };
        let is_new = known.position == 0;
        let mut walk = Walk::new(Reader::open(disk, segment)?, known.position);
        loop {
            match walk.next(disk)? {
                Step::Batch(found) => {
                    let header = &found.header;
                    let (last, time) = (header.last_offset(), header.max_timestamp);
                    let (at, len) = (found.position, header.len.into());
                    known.indexes.add(at, len, last, time);
                    known.position = walk.position;
                }
                Step::Damage(..) => {}
                Step::End => break,
            }
        }
        match is_last {
            false => {
                known.indexes.close();
                known.indexes.save(disk, &segment.path)?;
                disk.sync_directory(&ends_folder(segment))?;
            }
            // An earlier process may have written longer files.
            true if is_new => known.indexes.write_first(disk, &segment.path)?,
            true => known.indexes.write_more(disk, &segment.path)?,
        }
        self.known.insert(name.clone(), known);
        Ok(())
    }

    /// For a clean stop, after [`Indexing::follow`]: log file, length and indexes of the last
    /// segment of a partition.
    pub fn complete(&mut self, rules: &Rules, name: &Name, ends: &Ends) -> (PathBuf, u64, Indexes) {
        let End { base, len, .. } = ends.end();
        let known = self.known.remove(name).filter(|known| known.base == base);
        let mut indexes = match known {
            Some(known) => known.indexes,
            None => Indexes::new(base, rules),
        };
        indexes.close();
        (ends.path_of(base), len, indexes)
    }
}

fn ends_folder(segment: &Segment) -> PathBuf {
    segment
        .path
        .parent()
        .map(Path::to_owned)
        .unwrap_or_default()
}
