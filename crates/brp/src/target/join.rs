//! Replies that go into one message.

use std::time::Instant;

use zerocopy::IntoBytes;

use super::backend::Backend;
use super::commands::Commands;
use super::slot::Payload;
use crate::wire::Short;

/// Ready replies that may go into one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Joinable {
    pub(crate) count: u16,
    /// Their length with their data, if all succeed.
    pub(crate) len_bytes: usize,
}

impl Commands {
    const REPLY_BYTES: usize = size_of::<Short>();

    /// Whether replies are joined at the present load.
    pub(crate) fn joins(&self) -> bool {
        self.merger.joins()
    }

    /// The first ready commands whose replies fit together into `room_bytes` bytes, with at most
    /// `data_max_bytes` bytes of data each.
    pub(crate) fn joinable(&self, data_max_bytes: u32, room_bytes: usize) -> Joinable {
        let mut joinable = Joinable::default();
        for payload in self.ready_payloads() {
            let data_bytes = match payload {
                Payload::None => 0,
                Payload::Blocks {
                    left_bytes,
                    len_bytes,
                    ..
                } if left_bytes == len_bytes && len_bytes <= data_max_bytes => len_bytes,
                Payload::Blocks { .. } => break,
            };
            let len_bytes = joinable.len_bytes + Self::REPLY_BYTES + data_bytes as usize;
            if len_bytes > room_bytes {
                break;
            }
            joinable = Joinable {
                count: joinable.count + 1,
                len_bytes,
            };
        }
        joinable
    }

    /// Answers the commands that [`Self::joinable`] gave. Writes the replies with their data to
    /// `room`, which is as long as it said; how many bytes they took: fewer if a read failed.
    pub(crate) fn join<B: Backend>(
        &mut self,
        now: Instant,
        joinable: Joinable,
        backend: &mut B,
        room: &mut [u8],
    ) -> usize {
        let mut used = 0;
        for _ in 0..joinable.count {
            let Some(front) = self.front() else {
                break;
            };
            let (header, data) = room[used..].split_at_mut(Self::REPLY_BYTES);
            let mut data_bytes = match front.payload {
                Payload::None => 0,
                Payload::Blocks { left_bytes, .. } => left_bytes,
            };
            if data_bytes > 0 && !self.copy_front(&mut data[..data_bytes as usize], backend) {
                data_bytes = 0;
            }
            if let Some(reply) = self.retire_front(now, data_bytes, backend) {
                header.copy_from_slice(reply.as_bytes());
                used += Self::REPLY_BYTES + data_bytes as usize;
            }
        }
        used
    }
}
