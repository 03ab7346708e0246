//! Compares records with worked examples from RocketMQ's brokers, and tests arbitrary input.

mod compressed;
mod fuzz;
mod kafka;
mod vectors;

use super::rocketmq::Batch;
use super::{Draft, HostBytes, RecordStyle};
use crate::record::Message;
use crate::region::Region;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Decodes hex digits. All other characters are ignored.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits.chunks_exact(2).map(|d| d[0] << 4 | d[1]).collect()
}

fn style(host: &str, checksum: bool) -> RecordStyle {
    let host: SocketAddr = host.parse().unwrap();
    RecordStyle {
        host: HostBytes::new(host),
        checksum,
        max_message_size: 4 << 20,
    }
}

/// One record, encoded and sealed.
fn seal(
    topic: &str,
    queue: u32,
    draft: &Draft<'_>,
    style: &RecordStyle,
    place: (u64, u64, i64),
) -> Vec<u8> {
    let mut batch = Batch::new(*style);
    batch.push(topic, queue, draft, 0).unwrap();
    let row = batch.rows()[0];
    let (queue_offset, position, store_timestamp) = place;
    batch
        .seal(row, queue_offset, position, store_timestamp)
        .to_vec()
}

/// A region that holds `bytes` from its start.
fn region(bytes: &[u8]) -> Arc<Region> {
    let region = Region::anonymous(bytes.len(), Path::new("test")).unwrap();
    region.write(0, bytes).unwrap();
    region.publish(bytes.len());
    Arc::new(region)
}

fn message(bytes: &[u8]) -> Message {
    Message::new(region(bytes), 0).unwrap().unwrap()
}

/// CRC-32 bit by bit, as in the specification, so that an error in a library is not repeated here.
fn plain_crc(bytes: &[u8]) -> u32 {
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
        })
    });
    !crc & 0x7FFF_FFFF
}
