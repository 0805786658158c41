//! Messages between members of a volume.

use std::sync::Arc;
use std::time::Duration;

use block::{BlockSize, Blocks, Extent, Lba};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::config::{MemberFields, put_config, take_config};
use super::{Body, CONTENTS_BYTES_MAX, EXTENTS_MAX, FrameKind, WireError, check, encode_frame};
use crate::claim::Claim;
use crate::contents::Contents;
use crate::ids::{Epoch, LocalTime, Seq, StreamId};
use crate::message::{self, Beacon, Entry, EntryBody, Envelope, Report};

/// The beacon names a stream.
const HAS_STREAM: u32 = 1;
/// Members in sync differ only in unsettled entries.
const IS_RECONCILED: u32 = 1 << 1;

/// What each message of members begins with.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct EnvelopeFields {
    /// The volume.
    volume: U64,
    /// The sender.
    from: MemberFields,
    /// The receiver.
    to: MemberFields,
    /// The sender's epoch; 0 before its first configuration.
    epoch: U64,
}

/// A stream; a beacon without one and an expected one have zeros.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StreamFields {
    /// Chosen by the receiver.
    number: U64,
    /// The epoch in which the primary opened it; 0: not open.
    opened: U64,
}

/// A beacon; a configuration follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct BeaconFields {
    /// In nanoseconds of the primary's clock.
    sent_at: U64,
    /// The receiver's stream.
    stream: StreamFields,
    /// The last settled entry; 0: none.
    settled: U64,
    /// [`HAS_STREAM`], [`IS_RECONCILED`].
    flags: U32,
    /// Zeros.
    reserved: U32,
}

/// A report; [`ExtentFields`] follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ReportFields {
    /// The stream that is expected.
    stream: StreamFields,
    /// All writes of epochs up to this one are held…
    through: U64,
    /// …and below this block…
    below: U64,
    /// …up to this one.
    below_through: U64,
    /// How many extents follow; at most [`EXTENTS_MAX`].
    extent_count: U32,
    /// Zeros.
    reserved: U32,
}

/// A run of blocks.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ExtentFields {
    /// The first block.
    lba: U64,
    /// How many.
    blocks: U64,
}

/// An entry; contents follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct EntryFields {
    /// The stream.
    stream: StreamFields,
    /// Its place; at least 1.
    seq: U64,
    /// The last settled entry.
    settled: U64,
    /// 1: a write; 2: a piece of a copy; 3: the end of a copy.
    kind: U32,
    /// log2 of the bytes of a block: 9 or 12; 0 at the end of a copy.
    block_shift: u8,
    /// 0: zeros; 1: bytes follow.
    has_bytes: u8,
    /// Zeros.
    reserved: [u8; 2],
    /// The blocks.
    extent: ExtentFields,
    /// Of a piece: the stamp of its region.
    stamp: U64,
    /// Of a piece: the copy has passed what is below this block.
    below: U64,
    /// Of a piece and of an end: the epoch up to which the copy is complete.
    complete_through: U64,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct EntryAckFields {
    /// The stream.
    stream: StreamFields,
    /// The last entry that was executed; 0: none.
    applied: U64,
}

const _: () = assert!(size_of::<EnvelopeFields>() == 48);
const _: () = assert!(size_of::<BeaconFields>() == 40);
const _: () = assert!(size_of::<ReportFields>() == 48);
const _: () = assert!(size_of::<EntryFields>() == 80);
const _: () = assert!(size_of::<EntryAckFields>() == 24);

impl From<StreamId> for StreamFields {
    fn from(id: StreamId) -> Self {
        Self {
            number: U64::new(id.number),
            opened: U64::new(id.opened.0),
        }
    }
}

impl From<StreamFields> for StreamId {
    fn from(fields: StreamFields) -> Self {
        Self {
            number: fields.number.get(),
            opened: Epoch(fields.opened.get()),
        }
    }
}

impl From<Extent> for ExtentFields {
    fn from(extent: Extent) -> Self {
        Self {
            lba: U64::new(extent.lba.0),
            blocks: U64::new(extent.blocks.0),
        }
    }
}

impl ExtentFields {
    /// The extent, which is not empty and ends below 2^64.
    pub fn check(&self) -> Result<Extent, WireError> {
        let (lba, blocks) = (self.lba.get(), self.blocks.get());
        check("extent blocks", blocks, |blocks| {
            blocks > 0 && lba.checked_add(blocks).is_some()
        })?;
        Ok(Extent::new(Lba(lba), Blocks(blocks)))
    }

    /// The extent of a frame that has none.
    fn none() -> Self {
        Self {
            lba: U64::new(0),
            blocks: U64::new(0),
        }
    }
}

/// log2 of a block's bytes.
pub(super) fn shift_of(block_size: BlockSize) -> u8 {
    block_size.shift() as u8
}

/// The block size of its logarithm.
pub(super) fn check_shift(shift: u8) -> Result<BlockSize, WireError> {
    let bytes = 1_u64.checked_shl(shift.into()).unwrap_or(0);
    BlockSize::from_bytes(bytes).ok_or(WireError::Field {
        field: "block shift",
        value: shift.into(),
    })
}

pub(super) fn check_zero(reserved: &[u8]) -> Result<(), WireError> {
    let sum = reserved.iter().map(|byte| u64::from(*byte)).sum();
    check("reserved", sum, |sum| sum == 0).map(drop)
}

/// Time in nanoseconds.
pub(super) fn time_fields(time: LocalTime) -> U64 {
    U64::new(u64::try_from(time.0.as_nanos()).unwrap_or(u64::MAX))
}

pub(super) fn time_of(fields: U64) -> LocalTime {
    LocalTime(Duration::from_nanos(fields.get()))
}

/// The contents of `extent`, which are all that is left of the frame.
pub(super) fn take_contents(
    body: &mut Body<'_>,
    block_size: BlockSize,
    extent: Extent,
    has_bytes: u8,
) -> Result<Contents, WireError> {
    let has_bytes = check("has bytes", has_bytes.into(), |value| value <= 1)? == 1;
    if !has_bytes {
        body.end()?;
        return Ok(Contents::zeros(block_size, extent.blocks.0));
    }
    let blocks_max = (CONTENTS_BYTES_MAX as u64) >> block_size.shift();
    let blocks = check("extent blocks", extent.blocks.0, |blocks| {
        blocks <= blocks_max
    })?;
    let bytes = body.take_all(blocks << block_size.shift())?;
    let contents = Contents::of_bytes(block_size, Arc::from(bytes));
    contents.ok_or_else(|| body.wrong_length())
}

/// Appends the frame of a message.
pub(super) fn encode(volume: u64, message: &Envelope<Contents>, out: &mut Vec<u8>) {
    let envelope = EnvelopeFields {
        volume: U64::new(volume),
        from: message.from.into(),
        to: message.to.into(),
        epoch: U64::new(message.epoch.0),
    };
    encode_frame(kind_of(&message.body), out, |out| {
        out.extend_from_slice(envelope.as_bytes());
        match &message.body {
            message::Body::Beacon(beacon) => put_beacon(out, beacon),
            message::Body::BeaconAck { sent_at } => {
                out.extend_from_slice(time_fields(*sent_at).as_bytes());
            }
            message::Body::Report(report) => put_report(out, report),
            message::Body::Entry(entry) => put_entry(out, entry),
            message::Body::EntryAck { stream, applied } => {
                let fields = EntryAckFields {
                    stream: (*stream).into(),
                    applied: U64::new(applied.0),
                };
                out.extend_from_slice(fields.as_bytes());
            }
            message::Body::Newer(config) => put_config(out, config),
        }
    });
}

fn kind_of(body: &message::Body<Contents>) -> FrameKind {
    match body {
        message::Body::Beacon(_) => FrameKind::Beacon,
        message::Body::BeaconAck { .. } => FrameKind::BeaconAck,
        message::Body::Report(_) => FrameKind::Report,
        message::Body::Entry(_) => FrameKind::Entry,
        message::Body::EntryAck { .. } => FrameKind::EntryAck,
        message::Body::Newer(_) => FrameKind::Newer,
    }
}

fn put_beacon(out: &mut Vec<u8>, beacon: &Beacon) {
    let none = StreamId {
        number: 0,
        opened: Epoch(0),
    };
    let has_stream = if beacon.stream.is_some() {
        HAS_STREAM
    } else {
        0
    };
    let is_reconciled = if beacon.is_reconciled {
        IS_RECONCILED
    } else {
        0
    };
    let fields = BeaconFields {
        sent_at: time_fields(beacon.sent_at),
        stream: beacon.stream.unwrap_or(none).into(),
        settled: U64::new(beacon.settled.0),
        flags: U32::new(has_stream | is_reconciled),
        reserved: U32::new(0),
    };
    out.extend_from_slice(fields.as_bytes());
    put_config(out, &beacon.config);
}

fn put_report(out: &mut Vec<u8>, report: &Report) {
    assert!(
        report.unsettled.len() <= EXTENTS_MAX,
        "settings obey the limit"
    );
    let fields = ReportFields {
        stream: report.stream.into(),
        through: U64::new(report.claim.through.0),
        below: U64::new(report.claim.below.0),
        below_through: U64::new(report.claim.below_through.0),
        extent_count: U32::new(report.unsettled.len() as u32),
        reserved: U32::new(0),
    };
    out.extend_from_slice(fields.as_bytes());
    for extent in &report.unsettled {
        out.extend_from_slice(ExtentFields::from(*extent).as_bytes());
    }
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry<Contents>) {
    let mut fields = EntryFields {
        stream: entry.stream.into(),
        seq: U64::new(entry.seq.0),
        settled: U64::new(entry.settled.0),
        kind: U32::new(3),
        block_shift: 0,
        has_bytes: 0,
        reserved: [0; 2],
        extent: ExtentFields::none(),
        stamp: U64::new(0),
        below: U64::new(0),
        complete_through: U64::new(0),
    };
    let mut contents = None;
    match &entry.body {
        EntryBody::Write { extent, data } => {
            fields.kind = U32::new(1);
            contents = Some((*extent, data));
        }
        EntryBody::Piece {
            extent,
            data,
            stamp,
            below,
            complete_through,
        } => {
            fields.kind = U32::new(2);
            fields.stamp = U64::new(stamp.0);
            fields.below = U64::new(below.0);
            fields.complete_through = U64::new(complete_through.0);
            contents = Some((*extent, data));
        }
        EntryBody::CopyEnd { complete_through } => {
            fields.complete_through = U64::new(complete_through.0);
        }
    }
    if let Some((extent, data)) = contents {
        fields.extent = extent.into();
        fields.block_shift = shift_of(data.block_size());
        fields.has_bytes = data.bytes().is_some().into();
    }
    out.extend_from_slice(fields.as_bytes());
    if let Some(bytes) = contents.and_then(|(_, data)| data.bytes()) {
        out.extend_from_slice(bytes);
    }
}

/// The message of a frame, and its volume.
pub(super) fn decode(
    kind: FrameKind,
    mut body: Body<'_>,
) -> Result<(u64, Envelope<Contents>), WireError> {
    let envelope: EnvelopeFields = body.take()?;
    let message = match kind {
        FrameKind::Beacon => take_beacon(&mut body)?,
        FrameKind::BeaconAck => message::Body::BeaconAck {
            sent_at: time_of(body.take()?),
        },
        FrameKind::Report => take_report(&mut body)?,
        FrameKind::Entry => take_entry(&mut body)?,
        FrameKind::EntryAck => {
            let fields: EntryAckFields = body.take()?;
            message::Body::EntryAck {
                stream: fields.stream.into(),
                applied: Seq(fields.applied.get()),
            }
        }
        FrameKind::Newer => message::Body::Newer(take_config(&mut body)?),
        other => return Err(WireError::Kind(other as u8)),
    };
    body.end()?;
    let message = Envelope {
        from: envelope.from.check()?,
        to: envelope.to.check()?,
        epoch: Epoch(check("epoch", envelope.epoch.get(), |epoch| {
            epoch < u64::MAX
        })?),
        body: message,
    };
    Ok((envelope.volume.get(), message))
}

fn take_beacon(body: &mut Body<'_>) -> Result<message::Body<Contents>, WireError> {
    let fields: BeaconFields = body.take()?;
    let flags = fields.flags.get();
    check("beacon flags", flags.into(), |_| {
        flags & !(HAS_STREAM | IS_RECONCILED) == 0
    })?;
    check_zero(fields.reserved.as_bytes())?;
    Ok(message::Body::Beacon(Beacon {
        sent_at: time_of(fields.sent_at),
        config: take_config(body)?,
        stream: (flags & HAS_STREAM != 0).then(|| fields.stream.into()),
        settled: Seq(fields.settled.get()),
        is_reconciled: flags & IS_RECONCILED != 0,
    }))
}

fn take_report(body: &mut Body<'_>) -> Result<message::Body<Contents>, WireError> {
    let fields: ReportFields = body.take()?;
    check_zero(fields.reserved.as_bytes())?;
    let count = fields.extent_count.get() as usize;
    check("extent count", count as u64, |_| count <= EXTENTS_MAX)?;
    let mut unsettled = Vec::with_capacity(count);
    for _ in 0..count {
        unsettled.push(body.take::<ExtentFields>()?.check()?);
    }
    Ok(message::Body::Report(Report {
        stream: fields.stream.into(),
        claim: Claim {
            through: Epoch(fields.through.get()),
            below: Lba(fields.below.get()),
            below_through: Epoch(fields.below_through.get()),
        },
        unsettled,
    }))
}

fn take_entry(body: &mut Body<'_>) -> Result<message::Body<Contents>, WireError> {
    let fields: EntryFields = body.take()?;
    check_zero(&fields.reserved)?;
    let complete_through = Epoch(fields.complete_through.get());
    let kind = check("entry kind", fields.kind.get().into(), |kind| {
        (1..=3).contains(&kind)
    })?;
    let entry_body = if kind == 3 {
        EntryBody::CopyEnd { complete_through }
    } else {
        let block_size = check_shift(fields.block_shift)?;
        let extent = fields.extent.check()?;
        let data = take_contents(body, block_size, extent, fields.has_bytes)?;
        match kind {
            1 => EntryBody::Write { extent, data },
            _ => EntryBody::Piece {
                extent,
                data,
                stamp: Epoch(fields.stamp.get()),
                below: Lba(fields.below.get()),
                complete_through,
            },
        }
    };
    Ok(message::Body::Entry(Entry {
        stream: fields.stream.into(),
        seq: Seq(check("entry seq", fields.seq.get(), |seq| seq > 0)?),
        settled: Seq(fields.settled.get()),
        body: entry_body,
    }))
}
