//! What a volume is made of that holds several others.

use std::sync::{Arc, OnceLock};

use block::{BlockSize, WriteCache};
use memory::Store;

use crate::managed::Member;
use crate::{ByteSize, VolumeError, VolumeSpec};

/// How many members a volume may have had, with those that were replaced. Sets of members are masks
/// of `u64`.
pub(crate) const PLACES: usize = VolumeSpec::MEMBERS_MAX;

const _: () = assert!(PLACES <= u64::BITS as usize);

/// The numbers of the bits that are set.
pub(crate) fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = set.trailing_zeros();
        (set != 0).then(|| {
            set &= set - 1;
            lowest as usize
        })
    })
}

/// The members of a volume in their order. Members are only added.
#[derive(Debug)]
pub(crate) struct Members(Box<[OnceLock<Member>]>);

impl Members {
    pub(crate) fn new(members: Vec<Member>) -> Self {
        let places = Self((0..PLACES).map(|_| OnceLock::new()).collect());
        for (index, member) in members.into_iter().enumerate() {
            places.add(index, member);
        }
        places
    }

    /// Fills the free place `index`, before any block is there.
    pub(crate) fn add(&self, index: usize, member: Member) {
        let added = self.0[index].set(member);
        added.expect("members are added one at a time");
    }

    pub(crate) fn get(&self, index: usize) -> &Member {
        self.0[index]
            .get()
            .expect("only members that exist have blocks")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.0.iter().map_while(OnceLock::get)
    }
}

impl Member {
    pub(crate) fn size(&self) -> ByteSize {
        self.volume.storage().spec().size
    }

    pub(crate) fn check_blocks(&self, block_size: BlockSize) -> Result<(), VolumeError> {
        let own = self.volume.geometry().block_size;
        if own == block_size {
            return Ok(());
        }
        Err(VolumeError::OtherBlocks {
            given_bytes: block_size.bytes(),
            parent_bytes: own.bytes(),
        })
    }

    /// Whether its writes are safe only after a flush.
    pub(crate) fn is_volatile(&self) -> bool {
        self.volume.write_cache() == WriteCache::Volatile
    }

    /// Why it is offline, for people.
    pub(crate) fn problem(&self) -> String {
        match self.volume.storage().problem() {
            Some(problem) => format!("member {} is offline: {problem}", self.name),
            None => format!("member {} is offline", self.name),
        }
    }

    /// The store of a member that never makes commands wait and whose bytes can be pinned.
    pub(crate) fn store(&self) -> Option<&Arc<Store>> {
        if self.volume.controls().is_loading() {
            // Its store does not hold everything yet.
            return None;
        }
        self.volume.pinned()?;
        self.volume.storage().store()
    }
}
