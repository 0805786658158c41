//! READ whose data go to memory of the client's, while the rest of the reply is sent behind them.
//!
//! Read first: RFC 1813 section 3.3.6, RFC 8267 section 2.

use file_tree::ReadDone;

use super::place::Context;
use super::read::{HEAD_BYTES, ReadCall, write_head};
use super::status::Status;
use crate::xdr::{Writer, padding};
use crate::{Backend, Completed, ExportId};

/// A READ whose data are being placed.
#[derive(Debug)]
pub(crate) struct PlacedRead {
    call: ReadCall,
    /// Bytes that were read.
    moved: usize,
    /// What the last part of the data has led to.
    last: ReadDone,
}

impl ReadCall {
    /// Begins to read at most `max_bytes`. If that fails, appends the reply to `replies`.
    pub(crate) fn begin_placed<B: Backend>(
        mut self,
        max_bytes: usize,
        backend: &mut B,
        replies: &mut Vec<u8>,
    ) -> Result<PlacedRead, Completed> {
        self.left = self.left.min(max_bytes);
        match self.read_part(backend, &mut []) {
            Ok(last) => {
                let behind = last.attributes.size_bytes.saturating_sub(self.offset);
                self.left = self.left.min(usize::try_from(behind).unwrap_or(usize::MAX));
                let (call, moved) = (self, 0);
                Ok(PlacedRead { call, moved, last })
            }
            Err(status) => Err(self.fail_part(status, backend, replies)),
        }
    }

    fn read_part<B: Backend>(&self, backend: &mut B, room: &mut [u8]) -> Result<ReadDone, Status> {
        let credential = self.credential;
        let mut context = Context {
            credential: &credential,
            backend,
            now: self.began,
        };
        let place = context.open(self.handle)?;
        let read = place
            .tree()
            .read(&place.caller(), place.file, self.offset, room);
        read.map_err(Status::of_data)
    }

    /// Appends the reply of failure.
    fn fail_part<B: Backend>(
        &self,
        status: Status,
        backend: &mut B,
        replies: &mut Vec<u8>,
    ) -> Completed {
        let credential = self.credential;
        let mut context = Context {
            credential: &credential,
            backend,
            now: self.began,
        };
        let place = context.open(self.handle).ok();
        self.write_failure(place.as_ref(), status, replies);
        self.completed(false)
    }
}

impl PlacedRead {
    /// Bytes that are left to read.
    pub(crate) const fn left_bytes(&self) -> usize {
        self.call.left
    }

    /// Bytes that were read.
    pub(crate) const fn moved_bytes(&self) -> usize {
        self.moved
    }

    /// Reads the next bytes, at most as many as are left. If the file was cut off meanwhile, the
    /// rest of the room is zeros, and nothing is left.
    pub(crate) fn fill<B: Backend>(
        &mut self,
        backend: &mut B,
        room: &mut [u8],
    ) -> Result<(), Status> {
        let call = &mut self.call;
        let done = call.read_part(backend, room)?;
        room[done.len_bytes..].fill(0);
        call.offset += done.len_bytes as u64;
        call.left = if done.len_bytes < room.len() {
            0
        } else {
            call.left.saturating_sub(done.len_bytes)
        };
        self.moved += done.len_bytes;
        self.last = done;
        Ok(())
    }

    /// Appends the reply of a read that failed before all its data were placed.
    pub(crate) fn fail<B: Backend>(
        &self,
        status: Status,
        backend: &mut B,
        replies: &mut Vec<u8>,
    ) -> Completed {
        self.call.fail_part(status, backend, replies)
    }

    /// Appends the reply up to its data, which were placed.
    pub(crate) fn finish(mut self, replies: &mut Vec<u8>) -> Completed {
        self.write_head(replies);
        self.call.announced = Some(self.moved);
        self.call.completed(true)
    }

    /// Appends the whole reply, with its data.
    pub(crate) fn finish_inline<B: Backend>(
        mut self,
        backend: &mut B,
        replies: &mut Vec<u8>,
    ) -> Completed {
        let begin = replies.len();
        let data = begin + HEAD_BYTES;
        replies.resize(data + self.left_bytes(), 0);
        if let Err(status) = self.fill(backend, &mut replies[data..]) {
            replies.truncate(begin);
            return self.fail(status, backend, replies);
        }
        replies.truncate(data + self.moved);
        let end = replies.len() + padding(self.moved);
        replies.resize(end, 0);
        // The head is known after the data, and belongs in front of them.
        self.write_head(replies);
        replies.copy_within(end.., begin);
        replies.truncate(end);
        self.call.announced = Some(self.moved);
        self.call.completed(true)
    }

    fn write_head(&self, replies: &mut Vec<u8>) {
        let attributes = &self.last.attributes;
        let is_end = self.call.offset >= attributes.size_bytes;
        let export = self
            .call
            .handle
            .map_or(ExportId([0; 16]), |handle| handle.export);
        let mut out = Writer::new(replies);
        let total = (self.moved, is_end);
        write_head(self.call.xid, (export, attributes), total, &mut out);
    }
}
