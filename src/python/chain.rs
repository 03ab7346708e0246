//! One stream over all scans of an archive.

use super::archive::{BlockScan, spec_of};
use super::edge::{raise_later, stream_capsule};
use crate::ffi::export;
use crate::{Chain, Stream};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyIterator};
use std::io;
use std::path::PathBuf;

/// Export the scans that an iterator yields, of the archive at `path`, as one stream.
///
/// The reader of the stream is foreign code, which drops Python's exceptions. So an error of the
/// iterator ends the stream as an error with its text. Ctrl-C ends it too, and the interpreter
/// raises its exception as soon as it runs Python code again.
#[pyfunction]
pub(crate) fn chain_scans<'py>(
    py: Python<'py>,
    scans: Bound<'py, PyIterator>,
    arguments: &Bound<'py, PyDict>,
    path: PathBuf,
) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = spec_of(arguments)?.schema()?;
    let scans = scans.unbind();
    let next = move || Python::attach(|py| next_stream(scans.bind(py)));
    stream_capsule(py, export(Chain::new(schema, path, Box::new(next))))
}

fn next_stream(scans: &Bound<'_, PyIterator>) -> io::Result<Option<Stream>> {
    let take = |scan: Bound<'_, PyAny>| scan.cast::<BlockScan>()?.get().take();
    let next = scans.clone().next().map(|scan| scan.and_then(take));
    next.transpose().map_err(|raised| {
        if raised.is_instance_of::<PyException>(scans.py()) {
            return io::Error::other(raised.to_string());
        }
        raise_later(scans.py(), raised);
        io::ErrorKind::Interrupted.into()
    })
}
