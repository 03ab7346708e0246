//! Whether the caller of a wait still wants it.
//!
//! A wait for another process can be long, deep below the call that led to it. The caller says
//! beforehand whom to ask now and then, such as the interpreter whether Ctrl-C was pressed, and a
//! wait on the same thread asks. What is asked may run any code, which may call the store again.
//! So a thread that holds a lock must not ask.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How often a wait asks.
pub const SLICE: Duration = Duration::from_millis(50);

thread_local! {
    static ASKED: Cell<Option<Asked>> = const { Cell::new(None) };
}

/// Whom the waits of a thread ask.
#[derive(Clone, Copy, Debug)]
struct Asked {
    is_raised: fn() -> bool,
    at: Instant,
    /// What the last answer was. After an interrupt nothing waits any more.
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

/// Runs `work`, which holds a lock: its waits ask nobody.
pub fn forbid<T>(work: impl FnOnce() -> T) -> T {
    asking(None, work)
}

fn asking<T>(asked: Option<Asked>, work: impl FnOnce() -> T) -> T {
    /// Puts back what was there before, even if `work` panics.
    struct Restore(Option<Asked>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ASKED.set(self.0);
        }
    }

    let _restore = Restore(ASKED.replace(asked));
    work()
}

/// Whether the waits of this thread are to end. Asks if that was a while ago.
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

    /// Asks until the answer is yes.
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
            // Says yes the third time, and is not asked again.
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
                // What is asked calls the store again.
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
