//! Operation codes, and the properties of packets that follow from them.

use super::{Aeth, AtomicAckEth, AtomicEth, Deth, Ieth, ImmDt, Reth};

/// A packet's place in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of several.
    Last,
    /// The only packet.
    Only,
}

impl Position {
    /// Whether a message begins here.
    pub const fn is_first(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether a message ends here.
    pub const fn is_last(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }

    /// The position of packet `index` of `count`.
    #[inline]
    pub const fn of(index: u32, count: u32) -> Self {
        match (index == 0, index + 1 == count) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }
}

/// What the end of a SEND carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendTail {
    /// Nothing.
    Plain,
    /// Immediate data.
    Immediate,
    /// The key of a region to invalidate.
    Invalidate,
}

/// What the end of an RDMA WRITE carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteTail {
    /// Nothing.
    Plain,
    /// Immediate data, which consume a posted receive.
    Immediate,
}

/// An atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOpcode {
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
}

/// The operation codes (BTH, byte 0) of the reliable-connected service, and those of the
/// unreliable-datagram service and congestion notification that this crate supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// Part of a SEND. First and middle packets have a plain tail.
    Send(Position, SendTail),
    /// Part of an RDMA WRITE. First and middle packets have a plain tail.
    Write(Position, WriteTail),
    /// RDMA READ request.
    ReadRequest,
    /// Part of an RDMA READ response.
    ReadResponse(Position),
    /// Acknowledgement, positive or negative.
    Acknowledge,
    /// Response to an atomic operation.
    AtomicAcknowledge,
    /// An atomic operation.
    Atomic(AtomicOpcode),
    /// A SEND of the unreliable datagram service, in one packet.
    DatagramSend,
    /// Congestion notification packet (CNP).
    CongestionNotification,
}

/// What each code of the reliable-connected service means; the index is the code.
const RELIABLE: [Option<Opcode>; 0x18] = {
    use Opcode::{Acknowledge, AtomicAcknowledge, ReadRequest};
    use Position::{First, Last, Middle, Only};
    const fn send(position: Position, tail: SendTail) -> Opcode {
        Opcode::Send(position, tail)
    }
    const fn write(position: Position, tail: WriteTail) -> Opcode {
        Opcode::Write(position, tail)
    }
    const fn response(position: Position) -> Opcode {
        Opcode::ReadResponse(position)
    }
    [
        Some(send(First, SendTail::Plain)),
        Some(send(Middle, SendTail::Plain)),
        Some(send(Last, SendTail::Plain)),
        Some(send(Last, SendTail::Immediate)),
        Some(send(Only, SendTail::Plain)),
        Some(send(Only, SendTail::Immediate)),
        Some(write(First, WriteTail::Plain)),
        Some(write(Middle, WriteTail::Plain)),
        Some(write(Last, WriteTail::Plain)),
        Some(write(Last, WriteTail::Immediate)),
        Some(write(Only, WriteTail::Plain)),
        Some(write(Only, WriteTail::Immediate)),
        Some(ReadRequest),
        Some(response(First)),
        Some(response(Middle)),
        Some(response(Last)),
        Some(response(Only)),
        Some(Acknowledge),
        Some(AtomicAcknowledge),
        Some(Opcode::Atomic(AtomicOpcode::CompareSwap)),
        Some(Opcode::Atomic(AtomicOpcode::FetchAdd)),
        None,
        Some(send(Last, SendTail::Invalidate)),
        Some(send(Only, SendTail::Invalidate)),
    ]
};

const DATAGRAM_SEND_ONLY: u8 = 0x64;
const CONGESTION_NOTIFICATION: u8 = 0x81;

impl Opcode {
    /// The opcode of `code`; `None` if this crate does not support it.
    #[inline]
    pub fn from_wire(code: u8) -> Option<Self> {
        match code {
            DATAGRAM_SEND_ONLY => Some(Self::DatagramSend),
            CONGESTION_NOTIFICATION => Some(Self::CongestionNotification),
            _ => RELIABLE.get(usize::from(code)).copied().flatten(),
        }
    }

    /// The code.
    ///
    /// # Panics
    /// A first or middle packet with a tail has no code.
    #[inline]
    pub const fn to_wire(self) -> u8 {
        use Position::{First, Last, Middle, Only};
        match self {
            Self::Send(First, SendTail::Plain) => 0x00,
            Self::Send(Middle, SendTail::Plain) => 0x01,
            Self::Send(Last, SendTail::Plain) => 0x02,
            Self::Send(Last, SendTail::Immediate) => 0x03,
            Self::Send(Only, SendTail::Plain) => 0x04,
            Self::Send(Only, SendTail::Immediate) => 0x05,
            Self::Write(First, WriteTail::Plain) => 0x06,
            Self::Write(Middle, WriteTail::Plain) => 0x07,
            Self::Write(Last, WriteTail::Plain) => 0x08,
            Self::Write(Last, WriteTail::Immediate) => 0x09,
            Self::Write(Only, WriteTail::Plain) => 0x0A,
            Self::Write(Only, WriteTail::Immediate) => 0x0B,
            Self::ReadRequest => 0x0C,
            Self::ReadResponse(First) => 0x0D,
            Self::ReadResponse(Middle) => 0x0E,
            Self::ReadResponse(Last) => 0x0F,
            Self::ReadResponse(Only) => 0x10,
            Self::Acknowledge => 0x11,
            Self::AtomicAcknowledge => 0x12,
            Self::Atomic(AtomicOpcode::CompareSwap) => 0x13,
            Self::Atomic(AtomicOpcode::FetchAdd) => 0x14,
            Self::Send(Last, SendTail::Invalidate) => 0x16,
            Self::Send(Only, SendTail::Invalidate) => 0x17,
            Self::DatagramSend => DATAGRAM_SEND_ONLY,
            Self::CongestionNotification => CONGESTION_NOTIFICATION,
            Self::Send(First | Middle, _) | Self::Write(First | Middle, _) => {
                panic!("only the last packet of a message has a tail")
            }
        }
    }

    /// The length of the headers between BTH and payload.
    pub const fn extended_len_bytes(self) -> usize {
        match self {
            Self::Send(_, SendTail::Plain)
            | Self::ReadResponse(Position::Middle)
            | Self::CongestionNotification => 0,
            Self::Send(_, SendTail::Immediate) => size_of::<ImmDt>(),
            Self::Send(_, SendTail::Invalidate) => size_of::<Ieth>(),
            Self::Write(position, tail) => {
                let reth = if position.is_first() {
                    size_of::<Reth>()
                } else {
                    0
                };
                match tail {
                    WriteTail::Plain => reth,
                    WriteTail::Immediate => reth + size_of::<ImmDt>(),
                }
            }
            Self::ReadRequest => size_of::<Reth>(),
            Self::ReadResponse(_) | Self::Acknowledge => size_of::<Aeth>(),
            Self::AtomicAcknowledge => size_of::<Aeth>() + size_of::<AtomicAckEth>(),
            Self::Atomic(_) => size_of::<AtomicEth>(),
            Self::DatagramSend => size_of::<Deth>(),
        }
    }

    /// Whether a responder receives it (the others go to a requester, or to neither).
    pub const fn is_request(self) -> bool {
        matches!(
            self,
            Self::Send(..) | Self::Write(..) | Self::ReadRequest | Self::Atomic(_)
        )
    }

    /// Whether it may carry payload.
    pub const fn has_payload(self) -> bool {
        matches!(
            self,
            Self::Send(..) | Self::Write(..) | Self::ReadResponse(_) | Self::DatagramSend
        )
    }
}
