//! WRITE: data go from the receive buffer into the tree, in as many parts as they arrive in.
//!
//! Read first: RFC 1813 section 3.3.7.

use std::time::Instant;

use file_tree::{Attributes, BeforeChange};

use super::TRANSFER_BYTES_MAX;
use super::attributes::write_change;
use super::handle::Handle;
use super::place::Context;
use super::status::Status;
use crate::rpc::{Call, Credential};
use crate::xdr::{Malformed, Writer, padding};
use crate::{Backend, Completed, ExportId, Procedure};

/// stable_how: how safe data must be before the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
enum StableHow {
    /// Not at all: COMMIT follows.
    Unstable = 0,
    /// Data are.
    Data = 1,
    /// Data and attributes are.
    File = 2,
}

/// A call of WRITE whose data are arriving.
#[derive(Debug)]
pub(crate) struct WriteCall {
    xid: u32,
    credential: Credential,
    began: Instant,
    handle: Result<Handle, Status>,
    offset: u64,
    stable: StableHow,
    /// Data and padding that have not arrived.
    left: usize,
    /// How many of the next bytes are to be written. The rest, beyond wtmax and the padding, is
    /// ignored.
    wanted: usize,
    progress: Progress,
}

/// What was done so far.
#[derive(Debug)]
struct Progress {
    /// Bytes written.
    written: usize,
    /// Whether all of them are as safe as the tree makes any.
    is_stable: bool,
    /// Before the first part, unless the file was changed by others between parts.
    before: Option<BeforeChange>,
    /// After the last part.
    after: Option<Attributes>,
    /// No further part is written.
    is_over: bool,
    /// Why nothing was written.
    failure: Option<Status>,
}

impl WriteCall {
    /// Reads the arguments up to the data, and returns what is there of these.
    pub(crate) fn new(call: Call<'_>, now: Instant) -> Result<(Self, &[u8]), Malformed> {
        let mut arguments = call.arguments;
        let handle = Handle::read(&mut arguments)?;
        let offset = arguments.u64()?;
        let count = arguments.u32()?;
        let stable = match arguments.u32()? {
            0 => StableHow::Unstable,
            1 => StableHow::Data,
            2 => StableHow::File,
            _ => return Err(Malformed),
        };
        let len = arguments.u32()?;
        // The count repeats the length of the data.
        if len != count || len as usize > i32::MAX as usize {
            return Err(Malformed);
        }
        let len = len as usize;
        let write = Self {
            xid: call.xid,
            credential: call.credential,
            began: now,
            handle,
            offset,
            stable,
            left: len + padding(len),
            wanted: len.min(TRANSFER_BYTES_MAX),
            progress: Progress {
                written: 0,
                is_stable: true,
                before: None,
                after: None,
                is_over: false,
                failure: None,
            },
        };
        Ok((write, arguments.rest()))
    }

    /// The call's transaction identifier.
    pub(crate) const fn xid(&self) -> u32 {
        self.xid
    }

    /// How many bytes of data and padding have not arrived.
    pub(crate) const fn left_bytes(&self) -> usize {
        self.left
    }

    /// Writes the next bytes of data, if they are no more than are left. It is called at least
    /// once, even if there are no data.
    pub(crate) fn take<B: Backend>(
        &mut self,
        backend: &mut B,
        bytes: &[u8],
    ) -> Result<(), Malformed> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(Malformed)?;
        let data = &bytes[..bytes.len().min(self.wanted)];
        let is_first = self.progress.written == 0 && self.progress.after.is_none();
        let has_none = data.is_empty() && self.wanted > 0;
        if self.progress.is_over || has_none || data.is_empty() && !is_first {
            return Ok(());
        }
        self.wanted -= data.len();
        let mut context = Context {
            credential: &self.credential,
            backend,
            now: self.began,
        };
        let progress = &mut self.progress;
        if let Err(status) = context.recall(self.handle) {
            progress.fail(status);
            return Ok(());
        }
        let place = match context.open(self.handle) {
            Ok(place) => place,
            Err(status) => {
                progress.fail(status);
                return Ok(());
            }
        };
        let is_safe = self.stable > StableHow::Unstable && !place.export.options.is_async;
        let (file, offset) = (place.file, self.offset);
        let written = place.change(|tree, caller| {
            let changed = tree.write(caller, file, offset, data, is_safe);
            changed.map_err(|error| match error {
                file_tree::FileError::IsDirectory => file_tree::FileError::Invalid,
                _ => error,
            })
        });
        match written {
            Ok(changed) => {
                let done = changed.value;
                progress.add(is_first, &changed.before, changed.after);
                progress.written += done.len_bytes;
                progress.is_stable &= done.is_stable;
                progress.is_over = done.len_bytes < data.len();
                self.offset = offset.saturating_add(done.len_bytes as u64);
            }
            Err(status) => {
                progress.fail(status);
                progress.after = place.attributes();
            }
        }
        Ok(())
    }

    /// Writes the results behind the header of the reply.
    pub(crate) fn finish<B: Backend>(&self, backend: &mut B, out: &mut Writer<'_>) -> Completed {
        let progress = &self.progress;
        let status = progress.failure.unwrap_or_else(|| self.settle(backend));
        out.u32(status as u32);
        let export = self
            .handle
            .map_or(ExportId([0; 16]), |handle| handle.export);
        write_change(
            export,
            progress.before.as_ref(),
            progress.after.as_ref(),
            out,
        );
        if status == Status::Ok {
            out.u32(progress.written as u32);
            let committed = if progress.is_stable {
                StableHow::File
            } else {
                // More is asked for than the tree gives only if the export does not wait for it.
                self.stable
            };
            out.u32(committed as u32);
            out.view(&backend.write_verifier());
        }
        Completed {
            procedure: Procedure::Write,
            is_ok: status == Status::Ok,
            bytes_in: progress.written as u64,
            bytes_out: 0,
            began: self.began,
        }
    }
}

impl WriteCall {
    /// Whether a client was given a delegation while the data were written: it may have read what
    /// was there before, so the call is made again when the delegation was returned.
    fn settle<B: Backend>(&self, backend: &mut B) -> Status {
        let mut context = Context {
            credential: &self.credential,
            backend,
            now: self.began,
        };
        match context.recall(self.handle) {
            Err(Status::TryLater) => Status::TryLater,
            _ => Status::Ok,
        }
    }
}

impl Progress {
    /// Nothing more is written. What was written before is a short write.
    fn fail(&mut self, status: Status) {
        self.is_over = true;
        if self.written == 0 {
            self.failure = Some(status);
            self.before = None;
        }
    }

    /// A part has changed the file.
    fn add(&mut self, is_first: bool, before: &BeforeChange, after: Attributes) {
        let is_own = match &self.after {
            None => is_first,
            Some(last) => last.before_change() == *before,
        };
        self.before = match (is_first, is_own) {
            (true, _) => Some(*before),
            (false, true) => self.before,
            (false, false) => None,
        };
        self.after = Some(after);
    }
}
