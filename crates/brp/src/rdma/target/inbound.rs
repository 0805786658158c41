//! Data from the host's memory: RDMA READs, in pieces, in the order of the commands.

use std::collections::VecDeque;

use session::WorkList;

use super::places::Places;
use crate::target::Tag;

/// Commands whose data are read.
#[derive(Debug)]
pub(super) struct Inbound {
    /// Not yet wholly posted: each tag once at most.
    due: VecDeque<Due>,
    /// By tag: bytes that have not come.
    left_bytes: Box<[u32]>,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    tag: Tag,
    /// What is to be posted next, and where the data end.
    offset_bytes: u32,
    end_bytes: u32,
}

impl Inbound {
    pub(super) fn new(tags: u16) -> Self {
        Self {
            due: VecDeque::with_capacity(tags.into()),
            left_bytes: vec![0; tags.into()].into_boxed_slice(),
        }
    }

    /// The command's data from `offset_bytes` on are needed: `len_bytes` bytes, at least one.
    pub(super) fn begin(&mut self, tag: Tag, offset_bytes: u32, len_bytes: u32) {
        self.left_bytes[tag.index()] = len_bytes;
        self.due.push_back(Due {
            tag,
            offset_bytes,
            end_bytes: offset_bytes + len_bytes,
        });
    }

    /// Whether a read is to be posted.
    pub(super) fn wants(&self) -> bool {
        !self.due.is_empty()
    }

    /// Posts as much as fits.
    pub(super) fn poll(&mut self, places: &[Places], out: &mut dyn WorkList) {
        while let Some(due) = self.due.front_mut() {
            let len_max_bytes = out.piece_bytes(due.end_bytes - due.offset_bytes);
            let from = places[due.tag.index()]
                .piece(due.offset_bytes, len_max_bytes)
                .expect("lengths were checked when the command began");
            if !out.read(u64::from(due.tag.0), from) {
                return;
            }
            due.offset_bytes += from.len_bytes;
            if due.offset_bytes == due.end_bytes {
                self.due.pop_front();
            }
        }
    }

    /// Data have come: whose, and whether they are all there. `None` if none were requested.
    pub(super) fn received(&mut self, tag: u64, len: usize) -> Option<(Tag, bool)> {
        let tag = Tag(u16::try_from(tag).ok()?);
        let left_bytes = self.left_bytes.get_mut(tag.index())?;
        let len_bytes = u32::try_from(len).ok().filter(|&len_bytes| len_bytes > 0)?;
        *left_bytes = left_bytes.checked_sub(len_bytes)?;
        Some((tag, *left_bytes == 0))
    }
}
