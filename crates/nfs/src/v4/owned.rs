//! What minor version 0 has instead of sessions: client IDs without them, and requests of owners,
//! which are numbered.
//!
//! Read first: RFC 7530 sections 9.1 and 16.

use super::compound::{Compound, Demand};
use super::operation::OwnedOperation;
use super::place::{MinorVersion, Node, with_clients};
use crate::Backend;
use crate::clients::{
    BegunRequest, Exchange, Executed, Numbered, OWNER_BYTES_MAX, Requester, StateId,
};
use crate::status4::Status4;
use crate::v3::Handle;
use crate::xdr::{Reader, Writer};

/// The longest netid and universal address of a client's callback program, in bytes.
const CALLBACK_BYTES_MAX: usize = 1024;

/// A request of an owner, as an operation has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnerRequest<'a> {
    pub(super) client: u64,
    pub(super) requester: Requester<'a>,
    pub(super) numbered: Numbered,
}

impl<B: Backend> Compound<'_, B> {
    /// The client of the compound's session, or the one that a client ID in an operation names.
    pub(super) fn client_named(&mut self, id: u64) -> Result<u64, Status4> {
        if self.at.minor != MinorVersion::Zero {
            return self.client();
        }
        let (now, address) = (self.now, self.backend.client());
        with_clients(self.backend, |clients| clients.renew(now, address, id))?
    }

    /// The client of the compound's session, or the one that a state ID is of.
    pub(super) fn client_of(&mut self, id: StateId) -> Result<u64, Status4> {
        if self.at.minor != MinorVersion::Zero {
            return self.client();
        }
        let (now, address) = (self.now, self.backend.client());
        with_clients(self.backend, |clients| clients.holder(now, address, id))?
    }

    /// The same for an operation on data, whose state ID need not be of a client.
    pub(super) fn client_of_data(&mut self, id: StateId) -> Result<u64, Status4> {
        const NOBODY: u64 = 0;
        let is_special = id == StateId::ANONYMOUS || id == StateId::BYPASS;
        if self.at.minor != MinorVersion::Zero || !is_special {
            return self.client_of(id);
        }
        let now = self.now;
        with_clients(self.backend, |clients| clients.note_time(now))?;
        Ok(NOBODY)
    }

    /// The number of an operation's request, with a checksum of its arguments, which were read, and
    /// of the current file.
    pub(super) fn numbered(
        &self,
        sequence: u32,
        before: Reader<'_>,
        behind: &Reader<'_>,
    ) -> Result<Numbered, Status4> {
        let handle = self.node()?.handle().to_bytes();
        let before = before.rest();
        let arguments = &before[..before.len() - behind.rest().len()];
        Ok(Numbered {
            sequence,
            checksum: crc32c::crc32c_append(crc32c::crc32c(&handle), arguments),
        })
    }

    /// A request of the owner of a state.
    pub(super) fn request_of(
        &mut self,
        id: StateId,
        numbered: Numbered,
    ) -> Result<OwnerRequest<'static>, Status4> {
        Ok(OwnerRequest {
            client: self.client_of(id)?,
            requester: Requester::OwnerOf(id),
            numbered,
        })
    }

    /// Executes an operation of an owner, unless it was executed before: then it has the same
    /// results and leads to the same file. Since minor version 1 sessions see to that.
    pub(super) fn execute_for_owner(
        &mut self,
        request: OwnerRequest<'_>,
        out: &mut Writer<'_>,
        execute: impl FnOnce(&mut Self, &mut Writer<'_>) -> Result<(), Status4>,
    ) -> Result<(), Status4> {
        if self.at.minor != MinorVersion::Zero {
            return execute(self, out);
        }
        let OwnerRequest {
            client,
            requester,
            numbered,
        } = request;
        let (owner, begun) = with_clients(self.backend, |clients| {
            clients.begin_request(client, requester, numbered)
        })??;
        if let BegunRequest::Executed(executed) = begun {
            out.raw(&executed.results);
            if let Some(file) = executed.file {
                self.put(Node::of(Handle::of_bytes(file))?)?;
            }
            return match executed.status {
                Status4::Ok => Ok(()),
                status => Err(status),
            };
        }
        let begin = out.len();
        let result = execute(self, out);
        let status = result.err().unwrap_or(Status4::Ok).of_version_0();
        let has_results = matches!(status, Status4::Ok | Status4::Denied);
        let results = if has_results { out.tail(begin) } else { &[] };
        let file = self.at.current.node.map(|node| node.handle().to_bytes());
        let executed = Executed::new(numbered, status, results.into(), file);
        with_clients(self.backend, |clients| {
            clients.end_request(&owner, executed);
        })?;
        result
    }

    /// Executes an operation of this minor version alone.
    pub(super) fn dispatch_owned(
        &mut self,
        operation: OwnedOperation,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        match operation {
            OwnedOperation::ConfirmOpen => self.confirm_open(arguments, out),
            OwnedOperation::Renew => self.renew(arguments),
            OwnedOperation::SetClientId => self.set_client(arguments, out),
            OwnedOperation::ConfirmClientId => self.confirm_client(arguments),
            OwnedOperation::ReleaseLockOwner => self.release_lock_owner(arguments),
        }
    }

    /// SETCLIENTID (RFC 7530 section 16.33).
    fn set_client(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let verifier = arguments.array()?;
        let owner = arguments.opaque(OWNER_BYTES_MAX)?;
        let _callback_program = arguments.u32()?;
        let _network = arguments.opaque(CALLBACK_BYTES_MAX)?;
        let _address = arguments.opaque(CALLBACK_BYTES_MAX)?;
        let _callback_identifier = arguments.u32()?;
        let exchange = Exchange {
            principal: self.principal(),
            owner,
            verifier,
            is_update: false,
            has_owners: true,
        };
        let now = self.now;
        let (client, verifier) =
            with_clients(self.backend, |clients| clients.set_client(now, &exchange))??;
        out.u64(client);
        out.u64(verifier);
        Ok(())
    }

    /// SETCLIENTID_CONFIRM (section 16.34).
    fn confirm_client(&mut self, arguments: &mut Reader<'_>) -> Result<(), Status4> {
        let confirmed = (arguments.u64()?, arguments.u64()?);
        let (now, principal) = (self.now, self.principal());
        with_clients(self.backend, |clients| {
            clients.confirm_client(now, principal, confirmed)
        })?
    }

    /// RENEW (section 16.28).
    fn renew(&mut self, arguments: &mut Reader<'_>) -> Result<(), Status4> {
        let client = arguments.u64()?;
        self.client_named(client).map(|_| ())
    }

    /// RELEASE_LOCKOWNER (section 16.37).
    fn release_lock_owner(&mut self, arguments: &mut Reader<'_>) -> Result<(), Status4> {
        let client = arguments.u64()?;
        let owner = arguments.opaque(OWNER_BYTES_MAX)?;
        let client = self.client_named(client)?;
        with_clients(self.backend, |clients| {
            clients.release_lock_owner(client, owner)
        })?
    }

    /// OPEN_CONFIRM (section 16.18).
    fn confirm_open(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let before = *arguments;
        let id = StateId::read(arguments)?;
        let sequence = arguments.u32()?;
        let (_, key) = self.current_file(Status4::BadStateId)?;
        let request = self.request_of(id, self.numbered(sequence, before, arguments)?)?;
        self.execute_for_owner(request, out, |this, out| {
            let id = with_clients(this.backend, |clients| {
                clients.confirm_open(request.client, id, &key)
            })??;
            id.write(out);
            Ok(())
        })
    }

    /// An open-owner that reclaims an open need not confirm it.
    pub(super) fn note_opener(
        &mut self,
        client: u64,
        owner: &[u8],
        demand: Demand,
    ) -> Result<(), Status4> {
        if self.at.minor == MinorVersion::Zero && demand == Demand::Reclaim {
            with_clients(self.backend, |clients| {
                clients.confirm_opener(client, owner);
            })?;
        }
        Ok(())
    }
}
