//! Operations of minor version 2 on ranges of files: ALLOCATE, CLONE, READ_PLUS.
//!
//! Read first: RFC 7862 sections 15.1, 15.10 and 15.13.

use file_tree::SeekTarget;

use super::compound::Compound;
use super::data::{change, data_status};
use super::place::Place;
use crate::Backend;
use crate::clients::{StateId, StateUse, TRANSFER_BYTES_MAX};
use crate::status4::Status4;
use crate::xdr::{Reader, Writer, padding};

/// The most segments of data and holes in a reply to READ_PLUS. The client asks again for what
/// follows.
const SEGMENTS_MAX: u32 = 64;
/// What READ_PLUS returns beside its segments: whether the file ends, and their number.
const HEAD_BYTES: usize = 8;
/// What a segment takes beside its data: of a hole, kind, offset and length. A segment of data
/// takes less.
const SEGMENT_BYTES: usize = 20;
/// data_content4: what a segment is.
const DATA: u32 = 0;
const HOLE: u32 = 1;

impl<B: Backend> Compound<'_, B> {
    /// ALLOCATE.
    pub(super) fn allocate(&mut self, arguments: &mut Reader<'_>) -> Result<(), Status4> {
        let id = StateId::read(arguments)?;
        let (offset, len_bytes) = (arguments.u64()?, arguments.u64()?);
        if len_bytes == 0 || offset.checked_add(len_bytes).is_none() {
            return Err(Status4::Invalid);
        }
        self.check_moved()?;
        let (handle, key) = self.current_file(Status4::WrongType)?;
        self.check_state(id, &key, StateUse::Write)?;
        let place = self.place(handle)?;
        change(&place, |place| {
            place
                .tree()
                .allocate(&place.caller(), place.file, offset, len_bytes)
        })?;
        self.at.moved_bytes += len_bytes;
        Ok(())
    }

    /// CLONE, of the saved into the current file. A count of 0 means up to the end of the source.
    pub(super) fn clone_range(&mut self, arguments: &mut Reader<'_>) -> Result<(), Status4> {
        let ids = (StateId::read(arguments)?, StateId::read(arguments)?);
        let (from, to) = (arguments.u64()?, arguments.u64()?);
        let count = arguments.u64()?;
        self.check_moved()?;
        let (source, target) = self.saved_and_current()?;
        self.check_states(ids, (source, target))?;
        let place = self.place(source)?;
        let size_bytes = place.attributes()?.size_bytes;
        let left = size_bytes.checked_sub(from).ok_or(Status4::Invalid)?;
        let count = if count == 0 { left } else { count };
        change(&place, |place| {
            let (source, target) = ((place.file, from), (target.file, to));
            place
                .tree()
                .clone_range(&place.caller(), source, target, count)
        })?;
        self.at.bytes_in += count;
        self.at.moved_bytes += count;
        Ok(())
    }

    /// READ_PLUS: segments of data and of holes, one behind the other.
    pub(super) fn read_plus(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let (id, offset) = (StateId::read(arguments)?, arguments.u64()?);
        let count = (arguments.u32()? as usize).min(TRANSFER_BYTES_MAX);
        let (handle, key) = self.current_file(Status4::IsDirectory)?;
        self.check_state(id, &key, StateUse::Read)?;
        let out_end = out.len() + self.room(out);
        let place = self.place(handle)?;
        let begin = out.len();
        out.zeros(HEAD_BYTES);
        let mut segments = Segments {
            place,
            at: offset,
            end: offset.saturating_add(count as u64),
            out_end,
            count: 0,
            is_end: false,
            data_bytes: 0,
        };
        while segments.write_next(out)? {}
        let Segments {
            at,
            count: written,
            is_end,
            data_bytes,
            ..
        } = segments;
        if at == offset && count > 0 && !is_end {
            return self.check_reply(out_end + 1);
        }
        out.patch(begin, &u32::from(is_end).to_be_bytes());
        out.patch(begin + 4, &written.to_be_bytes());
        self.at.bytes_out += data_bytes;
        Ok(())
    }
}

/// The segments of a reply.
struct Segments<'a> {
    place: Place<'a>,
    /// Where the next segment begins, and where the last may end.
    at: u64,
    end: u64,
    /// How long the output may become.
    out_end: usize,
    count: u32,
    /// Whether the file ends behind the last segment.
    is_end: bool,
    data_bytes: u64,
}

impl Segments<'_> {
    /// Writes the next segment. Returns whether another may follow.
    fn write_next(&mut self, out: &mut Writer<'_>) -> Result<bool, Status4> {
        let (data, size_bytes) = self.seek(SeekTarget::Data)?;
        self.is_end = self.at >= size_bytes;
        let room = self.out_end.saturating_sub(out.len());
        if self.is_end || self.at >= self.end || self.count == SEGMENTS_MAX || room <= SEGMENT_BYTES
        {
            return Ok(false);
        }
        self.count += 1;
        if data > self.at {
            out.u32(HOLE);
            out.u64(self.at);
            out.u64(data - self.at);
            self.at = data;
            return Ok(true);
        }
        let (hole, _) = self.seek(SeekTarget::Hole)?;
        self.write_data(hole, room - SEGMENT_BYTES, out)
    }

    /// Where data or a hole begins, at most where the segments end, and the length of the file.
    fn seek(&self, target: SeekTarget) -> Result<(u64, u64), Status4> {
        let place = &self.place;
        let found = place
            .tree()
            .seek(&place.caller(), place.file, self.at, target);
        let found = found.map_err(|error| data_status(place, error))?;
        let end = self.end.min(found.size_bytes);
        let at = found.offset.map_or(end, |offset| offset.min(end));
        Ok((at, found.size_bytes))
    }

    /// Writes data up to `end`, as many as fit.
    fn write_data(&mut self, end: u64, room: usize, out: &mut Writer<'_>) -> Result<bool, Status4> {
        // What was a hole a moment ago may be data, and the other way round.
        let len = end.saturating_sub(self.at).max(1);
        let len = usize::try_from(len).unwrap_or(room).min(room);
        out.u32(DATA);
        out.u64(self.at);
        let begin = out.len();
        out.zeros(4 + len);
        let place = &self.place;
        let data = out.tail_mut(begin + 4);
        let read = place
            .tree()
            .read(&place.caller(), place.file, self.at, data);
        let done = read.map_err(|error| data_status(place, error))?;
        out.truncate(begin + 4 + done.len_bytes);
        out.zeros(padding(done.len_bytes));
        out.patch(begin, &(done.len_bytes as u32).to_be_bytes());
        self.at += done.len_bytes as u64;
        self.data_bytes += done.len_bytes as u64;
        self.is_end = done.is_end;
        Ok(!done.is_end && done.len_bytes > 0)
    }
}
