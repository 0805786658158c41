//! A datagram, cut into its headers and payload.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, ICRC_LEN_BYTES, Ieth, ImmDt, Opcode, PathMtu, Reth,
    SendTail, WriteTail,
};

/// The extended headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// None.
    None,
    /// Immediate data.
    Immediate(ImmDt),
    /// A key to invalidate.
    Invalidate(Ieth),
    /// The remote memory of a READ or WRITE.
    Rdma(Reth),
    /// The remote memory of a WRITE in one packet that has immediate data, too.
    RdmaImmediate(Reth, ImmDt),
    /// An acknowledgement.
    Acknowledge(Aeth),
    /// The response to an atomic operation.
    AtomicAcknowledge(Aeth, AtomicAckEth),
    /// An atomic operation.
    Atomic(AtomicEth),
    /// Queue key and source of a datagram.
    Datagram(Deth),
}

/// Why a datagram is not a valid packet. It is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It ends inside its headers, or pad is all that is left.
    #[error("the datagram is shorter than its headers and pad")]
    TooShort,
    /// Longer than a full packet of the largest path MTU.
    #[error("the datagram is longer than any packet")]
    TooLong,
    /// Payload and pad are no multiple of 4 bytes.
    #[error("payload and pad are {0} bytes, which is not a multiple of 4")]
    Unaligned(usize),
    /// A transport header version that this crate does not know.
    #[error("transport header version {0} is not supported; only 0 is")]
    Version(u8),
    /// An opcode that this crate does not support.
    #[error("unknown opcode {0:#04x}")]
    Opcode(u8),
    /// Payload in a packet whose opcode allows none.
    #[error("{0} bytes of payload in a packet without payload")]
    Payload(usize),
}

/// A packet, borrowed from its datagram.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The base transport header.
    pub bth: Bth,
    /// Its opcode.
    pub opcode: Opcode,
    /// The headers that follow.
    pub extended: Extended,
    /// The payload, without pad.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// The longest datagram.
    pub const LEN_MAX_BYTES: usize = size_of::<Bth>()
        + size_of::<AtomicEth>()
        + PathMtu::B4096.bytes() as usize
        + ICRC_LEN_BYTES;

    /// Cuts `datagram`, a UDP payload, ICRC included. The ICRC is not checked here.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Malformed> {
        if datagram.len() > Self::LEN_MAX_BYTES {
            return Err(Malformed::TooLong);
        }
        let (bth, rest) = take::<Bth>(datagram)?;
        if bth.transport_version() != 0 {
            return Err(Malformed::Version(bth.transport_version()));
        }
        let opcode = Opcode::from_wire(bth.opcode).ok_or(Malformed::Opcode(bth.opcode))?;
        let (extended, rest) = extended(opcode, rest)?;
        let (padded, _icrc) = rest
            .split_last_chunk::<ICRC_LEN_BYTES>()
            .ok_or(Malformed::TooShort)?;
        if padded.len() % 4 != 0 {
            return Err(Malformed::Unaligned(padded.len()));
        }
        let payload_len = padded
            .len()
            .checked_sub(bth.pad_len_bytes() as usize)
            .ok_or(Malformed::TooShort)?;
        // A CNP has 16 reserved bytes there, which are ignored.
        let empty = !opcode.has_payload() && opcode != Opcode::CongestionNotification;
        if empty && !padded.is_empty() {
            return Err(Malformed::Payload(padded.len()));
        }
        Ok(Self {
            bth,
            opcode,
            extended,
            payload: &padded[..payload_len],
        })
    }
}

fn extended(opcode: Opcode, rest: &[u8]) -> Result<(Extended, &[u8]), Malformed> {
    Ok(match opcode {
        Opcode::Send(_, SendTail::Invalidate) => one(rest, Extended::Invalidate)?,
        Opcode::Write(position, WriteTail::Plain) if position.is_first() => {
            one(rest, Extended::Rdma)?
        }
        Opcode::Write(position, WriteTail::Immediate) if position.is_first() => {
            let (reth, rest) = take(rest)?;
            one(rest, |imm| Extended::RdmaImmediate(reth, imm))?
        }
        Opcode::Send(_, SendTail::Immediate) | Opcode::Write(_, WriteTail::Immediate) => {
            one(rest, Extended::Immediate)?
        }
        Opcode::ReadRequest => one(rest, Extended::Rdma)?,
        Opcode::ReadResponse(super::Position::Middle)
        | Opcode::Send(_, SendTail::Plain)
        | Opcode::Write(_, WriteTail::Plain)
        | Opcode::CongestionNotification => (Extended::None, rest),
        Opcode::ReadResponse(_) | Opcode::Acknowledge => one(rest, Extended::Acknowledge)?,
        Opcode::AtomicAcknowledge => {
            let (aeth, rest) = take(rest)?;
            one(rest, |original| Extended::AtomicAcknowledge(aeth, original))?
        }
        Opcode::Atomic(_) => one(rest, Extended::Atomic)?,
        Opcode::DatagramSend => one(rest, Extended::Datagram)?,
    })
}

/// Reads a header.
fn take<T>(bytes: &[u8]) -> Result<(T, &[u8]), Malformed>
where
    T: FromBytes + KnownLayout + Immutable,
{
    T::read_from_prefix(bytes).map_err(|_| Malformed::TooShort)
}

/// Reads a header and wraps it.
fn one<T>(bytes: &[u8], wrap: impl FnOnce(T) -> Extended) -> Result<(Extended, &[u8]), Malformed>
where
    T: FromBytes + KnownLayout + Immutable,
{
    let (header, rest) = take(bytes)?;
    Ok((wrap(header), rest))
}
