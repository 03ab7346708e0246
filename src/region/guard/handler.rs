//! The handler of SIGBUS, and its place in the chain of handlers.
//!
//! Other code may install a handler before ours or after it (Python's `faulthandler.enable()` does
//! either). Ours must see a fault first; otherwise the other handler would report a crash although
//! there is none. So [`renew`] checks from time to time which handler is first and puts ours before
//! a later one. Each time it installs another of our functions, a *level* with its own predecessor.
//! A handler that was installed between two levels calls the lower one when it is done, so the
//! chain has no cycle.

// Registers are as wide as addresses.
#![allow(clippy::cast_possible_truncation)]

use super::routines;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

/// How many times ours can be put before a later handler. After that it stays where it is.
const LEVELS: usize = 4;

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The handlers, level by level.
const HANDLERS: [Handler; LEVELS] = [handle::<0>, handle::<1>, handle::<2>, handle::<3>];

/// The handler to which a level passes signals that are not ours.
struct Predecessor {
    used: AtomicBool,
    action: AtomicUsize,
    flags: AtomicI32,
}

static PREDECESSORS: [Predecessor; LEVELS] = [const {
    Predecessor {
        used: AtomicBool::new(false),
        action: AtomicUsize::new(libc::SIG_DFL),
        flags: AtomicI32::new(0),
    }
}; LEVELS];

/// Whether the handler should be installed.
static WANTED: AtomicBool = AtomicBool::new(false);
/// The process in which a thread is installing a handler; 0 if none is. In a forked child it may be
/// the parent, whose thread does not exist there.
static INSTALLING: AtomicU32 = AtomicU32::new(0);

/// Installs the handler, once for the process.
pub fn install() {
    WANTED.store(true, Ordering::Release);
    renew();
}

/// Puts ours before a handler that was installed since the last call. Costs one system call if
/// nothing has changed, and nothing if no handler is wanted.
pub fn renew() {
    let (order, own) = (Ordering::Acquire, std::process::id());
    if !WANTED.load(order) || INSTALLING.swap(own, order) == own {
        return;
    }
    put_first();
    INSTALLING.store(0, Ordering::Release);
}

/// The current action for SIGBUS.
fn current() -> Option<libc::sigaction> {
    let mut found = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call writes the current one to `found`, or fails.
    match unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), found.as_mut_ptr()) } {
        // SAFETY: the call succeeded, so it has filled the structure.
        0 => Some(unsafe { found.assume_init() }),
        _ => None,
    }
}

fn put_first() {
    let Some(present) = current() else { return };
    let is_present = |handler: &Handler| *handler as usize == present.sa_sigaction;
    if HANDLERS.iter().any(is_present) {
        return;
    }
    // A level whose predecessor is this very handler, or else an unused one.
    let known = |level: &&Predecessor| {
        let used = level.used.load(Ordering::Relaxed);
        used && level.action.load(Ordering::Relaxed) == present.sa_sigaction
    };
    let free = |level: &&Predecessor| !level.used.load(Ordering::Relaxed);
    let levels = || PREDECESSORS.iter().zip(HANDLERS);
    let level = levels().find(|(level, _)| known(level));
    let Some((level, handler)) = level.or_else(|| levels().find(|(level, _)| free(level))) else {
        return;
    };
    // The predecessor is stored before the handler that reads it is installed.
    level.flags.store(present.sa_flags, Ordering::Relaxed);
    level.action.store(present.sa_sigaction, Ordering::Release);
    level.used.store(true, Ordering::Release);
    set(handler as usize, libc::SA_SIGINFO | libc::SA_ONSTACK);
}

fn set(action: usize, flags: c_int) {
    // SAFETY: the structure is plain integers, for which zero is valid: an empty mask.
    let mut wanted: libc::sigaction = unsafe { std::mem::zeroed() };
    wanted.sa_sigaction = action;
    wanted.sa_flags = flags;
    // SAFETY: the action is the default or one of `HANDLERS`, which live as long as the program and
    // call only async-signal-safe functions.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const wanted, std::ptr::null_mut()) };
}

extern "C" fn handle<const LEVEL: usize>(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: the kernel passes valid pointers to a handler with SA_SIGINFO, and so does a handler
    // that chains to ours.
    let code = unsafe { (*info).si_code };
    // A signal sent by a process is not a fault.
    if (libc::BUS_ADRALN..=libc::BUS_MCEERR_AR).contains(&code) {
        // SAFETY: the code says that the signal has an address.
        let address = unsafe { (*info).si_addr() } as usize;
        // SAFETY: the context is that of the interrupted thread, and only this handler uses it.
        if unsafe { leave_routine(context.cast(), address) } {
            return;
        }
    }
    if let Some(level) = PREDECESSORS.get(LEVEL) {
        pass_on(level, signal, info, context);
    }
}

/// Makes the interrupted thread leave the guarded routine that it is in, with the address that
/// faulted. Returns `false` if it is in none.
///
/// # Safety
///
/// `context` must be the one that the kernel has passed to the handler.
unsafe fn leave_routine(context: *mut libc::ucontext_t, address: usize) -> bool {
    // SAFETY: the caller's promise.
    let registers = unsafe { &mut (*context).uc_mcontext };
    let fault = address.max(1);
    #[cfg(target_arch = "x86_64")]
    {
        let [result, next] = [libc::REG_RAX, libc::REG_RIP].map(|register| register as usize);
        let at = registers.gregs.get(next).map_or(0, |at| *at as usize);
        if !routines::holds(at) {
            return false;
        }
        for (register, value) in [(result, fault), (next, routines::end())] {
            if let Some(register) = registers.gregs.get_mut(register) {
                *register = value as i64;
            }
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        if !routines::holds(registers.pc as usize) {
            return false;
        }
        registers.regs[0] = fault as u64;
        registers.pc = routines::end() as u64;
    }
    true
}

/// Handles a signal as if ours were not installed.
fn pass_on(level: &Predecessor, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let action = level.action.load(Ordering::Acquire);
    let flags = level.flags.load(Ordering::Relaxed);
    // SAFETY: see `handle`.
    let code = unsafe { (*info).si_code };
    let is_fault = (libc::BUS_ADRALN..=libc::BUS_MCEERR_AR).contains(&code);
    match action {
        libc::SIG_IGN if !is_fault => {}
        // A fault cannot be ignored. On return the instruction faults again and the core dump shows
        // it. A signal that was sent is sent again.
        libc::SIG_DFL | libc::SIG_IGN => {
            set(libc::SIG_DFL, 0);
            if !is_fault {
                // SAFETY: the signal stays pending until this handler returns.
                unsafe { libc::raise(signal) };
            }
        }
        _ if flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with this flag, the installed action is a function of this signature.
            let call = unsafe { std::mem::transmute::<usize, Handler>(action) };
            call(signal, info, context);
        }
        _ => {
            // SAFETY: without the flag, the installed action is a function of this signature.
            let call = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(action) };
            call(signal);
        }
    }
}
