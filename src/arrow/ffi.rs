//! Arrow's C interfaces: streams out, streams and arrays in.
//!
//! No panic crosses them in either direction: a callback that panics reports an error, and so does
//! a foreign array on which the import panics.

#![allow(unsafe_code)]

use super::stream::Stream;
use crate::error::{Error, Result};
use arrow_array::{Array, RecordBatch, RecordBatchOptions, StructArray};
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Schema, SchemaRef};
use std::ffi::{CString, c_char, c_int, c_void};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

pub use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
pub use arrow_data::ffi::FFI_ArrowArray as CArray;
pub use arrow_schema::ffi::FFI_ArrowSchema as CSchema;

/// Record batches of one schema, which [`export`] passes on.
pub trait Batches: Send {
    /// Schema of every batch.
    fn schema(&self) -> SchemaRef;

    /// The next batch; `None` at the end, and after an error.
    ///
    /// # Errors
    ///
    /// Those of the source.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>>;
}

impl Batches for Stream {
    fn schema(&self) -> SchemaRef {
        self.schema()
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        self.next_batch()
    }
}

/// State of an exported stream between its callbacks.
struct Exported {
    stream: Box<dyn Batches>,
    last_error: Option<CString>,
}

/// Exports a stream through the C stream interface.
///
/// The stream reports errors with the text of [`Error`]. The struct may be released from any
/// thread, after the store was closed, and in a child process.
pub fn export(stream: impl Batches + 'static) -> FFI_ArrowArrayStream {
    let exported = Box::new(Exported {
        stream: Box::new(stream),
        last_error: None,
    });
    let data = Box::into_raw(exported).cast::<c_void>();
    // SAFETY: the callbacks are those of this file, made for a struct whose private data is an
    // `Exported`; `release` frees it once and marks the struct as released.
    unsafe {
        FFI_ArrowArrayStream::new_unchecked(
            Some(get_schema),
            Some(get_next),
            Some(get_last_error),
            Some(release),
            data,
        )
    }
}

/// The private data of a stream that [`export`] made; `None` once it is released.
///
/// # Safety
///
/// `stream` is null, or points to a struct of [`export`] that nothing else uses meanwhile.
unsafe fn exported<'a>(stream: *mut FFI_ArrowArrayStream) -> Option<&'a mut Exported> {
    // SAFETY: the caller promises that the pointer is null or valid.
    let stream = unsafe { stream.as_ref() }?;
    // SAFETY: `export` created the data as an `Exported`. Only `release` frees it, and leaves null.
    // The C interface allows one call at a time.
    unsafe { stream.private_data().cast::<Exported>().as_mut() }
}

/// Runs the work of a callback. Turns its error or panic into a code and a text.
fn answer(exported: &mut Exported, work: impl FnOnce(&mut dyn Batches) -> Result<()>) -> c_int {
    let stream = &mut *exported.stream;
    let (code, text) = match catch_unwind(AssertUnwindSafe(|| work(stream))) {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => (code_of(&error), error.to_string()),
        Err(_) => (
            libc::EIO,
            "the scan failed because of a bug in forebay".to_owned(),
        ),
    };
    // A path or an argument in the text may contain a zero byte, which a C string cannot hold.
    exported.last_error = CString::new(text.replace('\0', "\u{FFFD}")).ok();
    code
}

fn code_of(error: &Error) -> c_int {
    match error {
        Error::InvalidOption { .. } | Error::OffsetOutOfRange { .. } => libc::EINVAL,
        Error::UnknownTopic { .. } | Error::UnknownQueue { .. } => libc::EINVAL,
        Error::Unsupported { .. } => libc::ENOSYS,
        Error::Io { source, .. } if source.kind() == ErrorKind::Interrupted => libc::EINTR,
        _ => libc::EIO,
    }
}

unsafe extern "C" fn get_schema(
    stream: *mut FFI_ArrowArrayStream,
    out: *mut FFI_ArrowSchema,
) -> c_int {
    // SAFETY: the consumer passes the struct that it read this callback from.
    let Some(exported) = (unsafe { exported(stream) }) else {
        return libc::EINVAL;
    };
    answer(exported, |stream| {
        let schema = FFI_ArrowSchema::try_from(stream.schema().as_ref());
        let schema = schema.map_err(|error| Error::Unsupported {
            what: error.to_string(),
        })?;
        // SAFETY: the interface requires room for one schema, which may be uninitialised.
        unsafe { out.write_unaligned(schema) };
        Ok(())
    })
}

unsafe extern "C" fn get_next(
    stream: *mut FFI_ArrowArrayStream,
    out: *mut FFI_ArrowArray,
) -> c_int {
    // SAFETY: the consumer passes the struct that it read this callback from.
    let Some(exported) = (unsafe { exported(stream) }) else {
        return libc::EINVAL;
    };
    answer(exported, |stream| {
        let array = match stream.next_batch()? {
            Some(batch) => FFI_ArrowArray::new(&StructArray::from(batch).to_data()),
            None => FFI_ArrowArray::empty(),
        };
        // SAFETY: the interface requires room for one array, which may be uninitialised.
        unsafe { out.write_unaligned(array) };
        Ok(())
    })
}

unsafe extern "C" fn get_last_error(stream: *mut FFI_ArrowArrayStream) -> *const c_char {
    // SAFETY: the consumer passes the struct that it read this callback from.
    let exported = unsafe { exported(stream) };
    let text = exported.and_then(|exported| exported.last_error.as_ref());
    text.map_or(std::ptr::null(), |text| text.as_ptr())
}

unsafe extern "C" fn release(stream: *mut FFI_ArrowArrayStream) {
    // SAFETY: the consumer passes the struct that it read this callback from, or null.
    let Some(stream) = (unsafe { stream.as_mut() }) else {
        return;
    };
    // SAFETY: null replaces the private data. No callback uses it after this one.
    let data = unsafe { stream.set_private_data(std::ptr::null_mut()) };
    // SAFETY: a struct without this callback counts as released.
    unsafe { stream.set_release(None) };
    if let Some(data) = NonNull::new(data.cast::<Exported>()) {
        // SAFETY: `export` created the data with `Box::into_raw`, and it was removed from the
        // struct.
        let exported = unsafe { Box::from_raw(data.as_ptr()) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(exported)));
    }
}

/// Takes over a stream through the C stream interface.
///
/// # Errors
///
/// [`Error::InvalidOption`] if it is not a stream of record batches, with the text of its producer.
///
/// # Safety
///
/// `stream` points to a struct that follows the rules of the C stream interface. It is left
/// released.
pub unsafe fn import_stream(stream: *mut FFI_ArrowArrayStream) -> Result<RecordBatchStreamReader> {
    // SAFETY: the caller passes a valid struct, which is left empty.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream) };
    guarded(|| RecordBatchStreamReader::try_new(stream))
}

/// Takes over a record batch through the C data interface: an array of structs without nulls.
///
/// # Errors
///
/// [`Error::InvalidOption`] if the array is not a record batch.
///
/// # Safety
///
/// Both pointers point to structs that follow the rules of the C data interface. They are left
/// released.
pub unsafe fn import_array(
    array: *mut FFI_ArrowArray,
    schema: *mut FFI_ArrowSchema,
) -> Result<RecordBatch> {
    // SAFETY: the caller passes a valid struct, which is left empty.
    let array = unsafe { FFI_ArrowArray::from_raw(array) };
    // SAFETY: as above.
    let schema = unsafe { FFI_ArrowSchema::from_raw(schema) };
    let data_type = DataType::try_from(&schema).map_err(|e| not_arrow(&e.to_string()))?;
    let DataType::Struct(fields) = &data_type else {
        let reason = "expected a record batch, or a struct array with named columns";
        return Err(Error::option("data", data_type, reason));
    };
    let fields = fields.clone();
    guarded(|| {
        // SAFETY: the caller promises that the array follows the rules of the interface for this
        // type.
        let data = unsafe { arrow_array::ffi::from_ffi_and_data_type(array, data_type) }?;
        let rows = StructArray::from(data);
        if rows.null_count() > 0 {
            let text = "a row is null".to_owned();
            return Err(arrow_schema::ArrowError::InvalidArgumentError(text));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let (_, columns, _) = rows.into_parts();
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
    })
}

/// Runs an import, which may panic on invalid data of a foreign producer.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, arrow_schema::ArrowError>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| not_arrow(&error.to_string())),
        Err(_) => Err(not_arrow("it breaks the rules of the Arrow C interface")),
    }
}

fn not_arrow(reason: &str) -> Error {
    Error::option("data", "not readable as Arrow", reason)
}
