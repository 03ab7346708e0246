//! Logs that Kafka 4.3.1 wrote are read to the messages that it lists: `tests/golden/kafka`.

use super::{Opened, Owned};
use crate::record::kafka::{HEAD_LEN, Header};
use flate2::read::GzDecoder;
use proptest::prelude::*;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

fn golden(file: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/golden/kafka").join(file)
}

/// The segments of a log, by name.
fn segments(log: &str) -> BTreeMap<String, Vec<u8>> {
    let packed = File::open(golden(&format!("{log}.tar.gz"))).unwrap();
    let mut archive = tar::Archive::new(GzDecoder::new(packed));
    let mut found = BTreeMap::new();
    for file in archive.entries().unwrap() {
        let mut file = file.unwrap();
        let name = file.path().unwrap().display().to_string();
        if name.ends_with(".log") {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            found.insert(name, bytes);
        }
    }
    found
}

/// The batches of a segment.
fn batches(mut segment: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while !segment.is_empty() {
        let header = Header::parse(&segment[..HEAD_LEN.min(segment.len())]).unwrap();
        let (batch, rest) = segment.split_at(header.len as usize);
        found.push(batch);
        segment = rest;
    }
    found
}

/// The messages of a log, and how many markers lie between them.
fn messages(log: &str) -> (Vec<Owned>, u64) {
    let (mut found, mut markers) = (Vec::new(), 0);
    for bytes in segments(log).values() {
        for bytes in batches(bytes) {
            let mut batch = Opened::open(bytes.to_vec(), true).unwrap();
            if batch.marker().unwrap().is_some() {
                markers += 1;
                continue;
            }
            let last = batch.header().last_offset();
            while let Some(entry) = batch.next().unwrap() {
                assert!(entry.offset <= last);
                found.push(entry.into());
            }
        }
    }
    (found, markers)
}

fn digest(messages: &[Owned]) -> String {
    let mut sum = Sha256::new();
    let part = |sum: &mut Sha256, part: Option<&Vec<u8>>| {
        sum.update(part.map_or(-1, |part| part.len() as i32).to_be_bytes());
        sum.update(part.map_or(&[][..], |part| part));
    };
    for message in messages {
        sum.update(message.offset.to_be_bytes());
        sum.update(message.timestamp.to_be_bytes());
        part(&mut sum, message.key.as_ref());
        part(&mut sum, message.value.as_ref());
        sum.update((message.headers.len() as i32).to_be_bytes());
        for (name, value) in &message.headers {
            part(&mut sum, Some(name));
            part(&mut sum, value.as_ref());
        }
    }
    let sum = sum.finalize();
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first messages of a log, as Kafka lists them.
fn listed(log: &str) -> Vec<Owned> {
    let packed = File::open(golden(&format!("{log}.first50.jsonl.gz"))).unwrap();
    let lines = BufReader::new(GzDecoder::new(packed)).lines();
    let bytes = |hex: &Value| {
        let hex = hex.as_str()?;
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        Some((0..hex.len()).step_by(2).map(byte).collect())
    };
    let message = |line: Value| Owned {
        offset: line["offset"].as_u64().unwrap(),
        timestamp: line["timestamp"].as_i64().unwrap(),
        key: bytes(&line["key"]),
        value: bytes(&line["value"]),
        headers: line["headers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|header| (bytes(&header[0]).unwrap(), bytes(&header[1])))
            .collect(),
    };
    lines
        .map(|line| message(serde_json::from_str(&line.unwrap()).unwrap()))
        .collect()
}

#[test]
fn each_golden_log_is_read_to_the_messages_that_kafka_lists() {
    let digests = std::fs::read_to_string(golden("digests.json")).unwrap();
    let digests: BTreeMap<String, Value> = serde_json::from_str(&digests).unwrap();
    assert_eq!(digests.len(), 13);
    let plain = messages("none-0").0;
    for (log, known) in &digests {
        let (found, markers) = messages(log);
        let listed = listed(log);
        assert_eq!(found[..listed.len()], listed, "{log}");
        assert_eq!(found.len() as u64, known["records"], "{log}");
        assert_eq!(markers, known["controlRecords"], "{log}");
        assert_eq!(found.last().unwrap().offset, known["lastOffset"], "{log}");
        match known.get("sha256") {
            Some(known) => assert_eq!(digest(&found), *known, "{log}"),
            None if !log.starts_with("v1") => {
                let same = found.len().min(plain.len());
                assert_eq!(found[..same], plain[..same], "{log}");
            }
            None => {}
        }
    }
}

#[test]
fn a_flipped_bit_is_noticed_unless_the_checksum_does_not_cover_it() {
    for log in ["zstd-0", "none-0", "v1gzip-0", "v0lz4-0"] {
        let segments = segments(log);
        let whole = batches(segments.values().next().unwrap())[1];
        for at in 0..whole.len() {
            let mut bytes = whole.to_vec();
            bytes[at] ^= 0x10;
            let found = super::read(&bytes, true);
            // The offset and the leader epoch, which the log assigns, are not covered.
            let is_open = at < 8 || (whole[16] == 2 && (12..16).contains(&at));
            assert!(is_open || found.is_err(), "byte {at} of {log}");
        }
        for len in 0..whole.len() {
            assert!(super::read(&whole[..len], false).is_err(), "{len} bytes");
        }
    }
}

proptest! {
    #![proptest_config(crate::seeds::proptest_cases(96))]

    #[test]
    fn damaged_batches_are_refused_or_read_but_never_a_panic(
        log in prop::sample::select(vec![
            "none-0", "gzip-0", "snappy-0", "lz4-0", "zstd-0", "v0-0", "v1gzip-0", "v0lz4-0",
        ]),
        changes in prop::collection::vec((0usize..4096, any::<u8>()), 1..6),
    ) {
        let segments = segments(log);
        let mut bytes = batches(segments.values().next().unwrap())[1].to_vec();
        for (at, byte) in changes {
            // Changes start after the length: with a wrong length nothing else would be read.
            let at = 16 + at % (bytes.len() - 16);
            bytes[at] = byte;
        }
        let _ = super::read(&bytes, false);
    }
}
