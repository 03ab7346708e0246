//! What syncs store, and what is left when the machine stops.

use super::disk::{Left, State};
use super::faults::{CALLS_AFTER_LIE, Stop};
use super::inode::{Inode, survivor};
use super::names::{Name, Node, below, move_names};
use super::random::Random;
use crate::region::Region;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

impl State {
    /// Syncs a range of a file, or fails to.
    pub fn sync(&mut self, number: usize, start: usize, end: usize) -> io::Result<()> {
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

    pub fn sync_range(&mut self, region: &Region, start: usize, len: usize) -> io::Result<()> {
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

    pub fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
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
    pub fn end_soon(&mut self) {
        let most = self.random.pick(&CALLS_AFTER_LIE);
        let end = self.calls + 1 + self.random.below(most);
        self.faults.stop = Stop::Power;
        self.faults.dies_at = Some(self.faults.dies_at.map_or(end, |at| at.min(end)));
    }

    /// Stops the machine and keeps the surviving image of its disk.
    pub fn die(&mut self) {
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
