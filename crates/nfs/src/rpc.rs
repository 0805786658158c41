//! Remote procedure calls: headers of calls, credentials, and headers of replies.
//!
//! Read first: RFC 5531 sections 8, 9 and 11, and appendix A for AUTH_SYS.

mod credential;
mod record;

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Procedure;
use crate::xdr::{Reader, Writer};

pub(crate) use credential::{AUTH_SYS, Credential, User};
pub(crate) use record::{Fragment, RecordReader, record_mark};

/// The fixed part of a call (rpc_msg and call_body).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct CallHeader {
    /// XID: transaction identifier. The reply has the same.
    pub(crate) xid: U32,
    /// Message type: 0 is a call, 1 a reply.
    pub(crate) message_type: U32,
    /// RPC version: 2.
    pub(crate) rpc_version: U32,
    /// The number of the program.
    pub(crate) program: U32,
    /// The version of the program.
    pub(crate) version: U32,
    /// The number of the procedure.
    pub(crate) procedure: U32,
}

const _: () = assert!(size_of::<CallHeader>() == 24);

impl CallHeader {
    /// That of a call of ours: program, version and procedure.
    pub(crate) fn new(xid: u32, (program, version, procedure): (u32, u32, u32)) -> Self {
        Self {
            xid: xid.into(),
            message_type: CALL.into(),
            rpc_version: RPC_VERSION.into(),
            program: program.into(),
            version: version.into(),
            procedure: procedure.into(),
        }
    }
}

/// The header of a reply to a call that was accepted (rpc_msg, reply_body and accepted_reply), up
/// to accept_stat.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct AcceptedHeader {
    /// That of the call.
    pub(crate) xid: U32,
    /// 1: a reply.
    pub(crate) message_type: U32,
    /// reply_stat 0: MSG_ACCEPTED.
    pub(crate) reply_status: U32,
    /// The flavor of the verifier: AUTH_NONE.
    pub(crate) verifier_flavor: U32,
    /// The length of the verifier: 0.
    pub(crate) verifier_len: U32,
    /// accept_stat.
    pub(crate) accept_status: U32,
}

const _: () = assert!(size_of::<AcceptedHeader>() == 24);

impl AcceptedHeader {
    /// Whether it is that of the reply to a call of ours that was executed. A verifier is not
    /// expected.
    pub(crate) fn is_success(&self, xid: u32) -> bool {
        self.is_accepted(xid) && self.accept_status == 0
    }

    /// Whether it is that of a reply to a call of ours that was accepted.
    pub(crate) fn is_accepted(&self, xid: u32) -> bool {
        self.xid == xid
            && self.message_type == REPLY
            && self.reply_status == 0
            && self.verifier_len == 0
    }
}

/// Message types (msg_type).
const CALL: u32 = 0;
const REPLY: u32 = 1;
/// The version of RPC.
const RPC_VERSION: u32 = 2;
/// reply_stat MSG_DENIED.
const DENIED: u32 = 1;
/// NFS and its version.
pub(crate) const NFS_PROGRAM: u32 = 100_003;
/// MOUNT. Its version is that of NFS.
pub(crate) const MOUNT_PROGRAM: u32 = 100_005;
/// The first version of both.
const VERSION_3: u32 = 3;
/// The last version of NFS.
const VERSION_4: u32 = 4;
/// NLM (RFC 1813 section 6).
pub(crate) const LOCK_PROGRAM: u32 = 100_021;
pub(crate) const LOCK_VERSION: u32 = 4;
/// NSM: notifications of restarts, in both directions.
pub(crate) const STATUS_PROGRAM: u32 = 100_024;
pub(crate) const STATUS_VERSION: u32 = 1;
/// The longest credential or verifier in bytes (opaque_auth, section 8.2).
const AUTH_BYTES_MAX: usize = 400;
/// The longest call up to its arguments: the fixed part, credential and verifier.
pub(crate) const CALL_HEAD_BYTES_MAX: usize = size_of::<CallHeader>() + 2 * (8 + AUTH_BYTES_MAX);

/// A call that may be executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    /// Its transaction identifier.
    pub(crate) xid: u32,
    /// What is called.
    pub(crate) procedure: Procedure,
    /// On whose behalf.
    pub(crate) credential: Credential,
    /// The arguments.
    pub(crate) arguments: Reader<'a>,
}

/// Why a call is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reject {
    /// It is no call, or has no xid that a reply could name. It has no reply.
    NoCall,
    /// RPC_MISMATCH: the version of RPC is not 2.
    RpcMismatch,
    /// AUTH_ERROR, with auth_stat.
    Auth(AuthError),
    /// PROG_UNAVAIL: no such program.
    ProgramUnavailable,
    /// PROG_MISMATCH: the program has other versions, the first and the last of which are these.
    ProgramMismatch(u32, u32),
    /// PROC_UNAVAIL: the program has no such procedure.
    ProcedureUnavailable,
    /// GARBAGE_ARGS: the arguments are malformed.
    GarbageArguments,
}

/// auth_stat: why credentials are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum AuthError {
    /// AUTH_BADCRED: the credential is malformed, or of a flavor that is not known.
    BadCredential = 1,
    /// AUTH_BADVERF: the verifier is not what the flavor says.
    BadVerifier = 3,
    /// AUTH_TOOWEAK: the procedure needs a user.
    TooWeak = 5,
}

impl<'a> Call<'a> {
    /// Reads a call up to its arguments. The checks are in the order of the fields, except that a
    /// program's absence is reported before an invalid credential of its caller.
    pub(crate) fn parse(record: &'a [u8]) -> Result<Self, (u32, Reject)> {
        let xid = Self::xid(record).ok_or((0, Reject::NoCall))?;
        Self::parse_body(xid, record).map_err(|reject| (xid, reject))
    }

    fn parse_body(xid: u32, record: &'a [u8]) -> Result<Self, Reject> {
        let mut reader = Reader::new(record);
        let header: &CallHeader = reader.view().map_err(|_| Reject::GarbageArguments)?;
        if header.rpc_version != RPC_VERSION {
            return Err(Reject::RpcMismatch);
        }
        let procedure = find_procedure(header)?;
        let credential = Credential::read(&mut reader).map_err(Reject::Auth)?;
        if credential.is_none() && !procedure.allows_no_credential() {
            return Err(Reject::Auth(AuthError::TooWeak));
        }
        Ok(Self {
            xid,
            procedure,
            credential,
            arguments: reader,
        })
    }

    /// Whether a record that begins like this is a call of WRITE, whose data follow its head.
    pub(crate) fn is_write(record: &[u8]) -> bool {
        Self::is(record, Procedure::Write)
    }

    /// Whether a record that begins like this is a compound of version 4, which may have data.
    pub(crate) fn is_compound(record: &[u8]) -> bool {
        Self::is(record, Procedure::Compound)
    }

    /// The transaction identifier of what may be a call; `None` if it is none.
    pub(crate) fn xid(record: &[u8]) -> Option<u32> {
        let ([a, b, c, d, message_type @ ..], _) = record.split_first_chunk::<8>()?;
        let is_call = u32::from_be_bytes(*message_type) == CALL;
        is_call.then(|| u32::from_be_bytes([*a, *b, *c, *d]))
    }

    /// Whether it is a call of NFS of another version than 3.
    pub(crate) fn is_other_nfs(record: &[u8]) -> bool {
        CallHeader::ref_from_prefix(record).is_ok_and(|(header, _)| {
            header.rpc_version == RPC_VERSION
                && header.program == NFS_PROGRAM
                && header.version != VERSION_3
        })
    }

    fn is(record: &[u8], procedure: Procedure) -> bool {
        CallHeader::ref_from_prefix(record).is_ok_and(|(header, _)| {
            header.message_type == CALL
                && header.rpc_version == RPC_VERSION
                && find_procedure(header) == Ok(procedure)
        })
    }
}

fn find_procedure(header: &CallHeader) -> Result<Procedure, Reject> {
    let number = header.procedure.get();
    let found = match (header.program.get(), header.version.get()) {
        (NFS_PROGRAM, VERSION_3) => Procedure::of_nfs(number),
        (NFS_PROGRAM, VERSION_4) => Procedure::of_nfs4(number),
        (MOUNT_PROGRAM, VERSION_3) => Procedure::of_mount(number),
        (LOCK_PROGRAM, LOCK_VERSION) => Procedure::of_nlm(number),
        (STATUS_PROGRAM, STATUS_VERSION) => Procedure::of_nsm(number),
        (NFS_PROGRAM, _) => return Err(Reject::ProgramMismatch(VERSION_3, VERSION_4)),
        (MOUNT_PROGRAM, _) => return Err(Reject::ProgramMismatch(VERSION_3, VERSION_3)),
        (LOCK_PROGRAM, _) => return Err(Reject::ProgramMismatch(LOCK_VERSION, LOCK_VERSION)),
        (STATUS_PROGRAM, _) => {
            return Err(Reject::ProgramMismatch(STATUS_VERSION, STATUS_VERSION));
        }
        _ => return Err(Reject::ProgramUnavailable),
    };
    found.ok_or(Reject::ProcedureUnavailable)
}

/// The transaction identifier of what is a reply to a call of this server's.
pub(crate) fn reply_xid(record: &[u8]) -> Option<u32> {
    let ([a, b, c, d, message_type @ ..], _) = record.split_first_chunk::<8>()?;
    let is_reply = u32::from_be_bytes(*message_type) == REPLY;
    is_reply.then(|| u32::from_be_bytes([*a, *b, *c, *d]))
}

/// The header of a reply to a call whose results follow (SUCCESS).
pub(crate) fn write_success(xid: u32, out: &mut Writer<'_>) {
    write_accepted(xid, 0, out);
}

fn write_accepted(xid: u32, accept_status: u32, out: &mut Writer<'_>) {
    out.view(&AcceptedHeader {
        xid: xid.into(),
        message_type: REPLY.into(),
        reply_status: 0.into(),
        verifier_flavor: 0.into(),
        verifier_len: 0.into(),
        accept_status: accept_status.into(),
    });
}

/// The reply to a call that is not executed. [`Reject::NoCall`] has none.
pub(crate) fn write_reject(xid: u32, reject: Reject, out: &mut Writer<'_>) {
    match reject {
        Reject::NoCall => {}
        Reject::ProgramUnavailable => write_accepted(xid, 1, out),
        Reject::ProgramMismatch(first, last) => {
            write_accepted(xid, 2, out);
            out.u32(first);
            out.u32(last);
        }
        Reject::ProcedureUnavailable => write_accepted(xid, 3, out),
        Reject::GarbageArguments => write_accepted(xid, 4, out),
        Reject::RpcMismatch => {
            write_words(&[xid, REPLY, DENIED, 0, RPC_VERSION, RPC_VERSION], out);
        }
        Reject::Auth(error) => write_words(&[xid, REPLY, DENIED, 1, error as u32], out),
    }
}

fn write_words(words: &[u32], out: &mut Writer<'_>) {
    for word in words {
        out.u32(*word);
    }
}

#[cfg(test)]
mod tests;
