//! Streams that are read one after another, as one.

use super::ffi::Batches;
use super::stream::Stream;
use crate::error::{Error, Op, Result};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use std::io;
use std::path::PathBuf;

/// Returns the next stream of a chain; `None` after the last one.
pub type NextStream = Box<dyn FnMut() -> io::Result<Option<Stream>> + Send>;

/// Streams of one schema. Each is opened when the previous one has ended.
pub struct Chain {
    schema: SchemaRef,
    path: PathBuf,
    next: NextStream,
    current: Option<Stream>,
    ended: bool,
}

impl Chain {
    /// A chain of streams. Errors of `next` name `path`.
    pub fn new(schema: SchemaRef, path: PathBuf, next: NextStream) -> Chain {
        Chain {
            schema,
            path,
            next,
            current: None,
            ended: false,
        }
    }

    fn advance(&mut self) -> Result<Option<RecordBatch>> {
        while !self.ended {
            if let Some(stream) = &mut self.current
                && let Some(batch) = stream.next_batch()?
            {
                return Ok(Some(batch));
            }
            let next = (self.next)();
            self.current = next.map_err(|error| Error::io(Op::Read, &self.path, error))?;
            self.ended = self.current.is_none();
        }
        Ok(None)
    }
}

impl Batches for Chain {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let batch = self.advance();
        if !matches!(batch, Ok(Some(_))) {
            self.ended = true;
            self.current = None;
        }
        batch
    }
}
