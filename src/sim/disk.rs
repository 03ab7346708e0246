//! A disk in memory that loses what was not synced.
//!
//! Each file has three images: the *cache*, which maps share and reads see; the bytes that the
//! kernel considers *clean*; and the contents of the *platter*. A sector is dirty where cache and
//! clean image differ. A sync copies the dirty sectors of its range to the platter and marks them
//! clean. A sync that fails also marks them clean, but stores only some. At any call some dirty
//! sectors may reach the platter by themselves. Names are kept twice as well: the current ones, and
//! those at the last sync of their directory.
//!
//! When the power fails, each dirty sector and each unsynced name survives at random; the same
//! happens when only the device disappears and comes back. When the process dies nothing is lost,
//! except sectors that are clean but not on the platter: the kernel may have dropped them.

use super::faults::{CALLS_AFTER_LIE, Faults, Stop};
use super::inode::{Inode, survivor};
use super::locks::Locks;
use super::meanwhile::Meanwhile;
use super::names::{Name, Names, Node, below, move_names};
use super::random::Random;
use super::sites;
use crate::disk::{
    ByteLocks, Entry, FileLock, FileSystem, Holder, Identity, Kind, LockState, OpenFile, ReadAt,
    Synced, Volume,
};
use crate::region::{Access, Region};
use crate::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The machine with its disk.
#[derive(Debug)]
pub struct State {
    random: Random,
    /// What goes wrong.
    pub faults: Faults,
    inodes: Vec<Inode>,
    names: Names,
    synced_names: Names,
    /// Renames of directories that are not durable yet, in order.
    moved: Vec<(Name, Name)>,
    /// Renames of files.
    renamed: BTreeSet<usize>,
    /// Calls so far.
    pub calls: u64,
    pub maps: u64,
    pub tried: u64,
    /// The surviving image, once the machine has stopped.
    left: Option<Box<State>>,
    boot: u8,
    /// Number of the mount within a boot.
    mount: u64,
    /// Whether everything that the last process stored is present.
    kept: bool,
    /// Synced files, and the ends of the synced ranges.
    pub syncs: Vec<(PathBuf, usize)>,
    /// A directory that can be traversed but not read.
    pub unreadable: Option<Name>,
    /// How many of 100 changes of names survive that no sync has made durable.
    pub names_kept: u64,
}

/// The bytes of every file; `None` for a directory.
pub type Image = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// The same of what a machine that stops leaves.
type Left = BTreeMap<Name, Option<Vec<u8>>>;

/// The disk, as a process uses it.
pub struct SimDisk {
    /// The machine, which its processes share.
    pub state: Arc<Mutex<State>>,
    /// The locks of all processes.
    locks: Arc<Locks>,
    /// Number of the process.
    process: u64,
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

    fn call<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        self.meanwhile.begin_call();
        let mut state = self.state.lock();
        state.tick()?;
        state.fails()?;
        act(&mut state)
    }

    fn peek<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
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
    fn opened(&mut self, number: usize) -> io::Result<&Inode> {
        if self.left.is_some() {
            return Err(dead());
        }
        self.fails()?;
        Ok(&self.inodes[number])
    }

    fn tick(&mut self) -> io::Result<()> {
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

    fn fails(&mut self) -> io::Result<()> {
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

    fn fails_to_map(&mut self) -> io::Result<()> {
        self.maps += 1;
        self.refuse_if(self.faults.failing_map == Some(self.maps))
    }

    fn has_room(&mut self) -> io::Result<()> {
        match self.random.below(1000) < self.faults.full {
            true => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            false => Ok(()),
        }
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        match self.names.get(&Name::of(path)) {
            Some(Node::File(number)) => Ok(*number),
            Some(Node::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn parent_is_there(&self, name: &Name) -> io::Result<()> {
        match name.parent().and_then(|parent| self.names.get(parent)) {
            Some(Node::Directory) => Ok(()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Syncs a range of a file, or fails to.
    fn sync(&mut self, number: usize, start: usize, end: usize) -> io::Result<()> {
        let fails = self.random.below(1000) < self.faults.failing_syncs;
        let inode = &mut self.inodes[number];
        if !fails {
            inode.sync(start, end);
            return Ok(());
        }
        for at in inode.dirty(start, end) {
            match self.random.chance(50) {
                true => inode.write_back(at),
                false => inode.forget(at),
            }
        }
        Err(io::Error::from_raw_os_error(libc::EIO))
    }

    fn sync_range(&mut self, region: &Region, start: usize, len: usize) -> io::Result<()> {
        let same = |inode: &Inode| inode.cache.address() == region.address();
        let Some(number) = self.inodes.iter().position(same) else {
            return Ok(());
        };
        let path = region.path().to_path_buf();
        self.syncs.push((path, start + len));
        self.sync(number, start, start + len)
    }

    /// Syncs everything.
    pub fn sync_all(&mut self) -> io::Result<()> {
        for number in 0..self.inodes.len() {
            let len = self.inodes[number].len;
            self.sync(number, 0, len)?;
        }
        self.synced_names = self.names.clone();
        self.moved.clear();
        Ok(())
    }

    fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        let directory = Name::of(path);
        if self.unreadable.as_ref() == Some(&directory) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if self.random.below(1000) < self.faults.failing_syncs {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        // The renames reach the journal of the file system in order.
        let last = self
            .moved
            .iter()
            .rposition(|(from, to)| from.is_in(&directory) || to.is_in(&directory));
        for (from, to) in self.moved.drain(..last.map_or(0, |last| last + 1)) {
            move_names(&mut self.synced_names, &from, &to);
        }
        self.synced_names.retain(|name, _| !name.is_in(&directory));
        let now = below(&self.names, &directory).filter(|(name, _)| name.is_in(&directory));
        self.synced_names
            .extend(now.map(|(name, node)| (name.clone(), *node)));
        Ok(())
    }

    /// Makes the power fail within a few calls, before a later sync can make up for the omission.
    fn end_soon(&mut self) {
        let most = self.random.pick(&CALLS_AFTER_LIE);
        let end = self.calls + 1 + self.random.below(most);
        self.faults.stop = Stop::Power;
        self.faults.dies_at = Some(self.faults.dies_at.map_or(end, |at| at.min(end)));
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
    fn of_image(image: Left, random: Random, faults: Faults, boot: u8) -> State {
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

    /// Stops the machine and keeps the surviving image of its disk.
    fn die(&mut self) {
        if self.left.is_some() {
            return;
        }
        let mut random = Random::new(self.random.next());
        let left = match self.faults.stop {
            Stop::Power => State::of_image(self.survivors(), random, self.faults, self.boot + 1),
            Stop::Device => State {
                mount: self.mount + 1,
                ..State::of_image(self.survivors(), random, self.faults, self.boot)
            },
            Stop::Process | Stop::Moved => {
                let mut inodes: Vec<_> = self.inodes.iter().map(Inode::apart).collect();
                let mut kept = true;
                if random.chance(50) {
                    for inode in &mut inodes {
                        kept &= !inode.evict(&mut random);
                    }
                }
                State {
                    random,
                    inodes,
                    names: self.names.clone(),
                    synced_names: self.synced_names.clone(),
                    moved: self.moved.clone(),
                    renamed: self.renamed.clone(),
                    mount: self.mount + u64::from(self.faults.stop == Stop::Moved),
                    kept,
                    ..State::of_image(Left::new(), Random::new(0), self.faults, self.boot)
                }
            }
        };
        self.left = Some(Box::new(left));
    }

    fn survivors(&mut self) -> Left {
        // The share of dirty sectors that survives differs from crash to crash, from none to all.
        let kept = self.random.pick(&[0, 10, 50, 90, 100]);
        let durable = self.random.below(self.moved.len() as u64 + 1) as usize;
        for (from, to) in self.moved.drain(durable..).rev() {
            move_names(&mut self.names, &to, &from);
        }
        for (from, to) in self.moved.drain(..) {
            move_names(&mut self.synced_names, &from, &to);
        }
        let mut names: BTreeSet<&Name> = self.names.keys().collect();
        names.extend(self.synced_names.keys());
        let mut image = Left::new();
        let mut renames = BTreeMap::new();
        for name in names {
            let (now, synced) = (self.names.get(name), self.synced_names.get(name));
            let mut random = || self.random.chance(self.names_kept);
            let survives = match now.or(synced) {
                // A renamed file has its old name or its new one.
                Some(Node::File(number)) if self.renamed.contains(number) => {
                    *renames.entry(*number).or_insert_with(random)
                }
                _ => random(),
            };
            let node = if now == synced || survives {
                now
            } else {
                synced
            };
            let Some(node) = node else { continue };
            if name
                .parent()
                .is_some_and(|parent| !image.contains_key(parent))
            {
                continue;
            }
            let contents = match node {
                Node::Directory => None,
                Node::File(number) => Some(survivor(&self.inodes[*number], kept, &mut self.random)),
            };
            image.insert(name.clone(), contents);
        }
        image
    }
}

impl FileSystem for SimDisk {
    fn volume(&self, path: &Path) -> io::Result<Option<Volume>> {
        Ok(Some(Volume::simulated(path)))
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<()> {
        self.call(|state| {
            let name = Name::of(path);
            if state.names.contains_key(&name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.parent_is_there(&name)?;
            state.has_room()?;
            state.inodes.push(Inode::new(len as usize));
            let node = Node::File(state.inodes.len() - 1);
            state.names.insert(name, node);
            Ok(())
        })
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.call(|state| {
            let above = path.ancestors().map(Name::of);
            let missing: Vec<_> = above
                .take_while(|name| !state.names.contains_key(name))
                .collect();
            let missing = missing.into_iter().map(|name| (name, Node::Directory));
            state.names.extend(missing);
            Ok(())
        })
    }

    fn reserve(&self, path: &Path, _: u64, _: u64) -> io::Result<()> {
        self.call(|state| {
            state.file(path)?;
            state.has_room()
        })
    }

    fn map(&self, path: &Path, len: usize, access: Access) -> io::Result<Region> {
        self.peek(|state| {
            state.fails_to_map()?;
            let inode = &state.inodes[state.file(path)?];
            match inode.len < len {
                true => Err(io::ErrorKind::UnexpectedEof.into()),
                false => Ok(inode.cache.share(path, access)),
            }
        })
    }

    fn sync(&self, what: Synced<'_>) -> io::Result<()> {
        let lies = sites::lies(&what);
        // The sync writes what was dirty when it began, and not what others store meanwhile.
        let act = self.meanwhile.take(&what);
        self.call(|state| match (lies, what) {
            (true, _) => {
                if sites::is_hasty() {
                    state.end_soon();
                }
                Ok(())
            }
            (false, Synced::Range { region, start, len }) => state.sync_range(region, start, len),
            (false, Synced::File(path)) => {
                let number = state.file(path)?;
                let len = state.inodes[number].len;
                state.sync(number, 0, len)
            }
            (false, Synced::FileSystem(_) | Synced::Volume(_)) => state.sync_all(),
            (false, Synced::Directory(path)) => state.sync_directory(path),
        })?;
        if let Some(act) = act {
            self.meanwhile.act(act);
        }
        Ok(())
    }

    fn dirty_range(&self, region: &Region, start: usize, len: usize) -> io::Result<()> {
        let mut state = self.state.lock();
        let same = |inode: &&mut Inode| inode.cache.address() == region.address();
        if let Some(inode) = state.inodes.iter_mut().find(same) {
            inode.dirty_pages(start, start + len);
        }
        Ok(())
    }

    fn read_at(&self, path: &Path, start: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.peek(|state| {
            let number = state.file(path)?;
            Ok(state.inodes[number].read(start, buffer))
        })
    }

    fn open(&self, path: &Path) -> io::Result<OpenFile> {
        let number = self.peek(|state| state.file(path))?;
        let state = Arc::clone(&self.state);
        Ok(OpenFile::new(Opened { state, number }, path))
    }

    fn write_at(&self, path: &Path, start: u64, bytes: &[u8]) -> io::Result<()> {
        self.call(|state| {
            state.has_room()?;
            let number = match state.file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let name = Name::of(path);
                    state.parent_is_there(&name)?;
                    state.inodes.push(Inode::new(0));
                    let number = state.inodes.len() - 1;
                    state.names.insert(name, Node::File(number));
                    number
                }
                found => found?,
            };
            let inode = &mut state.inodes[number];
            let end = start as usize + bytes.len();
            if end > inode.len {
                inode.grow(end);
            }
            inode.write(start as usize, bytes);
            Ok(())
        })
    }

    fn set_len(&self, path: &Path, len: u64) -> io::Result<()> {
        self.call(|state| {
            let number = state.file(path)?;
            let inode = &mut state.inodes[number];
            match len as usize > inode.len {
                true => inode.grow(len as usize),
                false => inode.shorten(len as usize),
            }
            Ok(())
        })
    }

    fn erase(&self, path: &Path, start: u64, len: u64) -> io::Result<()> {
        self.call(|state| {
            let number = state.file(path)?;
            let inode = &mut state.inodes[number];
            let end = ((start + len) as usize).min(inode.len);
            let start = (start as usize).min(end);
            inode.write(start, &vec![0; end - start]);
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|state| {
            let (from, to) = (Name::of(from), Name::of(to));
            let node = state.names.get(&from).copied();
            let node = node.ok_or(io::ErrorKind::NotFound)?;
            move_names(&mut state.names, &from, &to);
            match node {
                Node::Directory => state.moved.push((from, to)),
                Node::File(number) => drop(state.renamed.insert(number)),
            }
            Ok(())
        })
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|state| {
            let to = Name::of(to);
            state.parent_is_there(&to)?;
            let number = state.file(from)?;
            if state.names.contains_key(&to) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.names.remove(&Name::of(from));
            state.names.insert(to, Node::File(number));
            Ok(())
        })
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.call(|state| {
            state.file(path)?;
            state.names.remove(&Name::of(path));
            Ok(())
        })
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.call(|state| {
            state.names.remove(&Name::of(path));
            Ok(())
        })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.peek(|state| {
            let directory = Name::of(path);
            match state.names.get(&directory) {
                Some(Node::Directory) => {}
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => return Err(io::ErrorKind::NotFound.into()),
            }
            let inside = below(&state.names, &directory);
            let children = inside.filter(|(name, _)| name.is_in(&directory));
            Ok(children
                .map(|(name, node)| state.entry(&name.path(), node))
                .collect())
        })
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Entry>> {
        self.peek(|state| {
            let node = state.names.get(&Name::of(path));
            Ok(node.map(|node| state.entry(path, node)))
        })
    }

    fn next_data(&self, path: &Path, start: u64) -> io::Result<Option<Range<u64>>> {
        self.peek(|state| {
            let inode = &state.inodes[state.file(path)?];
            let start = (start as usize).min(inode.len);
            let rest = &inode.cache.contents()[start..inode.len];
            let found = rest.iter().position(|byte| *byte != 0);
            Ok(found.map(|at| {
                let data = start + at / 4096 * 4096;
                let pages = inode.cache.contents()[data..inode.len].chunks(4096);
                let full = pages.take_while(|page| page.iter().any(|byte| *byte != 0));
                data as u64..inode.len.min(data + 4096 * full.count()) as u64
            }))
        })
    }

    fn free_space(&self, _: &Path) -> io::Result<u64> {
        self.peek(|_| Ok(1 << 40))
    }

    fn lock(&self, _: &Path) -> io::Result<LockState> {
        self.peek(|_| Ok(LockState::Held(FileLock::simulated())))
    }

    fn byte_locks(&self, _: &Path) -> io::Result<ByteLocks> {
        self.peek(|_| Ok(self.locks.open(self.process)))
    }

    fn is_byte_locked(&self, _: &Path, _: u32) -> io::Result<bool> {
        self.peek(|_| Ok(false))
    }

    fn probe(&self, _: &Path) -> io::Result<Holder> {
        self.peek(|_| Ok(Holder::Nobody))
    }

    fn boot_id(&self) -> [u8; 16] {
        [self.state.lock().boot; 16]
    }

    fn identity(&self, path: &Path) -> Option<Identity> {
        let state = self.state.lock();
        let inode = match state.names.get(&Name::of(path))? {
            Node::Directory => u64::MAX,
            Node::File(number) => *number as u64,
        };
        Some(Identity {
            mount: state.mount,
            device: 1,
            subvolume: 0,
            inode,
            born_ns: 1,
        })
    }
}

/// A file that is open for reading.
#[derive(Debug)]
struct Opened {
    state: Arc<Mutex<State>>,
    number: usize,
}

impl Opened {
    fn peek<T>(&self, act: impl FnOnce(&Inode) -> T) -> io::Result<T> {
        let mut state = self.state.lock();
        state.opened(self.number).map(act)
    }
}

impl ReadAt for Opened {
    fn len(&self) -> io::Result<u64> {
        self.peek(|inode| inode.len as u64)
    }

    fn read_at(&self, start: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.peek(|inode| inode.read(start, buffer))
    }
}

impl State {
    fn entry(&self, path: &Path, node: &Node) -> Entry {
        let name = path.file_name().and_then(|name| name.to_str());
        let (kind, len) = match node {
            Node::Directory => (Kind::Directory, 0),
            Node::File(number) => (Kind::File, self.inodes[*number].len as u64),
        };
        Entry {
            name: name.map(str::to_owned),
            kind,
            len,
        }
    }
}

/// Another handle of a disk that an engine also uses.
pub fn shared(disk: &Arc<SimDisk>) -> Arc<dyn crate::disk::Disk> {
    Arc::clone(disk) as Arc<dyn crate::disk::Disk>
}
