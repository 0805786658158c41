//! Datagrams that `roce` never sends.

use zerocopy::{FromBytes, IntoBytes};

use crate::Flow;
use crate::wire::cm::Message;
use crate::wire::{Bth, Deth, Icrc, IpHeader, Opcode, Psn, QKEY_GSI, Qpn};

/// A datagram of any `body` with the right ICRC for `flow` (IPv4 identification 0). If the body is
/// shorter than a BTH, the ICRC is arbitrary.
pub fn seal(flow: &Flow, body: &[u8]) -> Vec<u8> {
    let mut icrc = Icrc::begin(&IpHeader::new(*flow, 0), body.len() as u16 + 4);
    match Bth::read_from_prefix(body) {
        Ok((bth, rest)) => {
            icrc.update_bth(&bth);
            icrc.update(rest);
        }
        Err(_) => icrc.update(body),
    }
    [body, &icrc.to_wire()].concat()
}

/// A datagram with these headers and payload, padded and sealed.
pub fn datagram(flow: &Flow, bth: Bth, extended: &[u8], payload: &[u8]) -> Vec<u8> {
    let bth = bth.with_pad_for(payload.len() as u32);
    let pad = [0; 3];
    let pad = &pad[..bth.pad_len_bytes() as usize];
    seal(flow, &[bth.as_bytes(), extended, payload, pad].concat())
}

/// A request or response of the reliable-connected service that requests an acknowledgement.
pub fn packet(
    flow: &Flow,
    opcode: Opcode,
    dest: Qpn,
    psn: Psn,
    extended: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let bth = Bth::new(opcode.to_wire(), dest, psn).with_ack_request();
    datagram(flow, bth, extended, payload)
}

/// A message of communication management.
pub fn message(flow: &Flow, tid: u64, message: &Message) -> Vec<u8> {
    let bth = Bth::new(Opcode::DatagramSend.to_wire(), Qpn::GSI, Psn::new(0));
    let deth = Deth::new(QKEY_GSI, Qpn::GSI);
    datagram(flow, bth, deth.as_bytes(), &message.to_mad(tid))
}
