//! Registration with the portmapper (rpcbind) of this machine, which tells clients the ports of programs.
//!
//! Read first: RFC 1833 section 2, RFC 5665 sections 5.2 and 6.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::rpc::{AcceptedHeader, CallHeader, MOUNT_PROGRAM, NFS_PROGRAM, record_mark};
use crate::xdr::{Malformed, Reader, Writer};

/// A program, its version, and where it is served over TCP: what rpcbind knows of it (rpcb).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registration {
    program: u32,
    version: u32,
    address: SocketAddr,
}

/// What rpcbind is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Change {
    /// RPCBPROC_SET: register. Refused if the program is registered elsewhere.
    Set = 1,
    /// RPCBPROC_UNSET: remove. Refused if the registration is another user's.
    Unset = 2,
}

/// The program and the version of rpcbind that are called.
const RPCBIND_PROGRAM: u32 = 100_000;
const RPCBIND_VERSION: u32 = 4;

impl fmt::Display for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (program, version) = (self.program, self.version);
        write!(f, "program {program} version {version} at {}", self.address)
    }
}

impl Registration {
    /// The longest reply to a call, in bytes, with the header of its record.
    pub const REPLY_BYTES_MAX: usize = 4 + size_of::<AcceptedHeader>() + 4;

    /// What a portal serves: NFS versions 3 and 4, MOUNT version 3.
    pub fn of_portal(address: SocketAddr) -> [Self; 3] {
        [(NFS_PROGRAM, 3), (NFS_PROGRAM, 4), (MOUNT_PROGRAM, 3)].map(|(program, version)| Self {
            program,
            version,
            address,
        })
    }

    /// The transport (netid). rpcbind has one address per program, version and transport.
    const fn netid(&self) -> &'static str {
        match self.address {
            SocketAddr::V4(_) => "tcp",
            SocketAddr::V6(_) => "tcp6",
        }
    }

    /// The universal address (uaddr): that of the host, then the two bytes of the port in decimal.
    fn universal_address(&self) -> String {
        let [high, low] = self.address.port().to_be_bytes();
        match self.address.ip() {
            IpAddr::V4(ip) => format!("{ip}.{high}.{low}"),
            IpAddr::V6(ip) => format!("{ip}.{high}.{low}"),
        }
    }

    /// The record that asks rpcbind for a change.
    pub fn call(&self, xid: u32, change: Change) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes);
        out.zeros(4);
        out.view(&CallHeader {
            xid: xid.into(),
            message_type: 0.into(),
            rpc_version: 2.into(),
            program: RPCBIND_PROGRAM.into(),
            version: RPCBIND_VERSION.into(),
            procedure: (change as u32).into(),
        });
        // Credential and verifier are AUTH_NONE: rpcbind asks the system who is at the other end of its Unix socket.
        out.zeros(16);
        out.u32(self.program);
        out.u32(self.version);
        out.opaque(self.netid().as_bytes());
        out.opaque(self.universal_address().as_bytes());
        out.opaque(b"");
        let len = out.len() - 4;
        out.patch(0, &record_mark(len));
        bytes
    }

    /// Whether rpcbind did what the call with this `xid` asks for. `None` if the record is no reply to it. The record is
    /// one fragment, with its header.
    pub fn read_reply(xid: u32, record: &[u8]) -> Option<bool> {
        Self::parse_reply(xid, record).ok()
    }

    fn parse_reply(xid: u32, record: &[u8]) -> Result<bool, Malformed> {
        let mut reader = Reader::new(record);
        let mark: [u8; 4] = reader.array()?;
        if mark != record_mark(reader.rest().len()) {
            return Err(Malformed);
        }
        let header: &AcceptedHeader = reader.view()?;
        let is_accepted = header.message_type == 1 && header.reply_status == 0;
        if header.xid != xid || !is_accepted || header.verifier_len != 0 {
            return Err(Malformed);
        }
        if header.accept_status != 0 {
            return Ok(false);
        }
        let is_done = reader.bool()?;
        reader.finish()?;
        Ok(is_done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_as_rfc_1833_lays_it_out() {
        let [_, _, mount] = Registration::of_portal("192.0.2.1:2049".parse().expect("valid"));
        let golden = [
            &[0x80, 0, 0, 80, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2][..],
            &[0, 1, 0x86, 0xa0, 0, 0, 0, 4, 0, 0, 0, 1],
            &[0; 16],
            &[0, 1, 0x86, 0xa5, 0, 0, 0, 3],
            b"\0\0\0\x03tcp\0\0\0\0\x0d192.0.2.1.8.1\0\0\0\0\0\0\0",
        ];
        assert_eq!(mount.call(9, Change::Set), golden.concat());
        let [nfs, ..] = Registration::of_portal("[2001:db8::1]:20000".parse().expect("valid"));
        assert_eq!(nfs.universal_address(), "2001:db8::1.78.32");
        assert_eq!(nfs.netid(), "tcp6");
    }

    #[test]
    fn replies_are_done_refused_or_invalid() {
        let reply = |status: u8, done: &[u8]| {
            let head = [0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            let body = [&head[..], &[0, 0, 0, status], done].concat();
            [&record_mark(body.len())[..], &body].concat()
        };
        let done = reply(0, &[0, 0, 0, 1]);
        assert_eq!(done.len(), Registration::REPLY_BYTES_MAX);
        assert_eq!(Registration::read_reply(9, &done), Some(true));
        assert_eq!(Registration::read_reply(9, &reply(0, &[0; 4])), Some(false));
        // PROG_MISMATCH and such: the words behind it do not matter.
        assert_eq!(Registration::read_reply(9, &reply(2, &[0; 4])), Some(false));
        for invalid in [&done[..done.len() - 1], &[], &reply(0, &[0, 0, 0, 2])] {
            assert_eq!(Registration::read_reply(9, invalid), None);
        }
        assert_eq!(Registration::read_reply(8, &done), None, "another call's");
    }
}
