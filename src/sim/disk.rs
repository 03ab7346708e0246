//! A disk in memory that loses what was not synced.
//!
//! Each file has three images: the *cache*, which maps share and reads see; the bytes that the
//! kernel considers *clean*; and the contents of the *platter*. A sector is dirty where cache and
//! clean image differ. A sync copies the dirty sectors of its range to the platter and marks them
//! clean. A sync that fails also marks them clean, but stores only some. At any call some dirty
//! sectors may reach the platter by themselves. Names also exist twice: the current ones, and those
//! at the last sync of their directory.
//!
//! When the power fails, each dirty sector and each unsynced name survives at random; the same
//! happens when only the device disappears and comes back. When the process dies nothing is lost,
//! except sectors that are clean but not on the platter: the kernel may have dropped them.
//!
//! The calls of the disk are in `disk_calls.rs`; what syncs store and crashes leave is in
//! `disk_loss.rs`.

use super::faults::Faults;
use super::inode::Inode;
use super::locks::Locks;
use super::meanwhile::Meanwhile;
use super::names::{Name, Names, Node};
use super::random::Random;
use crate::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The machine with its disk.
#[derive(Debug)]
pub struct State {
    pub random: Random,
    /// What goes wrong.
    pub faults: Faults,
    pub inodes: Vec<Inode>,
    pub names: Names,
    pub synced_names: Names,
    /// Renames of directories that are not durable yet, in order.
    pub moved: Vec<(Name, Name)>,
    /// Renames of files.
    pub renamed: BTreeSet<usize>,
    /// Calls so far.
    pub calls: u64,
    pub maps: u64,
    pub tried: u64,
    /// The surviving image, once the machine has stopped.
    pub left: Option<Box<State>>,
    pub boot: u8,
    /// Number of the mount within a boot.
    pub mount: u64,
    /// Whether everything that the last process stored is present.
    pub kept: bool,
    /// Synced files, and the ends of the synced ranges.
    pub syncs: Vec<(PathBuf, usize)>,
    /// A directory that can be traversed but not read.
    pub unreadable: Option<Name>,
    /// How many of 100 unsynced changes of names survive.
    pub names_kept: u64,
}

/// The bytes of every file; `None` for a directory.
pub type Image = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// The same for the image that a stopped machine leaves.
pub type Left = BTreeMap<Name, Option<Vec<u8>>>;

/// The disk, as a process uses it.
pub struct SimDisk {
    /// The machine, which its processes share.
    pub state: Arc<Mutex<State>>,
    /// The locks of all processes.
    pub locks: Arc<Locks>,
    /// Number of the process.
    pub process: u64,
    /// What to do in the middle of calls.
    pub meanwhile: Meanwhile,
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimDisk")
    }
}

fn dead() -> io::Error {
    io::Error::other("the machine has stopped")
}

impl SimDisk {
    /// An empty disk.
    pub fn new(random: Random, faults: Faults) -> SimDisk {
        SimDisk::holding(State::of_image(Left::new(), random, faults, 1))
    }

    fn holding(state: State) -> SimDisk {
        SimDisk {
            state: Arc::new(Mutex::new(state)),
            locks: Arc::default(),
            process: 0,
            meanwhile: Meanwhile::default(),
        }
    }

    /// The disk, as another process of the machine uses it.
    pub fn beside(&self, process: u64) -> SimDisk {
        SimDisk {
            state: Arc::clone(&self.state),
            locks: Arc::clone(&self.locks),
            process,
            meanwhile: Meanwhile::default(),
        }
    }

    /// Releases the locks of the process, which has died.
    pub fn release_locks(&self) {
        self.locks.release_of(self.process);
    }

    /// Stops the machine here, unless it has stopped already, and restarts it. Returns the disk as
    /// the next process finds it, with other faults. Users of the old disk get errors.
    pub fn restart(&self, faults: Faults) -> SimDisk {
        // The action holds the engine, which holds this disk.
        self.meanwhile.forget();
        let mut state = self.state.lock();
        state.die();
        let Some(mut left) = state.left.replace(Box::new(State::empty(faults))) else {
            unreachable!("the machine has just stopped")
        };
        left.faults = faults;
        SimDisk::holding(*left)
    }

    /// Whether the machine has stopped.
    pub fn is_dead(&self) -> bool {
        self.state.lock().left.is_some()
    }

    /// Whether everything that the last process wrote is in the page cache.
    pub fn was_kept(&self) -> bool {
        self.state.lock().kept
    }

    /// The faults of the disk.
    pub fn faults(&self) -> Faults {
        self.state.lock().faults
    }

    /// Whether calls may fail before the machine stops.
    pub fn has_faults(&self) -> bool {
        let faults = self.faults();
        faults.failing_syncs > 0 || faults.full > 0 || faults.fail_calls()
    }

    /// Number of calls so far at which the machine could have stopped.
    pub fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// Changes bytes of a file, in the cache and on the platter.
    pub fn damage(&self, path: &Path, start: usize, bytes: &[u8]) {
        let mut state = self.state.lock();
        let number = state.file(path).unwrap();
        let inode = &mut state.inodes[number];
        inode.cache.overwrite(start, bytes);
        inode.sync(start, start + bytes.len());
    }

    /// Truncates a file that is not mapped, in the cache and on the platter.
    pub fn cut(&self, path: &Path, len: usize) {
        let mut state = self.state.lock();
        let number = state.file(path).unwrap();
        let bytes = state.inodes[number].cache.contents()[..len].to_vec();
        state.inodes[number] = Inode::holding(bytes);
    }

    /// Bytes of every file as processes see them.
    pub fn contents(&self) -> Image {
        self.state.lock().cached()
    }

    pub fn call<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        self.meanwhile.begin_call();
        let mut state = self.state.lock();
        state.tick()?;
        state.fails()?;
        act(&mut state)
    }

    pub fn peek<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        self.meanwhile.begin_call();
        let mut state = self.state.lock();
        if state.left.is_some() {
            return Err(dead());
        }
        state.fails()?;
        act(&mut state)
    }
}

impl State {
    /// A file that is open for reading.
    pub fn opened(&mut self, number: usize) -> io::Result<&Inode> {
        if self.left.is_some() {
            return Err(dead());
        }
        self.fails()?;
        Ok(&self.inodes[number])
    }

    pub fn tick(&mut self) -> io::Result<()> {
        if self.left.is_some() {
            return Err(dead());
        }
        self.calls += 1;
        if self.faults.dies_at == Some(self.calls) {
            self.die();
            return Err(dead());
        }
        if !self.inodes.is_empty() && self.faults.written_back > 0 {
            let number = self.random.below(self.inodes.len() as u64) as usize;
            let inode = &mut self.inodes[number];
            let dirty = inode.dirty(0, inode.len);
            for _ in 0..self.faults.written_back.min(dirty.len() as u64) {
                inode.write_back(self.random.pick(&dirty));
            }
        }
        Ok(())
    }

    pub fn fails(&mut self) -> io::Result<()> {
        self.tried += 1;
        let of_1000 = self.faults.failing_calls;
        let is_drawn = of_1000 > 0 && self.random.below(1000) < of_1000;
        self.refuse_if(is_drawn || self.faults.failing_call == Some(self.tried))
    }

    /// Fails a call without fault of the caller.
    fn refuse_if(&mut self, fails: bool) -> io::Result<()> {
        let numbers = [libc::EMFILE, libc::ENOMEM, libc::EIO];
        match fails {
            true => Err(io::Error::from_raw_os_error(self.random.pick(&numbers))),
            false => Ok(()),
        }
    }

    pub fn fails_to_map(&mut self) -> io::Result<()> {
        self.maps += 1;
        self.refuse_if(self.faults.failing_map == Some(self.maps))
    }

    pub fn has_room(&mut self) -> io::Result<()> {
        match self.random.below(1000) < self.faults.full {
            true => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            false => Ok(()),
        }
    }

    pub fn file(&self, path: &Path) -> io::Result<usize> {
        match self.names.get(&Name::of(path)) {
            Some(Node::File(number)) => Ok(*number),
            Some(Node::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub fn parent_is_there(&self, name: &Name) -> io::Result<()> {
        match name.parent().and_then(|parent| self.names.get(parent)) {
            Some(Node::Directory) => Ok(()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn cached(&self) -> Image {
        let bytes = |node: &Node| match node {
            Node::Directory => None,
            Node::File(number) => {
                let inode = &self.inodes[*number];
                Some(inode.cache.contents()[..inode.len].to_vec())
            }
        };
        let names = self.names.iter();
        names
            .map(|(name, node)| (name.path(), bytes(node)))
            .collect()
    }

    fn empty(faults: Faults) -> State {
        State::of_image(Left::new(), Random::new(0), faults, 0)
    }

    /// A disk whose platter holds an image, at the `boot`th boot of the machine.
    pub fn of_image(image: Left, random: Random, faults: Faults, boot: u8) -> State {
        let mut inodes = Vec::new();
        let mut names = Names::new();
        names.insert(Name::of(Path::new("/")), Node::Directory);
        for (name, contents) in image {
            let node = match contents {
                None => Node::Directory,
                Some(bytes) => {
                    inodes.push(Inode::holding(bytes));
                    Node::File(inodes.len() - 1)
                }
            };
            names.insert(name, node);
        }
        State {
            random,
            faults,
            inodes,
            synced_names: names.clone(),
            names,
            moved: Vec::new(),
            renamed: BTreeSet::new(),
            calls: 0,
            maps: 0,
            tried: 0,
            left: None,
            boot,
            mount: 1,
            kept: false,
            syncs: Vec::new(),
            unreadable: None,
            names_kept: 50,
        }
    }
}

/// Another handle of a disk that an engine also uses.
pub fn shared(disk: &Arc<SimDisk>) -> Arc<dyn crate::disk::Disk> {
    Arc::clone(disk) as Arc<dyn crate::disk::Disk>
}
