//! Scans for Python: a description of what to read, which pickles and exports Arrow streams.

use super::convert::{count, items, key_bytes, limit, queue_of, tags, text, wrong_type};
use super::damage::damages;
use super::edge::{schema_capsule, stream_capsule};
use super::errors::must;
use super::handle::Handle;
use super::log;
use super::pickle::Reduced;
use super::waiting::stream_interrupt;
use crate::ffi::{CSchema, export};
use crate::{BodyType, Column, Dialect, ScanSpec};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList, PyString};

/// A scan of messages as Arrow record batches; made by `Store.scan`.
///
/// Each ``__arrow_c_stream__`` call reads the current state of the store and returns a new stream.
/// The stream does not depend on the store: its batches stay valid after the store is closed, and
/// after retention has removed the files. Ctrl-C ends a stream that the main thread reads: its
/// reader reports an error, and ``KeyboardInterrupt`` follows. A scan can be
/// pickled if its store was opened for reading.
///
/// Attributes
/// ----------
/// store
///     The store.
/// columns
///     Names of the columns.
/// damage
///     A list of `Damage`: rows that the streams of this scan skipped because their compressed
///     bodies are damaged. Other damage is in `Store.damage`.
///
/// Examples
/// --------
/// >>> import polars
/// >>> with forebay.open(":memory:") as store:
/// ...     _ = store.producer("orders", queue=0).send_batch([b"a", b"b"])
/// ...     frame = polars.DataFrame(store.scan("orders", columns=["offset", "body"]))
/// >>> frame["body"].to_list()
/// [b'a', b'b']
#[pyclass(frozen, module = "forebay")]
pub(crate) struct Scan {
    core: crate::Scan,
    /// The store.
    store: Handle,
    arguments: Py<PyDict>,
}

impl Scan {
    pub(super) fn new(store: Handle, arguments: Bound<'_, PyDict>) -> PyResult<Scan> {
        let mut spec = ScanSpec::default();
        // Only `forebay.spark` passes the dialect; `Store.scan` has no such argument. It selects
        // the names of the columns, so it is set first.
        if arguments.contains("dialect")? {
            spec.dialect = Dialect::Spark;
        }
        for (name, value) in &arguments {
            set(&mut spec, name.cast::<PyString>()?.to_str()?, &value)?;
        }
        let core = crate::Scan::new(store.core(), spec)?;
        Ok(Scan {
            core,
            store,
            arguments: arguments.unbind(),
        })
    }
}

pub(super) fn set(spec: &mut ScanSpec, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match name {
        "topic" => spec.topics = Some(words(name, value)?),
        "columns" => {
            let names = words(name, value)?;
            let columns = names.iter().map(|name| Column::parse(name, spec.dialect));
            spec.columns = Some(columns.collect::<crate::Result<_>>()?);
        }
        "queues" => {
            let queues = items(name, value)?;
            let queues = queues.iter().map(|queue| queue_of(name, queue));
            spec.queues = Some(queues.collect::<PyResult<_>>()?);
        }
        "start" => spec.start = limit(name, value)?,
        "end" => spec.end = limit(name, value)?,
        "tags" => spec.tags = tags(Some(value))?,
        "key" => spec.key = Some(key_bytes(name, value)?.to_owned()),
        "batch_rows" => spec.batch_rows = count(name, value)?,
        "batch_bytes" => spec.batch_bytes = count(name, value)?,
        "body_type" => {
            spec.body_type = match text(name, value)? {
                "binary" => BodyType::Binary,
                "binary_view" => BodyType::BinaryView,
                other => {
                    let rule = "be \"binary\" or \"binary_view\"";
                    return Err(must(name, format!("{other:?}"), rule));
                }
            }
        }
        "dialect" => {
            if text(name, value)? != "spark" {
                return Err(wrong_type(name, value, "\"spark\""));
            }
        }
        "verify" => spec.verify = value.extract()?,
        other => {
            return Err(PyTypeError::new_err(format!(
                "scan has no argument {other:?}"
            )));
        }
    }
    Ok(())
}

/// The texts in `object`: one text, or a sequence of texts.
fn words(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if object.is_instance_of::<PyString>() {
        return Ok(vec![text(name, object)?.to_owned()]);
    }
    items(name, object)?
        .iter()
        .map(|item| text(name, item).map(str::to_owned))
        .collect()
}

#[pymethods]
impl Scan {
    /// The store.
    #[getter]
    fn store(&self, py: Python<'_>) -> Py<PyAny> {
        self.store.object(py)
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.core
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    /// A list of `Damage`: rows that the streams of this scan skipped because their compressed
    /// bodies are damaged. Other damage is in `Store.damage`.
    #[getter]
    fn damage<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        log::warnings(py, self.store.core());
        damages(py, self.core.damage())
    }

    /// Export a new stream. A requested schema is ignored, as the Arrow interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let open = |store: &crate::Store| Ok((self.core.stream()?, store.path().to_owned()));
        let (stream, path) = self.store.call(py, open)?;
        let stream = match stream_interrupt(py)? {
            Some(interrupt) => stream.interruptible(interrupt, &path),
            None => stream,
        };
        stream_capsule(py, export(stream))
    }

    /// Export the schema of the batches.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = CSchema::try_from(self.core.schema().as_ref());
        schema_capsule(
            py,
            schema.map_err(|error| PyValueError::new_err(error.to_string()))?,
        )
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut parts = Vec::new();
        for (name, value) in self.arguments.bind(py) {
            parts.push(format!("{name}={}", value.repr()?));
        }
        Ok(format!("Scan({})", parts.join(", ")))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py, Py<PyAny>>> {
        let again = py.import("forebay._forebay")?.getattr("scan_again")?;
        Ok((
            again,
            (self.store.object(py), self.arguments.bind(py).copy()?),
        ))
    }
}
