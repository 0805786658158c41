//! Third-party copy: the parameter list of EXTENDED COPY (LID1), and RECEIVE COPY RESULTS.
//!
//! Read first: SPC-4, "EXTENDED COPY(LID1)", segment descriptor 02h, target descriptor E4h.

mod work;

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

use crate::identity::Naa;
use crate::sense::{Asc, Sense, SenseKey};

pub(crate) use self::work::SegmentEnds;
pub use self::work::{CopySlots, CopyWork};

/// The most CSCD (target) descriptors of a list.
pub(crate) const TARGETS_MAX: u8 = 8;
/// The most segment descriptors of a list.
pub(crate) const SEGMENTS_MAX: u8 = 16;
/// The longest list of descriptors in bytes.
pub(crate) const LIST_LEN_MAX: u16 = 1024;
/// The longest segment.
pub(crate) const SEGMENT_LEN_BYTES_MAX: u32 = 16 << 20;
/// Segment descriptor type: block device to block device.
pub(crate) const SEGMENT_BLOCK_TO_BLOCK: u8 = 0x02;
/// Target descriptor type: identification descriptor.
pub(crate) const TARGET_IDENTIFICATION: u8 = 0xE4;

const HEADER_LEN: usize = 16;
const TARGET_LEN: usize = 32;
const SEGMENT_LEN: usize = 28;

/// One block to block segment; indexes are into the list of targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopySegment {
    pub(crate) source: usize,
    pub(crate) destination: usize,
    pub(crate) blocks: u16,
    pub(crate) source_lba: u64,
    pub(crate) destination_lba: u64,
    /// DC: the number of blocks counts the destination's blocks, else the source's.
    pub(crate) counts_destination: bool,
}

/// A parsed EXTENDED COPY parameter list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CopyList {
    pub(crate) list_id: u8,
    /// The designator of each target, type NAA, and the block length that the list claims for it.
    pub(crate) targets: Vec<CopyTarget>,
    pub(crate) segments: Vec<CopySegment>,
}

/// A target descriptor of type E4h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyTarget {
    pub(crate) naa: Naa,
    pub(crate) block_len: u32,
}

/// Parses a parameter list. An empty list is a copy of nothing (`None`).
pub(crate) fn parse(list: &[u8]) -> Result<Option<CopyList>, Sense> {
    if list.is_empty() {
        return Ok(None);
    }
    let length_error = Sense::illegal(Asc::PARAMETER_LIST_LENGTH);
    let header = list.get(..HEADER_LEN).ok_or(length_error)?;
    let targets_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let segments_len = be32(&header[8..12]) as usize;
    let inline_len = be32(&header[12..16]) as usize;
    if targets_len.saturating_add(segments_len) > usize::from(LIST_LEN_MAX) {
        return Err(length_error);
    }
    if targets_len / TARGET_LEN > usize::from(TARGETS_MAX) {
        return Err(Sense::illegal(Asc::TOO_MANY_TARGET_DESCRIPTORS));
    }
    if segments_len / SEGMENT_LEN > usize::from(SEGMENTS_MAX) {
        return Err(Sense::illegal(Asc::TOO_MANY_SEGMENT_DESCRIPTORS));
    }
    if inline_len != 0 {
        return Err(Sense::illegal(Asc::INLINE_DATA_LENGTH));
    }
    let body = list
        .get(HEADER_LEN..HEADER_LEN + targets_len + segments_len)
        .ok_or(length_error)?;
    let (targets, segments) = body.split_at(targets_len);
    if targets.len() % TARGET_LEN != 0 {
        return Err(Sense::invalid_parameter(2));
    }
    let targets: Vec<_> = targets
        .chunks_exact(TARGET_LEN)
        .enumerate()
        .map(|(i, target)| parse_target(target, HEADER_LEN + i * TARGET_LEN))
        .collect::<Result<_, _>>()?;
    let first_segment_at = HEADER_LEN + targets_len;
    let segments = parse_segments(segments, first_segment_at, targets.len())?;
    Ok(Some(CopyList {
        list_id: header[0],
        targets,
        segments,
    }))
}

fn parse_target(target: &[u8], at: usize) -> Result<CopyTarget, Sense> {
    if target[0] != TARGET_IDENTIFICATION {
        return Err(Sense::illegal(Asc::UNSUPPORTED_TARGET_DESCRIPTOR));
    }
    // PERIPHERAL DEVICE TYPE must be 00h (block device); LU ID TYPE and NUL are obsolete (SPC-4).
    if target[1] & 0x1F != 0 {
        return Err(Sense::invalid_parameter(at as u16 + 1));
    }
    // The designator: CODE SET 1 (binary), ASSOCIATION 0 and type 3 (NAA), 8 or 16 bytes.
    let designator = &target[4..28];
    if designator[0] & 0x0F != 1 || designator[1] & 0x3F != 3 {
        return Err(copy_target_unreachable());
    }
    let value = designator.get(4..4 + usize::from(designator[3]));
    let naa = value.and_then(|value| {
        let eight = value.try_into().ok().map(Naa::Eight);
        eight.or_else(|| value.try_into().ok().map(Naa::Sixteen))
    });
    let naa = naa.ok_or_else(copy_target_unreachable)?;
    let block_len = be32(&target[28..32]) & 0x00FF_FFFF;
    Ok(CopyTarget { naa, block_len })
}

fn parse_segments(
    mut rest: &[u8],
    first_at: usize,
    targets: usize,
) -> Result<Vec<CopySegment>, Sense> {
    let len = rest.len();
    let mut segments = Vec::new();
    while !rest.is_empty() {
        let at = (first_at + len - rest.len()) as u16;
        if rest[0] != SEGMENT_BLOCK_TO_BLOCK {
            return Err(Sense::illegal(Asc::UNSUPPORTED_SEGMENT_DESCRIPTOR));
        }
        if rest.len() < SEGMENT_LEN || rest[2..4] != [0, SEGMENT_LEN as u8 - 4] {
            return Err(Sense::invalid_parameter(at + 2));
        }
        let be16 = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
        let index = |field: usize| match usize::from(be16(field)) {
            index if index < targets => Ok(index),
            _ => Err(copy_target_unreachable()),
        };
        segments.push(CopySegment {
            source: index(4)?,
            destination: index(6)?,
            blocks: be16(10),
            source_lba: u64::from(be32(&rest[12..16])) << 32 | u64::from(be32(&rest[16..20])),
            destination_lba: u64::from(be32(&rest[20..24])) << 32 | u64::from(be32(&rest[24..28])),
            counts_destination: rest[1] & 0x02 != 0,
        });
        rest = &rest[SEGMENT_LEN..];
    }
    Ok(segments)
}

/// COPY ABORTED, COPY TARGET DEVICE NOT REACHABLE.
pub(crate) fn copy_target_unreachable() -> Sense {
    Sense::new(SenseKey::CopyAborted, Asc::COPY_TARGET_NOT_REACHABLE)
}

/// RECEIVE COPY RESULTS, OPERATING PARAMETERS (service action 03h).
pub(crate) fn operating_parameters() -> Vec<u8> {
    let mut data = vec![0; 46];
    let available = (data.len() - 4) as u32;
    data[0..4].copy_from_slice(&available.to_be_bytes());
    data[4] = 0x01; // SNLID
    data[8..10].copy_from_slice(&u16::from(TARGETS_MAX).to_be_bytes());
    data[10..12].copy_from_slice(&u16::from(SEGMENTS_MAX).to_be_bytes());
    data[12..16].copy_from_slice(&u32::from(LIST_LEN_MAX).to_be_bytes());
    data[16..20].copy_from_slice(&SEGMENT_LEN_BYTES_MAX.to_be_bytes());
    data[36] = u8::MAX; // MAXIMUM CONCURRENT COPIES: as many as there are commands
    data[37] = 9; // DATA SEGMENT GRANULARITY, log2
    data[43] = 2; // IMPLEMENTED DESCRIPTOR LIST LENGTH
    data[44] = SEGMENT_BLOCK_TO_BLOCK;
    data[45] = TARGET_IDENTIFICATION;
    data
}

/// The state of a nexus's last copy, which RECEIVE COPY RESULTS reports.
#[derive(Debug)]
pub(crate) struct CopyRecord {
    list_id: u8,
    state: AtomicU8,
    segments_done: AtomicU16,
    kib_done: AtomicU32,
}

/// COPY MANAGER STATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyState {
    InProgress = 0x00,
    Done = 0x01,
    Failed = 0x02,
}

impl CopyRecord {
    fn new(list_id: u8) -> Self {
        Self {
            list_id,
            state: AtomicU8::new(CopyState::InProgress as u8),
            segments_done: AtomicU16::new(0),
            kib_done: AtomicU32::new(0),
        }
    }

    pub(crate) fn list_id(&self) -> u8 {
        self.list_id
    }

    fn count_segment(&self, len_bytes: u64) {
        self.segments_done.fetch_add(1, Ordering::Relaxed);
        let kib = (len_bytes >> 10) as u32;
        self.kib_done.fetch_add(kib, Ordering::Relaxed);
    }

    /// Records how the copy ended. Only the first call has an effect.
    fn end(&self, state: CopyState) {
        let began = CopyState::InProgress as u8;
        let (order, seen) = (Ordering::Release, Ordering::Relaxed);
        let _ = self.state.compare_exchange(began, state as u8, order, seen);
    }

    /// COPY STATUS data (service action 00h).
    pub(crate) fn status(&self) -> Vec<u8> {
        let state = self.state.load(Ordering::Acquire);
        let segments = self.segments_done.load(Ordering::Relaxed);
        let kib = self.kib_done.load(Ordering::Relaxed);
        let mut data = vec![0; 12];
        data[3] = 8;
        data[4] = state;
        data[5..7].copy_from_slice(&segments.to_be_bytes());
        data[7] = 0x01; // TRANSFER COUNT UNITS: kibibytes
        data[8..12].copy_from_slice(&kib.to_be_bytes());
        data
    }
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> [u8; TARGET_LEN] {
        let mut t = [0; TARGET_LEN];
        t[0] = TARGET_IDENTIFICATION;
        t[4..8].copy_from_slice(&[1, 3, 0, 8]);
        t[8..16].copy_from_slice(&[0x31, 1, 2, 3, 4, 5, 6, 7]);
        t[30] = 2;
        t
    }

    fn segment() -> [u8; SEGMENT_LEN] {
        let mut s = [0; SEGMENT_LEN];
        s[0] = SEGMENT_BLOCK_TO_BLOCK;
        s[3] = 24;
        s[11] = 9;
        s[19] = 4;
        s[27] = 8;
        s
    }

    fn list(targets: usize, segments: usize) -> Vec<u8> {
        let mut l = vec![0; HEADER_LEN];
        l[0] = 7;
        l[2..4].copy_from_slice(&((targets * TARGET_LEN) as u16).to_be_bytes());
        l[8..12].copy_from_slice(&((segments * SEGMENT_LEN) as u32).to_be_bytes());
        (0..targets).for_each(|_| l.extend(target()));
        (0..segments).for_each(|_| l.extend(segment()));
        l
    }

    #[test]
    fn a_list_with_one_segment() {
        let list = parse(&list(1, 1)).expect("valid").expect("not empty");
        assert_eq!((list.list_id, list.targets[0].block_len), (7, 512));
        let s = list.segments[0];
        assert_eq!((s.blocks, s.source_lba, s.destination_lba), (9, 4, 8));
    }

    #[test]
    fn limits_types_and_indexes_are_checked() {
        let asc = |list: &[u8]| parse(list).expect_err("refused").asc;
        assert_eq!(asc(&list(9, 1)), Asc::TOO_MANY_TARGET_DESCRIPTORS);
        assert_eq!(asc(&list(1, 17)), Asc::TOO_MANY_SEGMENT_DESCRIPTORS);
        assert_eq!(asc(&list(1, 1)[..40]), Asc::PARAMETER_LIST_LENGTH);
        let mut bad = list(1, 1);
        bad[HEADER_LEN] = 0xE0;
        assert_eq!(asc(&bad), Asc::UNSUPPORTED_TARGET_DESCRIPTOR);
        let mut bad = list(1, 1);
        bad[HEADER_LEN + TARGET_LEN] = 0x15;
        assert_eq!(asc(&bad), Asc::UNSUPPORTED_SEGMENT_DESCRIPTOR);
        let mut bad = list(1, 1);
        bad[HEADER_LEN + TARGET_LEN + 5] = 1;
        assert_eq!(asc(&bad), Asc::COPY_TARGET_NOT_REACHABLE);
    }
}
