//! The C interfaces: bodies from any buffer, a message's body as a buffer, and Arrow capsules in
//! both directions.
//!
//! A body of `bytes` is borrowed: it is immutable, and the call holds it. Any other buffer is
//! copied while attached to the interpreter, because its owner may change it at any time. If the
//! bytes changed after the checksum was computed, the record would be damaged.

#![allow(unsafe_code)]

use super::convert::{refused, wrong_type};
use crate::ffi::{self as arrow, CArray, CSchema, FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyString, PyTuple};
use std::borrow::Cow;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

/// The bytes of a body.
#[inline]
pub(super) fn body<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    match object.cast::<PyBytes>() {
        Ok(bytes) => Ok(Cow::Borrowed(bytes.as_bytes())),
        Err(_) => copied("body", object).map(Cow::Owned),
    }
}

/// Refuses an object that cannot be a body, without reading its bytes. `None` can be one.
pub(super) fn check_body(object: &Bound<'_, PyAny>) -> PyResult<()> {
    if object.is_instance_of::<PyBytes>() || object.is_none() {
        return Ok(());
    }
    // SAFETY: `object` keeps what it points to alive.
    match unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } {
        0 => copied("body", object).map(|_| ()),
        _ => Ok(()),
    }
}

/// A copy of the bytes of any buffer. Errors name the argument.
pub(super) fn copied(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if object.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(format!(
            "{name} must be bytes, got str; encode it, for example with {name}.encode(\"utf-8\")",
        )));
    }
    let wanted = "a buffer, such as bytes";
    let buffer = PyUntypedBuffer::get(object);
    let buffer = buffer.map_err(|error| refused(name, object, wanted, error))?;
    if buffer.format().to_bytes().contains(&b'O') {
        return Err(PyTypeError::new_err(format!(
            "{name} must be a buffer of bytes, got a buffer of Python objects",
        )));
    }
    if !buffer.is_c_contiguous() {
        return Err(PyTypeError::new_err(format!(
            "{name} must be a contiguous buffer; copy it, for example with bytes({name})",
        )));
    }
    let len = buffer.len_bytes();
    let mut bytes = Vec::with_capacity(len);
    if len > 0 {
        // SAFETY: the exporter promises `len` readable bytes at the pointer of a contiguous buffer
        // for as long as `buffer` is held, and `bytes` has room for as many. The bytes are copied
        // through raw pointers because another thread may store to them meanwhile.
        unsafe {
            std::ptr::copy_nonoverlapping(buffer.buf_ptr().cast(), bytes.as_mut_ptr(), len);
        }
        // SAFETY: the first `len` bytes were written just above.
        unsafe { bytes.set_len(len) };
    }
    Ok(bytes)
}

/// Makes `view` point to `bytes`, which `owner` keeps alive and unchanged; for `__getbuffer__`.
///
/// # Safety
///
/// `view` must point to a writable `Py_buffer`, and `owner` must own `bytes`.
pub(super) unsafe fn fill(
    owner: Bound<'_, PyAny>,
    bytes: &[u8],
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let Ok(len) = ffi::Py_ssize_t::try_from(bytes.len()) else {
        return Err(PyBufferError::new_err("the body is too large for a buffer"));
    };
    let start = bytes.as_ptr().cast_mut().cast();
    // SAFETY: the caller guarantees `view` and `owner`. The view is read-only, so nothing is stored
    // through `start`, and it holds a reference to `owner`.
    let filled = unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start, len, 1, flags) };
    if filled == 0 {
        Ok(())
    } else {
        Err(PyErr::fetch(owner.py()))
    }
}

/// Makes `view` point to `bytes`; the view then keeps them alive.
///
/// # Safety
///
/// `view` must point to a writable `Py_buffer`.
pub(super) unsafe fn delegate(
    bytes: &Bound<'_, PyBytes>,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    // SAFETY: the caller guarantees `view`. `bytes` becomes the owner of the view and needs no
    // release.
    let filled = unsafe { ffi::PyObject_GetBuffer(bytes.as_ptr(), view, flags) };
    if filled == 0 {
        Ok(())
    } else {
        Err(PyErr::fetch(bytes.py()))
    }
}

const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// A capsule with a stream. The consumer moves the stream out; otherwise the capsule releases it.
pub(super) fn stream_capsule(
    py: Python<'_>,
    stream: FFI_ArrowArrayStream,
) -> PyResult<Bound<'_, PyCapsule>> {
    PyCapsule::new_with_value(py, stream, STREAM)
}

/// A capsule with a schema.
pub(super) fn schema_capsule(py: Python<'_>, schema: CSchema) -> PyResult<Bound<'_, PyCapsule>> {
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// The record batches of anything that exports Arrow's stream or array capsules.
pub(super) enum Batches {
    Stream(RecordBatchStreamReader),
    Array(Box<RecordBatch>),
}

impl Batches {
    /// Imports what `data` exports.
    pub(super) fn of(data: &Bound<'_, PyAny>) -> PyResult<Batches> {
        if data.hasattr("__arrow_c_stream__")? {
            let capsule = data.call_method0("__arrow_c_stream__")?;
            let stream = pointer::<FFI_ArrowArrayStream>(&capsule, STREAM)?;
            // SAFETY: by the rules of the C interface a capsule of this name holds a stream, and
            // `capsule` keeps it alive until it is imported here.
            let reader = unsafe { arrow::import_stream(stream.as_ptr()) }?;
            return Ok(Batches::Stream(reader));
        }
        if data.hasattr("__arrow_c_array__")? {
            let both = data
                .call_method0("__arrow_c_array__")?
                .cast_into::<PyTuple>()?;
            let (schema, array) = both.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
            let schema = pointer::<CSchema>(&schema, SCHEMA)?;
            let array = pointer::<CArray>(&array, ARRAY)?;
            // SAFETY: by the rules of the C interface capsules of these names hold an array and its
            // schema, and `both` keeps them alive until they are imported here.
            let batch = unsafe { arrow::import_array(array.as_ptr(), schema.as_ptr()) }?;
            return Ok(Batches::Array(Box::new(batch)));
        }
        let wanted = "an object with __arrow_c_stream__ or __arrow_c_array__";
        Err(wrong_type("data", data, wanted))
    }

    /// Returns a reader of the batches.
    pub(super) fn reader(self) -> Box<dyn RecordBatchReader + Send> {
        match self {
            Batches::Stream(reader) => Box::new(reader),
            Batches::Array(batch) => {
                let schema = batch.schema();
                Box::new(RecordBatchIterator::new([Ok(*batch)], schema))
            }
        }
    }
}

fn pointer<T>(capsule: &Bound<'_, PyAny>, name: &'static CStr) -> PyResult<NonNull<T>> {
    let capsule = capsule.cast::<PyCapsule>()?;
    Ok(capsule.pointer_checked(Some(name))?.cast())
}

/// Makes the interpreter raise an exception in the main thread as soon as it runs Python code.
pub(super) fn raise_later(py: Python<'_>, raised: PyErr) {
    extern "C" fn raise(raised: *mut c_void) -> c_int {
        // SAFETY: `raise_later` made the pointer from a box, and the interpreter calls this once.
        let raised = unsafe { Box::from_raw(raised.cast::<PyErr>()) };
        Python::attach(|py| raised.restore(py));
        -1
    }
    let raised = Box::into_raw(Box::new(raised));
    // SAFETY: `raise` takes over the box if the call succeeds.
    if unsafe { ffi::Py_AddPendingCall(Some(raise), raised.cast()) } < 0 {
        // SAFETY: the interpreter has no room for the call, so the box is still ours.
        let raised = unsafe { Box::from_raw(raised) };
        raised.write_unraisable(py, None);
    }
}
