//! Operations on client IDs, sessions and state IDs.

use super::compound::Compound;
use super::place::{MinorVersion, with_clients};
use crate::Backend;
use crate::clients::{
    CallbackCredential, CallbackProgram, ChannelLimits, Exchange, NewSession, OWNER_BYTES_MAX,
    SessionId, StateId,
};
use crate::status4::Status4;
use crate::xdr::{Malformed, Reader, Writer};

/// Flags of EXCHANGE_ID (RFC 8881 section 18.35; FENCE_OPS in RFC 7862 section 14.1).
const SUPPORTS_MOVED_REFERRAL: u32 = 1;
const SUPPORTS_MOVED_MIGRATION: u32 = 2;
const SUPPORTS_FENCE: u32 = 4;
const BIND_PRINCIPAL: u32 = 0x100;
const USE_NON_PNFS: u32 = 0x1_0000;
const USE_PNFS: u32 = 0x6_0000;
const UPDATE_CONFIRMED: u32 = 0x4000_0000;
const IS_CONFIRMED: u32 = 0x8000_0000;
const KNOWN_FLAGS: u32 = SUPPORTS_MOVED_REFERRAL
    | SUPPORTS_MOVED_MIGRATION
    | SUPPORTS_FENCE
    | BIND_PRINCIPAL
    | USE_NON_PNFS
    | USE_PNFS
    | UPDATE_CONFIRMED;
/// The flags of CREATE_SESSION that exist: persistence, back channel, RDMA. Only the second is
/// granted.
const KNOWN_SESSION_FLAGS: u32 = 7;
const BACK_CHANNEL: u32 = 2;
/// The longest names in a client's description of itself, in bytes.
const NAME_BYTES_MAX: usize = 1024;
/// Elements of arrays that a client sends: security flavors of callbacks, and state IDs to be
/// tested.
const ARRAY_LEN_MAX: u32 = 1024;

impl<B: Backend> Compound<'_, B> {
    /// EXCHANGE_ID (RFC 8881 section 18.35).
    pub(super) fn exchange(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let verifier = arguments.array()?;
        let owner = arguments.opaque(OWNER_BYTES_MAX)?;
        let flags = arguments.u32()?;
        // SP4_NONE is the only protection of state: AUTH_SYS has no more.
        let known = match self.at.minor {
            MinorVersion::Two => KNOWN_FLAGS,
            _ => KNOWN_FLAGS & !SUPPORTS_FENCE,
        };
        if flags & !known != 0 || arguments.u32()? != 0 {
            return Err(Status4::Invalid);
        }
        skip_implementation(arguments)?;
        let (now, scope) = (self.now, self.backend.scope());
        let exchange = Exchange {
            principal: self.principal(),
            owner,
            verifier,
            is_update: flags & UPDATE_CONFIRMED != 0,
            has_owners: false,
        };
        let exchanged = with_clients(self.backend, |clients| clients.exchange(now, &exchange))??;
        out.u64(exchanged.client);
        out.u32(exchanged.sequence);
        let confirmed = if exchanged.is_confirmed {
            IS_CONFIRMED
        } else {
            0
        };
        out.u32(USE_NON_PNFS | confirmed);
        out.u32(0);
        // server_owner4 and the scope: connections to the same program may share sessions.
        out.u64(0);
        out.opaque(&scope);
        out.opaque(&scope);
        out.u32(0);
        Ok(())
    }

    /// CREATE_SESSION (section 18.36).
    pub(super) fn create_session(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let (client, sequence) = (arguments.u64()?, arguments.u32()?);
        let flags = arguments.u32()?;
        let fore = read_channel(arguments)?;
        let back = read_channel(arguments)?;
        let number = arguments.u32()?;
        let credential = read_callback_security(arguments)?;
        if flags & !KNOWN_SESSION_FLAGS != 0 {
            return Err(Status4::Invalid);
        }
        let (now, principal) = (self.now, self.principal());
        let callbacks = self.callbacks(number, credential);
        let wanted = self.backend.back_channel();
        let wanted = wanted.filter(|_| flags & BACK_CHANNEL != 0);
        let (created, is_bound) = with_clients(self.backend, |clients| {
            let channels = (&fore, &back);
            let id = (client, sequence);
            let created = clients.create_session(now, principal, id, channels, callbacks)?;
            let is_bound = wanted.is_some_and(|it| clients.bind_back(it, created.id));
            Ok::<_, Status4>((created, is_bound))
        })??;
        let NewSession {
            id,
            sequence,
            limits,
        } = created;
        id.write(out);
        out.u32(sequence);
        out.u32(if is_bound { BACK_CHANNEL } else { 0 });
        write_channel(&limits, out);
        // No more of the back channel is used than the client offers.
        write_channel(&back, out);
        Ok(())
    }

    fn callbacks(
        &self,
        number: u32,
        credential: Option<CallbackCredential>,
    ) -> Option<CallbackProgram> {
        credential.map(|credential| CallbackProgram {
            number,
            minor: self.at.minor.number(),
            credential,
        })
    }

    /// BACKCHANNEL_CTL (section 18.33): the compound's session is called in another way.
    pub(super) fn control_back_channel(
        &mut self,
        arguments: &mut Reader<'_>,
    ) -> Result<(), Status4> {
        let number = arguments.u32()?;
        let credential = read_callback_security(arguments)?;
        let callbacks = self.callbacks(number, credential);
        let session = self.session().ok_or(Status4::NotInSession)?;
        let is_set = with_clients(self.backend, |clients| {
            callbacks.is_some_and(|callbacks| clients.set_callbacks(session, callbacks))
        })?;
        if is_set {
            Ok(())
        } else {
            Err(Status4::Invalid)
        }
    }

    /// DESTROY_SESSION (section 18.37). The compound's own session is destroyed last.
    pub(super) fn destroy_session(&mut self, arguments: &mut Reader<'_>) -> Result<(), Status4> {
        let session = SessionId::read(arguments)?;
        if self.session() == Some(session) && self.at.left > 0 {
            return Err(Status4::NotOnlyOperation);
        }
        let principal = self.principal();
        with_clients(self.backend, |clients| {
            clients.destroy_session(principal, session)
        })?
    }

    /// DESTROY_CLIENTID (section 18.50).
    pub(super) fn destroy_client(&mut self, arguments: &mut Reader<'_>) -> Result<(), Status4> {
        let client = arguments.u64()?;
        let principal = self.principal();
        with_clients(self.backend, |clients| {
            clients.destroy_client(principal, client)
        })?
    }

    /// BIND_CONN_TO_SESSION (section 18.34). A connection may use any session of its client's, so
    /// only a back channel is bound.
    pub(super) fn bind_connection(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        const FORE: u32 = 1;
        const BACK: u32 = 2;
        const BOTH: u32 = 3;
        const BACK_OR_BOTH: u32 = 7;
        let session = SessionId::read(arguments)?;
        let direction = arguments.u32()?;
        let _uses_rdma = arguments.bool()?;
        if self.session().is_some() {
            return Err(Status4::NotOnlyOperation);
        }
        let address = self.backend.client();
        let connection = self.backend.back_channel();
        let connection = match direction {
            FORE => None,
            BACK | BOTH | BACK_OR_BOTH => connection,
            _ => return Err(Status4::BadXdr),
        };
        let is_bound = with_clients(self.backend, |clients| {
            clients.check_session(address, session)?;
            Ok::<_, Status4>(connection.is_some_and(|it| clients.bind_back(it, session)))
        })??;
        if direction == BACK && !is_bound {
            return Err(Status4::Invalid);
        }
        session.write(out);
        out.u32(match (direction, is_bound) {
            (BACK, _) => BACK,
            (_, true) => BOTH,
            (_, false) => FORE,
        });
        out.bool(false);
        Ok(())
    }

    /// RECLAIM_COMPLETE (section 18.51). There is nothing to be reclaimed of one file system.
    pub(super) fn complete_reclaim(&mut self, arguments: &mut Reader<'_>) -> Result<(), Status4> {
        let is_one_file_system = arguments.bool()?;
        let client = self.client()?;
        if is_one_file_system {
            self.node()?;
            return Ok(());
        }
        with_clients(self.backend, |clients| clients.complete_reclaim(client))?
    }

    /// FREE_STATEID (section 18.38).
    pub(super) fn free_state(&mut self, arguments: &mut Reader<'_>) -> Result<(), Status4> {
        let id = StateId::read(arguments)?;
        let (client, id) = (self.client()?, self.meant(id)?);
        with_clients(self.backend, |clients| clients.free_state(client, id))?
    }

    /// TEST_STATEID (section 18.48).
    pub(super) fn test_states(
        &mut self,
        arguments: &mut Reader<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), Status4> {
        let client = self.client()?;
        let count = arguments.u32()?;
        if count > ARRAY_LEN_MAX {
            return Err(Status4::BadXdr);
        }
        self.check_reply(out.len() + 4 + 4 * count as usize)?;
        out.u32(count);
        for _ in 0..count {
            let id = StateId::read(arguments)?;
            let status = with_clients(self.backend, |clients| clients.test_state(client, id))?;
            out.u32(status as u32);
        }
        Ok(())
    }
}

/// client_impl_id: at most one nfs_impl_id4.
fn skip_implementation(arguments: &mut Reader<'_>) -> Result<(), Malformed> {
    match arguments.u32()? {
        0 => Ok(()),
        1 => {
            arguments.opaque(NAME_BYTES_MAX)?;
            arguments.opaque(NAME_BYTES_MAX)?;
            arguments.array::<12>().map(|_| ())
        }
        _ => Err(Malformed),
    }
}

/// channel_attrs4.
fn read_channel(arguments: &mut Reader<'_>) -> Result<ChannelLimits, Malformed> {
    let _padding = arguments.u32()?;
    let limits = ChannelLimits {
        request_bytes: arguments.u32()?,
        reply_bytes: arguments.u32()?,
        kept_bytes: arguments.u32()?,
        operations: arguments.u32()?,
        requests: arguments.u32()?,
    };
    match arguments.u32()? {
        0 => {}
        1 => drop(arguments.u32()?),
        _ => return Err(Malformed),
    }
    Ok(limits)
}

fn write_channel(limits: &ChannelLimits, out: &mut Writer<'_>) {
    for word in [
        0,
        limits.request_bytes,
        limits.reply_bytes,
        limits.kept_bytes,
        limits.operations,
        limits.requests,
        0,
    ] {
        out.u32(word);
    }
}

/// callback_sec_parms4: AUTH_SYS if the client accepts it, otherwise AUTH_NONE if it accepts that.
/// Linux's client does nothing for a caller without a user.
fn read_callback_security(
    arguments: &mut Reader<'_>,
) -> Result<Option<CallbackCredential>, Malformed> {
    const AUTH_NONE: u32 = 0;
    const AUTH_SYS: u32 = 1;
    const RPCSEC_GSS: u32 = 6;
    let count = arguments.u32()?;
    if count > ARRAY_LEN_MAX {
        return Err(Malformed);
    }
    let (mut system, mut none) = (None, None);
    for _ in 0..count {
        match arguments.u32()? {
            AUTH_NONE => none = Some(CallbackCredential::None),
            AUTH_SYS => system = Some(read_system_credential(arguments)?),
            RPCSEC_GSS => {
                let _service = arguments.u32()?;
                arguments.opaque(NAME_BYTES_MAX)?;
                arguments.opaque(NAME_BYTES_MAX)?;
            }
            _ => return Err(Malformed),
        }
    }
    Ok(system.or(none))
}

/// authsys_parms.
fn read_system_credential(arguments: &mut Reader<'_>) -> Result<CallbackCredential, Malformed> {
    let _stamp = arguments.u32()?;
    arguments.opaque(NAME_BYTES_MAX)?;
    let (uid, gid) = (arguments.u32()?, arguments.u32()?);
    let groups = arguments.u32()?;
    if groups > ARRAY_LEN_MAX {
        return Err(Malformed);
    }
    for _ in 0..groups {
        arguments.u32()?;
    }
    Ok(CallbackCredential::System { uid, gid })
}
