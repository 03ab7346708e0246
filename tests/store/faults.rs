//! Files that are truncated while a store is open: an error with path and position.

use crate::bed::{small_options, to_queue};
use forebay::{Durability, Error, Filter, Mode, Options, Result, Sent, Store};
use std::fs::OpenOptions;
use std::path::Path;

fn send(store: &Store, body: &[u8]) -> Result<Sent> {
    let producer = store.producer("orders", None)?;
    producer.send(&to_queue(0, body), 0, Durability::Default)
}

fn cut(path: &Path, len: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(len).unwrap();
}

fn place(error: &Error) -> Option<(&Path, u64)> {
    match error {
        Error::Io { path, position, .. } => position.map(|position| (path.as_path(), position)),
        _ => None,
    }
}

#[test]
fn a_log_truncated_under_a_reader_is_an_error_and_the_rest_is_readable() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), small_options()).unwrap();
    for _ in 0..1000 {
        send(&store, &[7; 200]).unwrap();
    }
    store.close().unwrap();
    let options = Options {
        mode: Mode::Read,
        ..small_options()
    };
    let reader = Store::open(dir.path(), options).unwrap();
    let log = dir.path().join("commitlog/00000000000000000000");
    let read = |offset| reader.read("orders", 0, offset, 10, None, &Filter::default());
    // The first read maps the file.
    assert_eq!(read(0).unwrap().messages.len(), 10);
    cut(&log, 4096);
    let error = read(100).unwrap_err();
    let (path, position) = place(&error).unwrap();
    assert!(path == log && position >= 4096, "{error}");
    assert_eq!(read(0).unwrap().messages.len(), 10);
    assert_eq!(read(990).unwrap().messages.len(), 10);
}

#[test]
fn a_log_truncated_under_a_writer_fails_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), small_options()).unwrap();
    send(&store, b"first").unwrap();
    let log = dir.path().join("commitlog/00000000000000000000");
    cut(&log, 4096);
    let error = (0..100).find_map(|_| send(&store, &[7; 200]).err());
    let error = error.unwrap();
    let (path, position) = place(&error).unwrap();
    assert!(path == log && position >= 4096, "{error}");
    let again = send(&store, b"again").unwrap_err();
    assert!(matches!(again, Error::Failed { .. }), "{again}");
    let first = store.read("orders", 0, 0, 1, None, &Filter::default());
    assert_eq!(first.unwrap().messages.len(), 1);
}
