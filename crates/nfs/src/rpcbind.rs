//! Registration with the portmapper (rpcbind) of this machine, which tells clients the ports of
//! programs.
//!
//! Read first: RFC 1833 section 2, RFC 5665 sections 5.2 and 6.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

use crate::rpc::{
    AcceptedHeader, CallHeader, LOCK_PROGRAM, LOCK_VERSION, MOUNT_PROGRAM, NFS_PROGRAM,
    STATUS_PROGRAM, STATUS_VERSION, record_mark,
};
use crate::xdr::{Malformed, Reader, Writer};

/// A program, its version, and where it is served: what rpcbind knows of it (rpcb).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registration {
    program: u32,
    version: u32,
    protocol: IpProtocol,
    address: SocketAddr,
}

/// What carries the calls of a registered program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpProtocol {
    /// TCP, with record marking.
    Tcp,
    /// UDP.
    Udp,
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
/// PMAPPROC_GETPORT, and IPPROTO_TCP as it names a transport.
const GET_PORT: u32 = 3;
const TCP: u32 = 6;

impl fmt::Display for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (program, version) = (self.program, self.version);
        let (netid, address) = (self.netid(), self.address);
        write!(
            f,
            "program {program} version {version} at {netid} {address}"
        )
    }
}

impl Registration {
    /// The longest reply to a call, in bytes, with the header of its record.
    pub const REPLY_BYTES_MAX: usize = 4 + size_of::<AcceptedHeader>() + 4;

    /// What a portal serves: NFS version 3, MOUNT version 3, NLM version 4, NSM version 1, and over
    /// TCP NFS version 4.
    pub fn of_portal(protocol: IpProtocol, address: SocketAddr) -> impl Iterator<Item = Self> {
        let programs = [
            (NFS_PROGRAM, 3),
            (MOUNT_PROGRAM, 3),
            (LOCK_PROGRAM, LOCK_VERSION),
            (STATUS_PROGRAM, STATUS_VERSION),
            (NFS_PROGRAM, 4),
        ];
        let count = match protocol {
            IpProtocol::Tcp => 5,
            IpProtocol::Udp => 4,
        };
        programs
            .into_iter()
            .take(count)
            .map(move |(program, version)| Self {
                program,
                version,
                protocol,
                address,
            })
    }

    /// The record that asks the portmapper of a client for the port of its NLM over TCP.
    pub fn ask_for_locks(xid: u32) -> Vec<u8> {
        Self::ask_for(xid, LOCK_PROGRAM, LOCK_VERSION)
    }

    /// The record that asks it for the port of its NSM over TCP.
    pub fn ask_for_status(xid: u32) -> Vec<u8> {
        Self::ask_for(xid, STATUS_PROGRAM, STATUS_VERSION)
    }

    /// PMAPPROC_GETPORT (RFC 1833 section 3.2).
    fn ask_for(xid: u32, program: u32, version: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes);
        out.zeros(4);
        out.view(&CallHeader::new(xid, (RPCBIND_PROGRAM, 2, GET_PORT)));
        out.zeros(16);
        for word in [program, version, TCP, 0] {
            out.u32(word);
        }
        let len = out.len() - 4;
        out.patch(0, &record_mark(len));
        bytes
    }

    /// The port in the reply to that. `None` if there is none, or the record is no such reply.
    pub fn read_port(xid: u32, record: &[u8]) -> Option<NonZeroU16> {
        let mut reader = Reader::new(record.get(4..)?);
        let header: &AcceptedHeader = reader.view().ok()?;
        if !header.is_success(xid) {
            return None;
        }
        let port = reader.u32().ok()?;
        reader.finish().ok()?;
        NonZeroU16::new(u16::try_from(port).ok()?)
    }

    /// The transport (netid). rpcbind has one address per program, version and transport.
    const fn netid(&self) -> &'static str {
        match (self.protocol, self.address) {
            (IpProtocol::Tcp, SocketAddr::V4(_)) => "tcp",
            (IpProtocol::Tcp, SocketAddr::V6(_)) => "tcp6",
            (IpProtocol::Udp, SocketAddr::V4(_)) => "udp",
            (IpProtocol::Udp, SocketAddr::V6(_)) => "udp6",
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
        out.view(&CallHeader::new(
            xid,
            (RPCBIND_PROGRAM, RPCBIND_VERSION, change as u32),
        ));
        // Credential and verifier are AUTH_NONE: rpcbind asks the system who is at the other end of
        // its Unix socket.
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

    /// Whether rpcbind did what the call with this `xid` asks for. `None` if the record is no reply
    /// to it. The record is one fragment, with its header.
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
        if !header.is_accepted(xid) {
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
        let of = |protocol, address: &str| {
            let address = address.parse().expect("an address");
            Registration::of_portal(protocol, address).collect::<Vec<_>>()
        };
        let tcp = of(IpProtocol::Tcp, "192.0.2.1:2049");
        let mount = tcp[1];
        let golden = [
            &[0x80, 0, 0, 80, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2][..],
            &[0, 1, 0x86, 0xa0, 0, 0, 0, 4, 0, 0, 0, 1],
            &[0; 16],
            &[0, 1, 0x86, 0xa5, 0, 0, 0, 3],
            b"\0\0\0\x03tcp\0\0\0\0\x0d192.0.2.1.8.1\0\0\0\0\0\0\0",
        ];
        assert_eq!(mount.call(9, Change::Set), golden.concat());
        let nfs = of(IpProtocol::Tcp, "[2001:db8::1]:20000")[0];
        assert_eq!(nfs.universal_address(), "2001:db8::1.78.32");
        assert_eq!(nfs.netid(), "tcp6");
        let udp = of(IpProtocol::Udp, "192.0.2.1:2049");
        assert_eq!((udp[0].netid(), udp.len(), tcp.len()), ("udp", 4, 5));
        assert!(
            udp.iter()
                .all(|it| it.version < 4 || it.program != NFS_PROGRAM)
        );
    }

    #[test]
    fn the_port_of_a_client_is_asked_for_as_rfc_1833_says() {
        let golden = [
            &[0x80, 0, 0, 56, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2][..],
            &[0, 1, 0x86, 0xa0, 0, 0, 0, 2, 0, 0, 0, 3],
            &[0; 16],
            &[0, 1, 0x86, 0xb5, 0, 0, 0, 4, 0, 0, 0, 6, 0, 0, 0, 0],
        ];
        assert_eq!(Registration::ask_for_locks(9), golden.concat());
        let reply = |port: [u8; 4]| {
            let head = [0x80, 0, 0, 28, 0, 0, 0, 9, 0, 0, 0, 1];
            [&head[..], &[0; 16], &port].concat()
        };
        let port = |port| Registration::read_port(9, &reply(port)).map(NonZeroU16::get);
        assert_eq!(port([0, 0, 0x80, 1]), Some(0x8001));
        assert_eq!(port([0; 4]), None, "it is not registered");
        assert_eq!(port([0, 1, 0, 1]), None, "no port");
        assert_eq!(Registration::read_port(8, &reply([0, 0, 8, 1])), None);
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
