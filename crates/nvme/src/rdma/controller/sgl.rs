//! Where a command's data are: in its capsule, or in the host's memory.
//!
//! Read first: NVM Express Base 2.0, "Scatter Gather List (SGL)"; NVMe RDMA Transport 1.0, "Data
//! Transfers".

use session::{RemoteBuffer, RemoteKey};
use zerocopy::FromBytes;

use crate::controller::{DataPointer, Limits};
use crate::wire::{Sgl, SglKind, StatusCode};

/// Where the data of one command are. Kept from command to command, so that lists need no new
/// memory.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// In the host's memory, in the order of the data.
    remote: Vec<RemoteBuffer>,
    /// In the capsule: offset and length in bytes.
    in_capsule: (usize, usize),
    /// The key that the response invalidates.
    pub(super) invalidate: Option<RemoteKey>,
}

const DESCRIPTOR_BYTES: usize = size_of::<Sgl>();

impl Places {
    /// What a command's SGL descriptor means; `in_capsule` is what follows the command in its
    /// capsule.
    pub(super) fn parse(
        &mut self,
        sgl: &Sgl,
        in_capsule: &[u8],
    ) -> Result<DataPointer, StatusCode> {
        self.remote.clear();
        self.in_capsule = (0, 0);
        self.invalidate = None;
        match sgl.kind() {
            SglKind::Keyed { .. } => self.push(sgl)?,
            SglKind::InCapsule { offset, len_bytes } => {
                self.in_capsule = range(offset, len_bytes, in_capsule.len())?;
                return Ok(DataPointer::InCapsule { len_bytes });
            }
            SglKind::LastSegment { offset, len_bytes } => {
                let (start, len) = range(offset, len_bytes, in_capsule.len())?;
                self.push_list(&in_capsule[start..start + len])?;
            }
            SglKind::Transport { .. } | SglKind::Other(_) => {
                return Err(StatusCode::SglDescriptorTypeInvalid);
            }
        }
        let len_bytes = self.remote.iter().map(|buffer| buffer.len_bytes).sum();
        Ok(DataPointer::Remote { len_bytes })
    }

    /// The data in the capsule that [`Self::parse`] has seen.
    pub(super) fn in_capsule<'c>(&self, in_capsule: &'c [u8]) -> &'c [u8] {
        let (start, len) = self.in_capsule;
        &in_capsule[start..start + len]
    }

    /// Where in the host's memory the data from `offset_bytes` on are: up to `len_max_bytes` of
    /// them, in one stretch. `None` beyond the end.
    pub(super) fn piece(&self, offset_bytes: u32, len_max_bytes: u32) -> Option<RemoteBuffer> {
        let mut offset_bytes = offset_bytes;
        for buffer in &self.remote {
            if offset_bytes < buffer.len_bytes {
                let len_bytes = len_max_bytes.min(buffer.len_bytes - offset_bytes);
                return buffer.piece(offset_bytes, len_bytes);
            }
            offset_bytes -= buffer.len_bytes;
        }
        None
    }

    /// A list of keyed descriptors.
    fn push_list(&mut self, list: &[u8]) -> Result<(), StatusCode> {
        if list.is_empty() || !list.len().is_multiple_of(DESCRIPTOR_BYTES) {
            return Err(StatusCode::InvalidSglSegmentDescriptor);
        }
        let count = list.len() / DESCRIPTOR_BYTES;
        if count > usize::from(Limits::RDMA_SGL_DESCRIPTORS_MAX) {
            return Err(StatusCode::InvalidNumberOfSglDescriptors);
        }
        let descriptors =
            <[Sgl]>::ref_from_bytes(list).map_err(|_| StatusCode::InvalidSglSegmentDescriptor)?;
        descriptors.iter().try_for_each(|sgl| self.push(sgl))
    }

    fn push(&mut self, sgl: &Sgl) -> Result<(), StatusCode> {
        let SglKind::Keyed {
            address,
            len_bytes,
            key,
            invalidate,
        } = sgl.kind()
        else {
            return Err(StatusCode::SglDescriptorTypeInvalid);
        };
        let buffer = RemoteBuffer {
            address,
            key: RemoteKey(key),
            len_bytes,
        };
        if buffer.piece(0, len_bytes).is_none() {
            return Err(StatusCode::DataSglLengthInvalid);
        }
        if invalidate {
            // A response can invalidate one key. Hosts see which one, and invalidate the others
            // themselves.
            self.invalidate = Some(buffer.key);
        }
        self.remote.push(buffer);
        Ok(())
    }
}

/// `len_bytes` bytes from `offset` on inside of `available` bytes.
fn range(offset: u64, len_bytes: u32, available: usize) -> Result<(usize, usize), StatusCode> {
    let start = usize::try_from(offset).map_err(|_| StatusCode::SglOffsetInvalid)?;
    let len = len_bytes as usize;
    match available.checked_sub(start) {
        None => Err(StatusCode::SglOffsetInvalid),
        Some(rest) if len > rest => Err(StatusCode::DataSglLengthInvalid),
        Some(_) => Ok((start, len)),
    }
}
