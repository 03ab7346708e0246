//! The limits of the machine for the bytes that the other benches move: the floor of their figures.
//!
//! Messages a second for faulting in reserved pages, both checksums and one copy; each of these
//! parts alone; and bytes a second for gathering bodies of 16 KiB.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench may panic"
)]

mod support;

use support::{Figure, Report, contest, limit, run_bytes};

const UNIT: &str = "messages/s";

fn main() {
    let mut report = Report::new("limits");
    let source = vec![0x5A; run_bytes() as usize];
    let mut gather = || {
        let (span, bytes) = limit::gather(&source, 16 << 10, (16 << 10) + 130);
        span.rates("memcpy, gathering 16 KiB", "bytes/s", bytes)
    };
    let mut small = || limits("100 B", 100);
    let mut large = || limits("1 KiB", 1024);
    contest(&mut report, &mut [&mut small, &mut large, &mut gather]);
}

fn limits(name: &str, body_len: usize) -> Vec<Figure> {
    let count = limit::count(body_len);
    let mut figures = limit::records(body_len).rates(&format!("{name}: limit"), UNIT, count);
    let (copy, checksums) = limit::parts(body_len);
    figures.extend(copy.rates(&format!("{name}: faults and copy"), UNIT, count));
    figures.extend(checksums.rates(&format!("{name}: both checksums"), UNIT, count));
    figures
}
