//! A stream of record batches over a [`Source`].
//!
//! Records are read in chunks, and each column walks a chunk separately: the records of a chunk are
//! still in the cache, and each column reads only what it needs.
//!
//! ```text
//!   source --> chunk of records --> runs that fit the batch --> column builders --> batch
//! ```
//!
//! A compressed body is a run of its own, because its size is known only after decompression. If it
//! cannot be decompressed, its row is skipped and reported in [`Scan::damage`].
//!
//! [`Scan::damage`]: crate::scan::Scan::damage

use super::columns::Columns;
use super::schema::BatchShape;
use super::source::{Source, record};
use crate::engine::{Damage, DamageKind, RowRef, Rows};
use crate::error::{Error, Op, Result};
use crate::sync::Mutex;
use crate::warning::{Warning, Warnings};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of records in a chunk.
const CHUNK_ROWS_MAX: usize = 1024;
/// Target bytes of a chunk. Its records are read once to check them and once per column, and stay
/// in the cache of one core meanwhile.
const CHUNK_BYTES: usize = 256 << 10;
/// Maximum bytes of properties in a batch. Replacing invalid UTF-8 makes text at most three times
/// as long, so 32-bit offsets suffice for any text column.
const PROPERTIES_LEN_MAX: usize = 256 << 20;

/// Where streams report rows that they skipped.
pub(crate) type DamageList = Arc<Mutex<Vec<Damage>>>;

/// Asked before each chunk of a stream whether to end it.
pub type Interrupt = Box<dyn FnMut() -> bool + Send>;

/// An iterator over the record batches of one scan. No batch is empty.
///
/// The stream owns its source and the regions that it holds, but no handle of the store. It may be
/// read and dropped after the store was closed, and from any thread.
pub struct Stream {
    source: Source,
    shape: BatchShape,
    schema: SchemaRef,
    with_body: bool,
    with_properties: bool,
    rows: Rows,
    next_row: usize,
    /// The body of the next row, which was decompressed but did not fit the previous batch.
    unpacked: Option<Vec<u8>>,
    body_len_hint: usize,
    /// Rows of the previous batch.
    rows_hint: usize,
    damage: DamageList,
    /// Warnings of the store, which the stream does not keep open.
    warnings: Option<Arc<Warnings>>,
    /// Whether to end early, and the path that the error names.
    interrupt: Option<(Interrupt, PathBuf)>,
    ended: bool,
    generation: u32,
}

/// Contents of the batch that is being built.
#[derive(Clone, Copy, Default)]
struct Fill {
    rows: usize,
    body_bytes: usize,
    property_bytes: usize,
}

impl Stream {
    pub(crate) fn new(source: Source, shape: BatchShape, damage: DamageList) -> Stream {
        let schema = shape.schema();
        let with_body = shape.columns.iter().any(|column| column.is_body());
        let with_properties = shape.columns.iter().any(|column| column.needs_properties());
        Stream {
            source,
            shape,
            schema,
            with_body,
            with_properties,
            rows: Rows::default(),
            next_row: 0,
            unpacked: None,
            body_len_hint: 0,
            rows_hint: 0,
            damage,
            warnings: None,
            interrupt: None,
            ended: false,
            generation: crate::disk::fork_generation(),
        }
    }

    /// Makes the stream also report damage to the warnings of a store.
    pub(crate) fn warning(mut self, warnings: &Arc<Warnings>) -> Stream {
        self.warnings = Some(Arc::clone(warnings));
        self
    }

    /// Makes the stream end with an error as soon as `interrupt` returns true. `path`: the store.
    #[must_use]
    pub fn interruptible(mut self, interrupt: Interrupt, path: &Path) -> Stream {
        self.interrupt = Some((interrupt, path.to_owned()));
        self
    }

    /// Schema of every batch.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The next batch; `None` at the end, and after an error.
    ///
    /// # Errors
    ///
    /// Errors of the engine; [`Error::Io`] after an interrupt; [`Error::Forked`] in a child of the
    /// process that created the stream.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.ended {
            return Ok(None);
        }
        let batch = self.build();
        self.ended = !matches!(batch, Ok(Some(_)));
        if self.ended {
            self.rows.clear();
        }
        batch
    }

    fn build(&mut self) -> Result<Option<RecordBatch>> {
        if self.generation != crate::disk::fork_generation() {
            return Err(Error::Forked);
        }
        // The pages may have left memory while the consumer processed the previous batch.
        self.rows.touch(self.next_row)?;
        let mut columns = Columns::new(&self.shape, self.rows_hint, self.body_len_hint);
        let mut fill = Fill::default();
        while fill.rows < self.shape.batch_rows {
            if self.next_row == self.rows.rows.len() {
                if let Some((interrupt, path)) = &mut self.interrupt
                    && interrupt()
                {
                    return Err(Error::io(Op::Read, path, ErrorKind::Interrupted.into()));
                }
                let chunk = self.chunk_rows();
                self.rows.clear();
                self.next_row = 0;
                let has_more = self.source.fill(chunk, &mut self.rows)?;
                if self.rows.rows.is_empty() {
                    match has_more {
                        true => continue,
                        false => break,
                    }
                }
            }
            let run = self.plain_run(&mut fill);
            if run > 0 {
                let end = self.next_row + run;
                let some = self.rows.rows.get(self.next_row..end).unwrap_or_default();
                columns.append(&self.rows, some, None);
                self.next_row = end;
            } else if !self.append_unpacked(&mut columns, &mut fill) {
                break;
            }
        }
        if fill.rows == 0 {
            return Ok(None);
        }
        self.body_len_hint = fill.body_bytes;
        self.rows_hint = fill.rows;
        columns.finish(&self.schema, fill.rows).map(Some)
    }

    /// Number of records in the next chunk, assuming the size of those in the last one.
    fn chunk_rows(&self) -> usize {
        let last = &self.rows.rows;
        let bytes: usize = last.iter().map(|row| row.layout.total_len() as usize).sum();
        match bytes.checked_div(last.len()) {
            Some(len) => (CHUNK_BYTES / len.max(1)).clamp(1, CHUNK_ROWS_MAX),
            None => 64,
        }
    }

    /// How many of the next rows fit the batch unchanged. Counts them in `fill`.
    fn plain_run(&self, fill: &mut Fill) -> usize {
        let next = self.rows.rows.get(self.next_row..).unwrap_or_default();
        let limit = (self.shape.batch_rows - fill.rows).min(next.len());
        let mut run = 0;
        for row in next.get(..limit).unwrap_or_default() {
            let mut grown = *fill;
            if self.with_body {
                if row.layout.is_compressed() {
                    break;
                }
                grown.body_bytes += row.layout.body_len() as usize;
            }
            if !self.admits(&mut grown, row) {
                break;
            }
            *fill = grown;
            run += 1;
        }
        run
    }

    /// Adds a row to `grown`, whose body is already counted. Returns whether the batch has room for
    /// it.
    #[inline]
    fn admits(&self, grown: &mut Fill, row: &RowRef) -> bool {
        grown.rows += 1;
        if self.with_properties {
            grown.property_bytes += row.layout.properties_len() as usize;
        }
        grown.rows == 1
            || (grown.body_bytes <= self.shape.batch_bytes
                && grown.property_bytes <= PROPERTIES_LEN_MAX)
    }

    /// Adds the next row if its body is compressed and fits. Returns false if the batch is full.
    fn append_unpacked(&mut self, columns: &mut Columns, fill: &mut Fill) -> bool {
        let Some(row) = self.rows.rows.get(self.next_row).copied() else {
            return true;
        };
        if !self.with_body || !row.layout.is_compressed() {
            return false;
        }
        let found = record(&self.rows, &row);
        let body = match self.unpacked.take() {
            Some(body) => body,
            None => match found.body() {
                Ok(body) => body.into_owned(),
                Err(reason) => {
                    self.report(self.damaged(&row, reason));
                    self.next_row += 1;
                    return true;
                }
            },
        };
        let mut grown = *fill;
        grown.body_bytes += body.len();
        if !self.admits(&mut grown, &row) {
            self.unpacked = Some(body);
            return false;
        }
        *fill = grown;
        columns.append(&self.rows, &[row], Some(&body));
        self.next_row += 1;
        true
    }

    #[cold]
    fn report(&self, damage: Damage) {
        if let Some(warnings) = &self.warnings {
            warnings.add(Warning::Damage(damage.clone()));
        }
        self.damage.lock().push(damage);
    }

    fn damaged(&self, row: &RowRef, reason: String) -> Damage {
        let found = record(&self.rows, row);
        let region = self.rows.regions.get(row.region as usize);
        let topic = String::from_utf8_lossy(found.topic()).into_owned();
        let path = region.map_or(Path::new(""), |region| region.path());
        let position = found.position().cast_unsigned();
        let bytes = position..position.saturating_add(u64::from(row.layout.total_len()));
        let lost = (topic, found.queue_id() as u32, found.queue_offset() as u64);
        Damage::new(DamageKind::Log, path, bytes, format!("body: {reason}")).losing([lost])
    }
}

impl Iterator for Stream {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.generation != crate::disk::fork_generation() {
            self.source.forget();
        }
    }
}

/// An exported stream may be released from any thread.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Stream>()
};

#[cfg(test)]
mod tests {
    use super::super::schema::{BodyType, Dialect};
    use super::*;
    use crate::engine::Cursor;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Waits(Arc<AtomicBool>);

    impl Cursor for Waits {
        fn next(&mut self, _max_rows: usize, _rows: &mut Rows) -> Result<()> {
            Ok(())
        }
        fn offset(&self) -> u64 {
            0
        }
    }

    impl Drop for Waits {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn stream(dropped: &Arc<AtomicBool>) -> Stream {
        let source = Source::queues(vec![Box::new(Waits(Arc::clone(dropped)))]);
        let shape = BatchShape {
            columns: Vec::new(),
            body_type: BodyType::Binary,
            dialect: Dialect::Arrow,
            batch_rows: 1,
            batch_bytes: 1,
        };
        Stream::new(source, shape, DamageList::default())
    }

    #[test]
    fn a_child_process_gets_an_error_and_leaves_the_cursors_alone() {
        // A fork has the effect that the stream's generation is not the current one.
        let dropped = Arc::new(AtomicBool::new(false));
        let mut forked = stream(&dropped);
        forked.generation = forked.generation.wrapping_add(1);
        assert!(matches!(forked.next_batch(), Err(Error::Forked)));
        drop(forked);
        assert!(!dropped.load(Ordering::Relaxed));
        drop(stream(&dropped));
        assert!(dropped.load(Ordering::Relaxed));
    }
}
