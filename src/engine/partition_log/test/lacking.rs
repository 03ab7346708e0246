//! Topics that lack queues before their last one.

use super::write::{bodies, send, writing};
use super::*;
use crate::engine::partition_log::segments::names;
use crate::error::Error;

/// The folders of a topic's queues.
fn folders(root: &Path, topic: &str) -> usize {
    let entries = fs::read_dir(root).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| names::partition_of(name).is_some_and(|it| it.0 == topic))
        .count()
}

fn refused(engine: &PartitionLog, topic: &str, queues: Option<u32>) -> String {
    match engine.topic_with(topic, queues).unwrap_err() {
        Error::Unsupported { what } => what,
        other => panic!("{other}"),
    }
}

/// Sending to the topic made 65,536 folders.
#[test]
fn one_folder_with_a_high_number_does_not_become_thousands() {
    let root = tempfile::tempdir().unwrap();
    for mode in [Mode::Append, Mode::Share] {
        let root = root.path().join(format!("{mode:?}"));
        let options = Options {
            mode,
            default_queues: Some(2),
            ..Options::default()
        };
        let engine = writing(&root, &options).unwrap();
        send(&engine, "t", &[(0, b"x")]);
        engine.close().unwrap();
        for folder in ["t-70000", "u-70000", "v-1200", "w-20"] {
            fs::create_dir(root.join(folder)).unwrap();
        }
        let engine = writing(&root, &options).unwrap();
        assert_eq!((folders(&root, "t"), folders(&root, "u")), (3, 1));
        let error = "sending to t: it has 3 of 65536 queues, as if most of them were lost; \
                     create_topic with 65536 queues makes the others";
        assert_eq!(refused(&engine, "t", None), error);
        refused(&engine, "t", Some(4));
        refused(&engine, "u", None);
        refused(&engine, "v", Some(100));
        assert_eq!((folders(&root, "t"), folders(&root, "u")), (3, 1));
        assert_eq!(bodies(&engine, "t", 0), [b"x"]);
        // An interrupted creation leaves few queues to make: they are made, and so is what a call
        // asks for.
        send(&engine, "w", &[(3, b"y")]);
        assert_eq!(bodies(&engine, "w", 3), [b"y"]);
        assert_eq!(folders(&root, "w"), 21);
        if mode == Mode::Append {
            engine.topic_with("v", Some(1201)).unwrap();
            assert_eq!(folders(&root, "v"), 1201);
        }
        engine.close().unwrap();
    }
}
