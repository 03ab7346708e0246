//! Unique ids as RocketMQ's clients make them: address, process id, a number for the process, time,
//! counter.

use crate::num::{low_u16, low_u32};
use crate::record::common::HostBytes;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

static COUNTER: AtomicU16 = AtomicU16::new(0);
static PROCESS_HASH: OnceLock<u32> = OnceLock::new();

/// Milliseconds in 31 days. The time field counts from the start of such a period.
const SPAN_MS: i64 = 31 * 24 * 3_600_000;

/// The next id: 32 (IPv4) or 56 (IPv6) upper-case hex digits. It is unique within the process and,
/// by address, process id and a random number of the process, among processes.
///
/// RocketMQ counts the time from the first of the local month, Forebay in periods of 31 days. No
/// reader can notice, because nothing decodes the field without knowing the month.
pub fn next(host: &HostBytes, now_ms: i64) -> String {
    let bytes = host.as_bytes();
    let ip = bytes.get(..bytes.len() - 4).unwrap_or_default();
    let hash = *PROCESS_HASH.get_or_init(|| {
        use std::hash::{BuildHasher, RandomState};
        low_u32(RandomState::new().hash_one(std::process::id()))
    });
    let mut id = String::with_capacity(2 * ip.len() + 24);
    for byte in ip {
        id.push_str(&format!("{byte:02X}"));
    }
    let pid = low_u16(std::process::id());
    let time = low_u32(now_ms.rem_euclid(SPAN_MS).cast_unsigned());
    let counter = COUNTER.fetch_add(1, Ordering::Relaxed);
    id.push_str(&format!("{pid:04X}{hash:08X}{time:08X}{counter:04X}"));
    id
}
