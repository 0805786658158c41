//! What members send each other, ask the store, and answer hosts.

use block::{BlockSize, Extent, Lba};

use crate::claim::Claim;
use crate::config::Config;
use crate::contents::Contents;
use crate::ids::{Epoch, HostRequest, LocalTime, MemberId, Seq, StoreRequestId, StreamId};

/// A message between members.
#[derive(Clone, Debug)]
pub struct Envelope<D> {
    /// The sender.
    pub from: MemberId,
    /// The receiver: a later incarnation on the same node ignores the message.
    pub to: MemberId,
    /// The sender's epoch. A receiver in a later one answers [`Body::Newer`] and does nothing else.
    pub epoch: Epoch,
    /// What it says.
    pub body: Body<D>,
}

/// What a message says.
#[derive(Clone, Debug)]
pub enum Body<D> {
    /// From a primary, regularly.
    Beacon(Beacon),
    /// Answers a beacon and grants the lease.
    BeaconAck {
        /// From the beacon: a time of the primary's clock.
        sent_at: LocalTime,
    },
    /// To a primary: what the sender's copy holds. Asks for a stream.
    Report(Report),
    /// From a primary: an entry of the receiver's stream.
    Entry(Entry<D>),
    /// To a primary: all entries up to one are executed.
    EntryAck {
        /// The stream.
        stream: StreamId,
        /// The last entry that was executed; 0: none.
        applied: Seq,
    },
    /// Answers a message of an older epoch.
    Newer(Config),
}

impl Body<Contents> {
    /// The block size of the contents that it carries.
    pub fn block_size(&self) -> Option<BlockSize> {
        let Self::Entry(entry) = self else {
            return None;
        };
        match &entry.body {
            EntryBody::Write { data, .. } | EntryBody::Piece { data, .. } => {
                Some(data.block_size())
            }
            EntryBody::CopyEnd { .. } => None,
        }
    }
}

/// What a primary says regularly.
#[derive(Clone, Debug)]
pub struct Beacon {
    /// When it was sent, by the primary's clock. Grows from beacon to beacon.
    pub sent_at: LocalTime,
    /// The configuration of the message's epoch.
    pub config: Config,
    /// The receiver's stream, if it has one.
    pub stream: Option<StreamId>,
    /// Entries of the stream up to this one are settled: every member in sync has them.
    pub settled: Seq,
    /// Whether members in sync differ only in unsettled entries of their streams: the primary has
    /// rewritten what they reported.
    pub is_reconciled: bool,
}

/// What a member's copy holds.
#[derive(Clone, Debug)]
pub struct Report {
    /// The stream that the member is ready to receive.
    pub stream: StreamId,
    /// What it has.
    pub claim: Claim,
    /// Where it may differ in spite of the claim.
    pub unsettled: Vec<Extent>,
}

/// An entry of a stream.
#[derive(Clone, Debug)]
pub struct Entry<D> {
    /// The stream.
    pub stream: StreamId,
    /// Its place.
    pub seq: Seq,
    /// As in [`Beacon`].
    pub settled: Seq,
    /// What to do.
    pub body: EntryBody<D>,
}

/// What an entry does.
#[derive(Clone, Debug)]
pub enum EntryBody<D> {
    /// A write.
    Write {
        /// Its blocks.
        extent: Extent,
        /// Their contents.
        data: D,
    },
    /// A piece of the primary's copy that the receiver missed.
    Piece {
        /// Its blocks.
        extent: Extent,
        /// Their contents.
        data: D,
        /// The region's stamp at the primary.
        stamp: Epoch,
        /// The receiver then has all writes below this block…
        below: Lba,
        /// …of epochs up to this one.
        complete_through: Epoch,
    },
    /// All pieces were sent: the receiver has all writes of epochs up to this one.
    CopyEnd {
        /// The epoch.
        complete_through: Epoch,
    },
}

/// What a member asks the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreOp {
    /// The present configuration.
    Read,
    /// Replace the configuration if its epoch is the one before that of the new one.
    Swap(Config),
}

/// Why a command of a host was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This member is not primary; the one named was when it last heard.
    NotPrimary(Option<MemberId>),
    /// The primary has no lease, or is not reconciled with its secondaries. May be retried.
    NotReady,
    /// A queue is full. May be retried.
    Busy,
    /// The extent is empty, too long or beyond the volume, or has another length than its data.
    InvalidExtent,
    /// The primary's copy has no memory for the write. Each of its blocks holds old or new
    /// contents.
    NoMemory,
}

/// What has become of a write of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostReply {
    /// Every member in sync has what the write left in its blocks.
    Written,
    /// The member is not primary any more. The write may last, or not.
    Deposed,
}

/// What a write in flight has overwritten. A failover could take the write back, so reads see what
/// was there before.
#[derive(Clone, Debug)]
pub struct Overwritten<D> {
    /// Its blocks.
    pub extent: Extent,
    /// What they held; `None`: it was not kept, since they are more than a piece.
    pub old: Option<D>,
}

/// What the driver is to do.
#[derive(Clone, Debug)]
pub enum Output<D> {
    /// Send a message.
    Send(Envelope<D>),
    /// Ask the store; it answers with the configuration that it has after the operation.
    Store(StoreRequestId, StoreOp),
    /// Answer a host.
    Reply(HostRequest, HostReply),
}
