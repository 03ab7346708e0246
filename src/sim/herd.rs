//! The processes of a machine that share a log, and their actions. [`Shared`] is the interface of
//! the stories to the log.

use super::disk::SimDisk;
use super::frame::{Breach, Enlisted, Sent, Stepped, append};
use super::locks::{Dead, Halt, live_or_die};
use crate::engine::{Atomicity, Engine};
use crate::error::Result as Done;
use crate::machine::Machine;
use crate::plant::{self, Point};
use crate::record::Batch;
use std::sync::Arc;

/// Opens a log in a process.
pub type Opener<E> = Box<dyn FnOnce(&Machine) -> Done<E> + Send>;

/// A log that processes share, and what was sent to it.
pub trait Shared: Stepped + 'static {
    /// The log of a seed.
    fn shared(seed: u64) -> Self;

    /// How a process opens it.
    fn opener(&self) -> Opener<Self::Engine>;

    /// Encodes messages, all of one topic.
    fn encode(
        &mut self,
        rows: u64,
        engine: &Self::Engine,
        atomicity: Atomicity,
    ) -> (Batch, Vec<Sent>);

    /// Adds messages that are in the log.
    fn take(&mut self, sent: Vec<Sent>, atomicity: Atomicity) -> Result<(), Breach>;

    /// Adds messages of a process that died before it could report their places.
    fn doubt(&mut self, sent: Vec<Sent>, atomicity: Atomicity);

    /// Forgets messages of a dead process that this one does not find in the log.
    fn find_out(&mut self, engine: &Self::Engine, disk: &SimDisk) -> Result<(), Breach>;

    /// Notes that messages appended up to `durable` outlive every crash.
    fn acknowledge(&mut self, durable: u64);

    /// Syncs what all processes have published, if the process runs the services or may. Returns
    /// whether it does.
    fn flush(engine: &Self::Engine) -> Done<bool>;

    /// The same for a full pass.
    fn pass(engine: &Self::Engine) -> Done<()>;

    /// Ends the file in use.
    fn roll(engine: &Self::Engine) -> Done<()>;

    /// Removes what a process that died inside an append has left.
    fn mend(engine: &Self::Engine) -> Done<()>;
}

/// A process.
pub struct Member<E> {
    pub disk: Arc<SimDisk>,
    pub engine: Arc<E>,
}

/// The processes of a machine. The threads of the dead ones end after it has stopped.
pub struct Herd<E> {
    pub living: Vec<Member<E>>,
    pub dead: Vec<Dead>,
}

/// An action of a process that may die meanwhile.
pub enum Deed {
    Send(Batch, Vec<Sent>, Atomicity),
    Flush,
    Pass,
    Roll,
    Leave,
    Mend,
}

/// Where a process dies.
#[derive(Clone, Copy)]
pub enum End {
    At(Point),
    /// After this many calls of its disk.
    After(u64),
}

impl<E> Clone for Member<E> {
    fn clone(&self) -> Member<E> {
        Member {
            disk: Arc::clone(&self.disk),
            engine: Arc::clone(&self.engine),
        }
    }
}

impl<E> Herd<E> {
    pub fn new() -> Herd<E> {
        Herd {
            living: Vec::new(),
            dead: Vec::new(),
        }
    }

    /// Calls `act` in a process that dies during the call or after it. Returns the result of `act`;
    /// `None` if the process died before.
    pub fn dies<T: Send + 'static>(
        &mut self,
        disk: &Arc<SimDisk>,
        end: End,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>, Breach> {
        let own = Arc::clone(disk);
        let (done, dead) = live_or_die(move |halt: Halt| {
            match end {
                End::At(point) => plant::at(point, || halt.here()),
                End::After(calls) => {
                    let mut halt = Some(halt);
                    let act = move || halt.take().into_iter().for_each(Halt::here);
                    own.meanwhile.after_calls(calls, Box::new(act));
                }
            }
            let done = act();
            // The call is over, so the process no longer dies in the middle of it.
            own.meanwhile.forget();
            plant::nowhere();
            done
        })?;
        self.dead.push(dead);
        disk.release_locks();
        Ok(done)
    }
}

impl Deed {
    /// Performs the action. Returns the messages that may be in the log.
    pub fn run<L: Shared>(self, member: &Member<L::Engine>) -> Done<Option<Enlisted>> {
        let Member { disk, engine } = member;
        match self {
            Deed::Send(mut batch, sent, atomicity) => {
                let sent = append(&**engine, disk, &mut batch, sent, atomicity, false);
                return Ok(Some(sent));
            }
            Deed::Flush => drop(L::flush(engine)?),
            Deed::Pass => L::pass(engine)?,
            Deed::Roll if L::flush(engine)? => L::roll(engine)?,
            Deed::Leave if L::flush(engine)? => engine.close()?,
            Deed::Mend => L::mend(engine)?,
            Deed::Roll | Deed::Leave => {}
        }
        Ok(None)
    }

    /// The messages that it sends.
    pub fn sent(&self) -> (Vec<Sent>, Atomicity) {
        match self {
            Deed::Send(_, sent, atomicity) => (sent.clone(), *atomicity),
            _ => (Vec::new(), Atomicity::Rows),
        }
    }
}

/// Checks that a call failed only because the machine has stopped; its result is then `None`.
pub fn unless_dead<T>(disk: &SimDisk, done: Done<T>, what: &str) -> Result<Option<T>, Breach> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(_) if disk.is_dead() => Ok(None),
        Err(error) => Err(format!("{what} failed: {error}")),
    }
}
