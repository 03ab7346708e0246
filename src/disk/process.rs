//! Facts that a process gets from the system: the time, its forks, its address.

// The casts convert small constants between the widths that the C structures use.
#![allow(
    unsafe_code,
    clippy::cast_possible_truncation,
    clippy::unnecessary_cast
)]

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

/// Milliseconds since the epoch by the wall clock at its last tick, 1 to 10 ms ago: a third of the
/// cost of the exact time.
#[inline]
pub fn coarse_ms() -> i64 {
    #[cfg(target_os = "linux")]
    if let Some(time) = read_clock(libc::CLOCK_REALTIME_COARSE) {
        return time.tv_sec as i64 * 1000 + time.tv_nsec as i64 / 1_000_000;
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

/// Nanoseconds since the epoch by the wall clock; 0 for a time before it. Each send reads it, so it
/// is read without the conversions of [`SystemTime`](std::time::SystemTime).
#[inline]
pub fn now_ns() -> u64 {
    #[cfg(target_os = "linux")]
    if let Some(time) = read_clock(libc::CLOCK_REALTIME) {
        let nanos = (time.tv_sec as i64).saturating_mul(1_000_000_000);
        return u64::try_from(nanos.saturating_add(time.tv_nsec as i64)).unwrap_or_default();
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(unix)]
#[inline]
fn read_clock(id: libc::clockid_t) -> Option<libc::timespec> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes to `time` alone, which outlives it.
    (unsafe { libc::clock_gettime(id, &raw mut time) } == 0).then_some(time)
}

/// Milliseconds by a clock that nobody sets; only differences mean anything. It may stand still
/// while the machine sleeps.
#[inline]
pub fn steady_ms() -> i64 {
    #[cfg(unix)]
    if let Some(time) = read_clock(libc::CLOCK_MONOTONIC) {
        return time.tv_sec as i64 * 1000 + time.tv_nsec as i64 / 1_000_000;
    }
    coarse_ms()
}

/// How long processors have worked for this thread; `None` where the system does not say.
pub fn thread_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    {
        let time = read_clock(libc::CLOCK_THREAD_CPUTIME_ID)?;
        let seconds = u64::try_from(time.tv_sec).ok()?;
        Some(Duration::new(seconds, time.tv_nsec as u32))
    }
    #[cfg(not(target_os = "linux"))]
    None
}

static GENERATION: AtomicU32 = AtomicU32::new(0);
const NO_DESCRIPTOR: i32 = -1;
static LOCKS: [AtomicI32; 1024] = [const { AtomicI32::new(NO_DESCRIPTOR) }; 1024];

/// A number that grows with each fork between the first process and this one, as a rule by 1. A
/// handle that remembers the number at its creation can tell whether it was inherited.
#[inline]
pub fn fork_generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

#[cfg(unix)]
extern "C" fn after_fork_in_child() {
    // Only async-signal-safe operations: atomics and close.
    GENERATION.fetch_add(1, Ordering::Relaxed);
    for lock in &LOCKS {
        let descriptor = lock.swap(NO_DESCRIPTOR, Ordering::Relaxed);
        if descriptor != NO_DESCRIPTOR {
            // SAFETY: the descriptor was inherited from the parent, where a `FileLock` owns it; the
            // child's copy of that owner never closes it, see `FileLock::drop`.
            unsafe { libc::close(descriptor) };
        }
    }
}

/// Makes [`fork_generation`] count. Every store calls it before it opens anything.
///
/// Threads that call it at the same time may each register the handler, which then counts a fork
/// more than once. A lock would be worse: if the process forks meanwhile, a thread that does not
/// exist in the child would hold it, and the child would wait forever.
pub fn watch_forks() {
    #[cfg(unix)]
    {
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        if !REGISTERED.load(Ordering::Acquire) {
            // SAFETY: the handler is a function of this program that lives as long as it.
            unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
            REGISTERED.store(true, Ordering::Release);
        }
    }
}

/// Records the descriptor of a lock for a forked child to close: the child's copy would keep the
/// lock after the parent releases it. Returns `false` if the table is full.
pub fn watch_descriptor(descriptor: i32) -> bool {
    LOCKS.iter().any(|slot| {
        let order = Ordering::Relaxed;
        slot.compare_exchange(NO_DESCRIPTOR, descriptor, order, order)
            .is_ok()
    })
}

/// Removes a descriptor that is about to be closed.
pub fn forget_descriptor(descriptor: i32) {
    let order = Ordering::Relaxed;
    let _ = LOCKS.iter().any(|slot| {
        slot.compare_exchange(descriptor, NO_DESCRIPTOR, order, order)
            .is_ok()
    });
}

/// An address at which others may reach this host; loopback if there is none.
pub fn host_address() -> IpAddr {
    #[cfg(unix)]
    if let Some(found) = interface_addresses()
        .into_iter()
        .find(|ip| !ip.is_loopback())
    {
        return found;
    }
    IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)
}

/// The IPv4 addresses of all interfaces.
#[cfg(unix)]
fn interface_addresses() -> Vec<IpAddr> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call fills `list` or fails.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: `next` is null or an element of the list, which lives until it is freed below.
    while let Some(interface) = unsafe { next.as_ref() } {
        // SAFETY: the address is null or points to a socket address of some family.
        let family = unsafe { interface.ifa_addr.as_ref() }.map(|address| address.sa_family);
        if family == Some(libc::AF_INET as libc::sa_family_t) {
            // SAFETY: the family says that the address is one of IPv4.
            let address = unsafe { &*interface.ifa_addr.cast::<libc::sockaddr_in>() };
            let bits = u32::from_be(address.sin_addr.s_addr);
            found.push(IpAddr::V4(std::net::Ipv4Addr::from_bits(bits)));
        }
        next = interface.ifa_next;
    }
    // SAFETY: the list came from `getifaddrs` and nothing refers to it after this.
    unsafe { libc::freeifaddrs(list) };
    found
}
