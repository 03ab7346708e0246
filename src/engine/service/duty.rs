//! Who dispatches in the process that leads a shared store, and whom a sender wakes for it.
//!
//! A thread dispatches. It sleeps on the word of work, and then wakes the readers: two threads have
//! to be woken, one after the other, for each message. So a reader of the same process goes on duty
//! while it waits: it sleeps on a word of its own, a sender wakes it instead of the thread, and it
//! dispatches itself.
//!
//! ```text
//!   sender:  publish --> readers on duty? wake them : thread asleep? wake it
//!   thread:  load the word of work --> show that it sleeps --> sleep, unless there is work
//!   reader:  load the word of duty --> go on duty --> sleep, unless there is work or news
//!            --> go off duty --> dispatch if there is work
//! ```
//!
//! While messages come fast, a reader on duty polls before it sleeps ([`Polling`]).
//!
//! A sender that saw the reader on duty has woken nobody else. So the reader checks for work once
//! more after it has gone off duty, whatever it was woken for.
//!
//! [`Polling`]: super::polling::Polling

use crate::plant::{Bug, planted};
use crate::sync::{Ordering, fence};
use std::time::Duration;

/// The words through which the processes of a shared store wake one another.
pub trait Desk {
    /// Whether there is something to dispatch.
    fn is_due(&self) -> bool;

    /// The word of work, acquiring.
    fn load_work(&self) -> u32;

    /// Changes the word of work, releasing, and wakes the thread that sleeps on it.
    fn notify_work(&self);

    /// Sleeps until the word of work is notified, at most for `timeout`. Returns at once if it is
    /// not `seen`, and may return early.
    fn sleep_on_work(&self, seen: u32, timeout: Duration);

    /// Whether the thread sleeps, or is about to.
    fn sleeps(&self) -> bool;

    /// Shows whether the thread sleeps.
    fn set_sleeps(&self, sleeps: bool);

    /// The word of duty, acquiring.
    fn load_duty(&self) -> u32;

    /// Changes the word of duty, releasing, and wakes the readers that sleep on it. Returns how
    /// many there were.
    fn notify_duty(&self) -> usize;

    /// As [`Desk::sleep_on_work`], for the word of duty.
    fn sleep_on_duty(&self, seen: u32, timeout: Duration);

    /// Number of readers on duty.
    fn on_duty(&self) -> u32;
}

/// A process that leads.
pub trait Lead {
    /// What the processes tell one another.
    type Desk: Desk;

    /// What the processes tell one another.
    fn desk(&self) -> &Self::Desk;

    /// Adds one to the readers on duty. Returns false if the process does not lead any more.
    fn begin_duty(&self) -> bool;

    /// Subtracts one from the readers on duty, unless the process has ceased to lead.
    fn end_duty(&self);

    /// Checks whether the wait `is_over`, once or repeatedly for a short time, before a sleep of at
    /// most `timeout`. Returns the result of the last check.
    fn poll(&self, timeout: Duration, is_over: &dyn Fn() -> bool) -> bool;

    /// Dispatches something. Returns false if that fails: the thread has to deal with it.
    fn dispatch(&self) -> bool;
}

/// Wakes a thread to dispatch what the caller has published.
#[inline]
pub fn call(desk: &impl Desk) {
    // A thread shows that it sleeps before it checks for work.
    fence(Ordering::SeqCst);
    if desk.on_duty() > 0 {
        desk.notify_duty();
    } else if desk.sleeps() {
        desk.notify_work();
    }
}

/// Wakes the readers on duty for news other than work. The caller must first store the news.
/// Returns how many readers there were.
#[inline]
pub fn tell(desk: &impl Desk) -> usize {
    fence(Ordering::SeqCst);
    match desk.on_duty() {
        0 => 0,
        _ => desk.notify_duty(),
    }
}

/// For the thread that dispatches: sleeps until there is work, at most for `timeout`, and perhaps
/// less. Returns at once if `ready` holds. Returns whether a sender has called meanwhile.
pub fn sleep(desk: &impl Desk, timeout: Duration, ready: impl Fn() -> bool) -> bool {
    let seen = desk.load_work();
    desk.set_sleeps(true);
    // A sender publishes before it checks whether the thread sleeps.
    fence(Ordering::SeqCst);
    if !ready() {
        desk.sleep_on_work(seen, timeout);
    }
    desk.set_sleeps(false);
    desk.load_work() != seen
}

/// Sleeps until there is work or news, at most for `timeout`, and perhaps less, and dispatches what
/// there is. Returns at once if `ready` holds. Returns false if the process does not lead, or
/// cannot dispatch.
pub fn serve(lead: &impl Lead, timeout: Duration, ready: impl Fn() -> bool) -> bool {
    let desk = lead.desk();
    let seen = desk.load_duty();
    if !lead.begin_duty() {
        return false;
    }
    fence(Ordering::SeqCst);
    if !lead.poll(timeout, &|| ready() || desk.is_due()) {
        desk.sleep_on_duty(seen, timeout);
    }
    lead.end_duty();
    if planted(Bug::LeaveBlindly) {
        return true;
    }
    // A sender publishes before it reads who is on duty.
    fence(Ordering::SeqCst);
    if !desk.is_due() || lead.dispatch() {
        return true;
    }
    desk.notify_work();
    false
}
