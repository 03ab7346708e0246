//! Pickling of what calls return: classes of plain values, by their names and values.
//!
//! `copy` and `deepcopy` go the same way. Values go by name, so that what one version has pickled
//! another can refuse with a reason, and not take one value for another.

use super::message::ReadBatch;
use super::producer::{BatchResult, SendResult};
use super::report::{Damage, Latency, Recovery, Repair, RepairStep, Stats, Verification};
use super::topic::{Queue, Topic};
use pyo3::PyClass;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A class that pickles by its values.
pub(super) trait Values: PyClass {
    /// What `Values::from_values` makes the same object of.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>>;

    /// The object with these values.
    fn from_values(values: &Bound<'_, PyDict>) -> PyResult<Self>;
}

/// What `__reduce__` returns: `values_again`, and its arguments.
pub(super) type Reduced<'py> = (Bound<'py, PyAny>, (&'static str, Bound<'py, PyDict>));

/// The `__reduce__` of a class.
pub(super) fn reduce<'py, T: Values>(object: &T, py: Python<'py>) -> PyResult<Reduced<'py>> {
    let again = py.import("forebay._forebay")?.getattr("values_again")?;
    Ok((again, (T::NAME, object.values(py)?)))
}

/// A value by its name.
pub(super) fn value<'py, T>(values: &Bound<'py, PyDict>, name: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
{
    let found = values.get_item(name)?;
    let found = found.ok_or_else(|| PyValueError::new_err(format!("no value {name:?}")))?;
    found.extract().map_err(Into::into)
}

/// Return the object that was pickled: the name of its class, and its values.
#[pyfunction]
pub(crate) fn values_again(
    py: Python<'_>,
    kind: &str,
    values: &Bound<'_, PyDict>,
) -> PyResult<Py<PyAny>> {
    fn make<T: Values + Into<PyClassInitializer<T>>>(
        py: Python<'_>,
        values: &Bound<'_, PyDict>,
    ) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, T::from_values(values)?)?.into_any())
    }
    match kind {
        BatchResult::NAME => make::<BatchResult>(py, values),
        Damage::NAME => make::<Damage>(py, values),
        Latency::NAME => make::<Latency>(py, values),
        Queue::NAME => make::<Queue>(py, values),
        ReadBatch::NAME => make::<ReadBatch>(py, values),
        Recovery::NAME => make::<Recovery>(py, values),
        Repair::NAME => make::<Repair>(py, values),
        RepairStep::NAME => make::<RepairStep>(py, values),
        SendResult::NAME => make::<SendResult>(py, values),
        Stats::NAME => make::<Stats>(py, values),
        Topic::NAME => make::<Topic>(py, values),
        Verification::NAME => make::<Verification>(py, values),
        other => Err(PyValueError::new_err(format!(
            "{other:?} is no class of Forebay's that pickles by its values"
        ))),
    }
}
