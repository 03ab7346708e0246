//! Bodies: gathered, as views of the regions, and compressed.

use super::*;
use crate::arrow::source::Source;
use crate::arrow::stream::DamageList;
use std::io::Write;

const BOTH: [BodyType; 2] = [BodyType::Binary, BodyType::BinaryView];

fn zlib(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn lz4(body: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn plain(body: &[u8], offset: u64) -> Vec<u8> {
    let draft = Draft {
        body,
        ..Draft::default()
    };
    record(&draft, offset, |_| {})
}

fn run(made: Vec<Message>, body_type: BodyType, batch_bytes: usize) -> (Vec<RecordBatch>, usize) {
    let mut shape = shape(&[Column::Offset, Column::Body], body_type);
    shape.batch_bytes = batch_bytes;
    let damage = DamageList::default();
    let stream = Stream::new(Source::found(made), shape, Arc::clone(&damage));
    let found: Vec<_> = stream.map(Result::unwrap).collect();
    found.iter().for_each(check);
    let damaged = damage.lock().len();
    (found, damaged)
}

#[test]
fn both_types_hold_the_same_bodies_of_every_length() {
    let store = store();
    let body = |len: usize| -> Vec<u8> { (0..len).map(|at| (len + at) as u8).collect() };
    let sent: Vec<Vec<u8>> = (0..64).chain([4095, 70_000]).map(body).collect();
    let refs: Vec<&[u8]> = sent.iter().map(Vec::as_slice).collect();
    send_bodies(&store, "a", 0, &refs);
    for body_type in BOTH {
        let spec = ScanSpec {
            topics: topic("a"),
            body_type,
            ..ScanSpec::default()
        };
        assert_eq!(bodies(&batches(&store, spec)), sent);
    }
}

#[test]
fn a_batch_has_at_most_the_requested_bytes_except_for_one_long_body() {
    let store = store();
    let (short, long) = (vec![1; 100], vec![2; 1000]);
    let sent: Vec<&[u8]> = vec![&short, &short, &short, &long, &short, &long, &long, &short];
    send_bodies(&store, "a", 0, &sent);
    for body_type in BOTH {
        let spec = ScanSpec {
            topics: topic("a"),
            body_type,
            batch_bytes: 250,
            ..Default::default()
        };
        let found = batches(&store, spec);
        let rows: Vec<_> = found.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(rows, [2, 1, 1, 1, 1, 1, 1]);
        assert_eq!(bodies(&found), sent);
        // If the bodies are not requested, their length does not count.
        let columns = Some(vec![Column::Offset]);
        let spec = ScanSpec {
            topics: topic("a"),
            columns,
            batch_bytes: 250,
            ..Default::default()
        };
        assert_eq!(batches(&store, spec).len(), 1);
    }
}

#[test]
fn data_buffers_of_views_are_windows_of_the_regions_and_outlive_the_store() {
    let store = store();
    let sent: Vec<Vec<u8>> = (0..200u8).map(|n| vec![n; 8000]).collect();
    let refs: Vec<&[u8]> = sent.iter().map(Vec::as_slice).collect();
    send_bodies(&store, "a", 0, &refs);
    let place = |offset: i64| {
        let message = store.get("a", 0, offset).unwrap();
        let region = Arc::clone(message.place().0);
        let body = message.record().stored_body();
        (
            region.address(),
            region.len(),
            body.as_ptr() as usize,
            body.len(),
        )
    };
    let places: Vec<_> = (0..sent.len() as i64).map(place).collect();
    let spec = ScanSpec {
        topics: topic("a"),
        body_type: BodyType::BinaryView,
        ..Default::default()
    };
    let found = batches(&store, spec);
    store.close().unwrap();
    drop(store);
    let column = found[0]["body"].as_binary_view();
    let regions: std::collections::HashSet<_> = places.iter().map(|place| place.0).collect();
    assert!(regions.len() > 1, "the memory engine has chunks of 1 MiB");
    assert_eq!(
        column.data_buffers().len(),
        regions.len(),
        "nothing was copied"
    );
    for (row, (region, len, address, body_len)) in places.iter().enumerate() {
        let value = column.value(row);
        assert_eq!(
            value.as_ptr() as usize,
            *address,
            "the view points to the mapped bytes"
        );
        assert!((*region..region + len).contains(address));
        assert_eq!(value, sent[row]);
        assert_eq!(*body_len, 8000);
    }
    let first = &column.data_buffers()[0];
    assert_eq!(
        first.as_ptr() as usize,
        places[0].2,
        "a window begins at its first body"
    );
    let mut in_first = places.iter().filter(|place| place.0 == places[0].0);
    let last = in_first.next_back().unwrap();
    assert_eq!(
        first.as_ptr() as usize + first.len(),
        last.2 + last.3,
        "a window ends with its last body"
    );
}

#[test]
fn windows_do_not_pin_more_than_their_batch_and_follow_rows_in_any_order() {
    let records: Vec<_> = (0..4).map(|n| plain(&[n as u8; 50], n)).collect();
    let made = messages(5, &records);
    let shuffled: Vec<_> = [3, 0, 2, 1].map(|index: usize| made[index].clone()).into();
    let (found, _) = run(shuffled, BodyType::BinaryView, 1 << 20);
    assert_eq!(longs(&found, "offset"), [3, 0, 2, 1]);
    let expected: Vec<Vec<u8>> = [3, 0, 2, 1].map(|n| vec![n; 50]).into();
    assert_eq!(bodies(&found), expected);
    let column = found[0]["body"].as_binary_view();
    let window = &column.data_buffers()[0];
    let (first, last) = (
        made[0].record().stored_body(),
        made[3].record().stored_body(),
    );
    assert_eq!(window.as_ptr(), first.as_ptr());
    let end = last.as_ptr() as usize + last.len();
    assert_eq!(window.as_ptr() as usize + window.len(), end);
}

#[test]
fn compressed_bodies_are_decompressed_among_others() {
    let long: Vec<u8> = (0..100_000u32).map(|n| (n / 7) as u8).collect();
    let records = [
        plain(b"a plain one that is long enough", 0),
        packed_record(&zlib(&long), 0, 1),
        packed_record(&lz4(&long), 1, 2),
        packed_record(&zstd::encode_all(&long[..], 1).unwrap(), 2, 3),
        packed_record(&zlib(b"short"), 3, 4),
        plain(b"tiny", 5),
    ];
    for body_type in BOTH {
        let (found, damaged) = run(messages(0, &records), body_type, 1 << 30);
        assert_eq!(damaged, 0);
        let expected: [&[u8]; 6] = [
            b"a plain one that is long enough",
            &long,
            &long,
            &long,
            b"short",
            b"tiny",
        ];
        assert_eq!(bodies(&found), expected);
        assert_eq!(longs(&found, "offset"), [0, 1, 2, 3, 4, 5]);
        // The decompressed length counts, not the stored one: each long body fills a batch.
        let (found, _) = run(messages(0, &records), body_type, 100_000);
        let rows: Vec<_> = found.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(rows, [1, 1, 1, 1, 2]);
        assert_eq!(bodies(&found), expected);
    }
}

#[test]
fn a_body_that_does_not_decompress_is_skipped_and_reported() {
    let records = [
        plain(b"before", 0),
        packed_record(b"this is not zlib", 0, 1),
        packed_record(b"no such kind", 6, 2),
        plain(b"behind", 3),
    ];
    for body_type in BOTH {
        let (found, damaged) = run(messages(0, &records), body_type, 1 << 20);
        assert_eq!(bodies(&found), [b"before", b"behind"]);
        assert_eq!(longs(&found, "offset"), [0, 3]);
        assert_eq!(damaged, 2);
        // A batch with only damaged rows is not returned, and the scan ends.
        let (found, damaged) = run(messages(0, &records[1..3]), body_type, 1 << 20);
        assert_eq!((found.len(), damaged), (0, 2));
    }
    let damage = DamageList::default();
    let shape = shape(&[Column::Body], BodyType::Binary);
    let source = Source::found(messages(0, &records));
    Stream::new(source, shape, Arc::clone(&damage)).for_each(drop);
    let first = damage.lock()[0].clone();
    assert_eq!(first.position, 1000);
    assert_eq!(first.length, records[1].len() as u64);
    assert_eq!(first.lost, [("T".to_owned(), 3, 1)]);
    assert!(first.reason.starts_with("body: "), "{}", first.reason);
}

#[test]
fn a_scan_without_bodies_ignores_damaged_ones() {
    let made = messages(0, &[packed_record(b"this is not zlib", 0, 1)]);
    let shape = shape(&[Column::Offset], BodyType::Binary);
    let found: Vec<_> = Stream::new(Source::found(made), shape, DamageList::default())
        .map(Result::unwrap)
        .collect();
    assert_eq!(longs(&found, "offset"), [1]);
}

#[test]
fn views_into_a_region_beyond_one_gigabyte_keep_offsets_of_31_bits() {
    const GIB: usize = 1 << 30;
    let region = Region::anonymous(GIB + (1 << 20), Path::new("large")).unwrap();
    // The second body crosses the border, the third begins after it.
    let starts = [0, GIB - 5000, GIB + 10_000];
    let sent: Vec<Vec<u8>> = (1..4).map(|n| vec![n; 9000]).collect();
    for (start, body) in starts.iter().zip(&sent) {
        region.write(*start, &plain(body, 0)).unwrap();
    }
    region.publish(region.len());
    let region = Arc::new(region);
    let message = |start| Message::new(Arc::clone(&region), start).unwrap().unwrap();
    let made = starts.map(message);
    let (found, _) = run(made.into(), BodyType::BinaryView, 1 << 20);
    assert_eq!(bodies(&found), sent);
    let column = found[0]["body"].as_binary_view();
    assert_eq!(column.data_buffers().len(), 2);
    assert!(
        column
            .data_buffers()
            .iter()
            .all(|buffer| buffer.len() < i32::MAX as usize)
    );
    assert_eq!(column.data_buffers()[1].len(), 9000);
}
