//! How a notebook shows a value: `forebay.notebook` writes the HTML.

use pyo3::prelude::*;

/// The HTML of `shown`, by the function `of` of `forebay.notebook`.
pub(super) fn notebook<'py>(shown: &Bound<'py, PyAny>, of: &str) -> PyResult<Bound<'py, PyAny>> {
    let module = shown.py().import("forebay.notebook")?;
    module.call_method1(of, (shown,))
}
