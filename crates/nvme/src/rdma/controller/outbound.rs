//! From ready commands to RDMA WRITEs and response capsules.
//!
//! The data of all ready commands are posted first, then the responses: packets of one length that
//! follow one another leave with one system call, where a provider in software segments by GSO.

use std::collections::VecDeque;
use std::time::Instant;

use session::{RemoteKey, WorkList};
use zerocopy::IntoBytes;

use super::sgl::Places;
use crate::controller::{Backend, Payload, Queue};
use crate::wire::Cqe;

/// What is left of the first ready command.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    /// Bytes of it that were posted.
    posted_bytes: u32,
    /// The rest of a block that crosses from one stretch of the host's memory to the next.
    crossing: Vec<u8>,
    /// Responses of commands whose data were posted, in order: at most as many as the queue has
    /// slots, since a host that does not acknowledge what it gets could continue submitting
    /// commands.
    responses: VecDeque<Response>,
}

/// A response capsule that is to be posted.
#[derive(Debug)]
struct Response {
    cqe: Cqe,
    invalidate: Option<RemoteKey>,
}

/// What is left of a read.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    left_bytes: u32,
    block_bytes: u32,
}

/// How posting went.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Posted {
    /// Something was done about the command.
    Some,
    /// There is no room.
    Full,
}

const RESPONSE_BYTES: u32 = size_of::<Cqe>() as u32;

impl Outbound {
    /// Whether responses wait to be posted.
    pub(super) fn wants(&self) -> bool {
        !self.responses.is_empty()
    }

    /// Posts as much as fits.
    pub(super) fn poll<B: Backend>(
        &mut self,
        now: Instant,
        queue: &mut Queue,
        places: &[Places],
        backend: &mut B,
        out: &mut dyn WorkList,
    ) {
        self.post_data(now, queue, places, backend, out);
        while let Some(response) = self.responses.front() {
            let Some(room) = out.send(RESPONSE_BYTES, response.invalidate) else {
                return;
            };
            room.copy_from_slice(response.cqe.as_bytes());
            self.responses.pop_front();
        }
    }

    /// Posts the data of ready commands.
    fn post_data<B: Backend>(
        &mut self,
        now: Instant,
        queue: &mut Queue,
        places: &[Places],
        backend: &mut B,
        out: &mut dyn WorkList,
    ) {
        let responses_max = queue.slots_len();
        while let Some(front) = queue.front() {
            if self.responses.len() >= responses_max {
                return;
            }
            let places = &places[usize::from(front.slot.0)];
            let posted = if self.crossing.is_empty() {
                match front.payload {
                    Payload::None => self.respond(now, queue, places, backend),
                    Payload::Blocks {
                        block_bytes,
                        done_bytes,
                        len_bytes,
                        ..
                    } => {
                        let blocks = Blocks {
                            left_bytes: len_bytes - done_bytes,
                            block_bytes,
                        };
                        self.write_blocks(blocks, queue, places, backend, out)
                    }
                    Payload::Reply { done_bytes, bytes } => {
                        let left = &bytes[done_bytes as usize..];
                        match self.write(left, places, out) {
                            0 => Posted::Full,
                            len_bytes => {
                                queue.advance_front(len_bytes);
                                Posted::Some
                            }
                        }
                    }
                }
            } else {
                self.write_crossing(places, out)
            };
            if posted == Posted::Full {
                return;
            }
        }
    }

    /// Writes blocks to the host as far as they lie in one stretch of its memory.
    fn write_blocks<B: Backend>(
        &mut self,
        blocks: Blocks,
        queue: &mut Queue,
        places: &Places,
        backend: &mut B,
        out: &mut dyn WorkList,
    ) -> Posted {
        let len_max_bytes = out.piece_bytes(blocks.left_bytes);
        let to = places
            .piece(self.posted_bytes, len_max_bytes)
            .expect("lengths were checked when the command began");
        let whole_bytes = to.len_bytes - to.len_bytes % blocks.block_bytes;
        let Some(to) = to.piece(0, whole_bytes).filter(|_| whole_bytes > 0) else {
            self.crossing.resize(blocks.block_bytes as usize, 0);
            if queue.copy_front(&mut self.crossing, backend).is_err() {
                self.crossing.clear();
            }
            return Posted::Some;
        };
        let Some(room) = out.write(to) else {
            return Posted::Full;
        };
        // Copied once, into memory that the provider sends from.
        match queue.copy_front(room, backend) {
            Ok(()) => self.posted_bytes += whole_bytes,
            Err(_) => out.retract(),
        }
        Posted::Some
    }

    fn write_crossing(&mut self, places: &Places, out: &mut dyn WorkList) -> Posted {
        let crossing = std::mem::take(&mut self.crossing);
        let len_bytes = self.write(&crossing, places, out);
        self.crossing = crossing;
        self.crossing.drain(..len_bytes as usize);
        if len_bytes == 0 {
            Posted::Full
        } else {
            Posted::Some
        }
    }

    /// Writes of `data` what lies in one stretch; how much that was, 0 if there was no room.
    fn write(&mut self, data: &[u8], places: &Places, out: &mut dyn WorkList) -> u32 {
        let len_max_bytes = out.piece_bytes(data.len() as u32);
        let to = places
            .piece(self.posted_bytes, len_max_bytes)
            .expect("lengths were checked when the command began or was answered");
        let Some(room) = out.write(to) else {
            return 0;
        };
        room.copy_from_slice(&data[..to.len_bytes as usize]);
        self.posted_bytes += to.len_bytes;
        to.len_bytes
    }

    /// The first ready command is complete except for its response.
    fn respond<B: Backend>(
        &mut self,
        now: Instant,
        queue: &mut Queue,
        places: &Places,
        backend: &mut B,
    ) -> Posted {
        let cqe = queue
            .retire_front(now, backend)
            .expect("the caller has seen the front");
        self.responses.push_back(Response {
            cqe,
            invalidate: places.invalidate,
        });
        self.posted_bytes = 0;
        self.crossing.clear();
        Posted::Some
    }
}
