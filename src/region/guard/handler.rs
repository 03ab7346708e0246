//! The handler of SIGBUS, and its place in the chain of handlers.
//!
//! Another handler may be there before ours, or come after it (`faulthandler.enable()` of Python
//! does either). Ours has to see a fault first, or the other would report a crash that is none. So
//! [`renew`] asks now and then who is first, and goes before whoever came later. Each time it is
//! another of our functions, a *level* with a predecessor of its own: a handler that came between
//! two of them calls the lower one when it is done, and the chain has no cycle.

// Registers are as wide as addresses.
#![allow(clippy::cast_possible_truncation)]

use super::routines;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

/// How often ours goes before a handler that came later. Beyond that it stays where it is.
const LEVELS: usize = 4;

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The handlers, level by level.
const HANDLERS: [Handler; LEVELS] = [handle::<0>, handle::<1>, handle::<2>, handle::<3>];

/// Whom a level hands a signal to that is not ours.
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

/// Whether a handler is wanted.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Held by the thread that installs one.
static INSTALLING: AtomicBool = AtomicBool::new(false);

/// Installs the handler, once for the process.
pub fn install() {
    WANTED.store(true, Ordering::Release);
    renew();
}

/// Goes before a handler that was installed since the last call. A system call, and no more where
/// nothing has changed; nothing where no handler is wanted.
pub fn renew() {
    let order = Ordering::Acquire;
    if !WANTED.load(order) || INSTALLING.swap(true, order) {
        return;
    }
    go_first();
    INSTALLING.store(false, Ordering::Release);
}

/// What handles SIGBUS now.
fn current() -> Option<libc::sigaction> {
    let mut found = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call writes the present one to `found`, or fails.
    match unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), found.as_mut_ptr()) } {
        // SAFETY: the call succeeded, so it has filled the structure.
        0 => Some(unsafe { found.assume_init() }),
        _ => None,
    }
}

fn go_first() {
    let Some(present) = current() else { return };
    let is_present = |handler: &Handler| *handler as usize == present.sa_sigaction;
    if HANDLERS.iter().any(is_present) {
        return;
    }
    // A level that comes after this very handler already, or one that is free.
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
    // The predecessor is there before the handler that looks for it.
    level.flags.store(present.sa_flags, Ordering::Relaxed);
    level.action.store(present.sa_sigaction, Ordering::Release);
    level.used.store(true, Ordering::Release);
    set(handler as usize, libc::SA_SIGINFO | libc::SA_ONSTACK);
}

fn set(action: usize, flags: c_int) {
    // SAFETY: the structure is plain integers, for which zero is a value: an empty mask.
    let mut wanted: libc::sigaction = unsafe { std::mem::zeroed() };
    wanted.sa_sigaction = action;
    wanted.sa_flags = flags;
    // SAFETY: the action is one of `HANDLERS`, which live as long as the program and call only what
    // a signal handler may, or the default.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const wanted, std::ptr::null_mut()) };
}

extern "C" fn handle<const LEVEL: usize>(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: the kernel hands valid pointers to a handler with SA_SIGINFO, and so does a handler
    // that chains to ours.
    let code = unsafe { (*info).si_code };
    // A signal that somebody sent is no fault, wherever it arrives.
    if (libc::BUS_ADRALN..=libc::BUS_MCEERR_AR).contains(&code) {
        // SAFETY: the code says that the signal has an address.
        let address = unsafe { (*info).si_addr() } as usize;
        // SAFETY: the context is that of the interrupted thread, in this handler's hands alone.
        if unsafe { leave_routine(context.cast(), address) } {
            return;
        }
    }
    if let Some(level) = PREDECESSORS.get(LEVEL) {
        hand_on(level, signal, info, context);
    }
}

/// Has the interrupted thread leave the guarded routine that it is in with the address that
/// faulted; `false` where it is in none.
///
/// # Safety
///
/// `context` is what the kernel has given to the handler.
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

/// Does with a signal what would have been done without us.
fn hand_on(level: &Predecessor, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let action = level.action.load(Ordering::Acquire);
    let flags = level.flags.load(Ordering::Relaxed);
    // SAFETY: see `handle`.
    let code = unsafe { (*info).si_code };
    let is_fault = (libc::BUS_ADRALN..=libc::BUS_MCEERR_AR).contains(&code);
    match action {
        libc::SIG_IGN if !is_fault => {}
        // The kernel lets nobody ignore a fault. Back in the thread the instruction faults again,
        // and the core dump shows it; a signal that was sent is sent again.
        libc::SIG_DFL | libc::SIG_IGN => {
            set(libc::SIG_DFL, 0);
            if !is_fault {
                // SAFETY: the signal stays pending until this handler returns.
                unsafe { libc::raise(signal) };
            }
        }
        _ if flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: whoever installed the action gave a function of this signature with the flag.
            let call = unsafe { std::mem::transmute::<usize, Handler>(action) };
            call(signal, info, context);
        }
        _ => {
            // SAFETY: whoever installed the action gave a function of this signature without the
            // flag.
            let call = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(action) };
            call(signal);
        }
    }
}
