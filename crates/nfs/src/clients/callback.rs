//! CB_COMPOUND: calls of this server to a client, over the back channel of a session.
//!
//! Read first: RFC 8881 sections 20.2 and 20.9, and section 2.10.3.1 for channels.

use super::claims::FileKey;
use super::session_id::SessionId;
use super::stateid::StateId;
use crate::rpc::{AUTH_SYS, AcceptedHeader, CallHeader, record_mark};
use crate::xdr::{Malformed, Reader, Writer};

/// As whom a client wants to be called (callback_sec_parms4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallbackCredential {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS, with this user and group.
    System {
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
    },
}

/// How a client wants to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallbackProgram {
    /// The number of its program.
    pub(crate) number: u32,
    /// The minor version of its session.
    pub(crate) minor: u32,
    /// As whom.
    pub(crate) credential: CallbackCredential,
}

/// A place in a back channel: a slot, and the number of its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallbackSlot {
    pub(crate) session: SessionId,
    pub(crate) slot: u32,
    pub(crate) highest_slot: u32,
    pub(crate) sequence: u32,
}

/// How a recall has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecallEnd {
    /// The client knows that it has to return the delegation.
    Delivered,
    /// It was executed, and the client asks for another one: it does not know the delegation yet,
    /// or has no time.
    Later,
    /// The slot's request was not executed, so the next one has the same number.
    NotExecuted,
    /// The slot's number was used before, by a request whose reply was lost.
    Repeated,
    /// The client refuses whatever comes over this back channel.
    Broken,
}

/// The version and the procedure of CB_COMPOUND.
const VERSION: u32 = 1;
const COMPOUND: u32 = 1;
/// Operations of callbacks.
const RECALL: u32 = 4;
const SEQUENCE: u32 = 11;
/// Statuses of CB_SEQUENCE: NFS4ERR_DELAY, NFS4ERR_RETRY_UNCACHED_REP, NFS4ERR_SEQ_FALSE_RETRY.
const OK: u32 = 0;
const DELAY: u32 = 10_008;
const RETRY_UNCACHED: u32 = 10_068;
const FALSE_RETRY: u32 = 10_076;
/// The longest tag of a reply that is read, in bytes.
const TAG_BYTES_MAX: usize = 1024;
/// The longest callback in bytes, with the header of its record.
pub(crate) const CALLBACK_BYTES_MAX: usize = 256;

/// A recall of a delegation, as a record.
pub(crate) fn recall(
    xid: u32,
    program: &CallbackProgram,
    at: &CallbackSlot,
    (id, key): (StateId, &FileKey),
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(CALLBACK_BYTES_MAX);
    let mut out = Writer::new(&mut bytes);
    out.zeros(4);
    out.view(&CallHeader::new(xid, (program.number, VERSION, COMPOUND)));
    program.credential.write(&mut out);
    // An empty tag; the identifier of callbacks is of minor version 0.
    for word in [0, program.minor, 0, 2, SEQUENCE] {
        out.u32(word);
    }
    at.session.write(&mut out);
    // The reply is not kept, and no call of the client's is referred to.
    for word in [at.sequence, at.slot, at.highest_slot, 0, 0, RECALL] {
        out.u32(word);
    }
    id.write(&mut out);
    // The file is not cut off to nothing, as far as is known.
    out.bool(false);
    out.opaque(&key.0);
    let len = out.len() - 4;
    out.patch(0, &record_mark(len));
    bytes
}

/// What a reply says of a recall.
pub(crate) fn recall_end(reply: &[u8]) -> RecallEnd {
    read_end(reply).unwrap_or(RecallEnd::Broken)
}

fn read_end(reply: &[u8]) -> Result<RecallEnd, Malformed> {
    let mut reader = Reader::new(reply);
    let header: &AcceptedHeader = reader.view()?;
    if !header.is_success(header.xid.get()) {
        return Ok(RecallEnd::Broken);
    }
    let _status = reader.u32()?;
    reader.opaque(TAG_BYTES_MAX)?;
    let count = reader.u32()?;
    if count == 0 || reader.u32()? != SEQUENCE {
        return Ok(RecallEnd::Broken);
    }
    match reader.u32()? {
        OK => {}
        DELAY => return Ok(RecallEnd::NotExecuted),
        RETRY_UNCACHED | FALSE_RETRY => return Ok(RecallEnd::Repeated),
        _ => return Ok(RecallEnd::Broken),
    }
    // The session, and four numbers of its slots.
    reader.array::<32>()?;
    let is_delivered = count > 1 && reader.u32()? == RECALL && reader.u32()? == OK;
    Ok(if is_delivered {
        RecallEnd::Delivered
    } else {
        RecallEnd::Later
    })
}

impl CallbackCredential {
    /// Writes it, with the verifier AUTH_NONE.
    fn write(self, out: &mut Writer<'_>) {
        match self {
            Self::None => out.zeros(8),
            Self::System { uid, gid } => {
                // No stamp, no name of a machine, and no further groups.
                out.u32(AUTH_SYS);
                for word in [20, 0, 0, uid, gid, 0] {
                    out.u32(word);
                }
            }
        }
        out.zeros(8);
    }
}
