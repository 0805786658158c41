//! COMPOUND: from its operations to their results.
//!
//! Read first: RFC 8881 sections 16.2 and 2.10.6.

use std::time::Instant;

use super::operation::{ILLEGAL, Operation};
use super::place::{MinorVersion, Node, Place, key_of, open_place, with_clients};
use crate::clients::{
    Begun, ChannelLimits, FileKey, Principal, Request, SessionId, SlotId, SlotRequest, StateId,
};
use crate::rpc::{Call, Credential};
use crate::status4::Status4;
use crate::v3::Handle;
use crate::xdr::{Malformed, Reader, Writer};
use crate::{Backend, Completed, Procedure};

/// A compound that is being executed.
pub(super) struct Compound<'a, B> {
    pub(super) backend: &'a mut B,
    pub(super) credential: &'a Credential,
    pub(super) now: Instant,
    minor: MinorVersion,
    /// The client and its session, in a compound that begins with SEQUENCE.
    sequenced: Option<Sequenced>,
    pub(super) current: Slot,
    pub(super) saved: Slot,
    /// Operations behind the present one.
    pub(super) left: u32,
    /// How long the output may become.
    reply_end: usize,
    /// The same for a reply that is to be kept.
    kept_end: Option<usize>,
    /// The operation that the compound is counted as.
    main: Option<Operation>,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

/// The current or the saved file handle, with the state ID that belongs to it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    pub(super) node: Option<Node>,
    pub(super) state: Option<StateId>,
}

/// What SEQUENCE has led to.
#[derive(Clone, Copy, Debug)]
struct Sequenced {
    asked: SlotRequest,
    /// The slot in use; a repeated request whose reply was not kept uses none.
    slot: Option<SlotId>,
    client: u64,
    limits: ChannelLimits,
}

/// How a compound begins.
enum Start {
    /// Its results were kept, and were appended.
    Replied,
    /// Its operations are to be executed.
    Run,
    /// Its first operation fails, as the operation with this number.
    Failed(u32, Status4),
}

/// The longest tag in bytes.
const TAG_BYTES_MAX: usize = 1024;
/// The longest reply without a session: that of EXCHANGE_ID or CREATE_SESSION.
const SOLE_REPLY_BYTES_MAX: usize = 4096;
/// What a result takes at most, of operations that do not check it themselves.
const RESULT_BYTES_MAX: usize = 640;
/// The same with a conflicting lock, which has the name of an owner.
const LOCK_BYTES_MAX: usize = 1100;

/// Executes a compound and writes its results behind the header of the reply. `len_bytes` is the length of the whole call.
pub(crate) fn execute<B: Backend>(
    call: &Call<'_>,
    len_bytes: usize,
    now: Instant,
    backend: &mut B,
    out: &mut Writer<'_>,
) -> Result<Completed, Malformed> {
    let mut arguments = call.arguments;
    let tag = arguments.opaque(TAG_BYTES_MAX)?;
    let (minor, count) = (arguments.u32()?, arguments.u32()?);
    let begin = out.len();
    let minor = match minor {
        1 => Some(MinorVersion::One),
        2 => Some(MinorVersion::Two),
        _ => None,
    };
    let mut compound = Compound {
        backend,
        credential: &call.credential,
        now,
        minor: minor.unwrap_or(MinorVersion::One),
        sequenced: None,
        current: Slot::default(),
        saved: Slot::default(),
        left: count,
        reply_end: begin + SOLE_REPLY_BYTES_MAX,
        kept_end: None,
        main: None,
        bytes_in: 0,
        bytes_out: 0,
    };
    let start = match compound.start(&mut arguments, len_bytes, out) {
        Start::Replied => return Ok(compound.completed(Status4::Ok)),
        start => start,
    };
    out.u32(0);
    out.opaque(tag);
    let count_at = out.len();
    out.u32(0);
    let (status, results) = match start {
        _ if minor.is_none() => (Status4::MinorVersionMismatch, 0),
        Start::Failed(number, status) => {
            out.u32(number);
            out.u32(status as u32);
            (status, 1)
        }
        _ => compound.run(&mut arguments, out),
    };
    out.patch(begin, &(status as u32).to_be_bytes());
    out.patch(count_at, &u32::to_be_bytes(results));
    compound.finish(out.tail(begin));
    Ok(compound.completed(status))
}

impl<B: Backend> Compound<'_, B> {
    /// Checks the first operation. A SEQUENCE is taken.
    fn start(
        &mut self,
        arguments: &mut Reader<'_>,
        len_bytes: usize,
        out: &mut Writer<'_>,
    ) -> Start {
        if self.left == 0 {
            return Start::Run;
        }
        let mut first = *arguments;
        let Ok(number) = first.u32() else {
            return Start::Failed(ILLEGAL, Status4::BadXdr);
        };
        match Operation::new(number, self.minor) {
            Operation::Sequence => {}
            Operation::Illegal => return Start::Failed(ILLEGAL, Status4::IllegalOperation),
            sole if sole.needs_no_session() && self.left == 1 => return Start::Run,
            sole if sole.needs_no_session() => {
                return Start::Failed(number, Status4::NotOnlyOperation);
            }
            _ => return Start::Failed(number, Status4::NotInSession),
        }
        *arguments = first;
        match self.begin_sequence(arguments, len_bytes, out) {
            Ok(true) => Start::Replied,
            Ok(false) => Start::Run,
            Err(status) => Start::Failed(number, status),
        }
    }

    /// SEQUENCE (section 18.46). Returns whether the kept results were appended.
    fn begin_sequence(
        &mut self,
        arguments: &mut Reader<'_>,
        len_bytes: usize,
        out: &mut Writer<'_>,
    ) -> Result<bool, Status4> {
        let session = SessionId::read(arguments)?;
        let (sequence, slot) = (arguments.u32()?, arguments.u32()?);
        let _highest_slot = arguments.u32()?;
        let is_kept = arguments.bool()?;
        let asked = SlotRequest {
            session,
            sequence,
            slot,
            is_kept,
        };
        let request = Request {
            address: self.backend.client(),
            len_bytes,
            operations: self.left,
            checksum: self.credential.checksum(crc32c::crc32c(arguments.rest())),
        };
        let now = self.now;
        let begun = with_clients(self.backend, |clients| {
            clients.begin(now, &asked, &request, out)
        })??;
        let sequenced = |slot, client, limits| Sequenced {
            asked,
            slot,
            client,
            limits,
        };
        self.sequenced = Some(match begun {
            Begun::Replied => return Ok(true),
            Begun::NotKept { client, limits } => sequenced(None, client, limits),
            Begun::New {
                slot,
                client,
                limits,
            } => sequenced(Some(slot), client, limits),
        });
        Ok(false)
    }

    /// Executes operations until one fails. Returns the status and the number of results.
    fn run(&mut self, arguments: &mut Reader<'_>, out: &mut Writer<'_>) -> (Status4, u32) {
        let mut results = 0;
        if let Some(sequenced) = self.sequenced {
            self.left -= 1;
            results = 1;
            sequenced.write(out);
            // The reply began with the header of RPC, some bytes before.
            self.reply_end = out.len() + sequenced.limits.reply_bytes as usize - HEAD_BYTES_MAX;
            let kept = sequenced.limits.kept_bytes as usize;
            self.kept_end = sequenced
                .asked
                .is_kept
                .then(|| (out.len() + kept).saturating_sub(HEAD_BYTES_MAX));
        }
        while self.left > 0 {
            self.left -= 1;
            results += 1;
            let status = self.run_one(arguments, out);
            if status != Status4::Ok {
                return (status, results);
            }
        }
        (Status4::Ok, results)
    }

    /// Executes the next operation and writes its result.
    fn run_one(&mut self, arguments: &mut Reader<'_>, out: &mut Writer<'_>) -> Status4 {
        let number = arguments.u32();
        let operation = number.map_or(Operation::Illegal, |number| {
            Operation::new(number, self.minor)
        });
        match (number, operation) {
            (Ok(number), operation) if operation != Operation::Illegal => out.u32(number),
            _ => out.u32(ILLEGAL),
        }
        let status_at = out.len();
        out.u32(0);
        if operation.procedure().is_some() || self.main.is_none() {
            self.main = self
                .main
                .filter(|main| main.procedure().is_some())
                .or(Some(operation));
        }
        let result = match number {
            Err(malformed) => Err(malformed.into()),
            Ok(_) => self
                .check_room(operation, out)
                .and_then(|()| self.dispatch(operation, arguments, out)),
        };
        let status = result.err().unwrap_or(Status4::Ok);
        // Denied locks have results; all other failures have none, except for SETATTR, which changes nothing then.
        if status != Status4::Ok && status != Status4::Denied {
            out.truncate(status_at + 4);
            if operation == Operation::SetAttr {
                out.u32(0);
            }
        }
        out.patch(status_at, &(status as u32).to_be_bytes());
        status
    }

    /// Checks that the result of an operation fits, before it is executed.
    fn check_room(&self, operation: Operation, out: &Writer<'_>) -> Result<(), Status4> {
        let needed = match operation {
            Operation::Lock | Operation::LockTest => LOCK_BYTES_MAX,
            // These have no results besides their status.
            Operation::PutFh
            | Operation::PutRootFh
            | Operation::PutPublicFh
            | Operation::SaveFh
            | Operation::RestoreFh
            | Operation::ReclaimComplete => 8,
            _ => RESULT_BYTES_MAX,
        };
        self.check_reply(out.len() + needed)
    }

    /// Checks that the reply may have this length.
    pub(super) fn check_reply(&self, len: usize) -> Result<(), Status4> {
        if len > self.reply_end {
            return Err(Status4::ReplyTooBig);
        }
        match self.kept_end {
            Some(end) if len > end => Err(Status4::ReplyTooBigToCache),
            _ => Ok(()),
        }
    }

    /// How many bytes may be added to the output.
    pub(super) fn room(&self, out: &Writer<'_>) -> usize {
        let end = self.kept_end.unwrap_or(usize::MAX).min(self.reply_end);
        end.saturating_sub(out.len())
    }

    fn dispatch(
        &mut self,
        operation: Operation,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        // A repeated request whose reply was not kept is not executed again (section 2.10.6.1.3).
        if self
            .sequenced
            .is_some_and(|sequenced| sequenced.slot.is_none())
        {
            return Err(Status4::RetryUncachedReply);
        }
        match operation {
            Operation::Access => self.access(arguments, out),
            Operation::Close => self.close(arguments, out),
            Operation::Commit => self.commit(arguments, out),
            Operation::Create => self.create(arguments, out),
            Operation::GetAttr => self.get_attributes(arguments, out),
            Operation::GetFh => self.get_handle(out),
            Operation::Link => self.link(arguments, out),
            Operation::Lock => self.lock(arguments, out),
            Operation::LockTest => self.test_lock(arguments, out),
            Operation::Unlock => self.unlock(arguments, out),
            Operation::Lookup => self.look_up(arguments),
            Operation::LookupParent => self.look_up_parent(),
            Operation::NotVerify => self.verify(arguments, Status4::Same),
            Operation::Open => self.open(arguments, out),
            Operation::OpenDowngrade => self.downgrade(arguments, out),
            Operation::PutFh => self.put_handle(arguments),
            Operation::PutPublicFh | Operation::PutRootFh => self.put(Node::Root),
            Operation::Read => self.read(arguments, out),
            Operation::ReadDir => self.read_directory(arguments, out),
            Operation::ReadLink => self.read_link(out),
            Operation::Remove => self.remove(arguments, out),
            Operation::Rename => self.rename(arguments, out),
            Operation::RestoreFh => self.restore(),
            Operation::SaveFh => self.save(),
            Operation::SecurityInfo => self.security_info(arguments, out),
            Operation::SecurityInfoNoName => self.security_info_no_name(arguments, out),
            Operation::SetAttr => self.set_attributes(arguments, out),
            Operation::Verify => self.verify(arguments, Status4::NotSame),
            Operation::Write => self.write(arguments, out),
            Operation::BindConnection => self.bind_connection(arguments, out),
            Operation::ExchangeId => self.exchange(arguments, out),
            Operation::CreateSession => self.create_session(arguments, out),
            Operation::DestroySession => self.destroy_session(arguments),
            Operation::FreeStateId => self.free_state(arguments),
            Operation::TestStateId => self.test_states(arguments, out),
            Operation::DestroyClientId => self.destroy_client(arguments),
            Operation::ReclaimComplete => self.complete_reclaim(arguments),
            Operation::Deallocate => self.deallocate(arguments),
            Operation::Sequence => Err(Status4::SequencePosition),
            Operation::NotSupported => Err(Status4::NotSupported),
            Operation::Illegal => Err(Status4::IllegalOperation),
        }
    }

    /// Keeps the results, if the client wants that, and frees the slot.
    fn finish(&mut self, results: &[u8]) {
        if let Some(sequenced) = self.sequenced
            && let Some(slot) = sequenced.slot
        {
            let kept = sequenced.asked.is_kept.then_some(results);
            // A program that lends no state has begun nothing.
            let _ = with_clients(self.backend, |clients| clients.finish(slot, kept));
        }
    }

    fn completed(&self, status: Status4) -> Completed {
        Completed {
            procedure: match self.main {
                Some(Operation::GetAttr) => Procedure::GetAttr,
                main => main
                    .and_then(Operation::procedure)
                    .unwrap_or(Procedure::Compound),
            },
            is_ok: status == Status4::Ok,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            began: self.now,
        }
    }

    /// The client of the session.
    pub(super) fn client(&self) -> Result<u64, Status4> {
        let sequenced = self.sequenced.ok_or(Status4::NotInSession)?;
        Ok(sequenced.client)
    }

    /// The session of the compound.
    pub(super) fn session(&self) -> Option<SessionId> {
        self.sequenced.map(|sequenced| sequenced.asked.session)
    }

    /// Who makes the call.
    pub(super) fn principal(&self) -> Principal {
        Principal {
            address: self.backend.client(),
            uid: self.credential.uid(),
        }
    }

    /// What the current file handle names.
    pub(super) fn node(&self) -> Result<Node, Status4> {
        self.current.node.ok_or(Status4::NoFileHandle)
    }

    /// The current file, whose key in the state of clients comes with it. The root has the status `otherwise`.
    pub(super) fn current_file(&self, otherwise: Status4) -> Result<(Handle, FileKey), Status4> {
        let handle = self.node()?.file(otherwise)?;
        Ok((handle, key_of(handle)))
    }

    /// The place of a file.
    pub(super) fn place(&mut self, handle: Handle) -> Result<Place<'_>, Status4> {
        open_place(self.backend, self.credential, handle)
    }

    /// Makes a file the current one.
    pub(super) fn put(&mut self, node: Node) -> Result<(), Status4> {
        self.current = Slot {
            node: Some(node),
            state: None,
        };
        Ok(())
    }

    /// The state ID that is meant by one of a client's (section 8.2.3).
    pub(super) fn meant(&self, id: StateId) -> Result<StateId, Status4> {
        if id == StateId::CURRENT {
            return self.current.state.ok_or(Status4::BadStateId);
        }
        Ok(id)
    }
}

/// The longest part of a reply in front of the results of SEQUENCE and with them, in bytes: headers, tag, status.
const HEAD_BYTES_MAX: usize = 28 + 4 + 4 + 4 + 44 + 4;

impl Sequenced {
    /// The result of SEQUENCE.
    fn write(&self, out: &mut Writer<'_>) {
        out.u32(53);
        out.u32(Status4::Ok as u32);
        self.asked.session.write(out);
        let highest_slot = self.limits.requests - 1;
        for word in [
            self.asked.sequence,
            self.asked.slot,
            highest_slot,
            highest_slot,
            0,
        ] {
            out.u32(word);
        }
    }
}
