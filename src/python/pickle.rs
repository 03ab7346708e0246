//! Pickling of results: a class of plain values pickles as its name and its values by name.
//!
//! `copy` and `deepcopy` use the same protocol. The values have names so that another version of
//! Forebay that lacks one fails with a reason, and never mistakes one value for another.

use pyo3::PyClass;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A class that pickles by its values.
pub(super) trait Values: PyClass {
    /// The values, from which `from_values` makes an equal object.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>>;

    /// Makes the object with these values.
    fn from_values(values: &Bound<'_, PyDict>) -> PyResult<Self>;
}

/// The return value of `__reduce__`: a function and its arguments.
pub(super) type Reduced<'py, T = &'static str> = (Bound<'py, PyAny>, (T, Bound<'py, PyDict>));

/// Implements `__reduce__`: unpickling passes the name of the class and the values to
/// `restore::values_again`.
pub(super) fn reduce<'py, T: Values>(object: &T, py: Python<'py>) -> PyResult<Reduced<'py>> {
    let again = py.import("forebay._forebay")?.getattr("values_again")?;
    Ok((again, (T::NAME, object.values(py)?)))
}

/// Returns the value of this name.
pub(super) fn value<'py, T>(values: &Bound<'py, PyDict>, name: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error: Into<PyErr>>,
{
    let found = values.get_item(name)?;
    let found =
        found.ok_or_else(|| PyValueError::new_err(format!("the pickle has no value {name:?}")))?;
    found.extract().map_err(Into::into)
}

/// Makes the Python object with these values.
pub(super) fn restore<T: Values + Into<PyClassInitializer<T>>>(
    py: Python<'_>,
    values: &Bound<'_, PyDict>,
) -> PyResult<Py<PyAny>> {
    Ok(Py::new(py, T::from_values(values)?)?.into_any())
}

/// Defines a class of plain values: its attributes, equality, `_asdict`, representation and
/// pickling. `unlisted` values are pickled, but omitted from `_asdict` and the representation.
/// `notebook` names the function of `forebay.notebook` that shows a value.
macro_rules! plain {
    ($name:ident, $text:literal, { $($(#[$about:meta])* $field:ident : $kind:ty),+ $(,)? }
     $(, unlisted { $($(#[$note:meta])* $unlisted:ident : $of:ty),+ })?
     $(, notebook $page:literal)?) => {
        #[doc = $text]
        #[pyclass(frozen, eq, from_py_object, module = "forebay")]
        #[derive(Clone, PartialEq)]
        pub(crate) struct $name {
            $($(#[$about])* #[pyo3(get)] $field: $kind,)+
            $($($(#[$note])* #[pyo3(get)] $unlisted: $of,)+)?
        }

        impl $crate::python::pickle::Values for $name {
            fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyDict>> {
                let values = self._asdict(py)?;
                $($(values.set_item(stringify!($unlisted), self.$unlisted.clone())?;)+)?
                Ok(values)
            }

            fn from_values(values: &Bound<'_, pyo3::types::PyDict>) -> PyResult<Self> {
                Ok($name {
                    $($field: $crate::python::pickle::value(values, stringify!($field))?,)+
                    $($($unlisted: $crate::python::pickle::value(
                        values,
                        stringify!($unlisted),
                    )?,)+)?
                })
            }
        }

        #[pymethods]
        impl $name {
            /// Return the attributes as a dict.
            fn _asdict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyDict>> {
                let attributes = pyo3::types::PyDict::new(py);
                $(attributes.set_item(stringify!($field), self.$field.clone())?;)+
                Ok(attributes)
            }

            fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
                let mut parts = Vec::new();
                for (name, value) in self._asdict(py)? {
                    parts.push(format!("{name}={}", value.repr()?));
                }
                Ok(format!(concat!(stringify!($name), "({})"), parts.join(", ")))
            }

            $(
            /// Return what a notebook shows.
            fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                $crate::python::notebook::notebook(slf, $page)
            }
            )?

            fn __reduce__<'py>(
                &self,
                py: Python<'py>,
            ) -> PyResult<$crate::python::pickle::Reduced<'py>> {
                $crate::python::pickle::reduce(self, py)
            }
        }
    };
}
pub(super) use plain;
