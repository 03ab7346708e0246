//! The compiled part of `forebay.archive`: tables of a log file, and scans of blocks read from an
//! archive.

use super::arrow::set;
use super::damage::{Damage, damages};
use super::edge::{body, schema_capsule, stream_capsule};
use super::fields::fields;
use super::store::Store;
use crate::Mutex;
use crate::ffi::{CSchema, export};
use crate::{BlockTable as Table, Blocks, Damages, Dialect, ScanSpec, Stream, Wanted};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyList, PyString};
use std::ffi::OsString;
use std::path::PathBuf;

fields! {
    /// Requested offsets of a queue: ``start`` to ``end`` (exclusive).
    WantedRange {
        topic: String,
        queue: u32,
        start: u64,
        end: u64,
    }
}

/// A block of an archived log file; ``begin_ms`` and ``end_ms`` are its lowest and highest store
/// times.
#[pyclass(frozen, get_all, module = "forebay._forebay")]
pub(crate) struct Block {
    position: u64,
    length: u32,
    checksum: u32,
    records: u32,
    begin_ms: i64,
    end_ms: i64,
}

/// The messages of one queue in an archived log file: offsets ``start`` to ``end`` (exclusive).
#[pyclass(frozen, get_all, module = "forebay._forebay")]
pub(crate) struct QueueRange {
    topic: String,
    queue: u32,
    start: u64,
    end: u64,
    records: u64,
    bytes: u64,
}

/// A sealed log file of a store: it is never written again.
#[pyclass(frozen, get_all, module = "forebay._forebay")]
pub(crate) struct SealedFile {
    path: OsString,
    start: u64,
    length: u64,
}

/// The tables that an archive keeps for a log file: one of blocks, one of keys.
#[pyclass(frozen, get_all, module = "forebay._forebay")]
pub(crate) struct Survey {
    blocks: Py<PyBytes>,
    keys: Py<PyBytes>,
}

/// A segment of a partition log that is never written again; all its messages have offsets
/// ``start`` to ``end`` (exclusive).
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct SealedSegment(crate::SealedSegment);

#[pymethods]
impl SealedSegment {
    #[getter]
    fn topic(&self) -> &str {
        &self.0.topic
    }

    #[getter]
    fn queue(&self) -> u32 {
        self.0.queue
    }

    #[getter]
    fn start(&self) -> u64 {
        self.0.start
    }

    #[getter]
    fn end(&self) -> u64 {
        self.0.end
    }

    #[getter]
    fn path(&self) -> OsString {
        self.0.path.clone().into_os_string()
    }

    #[getter]
    fn length(&self) -> u64 {
        self.0.length
    }
}

/// The part of a segment that an archive keeps: its bytes from ``skip`` on, in a segment that
/// begins at the offset ``start``, its table of blocks and its indexes. No bytes if ``length`` is
/// 0.
#[pyclass(frozen, get_all, module = "forebay._forebay")]
pub(crate) struct SegmentSurvey {
    start: u64,
    skip: u64,
    length: u64,
    blocks: Py<PyBytes>,
    offset_index: Py<PyBytes>,
    time_index: Py<PyBytes>,
}

/// The offset after the last message that a queue has before a block.
#[pyclass(frozen, get_all, module = "forebay._forebay")]
pub(crate) struct QueueEnd {
    topic: String,
    queue: u32,
    end: u64,
}

fn wanted(ranges: Vec<WantedRange>) -> Wanted {
    let mut wanted = Wanted::default();
    for range in ranges {
        let queues = wanted.entry(range.topic.into_bytes()).or_default();
        let offsets = queues.entry(range.queue).or_default();
        offsets.push(range.start..range.end);
    }
    wanted
}

/// Return the sealed log files of a store; they are never written again.
#[pyfunction]
pub(crate) fn sealed_files(py: Python<'_>, store: &Bound<'_, Store>) -> PyResult<Vec<SealedFile>> {
    let core = store.get().core();
    let files = py.detach(|| core.sealed_files())?;
    let row = |file: crate::SealedFile| SealedFile {
        path: file.path.into_os_string(),
        start: file.start,
        length: file.length,
    };
    Ok(files.into_iter().map(row).collect())
}

/// Return the tables of the sealed log file that begins at `start`.
#[pyfunction]
pub(crate) fn survey(py: Python<'_>, store: &Bound<'_, Store>, start: u64) -> PyResult<Survey> {
    let core = store.get().core();
    let (blocks, keys) = py.detach(|| {
        let survey = core.survey(start)?;
        Ok::<_, crate::Error>((survey.blocks(), survey.keys))
    })?;
    Ok(Survey {
        blocks: PyBytes::new(py, &blocks).unbind(),
        keys: PyBytes::new(py, &keys).unbind(),
    })
}

/// Return the sealed segments of a partition log, of all queues or of one, in order of offset for
/// each; None for other stores.
#[pyfunction]
#[pyo3(signature = (store, topic=None, queue=0))]
pub(crate) fn sealed_segments(
    py: Python<'_>,
    store: &Bound<'_, Store>,
    topic: Option<&str>,
    queue: u32,
) -> PyResult<Option<Vec<SealedSegment>>> {
    let core = store.get().core();
    let only = topic.map(|topic| (topic, queue));
    let found = py.detach(|| core.sealed_segments(only))?;
    Ok(found.map(|all| all.into_iter().map(SealedSegment).collect()))
}

/// Return the part of a sealed segment that an archive keeps, if the archive already has all
/// messages of the queue before the offset `after`.
#[pyfunction]
pub(crate) fn survey_segment(
    py: Python<'_>,
    store: &Bound<'_, Store>,
    segment: &SealedSegment,
    after: Option<u64>,
) -> PyResult<SegmentSurvey> {
    let core = store.get().core();
    let (survey, blocks) = py.detach(|| {
        let survey = core.survey_segment(&segment.0, after)?;
        let blocks = survey.table.encode();
        Ok::<_, crate::Error>((survey, blocks))
    })?;
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes).unbind();
    Ok(SegmentSurvey {
        start: survey.start,
        skip: survey.skip,
        length: survey.table.length,
        blocks: bytes(&blocks),
        offset_index: bytes(&survey.offset_index),
        time_index: bytes(&survey.time_index),
    })
}

/// The table of blocks of an archived log file.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct BlockTable {
    core: Table,
    log: PathBuf,
}

#[pymethods]
impl BlockTable {
    #[new]
    fn new(data: &Bound<'_, PyAny>, path: PathBuf, log: PathBuf) -> PyResult<BlockTable> {
        let core = Table::decode(&body(data)?, &path)?;
        Ok(BlockTable { core, log })
    }

    #[getter]
    fn start(&self) -> u64 {
        self.core.start
    }

    #[getter]
    fn length(&self) -> u64 {
        self.core.length
    }

    #[getter]
    fn queues(&self) -> Vec<QueueRange> {
        let row = |found: crate::QueueRange| QueueRange {
            topic: found.topic,
            queue: found.queue,
            start: found.offsets.start,
            end: found.offsets.end,
            records: found.records,
            bytes: found.bytes,
        };
        self.core.queue_ranges().into_iter().map(row).collect()
    }

    #[getter]
    fn blocks(&self) -> Vec<Block> {
        let row = |block: &crate::Block| Block {
            position: block.position,
            length: block.length,
            checksum: block.checksum,
            records: block.records,
            begin_ms: block.times.0,
            end_ms: block.times.1,
        };
        self.core.blocks.iter().map(row).collect()
    }

    #[getter]
    fn damage<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        damages(py, self.core.damage(&self.log))
    }

    fn weights(&self, ranges: Vec<WantedRange>) -> Vec<u64> {
        self.core.weights(&wanted(ranges))
    }

    fn select(&self, ranges: Vec<WantedRange>) -> Vec<usize> {
        self.core.select(&wanted(ranges))
    }

    fn ends_before(&self, block: usize) -> Vec<QueueEnd> {
        let found = self.core.ends_before(block).into_iter();
        let row = |(topic, queue, end)| QueueEnd { topic, queue, end };
        found.map(row).collect()
    }

    fn key_range(&self, topic: &str, key: &str) -> (u64, u64) {
        let range = self.core.key_range(topic.as_bytes(), key.as_bytes());
        (range.start, range.end)
    }

    fn key_blocks(
        &self,
        topic: &str,
        key: &str,
        data: &Bound<'_, PyAny>,
        path: PathBuf,
    ) -> PyResult<Vec<usize>> {
        let bytes = body(data)?;
        let blocks = self
            .core
            .key_blocks(topic.as_bytes(), key.as_bytes(), &bytes, &path)?;
        Ok(blocks)
    }
}

/// A scan of blocks that were read from an archive.
///
/// It exports a single stream, which owns a copy of the bytes.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct BlockScan {
    stream: Mutex<Option<Stream>>,
    damage: Damages,
}

impl BlockScan {
    /// The stream, which is handed out once.
    pub(super) fn take(&self) -> PyResult<Stream> {
        let stream = self.stream.lock().take();
        stream.ok_or_else(|| PyRuntimeError::new_err("the stream was already exported"))
    }
}

#[pymethods]
impl BlockScan {
    #[getter]
    fn damage(&self) -> Vec<Damage> {
        self.damage.all().into_iter().map(Damage::from).collect()
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        stream_capsule(py, export(self.take()?))
    }
}

pub(super) fn spec_of(arguments: &Bound<'_, PyDict>) -> PyResult<ScanSpec> {
    let mut spec = ScanSpec::default();
    if arguments.contains("dialect")? {
        spec.dialect = Dialect::Spark;
    }
    for (name, value) in arguments {
        set(&mut spec, name.cast::<PyString>()?.to_str()?, &value)?;
    }
    Ok(spec)
}

/// Return the batch schema of a scan with these arguments, as an Arrow capsule.
#[pyfunction]
pub(crate) fn block_schema<'py>(
    py: Python<'py>,
    arguments: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = spec_of(arguments)?.schema()?;
    let schema = CSchema::try_from(schema.as_ref());
    schema_capsule(
        py,
        schema.map_err(|error| PyValueError::new_err(error.to_string()))?,
    )
}

/// Scan adjacent blocks.
///
/// `data` begins at `position` of the log and was read from `path`; lengths and checksums of
/// `blocks` are compared with it. `queue` is the topic and queue of a segment of a partition log.
#[pyfunction]
#[pyo3(signature = (data, position, path, blocks, ranges, arguments, queue=None))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn scan_blocks(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    position: u64,
    path: PathBuf,
    blocks: Vec<Bound<'_, Block>>,
    ranges: Vec<WantedRange>,
    arguments: &Bound<'_, PyDict>,
    queue: Option<(String, u32)>,
) -> PyResult<BlockScan> {
    let spec = spec_of(arguments)?;
    let bytes = body(data)?;
    let expected = blocks.iter().map(Bound::get);
    let expected: Vec<_> = expected.map(|it| (it.length, it.checksum)).collect();
    let damage = Damages::default();
    let stream = py.detach(|| {
        let blocks = Blocks {
            bytes: &bytes,
            position,
            path: &path,
            expected: &expected,
            queue: named(queue.as_ref()),
        };
        blocks.scan(&spec, wanted(ranges), &damage)
    })?;
    Ok(BlockScan {
        stream: Mutex::new(Some(stream)),
        damage,
    })
}

fn named(queue: Option<&(String, u32)>) -> Option<(&str, u32)> {
    queue.map(|(topic, number)| (topic.as_str(), *number))
}

/// Return the lowest offset in `ranges` of a message in these blocks stored at or after `time`.
#[pyfunction]
#[pyo3(signature = (data, position, path, ranges, time, queue=None))]
pub(crate) fn block_offset_at(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    position: u64,
    path: PathBuf,
    ranges: Vec<WantedRange>,
    time: i64,
    queue: Option<(String, u32)>,
) -> PyResult<Option<u64>> {
    let bytes = body(data)?;
    let found = py.detach(|| {
        let blocks = Blocks {
            bytes: &bytes,
            position,
            path: &path,
            expected: &[],
            queue: named(queue.as_ref()),
        };
        blocks.offset_at(wanted(ranges), time)
    })?;
    Ok(found)
}
