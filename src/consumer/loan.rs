//! Lends what a store owns to service threads without keeping the store open.

use crate::sync::{Condvar, Mutex};
use std::fmt;
use std::sync::{Arc, Weak};

/// Lends a value to threads that do not own it. The owner ends the loan before it releases the
/// value, so that no borrower is the last to release it.
pub struct Loan<T> {
    lent: Mutex<Lent<T>>,
    returned: Condvar,
}

struct Lent<T> {
    value: Weak<T>,
    borrowers: usize,
}

impl<T> Loan<T> {
    pub(super) fn new(value: Weak<T>) -> Loan<T> {
        let lent = Lent {
            value,
            borrowers: 0,
        };
        Loan {
            lent: Mutex::new(lent),
            returned: Condvar::default(),
        }
    }

    /// What `call` returns of the value; `None` once the loan has ended.
    pub(super) fn borrow<R>(&self, call: impl FnOnce(&Arc<T>) -> R) -> Option<R> {
        let mut lent = self.lent.lock();
        let value = lent.value.upgrade()?;
        lent.borrowers += 1;
        drop(lent);
        let borrowed = Borrowed {
            value: Some(value),
            loan: self,
        };
        borrowed.value.as_ref().map(call)
    }

    /// Ends the loan: waits until nobody uses the value any more. A borrower must not call it.
    pub(super) fn end(&self) {
        let mut lent = self.lent.lock();
        lent.value = Weak::new();
        while lent.borrowers > 0 {
            lent = self.returned.wait(lent);
        }
    }
}

impl<T> fmt::Debug for Loan<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Loan")
    }
}

struct Borrowed<'a, T> {
    value: Option<Arc<T>>,
    loan: &'a Loan<T>,
}

impl<T> Drop for Borrowed<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        self.loan.lent.lock().borrowers -= 1;
        self.loan.returned.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn the_owner_waits_for_borrowers_and_nobody_borrows_after_it() {
        let value = Arc::new(7);
        let loan = Arc::new(Loan::new(Arc::downgrade(&value)));
        let (is_inside, inside) = channel();
        let borrower = {
            let loan = Arc::clone(&loan);
            std::thread::spawn(move || {
                loan.borrow(|value| {
                    is_inside.send(()).unwrap();
                    // Waits until the loan has ended, while the value is in use.
                    while loan.borrow(|_| ()).is_some() {
                        std::thread::yield_now();
                    }
                    **value
                })
            })
        };
        inside.recv().unwrap();
        loan.end();
        assert_eq!(Arc::into_inner(value), Some(7));
        assert_eq!(borrower.join().unwrap(), Some(7));
        assert_eq!(loan.borrow(|_| ()), None);
    }
}
