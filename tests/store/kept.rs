//! The options saved in a store, in `forebay.options`.

use forebay::{Draft, Durability, Error, Flush, Mode, Options, Store};
use std::fs;
use std::path::{Path, PathBuf};

fn file(root: &Path) -> PathBuf {
    root.join("forebay.options")
}

/// The options of a store that indexes few keys and waits for the disk.
fn own() -> Options {
    Options {
        commitlog_file_size: Some(1 << 20),
        index: Some(false),
        default_queues: Some(2),
        max_message_size: Some(100),
        flush: Some(Flush::Sync),
        checksum: Some(false),
        unique_ids: Some(true),
        ..Options::default()
    }
}

fn open(root: &Path, options: Options) -> Store {
    Store::open(root, options).unwrap()
}

/// Opens a store without options.
fn open_plainly(root: &Path) -> Store {
    open(root, Options::default())
}

fn words(options: &Options) -> (bool, u32, usize, Flush, bool, bool) {
    (
        options.index(),
        options.default_queues(),
        options.max_message_size(),
        options.flush(),
        options.checksum(),
        options.unique_ids(),
    )
}

/// Spark's sink once opened a closed store with the defaults: a store created without an index then
/// got one with all its keys, at or before the next commit.
#[test]
fn a_store_opened_without_options_keeps_those_of_its_creation() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    open(&root, own()).close().unwrap();
    for _ in 0..2 {
        let store = open_plainly(&root);
        assert_eq!(words(store.options()), words(&own()));
        let producer = store.producer("orders", None).unwrap();
        let draft = Draft {
            body: b"body",
            keys: &["key"],
            ..Draft::default()
        };
        let sent = producer.send(&draft, 0, Durability::Default).unwrap();
        assert!(sent.durable);
        assert_eq!(store.topic("orders").unwrap().write_queues(), 2);
        let long = Draft {
            body: &[1; 101],
            ..Draft::default()
        };
        let long = producer.send(&long, 0, Durability::Default);
        assert!(matches!(long, Err(Error::TooLarge { limit: 100, .. })));
        let message = store
            .get("orders", sent.place.queue, sent.place.offset as i64)
            .unwrap();
        let record = message.record();
        let properties = String::from_utf8_lossy(record.raw_properties());
        assert!(properties.contains("UNIQ_KEY"), "{properties}");
        assert!(!properties.contains("__CRC32#"), "{properties}");
        assert_eq!(store.ensure_topic("more").unwrap().write_queues(), 2);
        store.close().unwrap();
        assert!(!root.join("index").exists());
    }
}

#[test]
fn a_given_option_has_priority_and_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    open(&root, own()).close().unwrap();
    let given = Options {
        default_queues: Some(5),
        flush: Some(Flush::Async),
        ..Options::default()
    };
    let all = (false, 5, 100, Flush::Async, false, true);
    for options in [given, Options::default()] {
        let store = open(&root, options);
        assert_eq!(words(store.options()), all);
        store.close().unwrap();
    }
}

#[test]
fn a_store_opened_without_options_saves_none() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    let store = open_plainly(&root);
    assert_eq!(words(store.options()), words(&Options::default()));
    assert!(store.damage().is_empty());
    store.close().unwrap();
    assert!(!file(&root).exists());
    // Like a store of release 0.1.0, which has no such file.
    let index = Options {
        index: Some(false),
        ..Options::default()
    };
    open(&root, index).close().unwrap();
    assert_eq!(
        fs::read_to_string(file(&root)).unwrap(),
        r#"{"index":false}"#
    );
}

#[test]
fn a_reader_neither_uses_nor_changes_saved_options() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    open(&root, own()).close().unwrap();
    let before = fs::read(file(&root)).unwrap();
    let reader = Options {
        mode: Mode::Read,
        default_queues: Some(7),
        ..Options::default()
    };
    open(&root, reader).close().unwrap();
    assert_eq!(fs::read(file(&root)).unwrap(), before);
}

#[test]
fn a_damaged_file_is_reported_and_does_not_prevent_opening() {
    let values = r#"{"flush":"often","default_queues":0,"index":false,"later":1}"#;
    for text in ["", "{", "[1]", "\u{0}\u{0}\u{0}", values] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("store");
        open(&root, own()).close().unwrap();
        fs::write(file(&root), text).unwrap();
        let store = open_plainly(&root);
        let damage = store.damage();
        assert_eq!(damage.len(), 1, "{text:?}");
        assert_eq!(damage[0].path, file(&root));
        let expected = Options {
            index: (text == values).then_some(false),
            ..Options::default()
        };
        assert_eq!(words(store.options()), words(&expected), "{text:?}");
        store.close().unwrap();
        assert_eq!(fs::read_to_string(file(&root)).unwrap(), text);
        // A given option replaces the saved one, and unknown ones are kept.
        open(&root, own()).close().unwrap();
        let store = open_plainly(&root);
        assert_eq!(words(store.options()), words(&own()));
        assert!(store.damage().is_empty());
        let kept = fs::read_to_string(file(&root)).unwrap();
        assert_eq!(kept.contains(r#""later":1"#), text == values);
        store.close().unwrap();
    }
}

#[test]
fn a_repair_rewrites_a_damaged_file_with_its_readable_options() {
    for (text, expected) in [
        ("{", "{}"),
        (r#"{"flush":1,"index":false}"#, r#"{"index":false}"#),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("store");
        open(&root, own()).close().unwrap();
        fs::write(file(&root), text).unwrap();
        let store = open_plainly(&root);
        let found = store.verify(&mut |_, _| true).unwrap().damage;
        assert_eq!(found.len(), 1, "{found:?}");
        let done = store.repair(&mut |_, _| true).unwrap();
        assert_eq!((done.steps.len(), done.left), (1, Vec::new()));
        assert_eq!(fs::read_to_string(file(&root)).unwrap(), expected);
        store.close().unwrap();
    }
}

#[test]
fn an_option_that_contradicts_a_saved_one_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    open(&root, own()).close().unwrap();
    let pooled = |flush| Options {
        transient_pool: 2,
        flush,
        ..Options::default()
    };
    let refused = Store::open(&root, pooled(None));
    assert!(matches!(refused, Err(Error::InvalidOption { name, .. }) if name == "transient_pool"));
    open(&root, pooled(Some(Flush::Async))).close().unwrap();
}
