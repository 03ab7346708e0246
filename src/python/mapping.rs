//! Mappings and sequences among the arguments.
//!
//! PyO3's `cast` loses an exception of the check: Python's `collections.abc` runs Python code,
//! which Ctrl-C may interrupt. These functions raise the exception.

use pyo3::prelude::*;
use pyo3::type_object::PyTypeInfo;
use pyo3::types::{PyDict, PyList, PyMapping, PySequence, PyTuple};

/// Whether the object is a mapping.
pub(super) fn is_mapping(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let of_class = || object.is_instance(&PyMapping::type_object(object.py()));
    Ok(object.is_instance_of::<PyDict>() || of_class()?)
}

/// Whether the object is a sequence.
pub(super) fn is_sequence(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let of_class = || object.is_instance(&PySequence::type_object(object.py()));
    let is_plain = object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>();
    Ok(is_plain || of_class()?)
}

/// The items of a mapping, each a tuple of key and value; `None` if the object is no mapping.
pub(super) fn mapping_items<'py>(
    object: &Bound<'py, PyAny>,
) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    if !is_mapping(object)? {
        return Ok(None);
    }
    let items = object.call_method0("items")?;
    items.try_iter()?.collect::<PyResult<_>>().map(Some)
}
