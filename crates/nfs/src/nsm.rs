//! NSM version 1: notifications of clients with locks after a restart of this server. The
//! notification of a client's own restart is executed with the procedures of NLM.
//!
//! Read first: X/Open's "Protocols for Interworking: XNFS", chapter 11.

use std::net::IpAddr;

use crate::LockHost;
use crate::rpc::{AcceptedHeader, CallHeader, STATUS_PROGRAM, STATUS_VERSION, record_mark};
use crate::xdr::{Reader, Writer};

/// SM_NOTIFY to one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartNotice {
    host: LockHost,
    state: u32,
}

/// The number of SM_NOTIFY.
const NOTIFY: u32 = 6;

impl RestartNotice {
    /// The longest reply in bytes, with the header of its record: it has no results.
    pub const REPLY_BYTES_MAX: usize = 4 + size_of::<AcceptedHeader>();

    /// `state` is odd and grows with each start: a client ignores a number that it knows.
    pub const fn new(host: LockHost, state: u32) -> Self {
        Self { host, state }
    }

    /// The client's address.
    pub const fn client(&self) -> IpAddr {
        self.host.address
    }

    /// The address of this server that the client knows.
    pub const fn local(&self) -> IpAddr {
        self.host.local
    }

    /// The call, as a record. The server names itself by the address that the client has mounted
    /// from: Linux's rpc.statd compares it, and the address that the call comes from, with the
    /// servers that its locks are of.
    pub fn call(&self, xid: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes);
        out.zeros(4);
        out.view(&CallHeader::new(
            xid,
            (STATUS_PROGRAM, STATUS_VERSION, NOTIFY),
        ));
        // Credential and verifier are AUTH_NONE.
        out.zeros(16);
        out.opaque(self.host.local.to_string().as_bytes());
        out.u32(self.state);
        let len = out.len() - 4;
        out.patch(0, &record_mark(len));
        bytes
    }

    /// Whether a record, one fragment with its header, is the client's acceptance of the call
    /// with this `xid`.
    pub fn is_accepted(xid: u32, record: &[u8]) -> bool {
        let header = record.get(4..).map(Reader::new);
        let header = header.and_then(|mut reader| reader.view::<AcceptedHeader>().ok().copied());
        header.is_some_and(|header| header.is_success(xid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_as_the_protocol_lays_it_out() {
        let host = LockHost {
            address: [192, 0, 2, 7].into(),
            local: [192, 0, 2, 1].into(),
            name: b"client"[..].into(),
        };
        let notice = RestartNotice::new(host, 5);
        let golden = [
            &[0x80, 0, 0, 60, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2][..],
            &[0, 1, 0x86, 0xb8, 0, 0, 0, 1, 0, 0, 0, 6],
            &[0; 16],
            b"\0\0\0\x09192.0.2.1\0\0\0\0\0\0\x05",
        ];
        assert_eq!(notice.call(9), golden.concat());
        let reply = [&[0x80, 0, 0, 24, 0, 0, 0, 9, 0, 0, 0, 1][..], &[0; 16]].concat();
        assert_eq!(reply.len(), RestartNotice::REPLY_BYTES_MAX);
        assert!(RestartNotice::is_accepted(9, &reply));
        assert!(!RestartNotice::is_accepted(8, &reply));
        assert!(!RestartNotice::is_accepted(9, &reply[..27]));
        let denied = [&reply[..27], &[1]].concat();
        assert!(!RestartNotice::is_accepted(9, &denied));
    }
}
