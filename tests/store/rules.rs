//! The rules for messages: each error names the rule, and the store is unchanged.

use crate::bed::{Bed, body, to_queue};
use forebay::{Draft, Durability, Error};

/// Sends a draft that must be rejected, and checks that nothing was stored.
fn refused(bed: &Bed, draft: &Draft<'_>) -> Error {
    let before = bed.store.engine().unwrap().readable_position();
    let draft = Draft {
        queue: Some(0),
        ..*draft
    };
    let Err(error) = bed.try_send("orders", &draft) else {
        panic!("{draft:?} was stored")
    };
    assert_eq!(bed.store.engine().unwrap().readable_position(), before);
    error
}

fn refused_option(bed: &Bed, draft: &Draft<'_>) -> String {
    match refused(bed, draft) {
        Error::InvalidOption { name, .. } => name,
        other => panic!("{draft:?}: {other}"),
    }
}

/// The part that is too large, its size and the limit.
fn refused_size(bed: &Bed, draft: &Draft<'_>) -> (String, u64, u64) {
    match refused(bed, draft) {
        Error::TooLarge { what, size, limit } => (what, size, limit),
        other => panic!("{other}"),
    }
}

suite! {
    fn keys_are_not_empty_and_have_no_spaces_or_control_characters(bed) {
        let keys = [
            "", " ", "a b", "a\tb", "a\n", "\u{0}", "a\u{1}b", "a\u{2}b", "\u{7f}", "a\u{a0}b",
        ];
        for key in keys {
            assert_eq!(refused_option(bed, &Draft { keys: &[key], ..body(b"x") }), "key");
            assert_eq!(refused_option(bed, &Draft { keys: &["good", key], ..body(b"x") }), "key");
        }
        assert_eq!(bed.send("orders", &to_queue(0, b"x")).place.offset, 0);
    }

    fn tags_are_one_tag_without_subscription_syntax(bed) {
        for tags in ["", " ", " a", "a ", "a||b", "*", "a\u{1}b", "a\u{2}", "a\n"] {
            assert_eq!(refused_option(bed, &Draft { tags: Some(tags), ..body(b"x") }), "tags");
        }
        bed.send("orders", &Draft { tags: Some("a b|c*"), ..to_queue(0, b"x") });
        let message = bed.store.get("orders", 0, 0).unwrap();
        assert_eq!(message.tags().as_deref(), Some("a b|c*"));
    }

    fn properties_have_an_unreserved_name_and_a_value_without_separators(bed) {
        let pairs = [
            ("", "v"), ("n", ""), ("n\u{1}", "v"), ("n\u{2}", "v"), ("n", "v\u{1}"), ("n", "\u{2}"),
            ("KEYS", "v"), ("TAGS", "v"), ("UNIQ_KEY", "v"), ("DELAY", "3"), ("REAL_TOPIC", "v"),
            ("__CRC32#", "0000000000"), ("__RMQ.TRANSIENT.x", "v"), ("TIMER_DELAY_MS", "1"),
        ];
        for pair in pairs {
            let properties = &[("ok", "1"), pair];
            let name = refused_option(bed, &Draft { properties, ..body(b"x") });
            assert_eq!(name, format!("property {:?}", pair.0));
        }
        let good = Draft { properties: &[("keys", "a b\n\u{1F600}")], ..to_queue(0, b"x") };
        bed.send("orders", &good);
        let message = bed.store.get("orders", 0, 0).unwrap();
        let user = message.properties(forebay::PropertyKind::User);
        assert_eq!(user["keys"], "a b\n\u{1F600}");
    }

    fn a_body_above_the_limit_is_rejected_with_size_and_limit(bed) {
        let limit = bed.store.options().max_message_size();
        let large = vec![0; limit + 1];
        let expected = ("body".to_owned(), limit as u64 + 1, limit as u64);
        assert_eq!(refused_size(bed, &body(&large)), expected);
        bed.send("orders", &to_queue(0, &large[..limit]));
    }

    fn properties_above_the_limit_are_rejected_and_the_largest_is_named(bed) {
        let value = "v".repeat(32_767);
        let draft = Draft { properties: &[("a", "1"), ("huge", &value)], ..body(b"x") };
        let (what, size, limit) = refused_size(bed, &draft);
        assert!(what.contains("\"huge\""), "{what}");
        assert!(size > limit && limit == 32_767);
        let key = "k".repeat(32_767);
        let (what, ..) = refused_size(bed, &Draft { keys: &[&key], ..body(b"x") });
        assert!(what.contains("\"KEYS\""), "{what}");

        // Name, two separators and the checksum's 20 bytes count towards the limit.
        let fits = &value[..32_767 - 20 - 2 - 1];
        bed.send("orders", &Draft { properties: &[("p", fits)], ..to_queue(0, b"x") });
        let one_more = &value[..32_767 - 20 - 2];
        let draft = Draft { properties: &[("p", one_more)], ..body(b"x") };
        assert_eq!(refused_size(bed, &draft).1, 32_768);
        bed.reopen();
        let message = bed.store.get("orders", 0, 0).unwrap();
        assert_eq!(message.record().raw_properties().len(), 32_767);
    }

    fn delay_levels_go_to_18(bed) {
        let producer = bed.store.producer("orders", None).unwrap();
        for level in [19, 255] {
            let refused = producer.send(&body(b"x"), level, Durability::Default).unwrap_err();
            assert!(matches!(refused, Error::InvalidOption { .. }), "{refused}");
        }
        let refused = producer.send(&to_queue(4, b"x"), 1, Durability::Default).unwrap_err();
        assert!(matches!(refused, Error::UnknownQueue { queue: 4, .. }), "{refused}");
        assert_eq!(bed.store.stats().unwrap().messages_sent, 0);
    }
}
