//! Any frame between two nodes.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::{Answer, Command};
use super::message::{self, check_zero, time_fields, time_of};
use super::{Body, FrameKind, WireError, encode_frame};
use crate::contents::Contents;
use crate::ids::LocalTime;
use crate::message::Envelope;

/// What a frame says.
#[derive(Clone, Debug)]
pub enum Packet {
    /// The first frame of a connection.
    Hello(Hello),
    /// Regularly.
    Ping(Ping),
    /// A message between members of a volume.
    Message {
        /// The volume.
        volume: u64,
        /// The message.
        envelope: Envelope<Contents>,
    },
    /// A command for the primary.
    Command(Command),
    /// The answer to a command.
    Answer(Answer),
}

/// Who opens a connection, and to whom. All frames of a connection go from the node that opened it
/// to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The cluster, so that a node of another one is rejected.
    pub cluster: u64,
    /// The node that opened the connection.
    pub from: u32,
    /// The node that it wants.
    pub to: u32,
    /// Unique among the starts of `from`.
    pub incarnation: u64,
}

/// The sender's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// When it was sent.
    pub sent_at: LocalTime,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct HelloFields {
    /// The cluster.
    cluster: U64,
    /// The sender.
    from: U32,
    /// The receiver.
    to: U32,
    /// The sender's start.
    incarnation: U64,
    /// Zeros.
    reserved: U64,
}

const _: () = assert!(size_of::<HelloFields>() == Hello::LEN_BYTES);

impl Hello {
    /// Bytes after the header.
    pub const LEN_BYTES: usize = 32;
}

impl Packet {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => {
                let fields = HelloFields {
                    cluster: U64::new(hello.cluster),
                    from: U32::new(hello.from),
                    to: U32::new(hello.to),
                    incarnation: U64::new(hello.incarnation),
                    reserved: U64::new(0),
                };
                encode_frame(FrameKind::Hello, out, |out| {
                    out.extend_from_slice(fields.as_bytes());
                });
            }
            Self::Ping(ping) => encode_frame(FrameKind::Ping, out, |out| {
                out.extend_from_slice(time_fields(ping.sent_at).as_bytes());
            }),
            Self::Message { volume, envelope } => message::encode(*volume, envelope, out),
            Self::Command(command) => command.encode(out),
            Self::Answer(answer) => answer.encode(out),
        }
    }

    /// The packet of a frame with this kind and these bytes after its header.
    ///
    /// # Errors
    /// If they break the protocol.
    pub fn decode(kind: FrameKind, body: &[u8]) -> Result<Self, WireError> {
        let mut body = Body::new(kind, body);
        Ok(match kind {
            FrameKind::Hello => {
                let fields: HelloFields = body.take()?;
                check_zero(fields.reserved.as_bytes())?;
                body.end()?;
                Self::Hello(Hello {
                    cluster: fields.cluster.get(),
                    from: fields.from.get(),
                    to: fields.to.get(),
                    incarnation: fields.incarnation.get(),
                })
            }
            FrameKind::Ping => {
                let sent_at = time_of(body.take()?);
                body.end()?;
                Self::Ping(Ping { sent_at })
            }
            FrameKind::Command => Self::Command(Command::decode(body)?),
            FrameKind::Answer => Self::Answer(Answer::decode(body)?),
            FrameKind::Beacon
            | FrameKind::BeaconAck
            | FrameKind::Report
            | FrameKind::Entry
            | FrameKind::EntryAck
            | FrameKind::Newer => {
                let (volume, envelope) = message::decode(kind, body)?;
                Self::Message { volume, envelope }
            }
        })
    }
}
