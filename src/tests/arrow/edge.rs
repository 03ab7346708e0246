//! The C interfaces: export and import.

use super::*;
use crate::arrow::Chain;
use crate::arrow::ffi::{export, import_array, import_stream};
use crate::arrow::source::Source;
use crate::engine::{Cursor, Rows};
use crate::{Error, Result};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{BinaryArray, Int32Array, RecordBatchReader, StringArray};
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::SchemaRef;
use arrow_schema::ffi::FFI_ArrowSchema;

/// A cursor that returns the given answer.
struct Fails(Answer);

type Answer = fn() -> Result<()>;

impl Cursor for Fails {
    fn next(&mut self, _max_rows: usize, _rows: &mut Rows) -> Result<()> {
        (self.0)()
    }
    fn offset(&self) -> u64 {
        0
    }
}

fn failing(how: Answer) -> FFI_ArrowArrayStream {
    let source = Source::queues(vec![Box::new(Fails(how))]);
    let shape = shape(&[Column::Body], BodyType::Binary);
    export(Stream::new(source, shape, Default::default()))
}

#[allow(unsafe_code)]
fn import(mut stream: FFI_ArrowArrayStream) -> Result<crate::arrow::ffi::RecordBatchStreamReader> {
    // SAFETY: the struct was made by `export`, or has been released.
    unsafe { import_stream(&raw mut stream) }
}

#[allow(unsafe_code)]
fn import_one(mut array: FFI_ArrowArray, mut schema: FFI_ArrowSchema) -> Result<RecordBatch> {
    // SAFETY: both structs were made by Arrow's own export.
    unsafe { import_array(&raw mut array, &raw mut schema) }
}

#[test]
fn an_exported_stream_is_imported_with_every_column() {
    let store = store();
    send_bodies(
        &store,
        "a",
        0,
        &[b"short", b"a body that is longer than twelve bytes", b""],
    );
    for body_type in [BodyType::Binary, BodyType::BinaryView] {
        let columns = Some(Column::all().collect());
        let spec = ScanSpec {
            columns,
            body_type,
            batch_rows: 2,
            ..ScanSpec::default()
        };
        let expected = batches(&store, spec.clone());
        let reader = import(export(stream(&store, spec.clone()))).unwrap();
        assert_eq!(reader.schema(), expected[0].schema());
        let found: Vec<_> = reader.map(std::result::Result::unwrap).collect();
        assert_eq!(found, expected);
        found.iter().for_each(check);
    }
}

#[test]
fn a_stream_without_rows_or_columns_keeps_its_schema_and_counts() {
    let store = store();
    let reader = import(export(stream(&store, ScanSpec::default()))).unwrap();
    assert_eq!(reader.schema().fields().len(), 10);
    assert_eq!(reader.count(), 0);
    send_bodies(&store, "a", 0, &[b"1", b"2"]);
    let spec = ScanSpec {
        columns: Some(Vec::new()),
        ..ScanSpec::default()
    };
    let mut reader = import(export(stream(&store, spec))).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().num_rows(), 2);
}

#[test]
fn chained_streams_are_read_in_turn_until_one_cannot_be_opened() {
    let store = store();
    send_bodies(&store, "a", 0, &[b"1", b"2"]);
    let schema = stream(&store, ScanSpec::default()).schema();
    let (mut opened, path) = (0, "archive".into());
    let next = move || {
        opened += 1;
        match opened {
            3 => Err(std::io::Error::other("reset by peer")),
            _ => Ok(Some(stream(&store, ScanSpec::default()))),
        }
    };
    let chain = Chain::new(SchemaRef::clone(&schema), path, Box::new(next));
    let mut reader = import(export(chain)).unwrap();
    assert_eq!(reader.schema(), schema);
    let rows: Vec<_> = reader
        .by_ref()
        .take(2)
        .map(|it| it.unwrap().num_rows())
        .collect();
    assert_eq!(rows, [2, 2]);
    let error = reader.next().unwrap().unwrap_err().to_string();
    assert!(
        error.contains("archive") && error.contains("reset by peer"),
        "{error}"
    );
    assert!(reader.next().is_none());
}

#[test]
fn errors_cross_the_interface_with_their_text_and_panics_as_errors() {
    let texts: [(Answer, &str); 3] = [
        (
            || Err(Error::corrupt("log/0", 17, "zero \0 inside")),
            "corrupt bytes in log/0 at 17: zero \u{FFFD} inside",
        ),
        (
            || Err(Error::Closed { path: None }),
            "the store is closed: open it again",
        ),
        (
            || unreachable!("the test panics here"),
            "because of a bug in forebay",
        ),
    ];
    for (how, text) in texts {
        let mut reader = import(failing(how)).unwrap();
        let error = reader.next().unwrap().unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
#[allow(unsafe_code)]
fn a_released_stream_returns_an_error_and_is_released_once() {
    let store = store();
    send_bodies(&store, "a", 0, &[b"1"]);
    let mut stream = export(stream(&store, ScanSpec::default()));
    store.close().unwrap();
    drop(store);
    let (get_next, get_schema) = (stream.get_next().unwrap(), stream.get_schema().unwrap());
    let (release, last_error) = (stream.release().unwrap(), stream.get_last_error().unwrap());
    let pointer = &raw mut stream;
    let mut array = FFI_ArrowArray::empty();
    let mut schema = FFI_ArrowSchema::empty();
    // SAFETY: the callbacks belong to this struct.
    assert!(unsafe { last_error(pointer) }.is_null());
    // SAFETY: as above.
    unsafe { release(pointer) };
    // SAFETY: as above; a second release finds nothing to free.
    unsafe { release(pointer) };
    // SAFETY: as above.
    assert_eq!(unsafe { get_next(pointer, &raw mut array) }, libc::EINVAL);
    // SAFETY: as above.
    assert_eq!(
        unsafe { get_schema(pointer, &raw mut schema) },
        libc::EINVAL
    );
    assert!(stream.release().is_none());
}

#[test]
fn an_array_is_imported_whole_or_sliced_but_not_with_null_rows() {
    let names = StringArray::from(vec![Some("a"), None, Some("c")]);
    let numbers = Int32Array::from(vec![1, 2, 3]);
    let fields = vec![
        arrow_schema::Field::new("name", names.data_type().clone(), true),
        arrow_schema::Field::new("number", numbers.data_type().clone(), false),
    ];
    let columns: Vec<arrow_array::ArrayRef> = vec![Arc::new(names), Arc::new(numbers)];
    let whole = StructArray::new(fields.clone().into(), columns.clone(), None);
    let (array, schema) = arrow_array::ffi::to_ffi(&whole.slice(1, 2).to_data()).unwrap();
    let batch = import_one(array, schema).unwrap();
    assert_eq!(batch.num_rows(), 2);
    assert_eq!(
        batch["number"].as_primitive::<Int32Type>().values(),
        &[2, 3]
    );
    let nulls = Some(vec![true, false, true].into());
    let with_null = StructArray::new(fields.into(), columns, nulls);
    let (array, schema) = arrow_array::ffi::to_ffi(&with_null.to_data()).unwrap();
    let error = import_one(array, schema).unwrap_err().to_string();
    assert!(error.contains("null"), "{error}");
    let bare = BinaryArray::from_vec(vec![b"x"]);
    let (array, schema) = arrow_array::ffi::to_ffi(&bare.to_data()).unwrap();
    let error = import_one(array, schema).unwrap_err();
    assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
}

#[test]
fn a_released_stream_is_rejected() {
    let error = import(FFI_ArrowArrayStream::empty()).map(drop).unwrap_err();
    assert!(error.to_string().contains("released"), "{error}");
}
