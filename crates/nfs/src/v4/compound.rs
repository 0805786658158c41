//! COMPOUND: from its operations to their results.
//!
//! Read first: RFC 8881 sections 16.2 and 2.10.6.

mod waits;

use std::time::Instant;

use super::operation::{ILLEGAL, Operation, OwnedOperation};
use super::place::{MinorVersion, Node, Place, key_of, open_place, with_clients};
use super::skip::reply_bytes;
use crate::clients::{
    Begun, ChannelLimits, FileKey, HEAD_BYTES_MAX, MESSAGE_BYTES_MAX, OPERATIONS_MAX, Principal,
    Request, SessionId, SlotId, SlotRequest, StateId,
};
use crate::reply_cache::{CallKey, Known};
use crate::results::Results;
use crate::rpc::{Call, Credential};
use crate::status4::Status4;
use crate::v3::Handle;
use crate::xdr::{Malformed, Reader, Writer};
use crate::{Backend, Completed, ExportId, Procedure};

/// A compound that is being executed.
pub(super) struct Compound<'a, B> {
    pub(super) backend: &'a mut B,
    /// Its arguments begin with its tag.
    pub(super) call: &'a Call<'a>,
    pub(super) credential: &'a Credential,
    pub(super) now: Instant,
    /// Whether it stops in front of operations whose tree waits for storage.
    stops: bool,
    pub(super) at: Progress,
}

/// How far a compound is.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) minor: MinorVersion,
    /// The client and its session, in a compound that begins with SEQUENCE.
    sequenced: Option<Sequenced>,
    /// In minor version 0: what its reply is kept under.
    pub(super) kept: Option<CallKey>,
    pub(super) current: Slot,
    pub(super) saved: Slot,
    /// Operations behind the present one.
    pub(super) left: u32,
    /// Where in the output the results of the compound begin, and where their number is.
    pub(super) begin: usize,
    count_at: usize,
    /// The results that were written.
    count: u32,
    /// How long the output may become.
    reply_end: usize,
    /// The same for a reply that is to be kept.
    kept_end: Option<usize>,
    /// The operation that the compound is counted as.
    main: Option<Operation>,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// What operations have moved within this server: see [`Compound::check_moved`].
    pub(super) moved_bytes: u64,
    /// Results that may be placed.
    pub(super) results: Results,
}

/// What the execution of a compound has led to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is done, with results that may be placed.
    Done(Completed, Results),
    /// It has stopped in front of an operation whose tree waits for storage.
    Stopped(Box<Stopped>),
    /// It has no reply, since another connection executes it.
    Dropped,
}

/// A compound that has stopped. What it was to write behind the header of its reply was written as
/// far as it is.
#[derive(Debug)]
pub(crate) struct Stopped {
    at: Progress,
    now: Instant,
    /// The length of the arguments that were not read.
    left_bytes: usize,
    /// The export whose tree waits.
    pub(crate) export: ExportId,
    /// The most bytes that will be added to the reply.
    pub(crate) reply_bytes: usize,
}

/// What to do with a compound that has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resumption {
    /// Its operations are executed.
    Execute,
    /// It cannot be executed now: the status asks the client to retry later.
    Refuse,
}

/// Why no more operations are executed.
enum End {
    /// The compound is done, with this status.
    Done(Status4),
    /// The tree of this export waits for storage.
    Waits(ExportId),
    /// It was executed before, and the reply of then replaces what was written.
    Replied,
    /// Another connection executes it, so it has no reply here.
    Dropped,
}

/// The current or the saved file handle, with the state ID that belongs to it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    pub(super) node: Option<Node>,
    pub(super) state: Option<StateId>,
}

/// What an open or a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Demand {
    /// The client did not have it.
    New,
    /// The client had it before the program's restart.
    Reclaim,
}

/// What SEQUENCE has led to.
#[derive(Clone, Copy, Debug)]
struct Sequenced {
    asked: SlotRequest,
    /// The slot in use; a repeated request whose reply was not kept uses none.
    slot: Option<SlotId>,
    client: u64,
    limits: ChannelLimits,
    /// sr_status_flags.
    flags: u32,
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

/// How much of the operations behind SEQUENCE is compared when a request is sent again, in bytes:
/// what precedes the data of a WRITE, and more.
const CHECKED_BYTES_MAX: usize = 512;
/// The longest tag in bytes.
const TAG_BYTES_MAX: usize = 1024;
/// The longest reply without a session: that of EXCHANGE_ID or CREATE_SESSION.
const SOLE_REPLY_BYTES_MAX: usize = 4096;
/// What a result takes at most, of operations that do not check it themselves.
const RESULT_BYTES_MAX: usize = 640;
/// The same with a conflicting lock, which has the name of an owner.
const LOCK_BYTES_MAX: usize = 1100;

/// Executes a compound and writes its results behind the header of the reply, until one of its
/// operations has to wait. `len_bytes` is the length of the whole call.
pub(crate) fn execute<B: Backend>(
    call: &Call<'_>,
    len_bytes: usize,
    now: Instant,
    backend: &mut B,
    out: &mut Writer<'_>,
) -> Result<Outcome, Malformed> {
    let mut arguments = call.arguments;
    let tag = arguments.opaque(TAG_BYTES_MAX)?;
    let (minor, count) = (arguments.u32()?, arguments.u32()?);
    let minor = MinorVersion::new(minor);
    let mut compound = Compound {
        backend,
        call,
        credential: &call.credential,
        now,
        stops: true,
        at: Progress::new(minor.unwrap_or(MinorVersion::One), count, out.len()),
    };
    let start = match compound.start(minor, &mut arguments, len_bytes, out) {
        Start::Replied => {
            let completed = compound.completed(Status4::Ok);
            return Ok(Outcome::Done(completed, Results::default()));
        }
        start => start,
    };
    out.u32(0);
    out.opaque(tag);
    compound.at.count_at = out.len();
    out.u32(0);
    let end = match start {
        _ if minor.is_none() => End::Done(Status4::MinorVersionMismatch),
        Start::Failed(number, status) => {
            out.u32(number);
            out.u32(status as u32);
            compound.at.count = 1;
            End::Done(status)
        }
        _ => {
            compound.write_sequence(out);
            compound.run(&mut arguments, out)
        }
    };
    Ok(match end {
        End::Replied => Outcome::Done(compound.completed(Status4::Ok), Results::default()),
        End::Dropped => Outcome::Dropped,
        End::Done(status) => {
            let (completed, results) = compound.end(status, out);
            Outcome::Done(completed, results)
        }
        End::Waits(export) => Outcome::Stopped(Box::new(Stopped {
            reply_bytes: reply_bytes(arguments, compound.at.minor, compound.at.left)
                .min(compound.room(out)),
            at: compound.at,
            now,
            left_bytes: arguments.rest().len(),
            export,
        })),
    })
}

/// Executes the rest of a compound that has stopped, in a thread that may wait, or refuses it.
/// `out` has what was written before. Returns `None` if there is no reply.
pub(crate) fn resume<B: Backend>(
    call: &Call<'_>,
    stopped: Stopped,
    resumption: Resumption,
    backend: &mut B,
    out: &mut Writer<'_>,
) -> Option<(Completed, Results)> {
    let all = call.arguments.rest();
    let begin = all.len().saturating_sub(stopped.left_bytes);
    let mut arguments = Reader::new(&all[begin..]);
    let mut compound = Compound {
        backend,
        call,
        credential: &call.credential,
        now: stopped.now,
        stops: false,
        at: stopped.at,
    };
    let status = match resumption {
        Resumption::Refuse => compound.refuse_next(&mut arguments, out),
        Resumption::Execute => match compound.run(&mut arguments, out) {
            End::Done(status) => status,
            // It does not stop again.
            End::Waits(_) => Status4::ServerFault,
            End::Replied => return Some((compound.completed(Status4::Ok), Results::default())),
            End::Dropped => return None,
        },
    };
    Some(compound.end(status, out))
}

impl Stopped {
    /// The bytes in front of the reply in the output were removed.
    pub(crate) fn move_to_front(&mut self, by: usize) {
        let at = &mut self.at;
        at.begin -= by;
        at.count_at -= by;
        at.reply_end -= by;
        at.kept_end = at.kept_end.map(|end| end.saturating_sub(by));
        at.results.move_to_front(by);
    }
}

impl Progress {
    fn new(minor: MinorVersion, operations: u32, begin: usize) -> Self {
        Self {
            minor,
            sequenced: None,
            kept: None,
            current: Slot::default(),
            saved: Slot::default(),
            left: operations,
            begin,
            count_at: begin,
            count: 0,
            reply_end: begin
                + match minor {
                    MinorVersion::Zero => MESSAGE_BYTES_MAX as usize - HEAD_BYTES_MAX,
                    _ => SOLE_REPLY_BYTES_MAX,
                },
            kept_end: None,
            main: None,
            bytes_in: 0,
            bytes_out: 0,
            moved_bytes: 0,
            results: Results::default(),
        }
    }
}

impl<B: Backend> Compound<'_, B> {
    /// Checks the first operation. A SEQUENCE is taken.
    fn start(
        &mut self,
        minor: Option<MinorVersion>,
        arguments: &mut Reader<'_>,
        len_bytes: usize,
        out: &mut Writer<'_>,
    ) -> Start {
        if self.at.left == 0 || minor.is_none() {
            return Start::Run;
        }
        let mut first = *arguments;
        let Ok(number) = first.u32() else {
            return Start::Failed(ILLEGAL, Status4::BadXdr);
        };
        match Operation::new(number, self.at.minor) {
            Operation::Illegal => return Start::Failed(ILLEGAL, Status4::IllegalOperation),
            _ if self.at.minor == MinorVersion::Zero && self.at.left > OPERATIONS_MAX => {
                return Start::Failed(number, Status4::Resource);
            }
            _ if self.at.minor == MinorVersion::Zero => return Start::Run,
            Operation::Sequence => {}
            sole if sole.needs_no_session() && self.at.left == 1 => return Start::Run,
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
            operations: self.at.left,
            checksum: self.credential.checksum(checksum_of(arguments.rest())),
        };
        let now = self.now;
        let begun = with_clients(self.backend, |clients| {
            clients.begin(now, &asked, &request, out)
        })??;
        let sequenced = |slot, client, limits, flags| Sequenced {
            asked,
            slot,
            client,
            limits,
            flags,
        };
        self.at.sequenced = Some(match begun {
            Begun::Replied => return Ok(true),
            Begun::NotKept {
                client,
                limits,
                flags,
            } => sequenced(None, client, limits, flags),
            Begun::New {
                slot,
                client,
                limits,
                flags,
            } => sequenced(Some(slot), client, limits, flags),
        });
        Ok(false)
    }

    /// Writes the result of SEQUENCE, which bounds the reply.
    fn write_sequence(&mut self, out: &mut Writer<'_>) {
        let Some(sequenced) = self.at.sequenced else {
            return;
        };
        self.at.left -= 1;
        self.at.count = 1;
        sequenced.write(out);
        // The reply began with the header of RPC, some bytes before.
        self.at.reply_end = out.len() + sequenced.limits.reply_bytes as usize - HEAD_BYTES_MAX;
        let kept = sequenced.limits.kept_bytes as usize;
        self.at.kept_end = sequenced
            .asked
            .is_kept
            .then(|| (out.len() + kept).saturating_sub(HEAD_BYTES_MAX));
    }

    /// Executes operations until one fails, or has to wait.
    fn run(&mut self, arguments: &mut Reader<'_>, out: &mut Writer<'_>) -> End {
        while self.at.left > 0 {
            if self.stops
                && let Some(export) = self.waits_for(*arguments)
            {
                return End::Waits(export);
            }
            match self.begin_once(*arguments, out) {
                Known::New => {}
                Known::Replied => return End::Replied,
                Known::InProgress => return End::Dropped,
            }
            self.at.left -= 1;
            self.at.count += 1;
            let status = self.run_one(arguments, out);
            if status != Status4::Ok {
                return End::Done(status);
            }
        }
        End::Done(Status4::Ok)
    }

    /// Fails the next operation, which cannot wait now.
    fn refuse_next(&mut self, arguments: &mut Reader<'_>, out: &mut Writer<'_>) -> Status4 {
        let number = arguments.u32().unwrap_or(ILLEGAL);
        self.at.count += 1;
        let operation = Operation::new(number, self.at.minor);
        // With RESOURCE the number of a request of an owner is not taken. Clients do not retry what
        // has failed like that.
        let status = match self.at.minor {
            MinorVersion::Zero if operation.is_of_owner() => Status4::Resource,
            _ => Status4::Delay,
        };
        out.u32(number);
        out.u32(status as u32);
        if operation == Operation::SetAttr {
            out.u32(0);
        }
        status
    }

    /// Completes the reply.
    fn end(mut self, status: Status4, out: &mut Writer<'_>) -> (Completed, Results) {
        out.patch(self.at.begin, &(status as u32).to_be_bytes());
        out.patch(self.at.count_at, &u32::to_be_bytes(self.at.count));
        self.finish(out.tail(self.at.begin));
        self.end_once(out.tail(self.at.begin));
        (self.completed(status), self.at.results)
    }

    /// Executes the next operation and writes its result.
    fn run_one(&mut self, arguments: &mut Reader<'_>, out: &mut Writer<'_>) -> Status4 {
        let number = arguments.u32();
        let operation = number.map_or(Operation::Illegal, |number| {
            Operation::new(number, self.at.minor)
        });
        match (number, operation) {
            (Ok(number), operation) if operation != Operation::Illegal => out.u32(number),
            _ => out.u32(ILLEGAL),
        }
        let status_at = out.len();
        out.u32(0);
        if operation.procedure().is_some() || self.at.main.is_none() {
            self.at.main = self
                .at
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
        let status = self.own(result.err().unwrap_or(Status4::Ok));
        // Denied locks have results; all other failures have none, except for SETATTR, which
        // changes nothing then.
        if status != Status4::Ok && status != Status4::Denied {
            out.truncate(status_at + 4);
            if operation == Operation::SetAttr {
                out.u32(0);
            }
            if operation == Operation::Owned(OwnedOperation::SetClientId)
                && status == Status4::ClientIdInUse
            {
                // clientaddr4 of the other client is not disclosed.
                out.u64(0);
            }
        }
        out.patch(status_at, &(status as u32).to_be_bytes());
        status
    }

    /// Checks that the result of an operation fits, before it is executed.
    fn check_room(&self, operation: Operation, out: &Writer<'_>) -> Result<(), Status4> {
        let needed = match operation {
            Operation::Lock | Operation::LockTest => LOCK_BYTES_MAX,
            // These have no results besides their status, or, as GETATTR, check what they have
            // written.
            Operation::GetAttr
            | Operation::Lookup
            | Operation::LookupParent
            | Operation::NotVerify
            | Operation::Verify
            | Operation::PutFh
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
        if len > self.at.reply_end {
            return Err(Status4::ReplyTooBig);
        }
        match self.at.kept_end {
            Some(end) if len > end => Err(Status4::ReplyTooBigToCache),
            _ => Ok(()),
        }
    }

    /// How many bytes may be added to the output.
    pub(super) fn room(&self, out: &Writer<'_>) -> usize {
        let end = self
            .at
            .kept_end
            .unwrap_or(usize::MAX)
            .min(self.at.reply_end);
        end.saturating_sub(out.len())
    }

    fn dispatch(
        &mut self,
        operation: Operation,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        // A repeated request whose reply was not kept is not executed again (section 2.10.6.1.3).
        let sequenced = self.at.sequenced;
        if sequenced.is_some_and(|sequenced| sequenced.slot.is_none()) {
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
            Operation::BackChannelControl => self.control_back_channel(arguments),
            Operation::BindConnection => self.bind_connection(arguments, out),
            Operation::ExchangeId => self.exchange(arguments, out),
            Operation::CreateSession => self.create_session(arguments, out),
            Operation::DestroySession => self.destroy_session(arguments),
            Operation::ReturnDelegation => self.return_delegation(arguments),
            Operation::FreeStateId => self.free_state(arguments),
            Operation::TestStateId => self.test_states(arguments, out),
            Operation::DestroyClientId => self.destroy_client(arguments),
            Operation::ReclaimComplete => self.complete_reclaim(arguments),
            Operation::Owned(operation) => self.dispatch_owned(operation, arguments, out),
            Operation::Sequence => Err(Status4::SequencePosition),
            Operation::NotSupported => Err(Status4::NotSupported),
            Operation::Illegal => Err(Status4::IllegalOperation),
            operation => self.dispatch_of_2(operation, arguments, out),
        }
    }

    /// Executes an operation that only minor version 2 has.
    fn dispatch_of_2(
        &mut self,
        operation: Operation,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        match operation {
            Operation::Copy => self.copy(arguments, out),
            Operation::Allocate => self.allocate(arguments),
            Operation::Clone => self.clone_range(arguments),
            Operation::Deallocate => self.deallocate(arguments),
            Operation::ReadPlus => self.read_plus(arguments, out),
            Operation::Seek => self.seek(arguments, out),
            Operation::GetXattr => self.get_xattr(arguments, out),
            Operation::SetXattr => self.set_xattr(arguments, out),
            Operation::ListXattrs => self.list_xattrs(arguments, out),
            Operation::RemoveXattr => self.remove_xattr(arguments, out),
            _ => Err(Status4::ServerFault),
        }
    }

    /// Keeps the results, if the client wants that, and frees the slot.
    fn finish(&mut self, results: &[u8]) {
        if let Some(sequenced) = self.at.sequenced
            && let Some(slot) = sequenced.slot
        {
            let kept = sequenced.asked.is_kept.then_some(results);
            // A program that lends no state has begun nothing.
            let _ = with_clients(self.backend, |clients| clients.finish(slot, kept));
        }
    }

    fn completed(&self, status: Status4) -> Completed {
        Completed {
            procedure: match self.at.main {
                Some(Operation::GetAttr) => Procedure::GetAttr,
                main => main
                    .and_then(Operation::procedure)
                    .unwrap_or(Procedure::Compound),
            },
            is_ok: status == Status4::Ok,
            bytes_in: self.at.bytes_in,
            bytes_out: self.at.bytes_out,
            began: self.now,
        }
    }

    /// The client of the session.
    pub(super) fn client(&self) -> Result<u64, Status4> {
        let sequenced = self.at.sequenced.ok_or(Status4::NotInSession)?;
        Ok(sequenced.client)
    }

    /// The session of the compound.
    pub(super) fn session(&self) -> Option<SessionId> {
        self.at.sequenced.map(|sequenced| sequenced.asked.session)
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
        self.at.current.node.ok_or(Status4::NoFileHandle)
    }

    /// The current file, whose key in the state of clients comes with it. The root has the status
    /// `otherwise`.
    pub(super) fn current_file(&self, otherwise: Status4) -> Result<(Handle, FileKey), Status4> {
        let handle = self.node()?.file(otherwise)?;
        Ok((handle, key_of(handle)))
    }

    /// The place of a file.
    pub(super) fn place(&mut self, handle: Handle) -> Result<Place<'_>, Status4> {
        open_place(self.backend, (self.credential, self.at.minor), handle)
    }

    /// Checks that a file may be opened or locked now: in the grace period after a restart of the
    /// program, only by clients that had it open or locked before, if it outlives the program
    /// (section 8.4.2.1).
    pub(super) fn check_grace(
        &mut self,
        client: u64,
        handle: Handle,
        demand: Demand,
    ) -> Result<(), Status4> {
        let now = self.now;
        let outlives_restart = self.place(handle)?.export.outlives_restart;
        with_clients(self.backend, |clients| match demand {
            Demand::Reclaim if outlives_restart => clients.check_reclaim(now, client),
            Demand::Reclaim => Err(Status4::NoGrace),
            Demand::New if outlives_restart && clients.is_in_grace(now) => Err(Status4::Grace),
            Demand::New => Ok(()),
        })?
    }

    /// Waits until a restart would lead to no other clients reclaiming the file than those that may
    /// have it open or locked now.
    pub(super) fn settle_records(&mut self, handle: Handle) -> Result<(), Status4> {
        if self.place(handle)?.export.outlives_restart {
            self.backend.settle_records();
        }
        Ok(())
    }

    /// Makes a file the current one.
    #[expect(
        clippy::unnecessary_wraps,
        reason = "it ends operations, which have results"
    )]
    pub(super) fn put(&mut self, node: Node) -> Result<(), Status4> {
        self.at.current = Slot {
            node: Some(node),
            state: None,
        };
        Ok(())
    }

    /// A status, as the minor version has it.
    const fn own(&self, status: Status4) -> Status4 {
        match self.at.minor {
            MinorVersion::Zero => status.of_version_0(),
            _ => status,
        }
    }

    /// The state ID that is meant by one of a client's (section 8.2.3). Minor version 0 has no
    /// current one.
    pub(super) fn meant(&self, id: StateId) -> Result<StateId, Status4> {
        if id == StateId::CURRENT && self.at.minor != MinorVersion::Zero {
            return self.at.current.state.ok_or(Status4::BadStateId);
        }
        Ok(id)
    }
}

/// What distinguishes requests that have the same slot and sequence. Checking requests that are
/// sent again is optional (RFC 8881 section 2.10.6.1.3.1), so the data of WRITE are left out: they
/// would be read once more for that.
fn checksum_of(arguments: &[u8]) -> u32 {
    let front = &arguments[..arguments.len().min(CHECKED_BYTES_MAX)];
    crc32c::crc32c_append(crc32c::crc32c(front), &arguments.len().to_be_bytes())
}

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
            self.flags,
        ] {
            out.u32(word);
        }
    }
}
