//! READ: data go from the tree into the list of what is sent, in parts if they do not fit at once.
//!
//! Read first: RFC 1813 section 3.3.6.

use std::time::Instant;

use ::session::SendList;
use file_tree::Attributes;

use super::TRANSFER_BYTES_MAX;
use super::attributes::{PRESENT_BYTES, write_after};
use super::handle::Handle;
use super::place::{Context, Place};
use super::status::Status;
use crate::rpc::{AcceptedHeader, Call, Credential, record_mark, write_success};
use crate::xdr::{Malformed, UNIT_BYTES, Writer, padding};
use crate::{Backend, Completed, ExportId, Procedure};

/// A call of READ whose reply is being sent.
#[derive(Debug)]
pub(crate) struct ReadCall {
    pub(super) xid: u32,
    pub(super) credential: Credential,
    pub(super) began: Instant,
    pub(super) handle: Result<Handle, Status>,
    pub(super) offset: u64,
    /// Bytes that are asked for; once the header was sent, bytes that are left.
    pub(super) left: usize,
    /// The length that the header has announced, once it was sent.
    pub(super) announced: Option<usize>,
}

/// READ3args.
struct Arguments {
    handle: Result<Handle, Status>,
    offset: u64,
    /// Bytes.
    count: usize,
}

impl Arguments {
    fn read(call: &Call<'_>) -> Result<Self, Malformed> {
        let mut arguments = call.arguments;
        let read = Self {
            handle: Handle::read(&mut arguments)?,
            offset: arguments.u64()?,
            count: arguments.u32()? as usize,
        };
        arguments.finish()?;
        Ok(read)
    }
}

/// What sending a part has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Produced {
    /// The reply is whole.
    Whole(Completed),
    /// The list is full.
    Part,
    /// The rest of the announced data cannot be read any more: the connection must end, so that the
    /// client asks again.
    Broken,
}

/// The reply up to its data, with the record's header in front.
pub(crate) const HEAD_BYTES: usize =
    4 + size_of::<AcceptedHeader>() + 4 + PRESENT_BYTES + 4 + 4 + 4;
/// What a reply takes besides its data at most.
pub(crate) const OVERHEAD_BYTES_MAX: usize = HEAD_BYTES + UNIT_BYTES - 1;
/// A part of a reply is at least this long, except for the last one.
const PART_BYTES_MIN: usize = 16 << 10;
/// The least capacity of a send list in bytes.
pub(crate) const SEND_LIST_MIN_BYTES: usize = PART_BYTES_MIN + OVERHEAD_BYTES_MAX;

impl ReadCall {
    /// Reads the arguments.
    pub(crate) fn new(call: Call<'_>, now: Instant) -> Result<Self, Malformed> {
        let arguments = Arguments::read(&call)?;
        Ok(Self {
            xid: call.xid,
            credential: call.credential,
            began: now,
            handle: arguments.handle,
            offset: arguments.offset,
            left: arguments.count.min(TRANSFER_BYTES_MAX),
            announced: None,
        })
    }

    /// Bytes that a call asks for at most.
    pub(crate) fn asked_bytes(call: &Call<'_>) -> Result<usize, Malformed> {
        Ok(Arguments::read(call)?.count.min(TRANSFER_BYTES_MAX))
    }

    /// Sends as much as fits. A reply of failure is written to `replies` instead. `head` is memory
    /// to be used again.
    pub(crate) fn produce<B: Backend>(
        &mut self,
        backend: &mut B,
        out: &mut SendList,
        replies: &mut Vec<u8>,
        head: &mut Vec<u8>,
    ) -> Produced {
        let room = out.free_bytes();
        if room < OVERHEAD_BYTES_MAX + self.left.min(PART_BYTES_MIN) {
            return Produced::Part;
        }
        let credential = self.credential;
        let mut context = Context {
            credential: &credential,
            backend,
            now: self.began,
        };
        let place = match context.open(self.handle) {
            Ok(place) => place,
            Err(_) if self.announced.is_some() => return Produced::Broken,
            Err(status) => return self.fail(None, status, replies),
        };
        let is_whole = if self.announced.is_some() {
            match continue_reply(self, &place, room, out) {
                Ok(is_whole) => is_whole,
                Err(_) => return Produced::Broken,
            }
        } else {
            match begin_reply(self, &place, room, out, head) {
                Ok(is_whole) => is_whole,
                Err(status) => return self.fail(Some(&place), status, replies),
            }
        };
        if is_whole {
            Produced::Whole(self.completed(true))
        } else {
            Produced::Part
        }
    }

    fn fail(&self, place: Option<&Place<'_>>, status: Status, replies: &mut Vec<u8>) -> Produced {
        self.write_failure(place, status, replies);
        Produced::Whole(self.completed(false))
    }

    /// Appends the reply of failure.
    pub(super) fn write_failure(
        &self,
        place: Option<&Place<'_>>,
        status: Status,
        replies: &mut Vec<u8>,
    ) {
        let begin = replies.len();
        let mut out = Writer::new(replies);
        out.zeros(4);
        write_success(self.xid, &mut out);
        if let Some(place) = place {
            place.write_status(status, &mut out);
        } else {
            out.u32(status as u32);
            out.bool(false);
        }
        let len = out.len() - begin - 4;
        out.patch(begin, &record_mark(len));
    }

    pub(super) fn completed(&self, is_ok: bool) -> Completed {
        Completed {
            procedure: Procedure::Read,
            is_ok,
            bytes_in: 0,
            bytes_out: self.announced.unwrap_or(0) as u64,
            began: self.began,
        }
    }
}

/// Sends the head of the reply and as many data as fit. Returns whether these are all.
fn begin_reply(
    call: &mut ReadCall,
    place: &Place<'_>,
    room: usize,
    out: &mut SendList,
    head: &mut Vec<u8>,
) -> Result<bool, Status> {
    let part = call.left.min(room - OVERHEAD_BYTES_MAX);
    let reserved = part + OVERHEAD_BYTES_MAX;
    let Some(bytes) = out.reserve(reserved) else {
        return Err(Status::Io);
    };
    let data = &mut bytes[HEAD_BYTES..HEAD_BYTES + part];
    let done = match place
        .tree()
        .read(&place.caller(), place.file, call.offset, data)
    {
        Ok(done) => done,
        Err(error) => {
            out.retract(reserved);
            return Err(Status::of_data(error));
        }
    };
    let size_bytes = done.attributes.size_bytes;
    let behind = size_bytes.saturating_sub(call.offset);
    // A part that is short ends the data, whatever the attributes say.
    let total = if done.len_bytes < part {
        done.len_bytes
    } else {
        call.left
            .min(usize::try_from(behind).unwrap_or(usize::MAX))
            .max(part)
    };
    let is_end = done.is_end && total == done.len_bytes || total as u64 >= behind;
    head.clear();
    let export = place.export_id();
    write_head(
        call.xid,
        (export, &done.attributes),
        (total, is_end),
        &mut Writer::new(head),
    );
    bytes[..HEAD_BYTES].copy_from_slice(head);
    let used = finish_part(&mut bytes[HEAD_BYTES..], done.len_bytes, total);
    call.offset += done.len_bytes as u64;
    call.left = total - done.len_bytes;
    call.announced = Some(total);
    out.retract(reserved - HEAD_BYTES - used);
    Ok(call.left == 0)
}

/// Sends more data of the reply. Returns whether these are all.
fn continue_reply(
    call: &mut ReadCall,
    place: &Place<'_>,
    room: usize,
    out: &mut SendList,
) -> Result<bool, Status> {
    let part = call.left.min(room - UNIT_BYTES);
    let Some(bytes) = out.reserve(part + UNIT_BYTES) else {
        return Ok(false);
    };
    let read = place
        .tree()
        .read(&place.caller(), place.file, call.offset, &mut bytes[..part]);
    let done = match read {
        Ok(done) => done,
        Err(error) => {
            out.retract(part + UNIT_BYTES);
            return Err(error.into());
        }
    };
    // The file was cut off since the head was sent. What is behind its end reads as zeros.
    bytes[done.len_bytes..part].fill(0);
    call.offset += part as u64;
    call.left -= part;
    let total = if call.left == 0 {
        call.announced.unwrap_or(part)
    } else {
        0
    };
    let used = part + pad(&mut bytes[part..], total);
    out.retract(part + UNIT_BYTES - used);
    Ok(call.left == 0)
}

/// Pads data if they are all. Returns how many bytes are used.
fn finish_part(bytes: &mut [u8], len: usize, total: usize) -> usize {
    if len == total {
        len + pad(&mut bytes[len..], total)
    } else {
        len
    }
}

/// Clears the padding behind `total` bytes of data. Returns its length.
fn pad(bytes: &mut [u8], total: usize) -> usize {
    let len = padding(total);
    bytes[..len].fill(0);
    len
}

/// Writes the reply up to its data.
pub(super) fn write_head(
    xid: u32,
    (export, attributes): (ExportId, &Attributes),
    (total, is_end): (usize, bool),
    out: &mut Writer<'_>,
) {
    out.view(&record_mark(HEAD_BYTES - 4 + total + padding(total)));
    write_success(xid, out);
    out.u32(Status::Ok as u32);
    write_after(export, Some(attributes), out);
    out.u32(total as u32);
    out.bool(is_end);
    out.u32(total as u32);
}
