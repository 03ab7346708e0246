//! Topics and their queues.

use crate::bed::{body, to_queue};
use forebay::PERMISSION_READ;
use forebay::{Error, ReadStatus};

suite! {
    fn a_topic_created_by_sending_gets_the_default_number_of_queues(bed) {
        bed.send("orders", &body(b"x"));
        bed.reopen();
        let topic = bed.store.topic("orders").unwrap();
        assert_eq!((topic.write_queues(), topic.read_queues()), (4, 4));
        assert_eq!(bed.store.engine().unwrap().queues(&topic), [0, 1, 2, 3]);
    }

    fn a_created_topic_has_its_queues_before_the_first_message(bed) {
        let topic = bed.store.create_topic("orders", 2).unwrap();
        assert_eq!((&*topic.name, topic.write_queues(), topic.read_queues()), ("orders", 2, 2));
        bed.reopen();
        let engine = bed.store.engine().unwrap();
        let topic = bed.store.topic("orders").unwrap();
        assert_eq!(engine.queues(&topic), [0, 1]);
        assert_eq!(engine.bounds(&topic, 1).unwrap(), Some(0..0));
        assert_eq!(engine.bounds(&topic, 2).unwrap(), None);
        assert_eq!(bed.read("orders", 1, 0).status, ReadStatus::NoMessageInQueue);
        let refused = bed.try_send("orders", &to_queue(2, b"x")).unwrap_err();
        let Error::UnknownQueue { topic, queue, queues } = refused else { panic!("{refused}") };
        assert_eq!((&*topic, queue, queues), ("orders", 2, 2));
    }

    fn creating_a_topic_again_adds_queues_and_never_removes_any(bed) {
        bed.store.create_topic("orders", 2).unwrap();
        bed.send("orders", &to_queue(1, b"x"));
        let before = bed.store.topic("orders").unwrap();
        assert_eq!(bed.store.create_topic("orders", 6).unwrap().write_queues(), 6);
        assert_eq!(before.write_queues(), 6);
        bed.send("orders", &to_queue(5, b"y"));
        let refused = bed.store.create_topic("orders", 3).unwrap_err().to_string();
        assert!(refused.contains('3') && refused.contains("6 queues"), "{refused}");
        assert_eq!(bed.store.ensure_topic("orders").unwrap().write_queues(), 6);
        bed.reopen();
        let topic = bed.store.topic("orders").unwrap();
        assert_eq!((topic.write_queues(), topic.read_queues()), (6, 6));
        assert_eq!(bed.bodies("orders", 1), [b"x"]);
        assert_eq!(bed.bodies("orders", 5), [b"y"]);
    }

    fn a_topic_has_between_one_and_65536_queues(bed) {
        for queues in [0, 65_537, u32::MAX] {
            let refused = bed.store.create_topic("orders", queues).unwrap_err();
            assert!(matches!(refused, Error::InvalidOption { .. }), "{refused}");
        }
        assert!(matches!(bed.store.topic("orders"), Err(Error::UnknownTopic { .. })));
        bed.store.create_topic("orders", 65_536).unwrap();
        assert_eq!(bed.send("orders", &to_queue(65_535, b"x")).place.offset, 0);
        bed.reopen();
        assert_eq!(bed.bodies("orders", 65_535), [b"x"]);
    }

    fn all_topics_are_listed_even_without_messages(bed) {
        assert!(bed.store.engine().unwrap().topics().is_empty());
        bed.send("bills", &body(b"x"));
        bed.store.create_topic("orders", 1).unwrap();
        bed.reopen();
        let topics = bed.store.engine().unwrap().topics();
        let mut names: Vec<String> = topics.all().iter().map(|t| t.name.to_string()).collect();
        names.sort_unstable();
        assert_eq!(names, ["bills", "orders"]);
        assert_eq!(topics.len(), 2);
        for topic in topics.all() {
            let by_id = topics.by_id(topic.id).unwrap();
            assert_eq!(by_id.name, topic.name);
            assert_eq!(topics.get(&topic.name).unwrap().id, topic.id);
        }
    }

    fn invalid_topic_names_are_rejected(bed) {
        let long = "t".repeat(128);
        let names = [
            "", " ", "a b", "a/b", "..", ".", "a.b", "a\\b", "a\0", "t\u{fc}r", "a\n", "a#b", &long,
        ];
        for name in names {
            for refused in [
                bed.store.producer(name, None).err(),
                bed.store.create_topic(name, 1).err(),
            ] {
                let Some(Error::InvalidTopic { topic, .. }) = refused else {
                    panic!("{name:?}: {refused:?}")
                };
                assert_eq!(topic, name);
            }
            assert!(matches!(bed.store.topic(name), Err(Error::UnknownTopic { .. })));
            assert_eq!(bed.read(name, 0, 0).status, ReadStatus::NoMatchedLogicQueue);
        }
        assert!(bed.store.engine().unwrap().topics().is_empty());
    }

    fn every_name_that_rocketmq_allows_works(bed) {
        let long = "t".repeat(127);
        let names = ["%RETRY%billing", "%DLQ%billing", "a|b", "-", "_", "0", &long];
        for name in names {
            bed.send(name, &to_queue(0, name.as_bytes()));
        }
        bed.reopen();
        for name in names {
            assert_eq!(bed.bodies(name, 0), [name.as_bytes()]);
        }
    }

    fn messages_of_many_topics_do_not_mix(bed) {
        for round in 0..3u8 {
            for number in 0..60u8 {
                let queue = u32::from(number) % 4;
                bed.send(&format!("topic-{number}"), &to_queue(queue, &[number, round]));
            }
        }
        bed.reopen();
        for number in 0..60u8 {
            let bodies = bed.bodies(&format!("topic-{number}"), u32::from(number) % 4);
            assert_eq!(bodies, [[number, 0], [number, 1], [number, 2]]);
        }
    }

    fn a_topic_without_write_permission_rejects_messages_and_can_be_read(bed) {
        bed.send("orders", &to_queue(0, b"x"));
        let topic = bed.store.topic("orders").unwrap();
        topic.configure(4, 4, PERMISSION_READ);
        let refused = bed.try_send("orders", &to_queue(0, b"y")).unwrap_err();
        assert!(matches!(refused, Error::ReadOnly { .. }), "{refused}");
        assert_eq!(bed.bodies("orders", 0), [b"x"]);
    }
}
