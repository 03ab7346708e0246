//! The statistics of a store about puts, flushes and rates.

use crate::bed::{Bed, Kind, body, to_queue};
use forebay::Durability;
use std::time::Duration;

suite! {
    fn the_first_puts_are_counted_one_by_one(bed) {
        bed.fill("orders", 0, 20);
        let stats = bed.store.stats().unwrap();
        assert_eq!(stats.puts.latency.count, 20);
        assert!(stats.puts.latency.max > Duration::ZERO);
        assert!(stats.puts.latency.quantile(0.5) <= stats.puts.latency.quantile(0.999));
        assert!(stats.puts.encoding > Duration::ZERO);
        assert!(stats.puts.encoding + stats.puts.appending <= stats.puts.latency.total);
        assert_eq!(stats.busy, 0);
        // On a busy machine a put may have been slow.
        let is_slow = stats.puts.latency.max > Duration::from_millis(500);
        assert_eq!(stats.puts.slow > 0, is_slow);
    }

    fn a_batch_is_one_put(bed) {
        let producer = bed.store.producer("orders", Some(0)).unwrap();
        let drafts = (0..100).map(|_| Ok(body(b"x")));
        let rows = forebay::Atomicity::Rows;
        producer.send_batch(drafts, rows, Durability::Default).unwrap();
        let stats = bed.store.stats().unwrap();
        assert_eq!((stats.messages_sent, stats.puts.latency.count), (100, 1));
    }

    fn rates_count_what_was_sent(bed) {
        bed.fill("orders", 0, 100);
        let stats = bed.store.stats().unwrap();
        for (rate, recent, count) in [
            (stats.rates.messages, stats.rates.recent_messages, stats.messages_sent),
            (stats.rates.bytes, stats.rates.recent_bytes, stats.bytes_sent),
        ] {
            // The store is younger than a minute and older than a microsecond.
            let (least, most) = (count as f64 / 60.0, count as f64 * 1e6);
            assert!((least..most).contains(&rate), "{rate}");
            assert!((rate - recent).abs() < rate * 1e-3, "{rate} {recent}");
        }
    }

    fn a_rejected_message_is_not_a_put(bed) {
        let too_large = vec![0; 17 << 10];
        bed.try_send("orders", &to_queue(0, &too_large)).unwrap_err();
        assert_eq!(bed.store.stats().unwrap().puts.latency.count, 0);
    }
}

#[test]
fn waits_for_the_disk_are_counted_separately_from_puts() {
    let bed = Bed::new(Kind::CommitLog);
    let producer = bed.store.producer("orders", Some(0)).unwrap();
    let flushed = Durability::Flushed;
    for _ in 0..5 {
        producer.send(&body(b"x"), 0, flushed).unwrap();
    }
    let stats = bed.store.stats().unwrap();
    // The flush service may flush before a sender enlists.
    assert!((1..=5).contains(&stats.flushes.waits.count));
    assert!(stats.flushes.count >= 1);
    assert!(stats.flushes.longest > Duration::ZERO);
    assert!(stats.flushes.longest <= stats.flushes.total);
    assert!(stats.flushes.waits.max > Duration::ZERO);
    assert_eq!(stats.durable, stats.published);
    assert!(stats.log_bytes >= stats.published);
    assert!(stats.disk_free.is_some());
}

#[test]
fn the_statistics_include_the_recovery() {
    let mut bed = Bed::new(Kind::CommitLog);
    bed.fill("orders", 0, 10);
    bed.reopen();
    let (stats, recovery) = (bed.store.stats().unwrap(), bed.store.recovery());
    assert_eq!(stats.recovered_records, recovery.records_checked);
    assert_eq!(stats.truncated_bytes, recovery.truncated_bytes);
    assert_eq!((stats.messages_sent, stats.puts.latency.count), (0, 0));
}
