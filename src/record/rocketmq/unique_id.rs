//! Unique ids as RocketMQ's clients make them: address, process id, a number for the process, time,
//! counter.

use crate::num::{low_u16, low_u32};
use crate::record::common::HostBytes;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

static COUNTER: AtomicU16 = AtomicU16::new(0);
/// The number of the process, in the lower half; 0 before it is drawn. It is an atomic, not a lock:
/// if a process forks while a thread holds a lock, the child would wait for that thread forever.
static PROCESS_HASH: AtomicU64 = AtomicU64::new(0);

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
    let hash = process_hash();
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

/// A random number; the same for all threads, whichever draws it first.
fn process_hash() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    let known = PROCESS_HASH.load(Ordering::Relaxed);
    if known != 0 {
        return low_u32(known);
    }
    let drawn = RandomState::new().hash_one(std::process::id()) | 1 << 32;
    let order = Ordering::Relaxed;
    match PROCESS_HASH.compare_exchange(0, drawn, order, order) {
        Ok(_) => low_u32(drawn),
        Err(first) => low_u32(first),
    }
}
