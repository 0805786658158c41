//! From ready commands to RDMA WRITEs, REPLY and REPLIES.
//!
//! The data of ready commands are written first, then the replies follow: data that were posted
//! before a reply arrive before it (BRP-18). A read whose command has no descriptors goes inside of
//! the reply.

use std::collections::VecDeque;
use std::time::Instant;

use session::{RemoteKey, WorkList};
use zerocopy::IntoBytes;

use super::places::Places;
use crate::target::{Backend, Commands, Payload};
use crate::wire::{LoginReply, Short};

/// Replies that are to be posted.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    /// At most as many as the session has tags, since a host that does not acknowledge messages
    /// could continue sending commands.
    replies: VecDeque<Staged>,
    /// The data inside them, in order; emptied when all are posted. Copied here, since a message
    /// has a fixed length once it is posted and a read may fail.
    data: Vec<u8>,
    /// Where in `data` those of the first reply begin.
    data_at: usize,
}

/// A reply, and what goes with it.
#[derive(Clone, Copy, Debug)]
struct Staged {
    reply: Short,
    invalidate: Option<RemoteKey>,
}

/// How posting went.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Posted {
    /// Something was done about the command.
    Some,
    /// There is no room.
    Full,
}

const SHORT_BYTES: u32 = size_of::<Short>() as u32;
/// Data of replies that are prepared until all were posted, in bytes; the last one may exceed it.
const STAGED_MAX_BYTES: usize = 64 << 10;

impl Outbound {
    /// Whether replies wait to be posted.
    pub(super) fn wants(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Posts as much as fits.
    pub(super) fn poll<B: Backend>(
        &mut self,
        now: Instant,
        commands: &mut Commands,
        places: &[Places],
        backend: &mut B,
        out: &mut dyn WorkList,
    ) {
        loop {
            self.stage(now, commands, places, backend, out);
            if self.replies.is_empty() || !self.post(commands, out) {
                return;
            }
        }
    }

    /// Writes the data of ready commands, and prepares their replies.
    fn stage<B: Backend>(
        &mut self,
        now: Instant,
        commands: &mut Commands,
        places: &[Places],
        backend: &mut B,
        out: &mut dyn WorkList,
    ) {
        while self.replies.len() < places.len() && self.data.len() < STAGED_MAX_BYTES {
            let Some(front) = commands.front() else {
                return;
            };
            let place = &places[front.tag.index()];
            let posted = match front.payload {
                Payload::Blocks {
                    left_bytes,
                    len_bytes,
                    ..
                } if !place.buffers().is_empty() => write_blocks(
                    left_bytes,
                    len_bytes - left_bytes,
                    commands,
                    place,
                    backend,
                    out,
                ),
                Payload::Blocks { left_bytes, .. } => {
                    self.stage_inside(now, left_bytes, commands, backend)
                }
                Payload::None => self.stage_reply(now, 0, place, commands, backend),
            };
            if posted == Posted::Full {
                return;
            }
        }
    }

    /// Prepares the reply of a read whose data go inside of it.
    fn stage_inside<B: Backend>(
        &mut self,
        now: Instant,
        len_bytes: u32,
        commands: &mut Commands,
        backend: &mut B,
    ) -> Posted {
        let start = self.data.len();
        self.data.resize(start + len_bytes as usize, 0);
        if !commands.copy_front(&mut self.data[start..], backend) {
            // It has failed, and is answered without data next.
            self.data.truncate(start);
            return Posted::Some;
        }
        self.stage_reply(now, len_bytes, &Places::default(), commands, backend)
    }

    fn stage_reply<B: Backend>(
        &mut self,
        now: Instant,
        data_bytes: u32,
        place: &Places,
        commands: &mut Commands,
        backend: &mut B,
    ) -> Posted {
        if let Some(reply) = commands.retire_front(now, data_bytes, backend) {
            self.replies.push_back(Staged {
                reply,
                invalidate: place.invalidate,
            });
        }
        Posted::Some
    }

    /// Posts the next message; whether there was room.
    fn post(&mut self, commands: &Commands, out: &mut dyn WorkList) -> bool {
        let (count, len_bytes) = self.next_message(commands);
        if count > 1 {
            let Some(room) = out.send(SHORT_BYTES + len_bytes, None) else {
                return false;
            };
            let (header, rest) = room.split_at_mut(SHORT_BYTES as usize);
            header.copy_from_slice(Short::replies(count as u16, len_bytes).as_bytes());
            self.write(count, rest);
            return true;
        }
        let invalidate = self.replies.front().and_then(|staged| staged.invalidate);
        let Some(room) = out.send(len_bytes, invalidate) else {
            return false;
        };
        self.write(1, room);
        true
    }

    /// How many replies go into the next message, and their length with their data: several if
    /// replies are joined, and as many as the host's receives take (BRP-36, BRP-37).
    fn next_message(&self, commands: &Commands) -> (usize, u32) {
        let receive_max_bytes = SHORT_BYTES + commands.reply_data_max_bytes();
        let joined_max_bytes = receive_max_bytes.max(size_of::<LoginReply>() as u32) - SHORT_BYTES;
        let mut message = (0, 0);
        for staged in &self.replies {
            let len_bytes = message.1 + SHORT_BYTES + staged.reply.data_bytes.get();
            let is_first = message.0 == 0;
            if !is_first && (len_bytes > joined_max_bytes || !commands.joins()) {
                break;
            }
            message = (message.0 + 1, len_bytes);
        }
        message
    }

    /// Moves the first `count` replies with their data to `room`, which they fill.
    fn write(&mut self, count: usize, mut room: &mut [u8]) {
        for staged in self.replies.drain(..count) {
            let (header, rest) = room.split_at_mut(SHORT_BYTES as usize);
            header.copy_from_slice(staged.reply.as_bytes());
            let data_end = self.data_at + staged.reply.data_bytes.get() as usize;
            let data = &self.data[self.data_at..data_end];
            let (to, rest) = rest.split_at_mut(data.len());
            to.copy_from_slice(data);
            self.data_at = data_end;
            room = rest;
        }
        if self.replies.is_empty() {
            self.data.clear();
            self.data_at = 0;
        }
    }
}

/// Writes blocks of a read to the host, as far as they lie in one stretch of its memory.
fn write_blocks<B: Backend>(
    left_bytes: u32,
    offset_bytes: u32,
    commands: &mut Commands,
    place: &Places,
    backend: &mut B,
    out: &mut dyn WorkList,
) -> Posted {
    // Stretches are of whole blocks, and pieces of whole pages.
    let to = place
        .piece(offset_bytes, out.piece_bytes(left_bytes))
        .expect("lengths were checked when the command began");
    let Some(room) = out.write(to) else {
        return Posted::Full;
    };
    // Copied once, into memory that the provider sends from.
    if !commands.copy_front(room, backend) {
        out.retract();
    }
    Posted::Some
}
