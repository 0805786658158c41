//! A volume of plain bytes for the tests of this crate.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use block::{
    Admission, BlockSize, Blocks, Extent, Geometry, Intent, Op, ReadDest, Status, Ticket, Volume,
};

pub(crate) struct Bytes {
    content: Mutex<Vec<u8>>,
    block_size: BlockSize,
    read_only: bool,
}

impl Bytes {
    pub(crate) fn new(block_size: BlockSize, blocks: u64) -> Arc<Self> {
        let bytes = Mutex::new(vec![0; (blocks << block_size.shift()) as usize]);
        Arc::new(Self {
            content: bytes,
            block_size,
            read_only: false,
        })
    }

    pub(crate) fn locked(blocks: u64) -> Arc<Self> {
        let bytes = Mutex::new(vec![0; blocks as usize * 512]);
        Arc::new(Self {
            content: bytes,
            block_size: BlockSize::B512,
            read_only: true,
        })
    }

    pub(crate) fn block(&self, lba: u64) -> Vec<u8> {
        let len = self.block_size.bytes() as usize;
        self.content.lock().expect("tests do not panic here")[lba as usize * len..][..len].to_vec()
    }
}

impl Volume for Bytes {
    fn geometry(&self) -> Geometry {
        let len = self.content.lock().expect("tests do not panic here").len() as u64;
        Geometry::new(self.block_size, Blocks(len >> self.block_size.shift()))
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn admit(&self, _: Instant, _: &Intent<'_>, _: Ticket) -> Admission {
        Admission::Now
    }

    fn execute(&self, op: Op<'_>) -> Result<(), Status> {
        let geometry = self.geometry();
        let mut bytes = self.content.lock().expect("tests do not panic here");
        let span = |extent: Extent| {
            let range = geometry.byte_range(extent)?;
            Ok(range.offset as usize..(range.offset + range.len) as usize)
        };
        match op {
            Op::Read { extent, dest } => {
                let span = span(extent)?;
                if let ReadDest::Copy(dest) = dest {
                    dest.copy_from_slice(&bytes[span]);
                }
            }
            Op::Write { extent, data } => bytes[span(extent)?].copy_from_slice(data),
            Op::WriteZeroes { extent, .. } | Op::Discard { extent } => bytes[span(extent)?].fill(0),
            Op::Flush => {}
            Op::Verify { extent } => {
                span(extent)?;
            }
            Op::Compare { extent, data } => same(&bytes[span(extent)?], data)?,
            Op::CompareAndWrite {
                extent,
                compare,
                write,
            } => {
                let span = span(extent)?;
                same(&bytes[span.clone()], compare)?;
                bytes[span].copy_from_slice(write);
            }
            Op::Copy { from, to } => {
                let to = span(Extent::new(to, from.blocks))?;
                bytes.copy_within(span(from)?, to.start);
            }
        }
        Ok(())
    }
}

fn same(have: &[u8], want: &[u8]) -> Result<(), Status> {
    match have.iter().zip(want).position(|(a, b)| a != b) {
        Some(at) => Err(Status::Miscompare {
            offset_bytes: at as u64,
        }),
        None => Ok(()),
    }
}
