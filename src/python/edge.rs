//! The edge to C: bodies from any buffer, a message's body as a buffer, Arrow's capsules in and
//! out.
//!
//! A body of `bytes` is borrowed: nothing changes it while the call holds it. Any other buffer is
//! copied while the interpreter is attached, for its owner may change it at any time, and a record
//! whose bytes change after its checksum was computed would be damaged.

#![allow(unsafe_code)]

use super::convert::wrong_type;
use crate::ffi::{self as arrow, CArray, CSchema, FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyString, PyTuple};
use std::borrow::Cow;
use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

/// The bytes of a body.
#[inline]
pub(super) fn body<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    match object.cast::<PyBytes>() {
        Ok(bytes) => Ok(Cow::Borrowed(bytes.as_bytes())),
        Err(_) => copied(object).map(Cow::Owned),
    }
}

fn copied(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if object.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(
            "body is str: encode it, for example body.encode(\"utf-8\")",
        ));
    }
    let wanted = "bytes or another buffer";
    let buffer = PyUntypedBuffer::get(object);
    let buffer = buffer.map_err(|_| wrong_type("body", object, wanted))?;
    if buffer.format().to_bytes().contains(&b'O') {
        return Err(PyTypeError::new_err(
            "body is a buffer of Python objects: give bytes",
        ));
    }
    if !buffer.is_c_contiguous() {
        return Err(PyTypeError::new_err(
            "body is a buffer that is not contiguous: copy it, for example bytes(body)",
        ));
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

/// Fills `view` with `bytes`, which `owner` keeps alive and unchanged; for `__getbuffer__`.
///
/// # Safety
///
/// `view` points to a `Py_buffer` that may be written, and `bytes` belong to `owner`.
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
    // SAFETY: the caller's promise; the view is read-only, so nobody stores through `start`, and it
    // holds a reference to `owner`.
    let filled = unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start, len, 1, flags) };
    if filled == 0 {
        Ok(())
    } else {
        Err(PyErr::fetch(owner.py()))
    }
}

/// Lets `bytes` fill the view, which then keeps them alive.
///
/// # Safety
///
/// `view` points to a `Py_buffer` that may be written.
pub(super) unsafe fn delegate(
    bytes: &Bound<'_, PyBytes>,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    // SAFETY: the caller's promise. The view's owner becomes `bytes`, which needs no release.
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

/// A capsule with a stream that the consumer may take over; an untaken one is released with it.
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
    /// Takes over what `data` exports.
    pub(super) fn of(data: &Bound<'_, PyAny>) -> PyResult<Batches> {
        if data.hasattr("__arrow_c_stream__")? {
            let capsule = data.call_method0("__arrow_c_stream__")?;
            let stream = pointer::<FFI_ArrowArrayStream>(&capsule, STREAM)?;
            // SAFETY: a capsule of this name holds a stream by the rules of the C interface, and
            // `capsule` keeps it until it is taken over here.
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
            // SAFETY: capsules of these names hold an array and its schema by the rules of the C
            // interface, and `both` keeps them until they are taken over here.
            let batch = unsafe { arrow::import_array(array.as_ptr(), schema.as_ptr()) }?;
            return Ok(Batches::Array(Box::new(batch)));
        }
        let wanted = "an object with __arrow_c_stream__ or __arrow_c_array__";
        Err(wrong_type("data", data, wanted))
    }

    /// The batches one after the other.
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
