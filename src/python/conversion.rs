//! Conversion of a store to the files of another engine.

use super::errors::must;
use super::options;
use super::pickle::plain;
use super::progress::with_progress;
use crate::{ConvertSpec, Isolation, Options};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::path::PathBuf;

plain!(
    Conversion,
    "The result of a conversion.

Attributes
----------
messages
    Number of messages that this call has copied.
topics
    The name in the target of each topic of the source.
left_out
    Topics that the systems keep for themselves, which are not converted, and how many offsets they
    have.
damaged
    Number of damaged places of the source, whose messages could not be read.
resumed
    Whether an earlier call had begun.",
    {
        /// Number of messages that this call has copied.
        messages: u64,
        /// The name in the target of each topic of the source.
        topics: BTreeMap<String, String>,
        /// Topics that the systems keep for themselves, which are not converted, and how many
        /// offsets they have.
        left_out: BTreeMap<String, u64>,
        /// Number of damaged places of the source, whose messages could not be read.
        damaged: u64,
        /// Whether an earlier call had begun.
        resumed: bool,
    }
);

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
) -> PyResult<Conversion> {
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
    Ok(Conversion {
        messages: done.messages,
        topics: done.topics.into_iter().collect(),
        left_out: done.left_out.into_iter().collect(),
        damaged: done.damaged,
        resumed: done.resumed,
    })
}
