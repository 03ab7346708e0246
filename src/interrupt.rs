//! Interruption of waits by their caller.
//!
//! A wait for another process can be long, and deep below the call that led to it. The caller sets
//! a function beforehand, which asks the interpreter, for example, whether Ctrl-C was pressed.
//! Waits on the same thread call it now and then. The function may run any code, which may call the
//! store again, so a thread that holds a lock must not call it.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Time between two calls of the function in a wait.
pub const SLICE: Duration = Duration::from_millis(50);
// Ctrl-C is answered within 100 ms. `benches/python/interrupts.py` measures it.
const _: () = assert!(SLICE.as_millis() <= 50);

thread_local! {
    static ASKED: Cell<Option<Asked>> = const { Cell::new(None) };
}

/// The function that the waits of a thread call.
#[derive(Clone, Copy, Debug)]
struct Asked {
    is_raised: fn() -> bool,
    at: Instant,
    /// The last result. After an interrupt no further wait begins.
    was_raised: bool,
}

/// Runs `work`, whose waits on this thread end early with an error once `is_raised` returns true.
pub fn allow<T>(is_raised: fn() -> bool, work: impl FnOnce() -> T) -> T {
    let asked = Asked {
        is_raised,
        at: Instant::now(),
        was_raised: false,
    };
    asking(Some(asked), work)
}

/// Runs `work`, which holds a lock: its waits call no function.
pub fn forbid<T>(work: impl FnOnce() -> T) -> T {
    asking(None, work)
}

fn asking<T>(asked: Option<Asked>, work: impl FnOnce() -> T) -> T {
    /// Restores the previous function, even if `work` panics.
    struct Restore(Option<Asked>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ASKED.set(self.0);
        }
    }

    let _restore = Restore(ASKED.replace(asked));
    work()
}

/// Whether the waits of this thread must end. Calls the function, unless it was called within the
/// last [`SLICE`].
pub fn is_raised() -> bool {
    let Some(mut asked) = ASKED.get() else {
        return false;
    };
    if !asked.was_raised && asked.at.elapsed() >= SLICE {
        asked.was_raised = (asked.is_raised)();
        asked.at = Instant::now();
        ASKED.set(Some(asked));
    }
    asked.was_raised
}

/// Whether waits of this thread can be interrupted.
pub fn is_allowed() -> bool {
    ASKED.get().is_some()
}

#[cfg(test)]
mod test {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::thread;

    /// Calls [`is_raised`] until it is true.
    fn wait() {
        while !is_raised() {
            thread::yield_now();
        }
    }

    #[test]
    fn a_wait_ends_once_the_caller_says_so() {
        static RAISED: AtomicBool = AtomicBool::new(false);
        static ASKED: AtomicU32 = AtomicU32::new(0);
        fn ask() -> bool {
            // Returns true at the third call, and is not called again.
            RAISED.store(
                ASKED.fetch_add(1, Ordering::Relaxed) == 2,
                Ordering::Relaxed,
            );
            RAISED.load(Ordering::Relaxed)
        }
        assert!(!is_allowed());
        allow(ask, || {
            assert!(is_allowed());
            wait();
            assert!(is_raised());
        });
        assert_eq!(ASKED.load(Ordering::Relaxed), 3);
        assert!(!is_allowed());
        assert!(!is_raised());
    }

    #[test]
    fn who_holds_a_lock_asks_nobody() {
        allow(
            || true,
            || {
                forbid(|| {
                    assert!(!is_allowed() && !is_raised());
                });
                wait();
            },
        );
    }

    #[test]
    fn a_call_within_a_call_has_waits_of_its_own() {
        allow(
            || {
                // The function calls the store again.
                allow(|| true, wait);
                false
            },
            || {
                let began = Instant::now();
                while began.elapsed() < 2 * SLICE {
                    assert!(!is_raised());
                }
                thread::spawn(|| assert!(!is_allowed())).join().unwrap();
                assert!(is_allowed());
            },
        );
    }
}
