//! Conversion of a store to the files of another engine.

use super::errors::must;
use super::options;
use super::progress::with_progress;
use crate::{ConvertSpec, Isolation, Options};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a conversion has done; `forebay.Conversion` documents the values.
#[pyclass(frozen, get_all, module = "forebay._forebay")]
pub(crate) struct Converted {
    messages: u64,
    topics: Py<PyDict>,
    left_out: Py<PyDict>,
    damaged: u64,
    resumed: bool,
}

/// Convert a store; `forebay.convert` checks and documents the arguments.
#[pyfunction]
#[pyo3(signature = (
    source, target, engine, topics, names, renumber, isolation, flush, given, progress
))]
#[allow(
    clippy::too_many_arguments,
    reason = "they are the arguments of the Python function"
)]
pub(crate) fn convert_store(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    engine: &str,
    topics: Option<Vec<String>>,
    names: BTreeMap<String, String>,
    renumber: bool,
    isolation: &str,
    flush: Option<&str>,
    given: Bound<'_, PyDict>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Converted> {
    let parsed = options::read("a", Some(engine), flush, false, &given)?;
    let Options {
        engine: Some(kind), ..
    } = parsed
    else {
        unreachable!("the engine was given")
    };
    let rule = "be \"read_committed\" or \"read_uncommitted\"";
    let isolation = Isolation::of(isolation)
        .ok_or_else(|| must("isolation", format!("{isolation:?}"), rule))?;
    let spec = ConvertSpec {
        engine: kind,
        options: parsed,
        topics,
        names,
        renumber,
        isolation,
    };
    let done = with_progress(py, progress, |progress| {
        crate::convert_store(&source, &target, &spec, progress)
    })?;
    Ok(Converted {
        messages: done.messages,
        topics: done.topics.into_py_dict(py)?.unbind(),
        left_out: done.left_out.into_py_dict(py)?.unbind(),
        damaged: done.damaged,
        resumed: done.resumed,
    })
}
