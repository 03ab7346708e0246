//! Tickets of a store that closes.

use crate::{Draft, Options, Store, Ticket};
use std::time::Duration;

#[test]
fn every_ticket_is_completed_when_the_store_closes() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
    let producer = store.producer("t", Some(0)).unwrap();
    let draft = Draft {
        body: b"x",
        ..Draft::default()
    };
    let tickets: Vec<Ticket> = (0..1000)
        .map(|_| producer.send_nowait(&draft, crate::Delay::None).unwrap())
        .collect();
    store.close().unwrap();
    for (offset, ticket) in tickets.iter().enumerate() {
        assert!(ticket.is_done());
        let sent = ticket.wait(Duration::ZERO).unwrap().unwrap();
        assert!(sent.durable);
        assert_eq!(sent.place.offset, offset as u64);
    }
}
