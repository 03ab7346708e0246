//! Pickling of what calls return: a class of plain values pickles as its name and its named values.
//!
//! `copy` and `deepcopy` do the same. Values have names so that another version of Forebay that does
//! not know one refuses with a reason, and never takes one value for another.

use pyo3::PyClass;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A class that pickles by its values.
pub(super) trait Values: PyClass {
    /// The values from which `from_values` makes an equal object.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>>;

    /// The object with these values.
    fn from_values(values: &Bound<'_, PyDict>) -> PyResult<Self>;
}

/// What `__reduce__` returns: a function, and its arguments.
pub(super) type Reduced<'py, T = &'static str> = (Bound<'py, PyAny>, (T, Bound<'py, PyDict>));

/// The `__reduce__` of a class: `restore::values_again` takes its name and values.
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

/// The object with these values.
pub(super) fn restore<T: Values + Into<PyClassInitializer<T>>>(
    py: Python<'_>,
    values: &Bound<'_, PyDict>,
) -> PyResult<Py<PyAny>> {
    Ok(Py::new(py, T::from_values(values)?)?.into_any())
}
