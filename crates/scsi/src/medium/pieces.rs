//! Plain transfers in pieces of any length, as a transport moves them.

use block::{BlockSize, Extent, Op, ReadDest, Status, Volume};

use super::piece;

/// A plain transfer, and how much of it was moved.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The blocks of the whole transfer.
    pub extent: Extent,
    /// Their size.
    pub block_size: BlockSize,
    /// Bytes that were moved before.
    pub moved: u64,
}

impl Transfer {
    /// Fills `room` with the next bytes of a read.
    ///
    /// # Errors
    /// The volume's.
    pub fn read_next(&self, room: &mut [u8], volume: &dyn Volume) -> Result<(), Status> {
        let (block_len, len) = (self.block_size.bytes(), room.len() as u64);
        // A transfer that is shortened (by the expected length) may begin or end inside a block.
        if !self.moved.is_multiple_of(block_len) || len % block_len != 0 {
            return self.read_unaligned(room, volume);
        }
        volume.execute(Op::Read {
            extent: piece(self.extent, self.block_size, self.moved, len),
            dest: ReadDest::Copy(room),
        })
    }

    /// Reads a piece that does not consist of whole blocks: each block is copied through a buffer.
    fn read_unaligned(&self, room: &mut [u8], volume: &dyn Volume) -> Result<(), Status> {
        let block_len = self.block_size.bytes() as usize;
        let mut block = [0; 4096];
        let block = &mut block[..block_len];
        let (mut at, mut done) = (self.moved as usize, 0);
        while done < room.len() {
            let start = at / block_len * block_len;
            volume.execute(Op::Read {
                extent: piece(self.extent, self.block_size, start as u64, block_len as u64),
                dest: ReadDest::Copy(block),
            })?;
            let take = (block_len - (at - start)).min(room.len() - done);
            room[done..done + take].copy_from_slice(&block[at - start..][..take]);
            done += take;
            at += take;
        }
        Ok(())
    }

    /// Writes the next `bytes` of a write. `kept` is the part of a block that has been moved and
    /// not written: it is completed first, and holds the part that is left in the end.
    ///
    /// # Errors
    /// The volume's.
    pub fn write_next(
        &self,
        kept: &mut Vec<u8>,
        mut bytes: &[u8],
        volume: &dyn Volume,
    ) -> Result<(), Status> {
        let block_len = self.block_size.bytes() as usize;
        let mut at = self.moved - kept.len() as u64;
        if !kept.is_empty() {
            let fill = (block_len - kept.len()).min(bytes.len());
            kept.extend_from_slice(&bytes[..fill]);
            bytes = &bytes[fill..];
            if kept.len() < block_len {
                return Ok(());
            }
            volume.execute(Op::Write {
                extent: piece(self.extent, self.block_size, at, block_len as u64),
                data: kept,
            })?;
            kept.clear();
            at += block_len as u64;
        }
        let (whole, rest) = bytes.split_at(bytes.len() / block_len * block_len);
        if !whole.is_empty() {
            volume.execute(Op::Write {
                extent: piece(self.extent, self.block_size, at, whole.len() as u64),
                data: whole,
            })?;
        }
        kept.extend_from_slice(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use block::testing::VecVolume;
    use block::{Blocks, Lba};

    use super::*;

    #[test]
    fn pieces_of_any_length_move_the_same_bytes() {
        let bytes: Vec<u8> = (0..4096_u32).map(|at| (at * 7) as u8).collect();
        for step in [1, 100, 511, 512, 513, 4096] {
            let volume = VecVolume::new(BlockSize::B512, 16);
            let mut transfer = Transfer {
                extent: Extent::new(Lba(4), Blocks(8)),
                block_size: BlockSize::B512,
                moved: 0,
            };
            let mut kept = Vec::new();
            for piece in bytes.chunks(step) {
                transfer
                    .write_next(&mut kept, piece, &volume)
                    .expect("a write");
                transfer.moved += piece.len() as u64;
            }
            assert!(kept.is_empty(), "pieces of {step}");
            assert_eq!(
                volume.contents()[4 * 512..12 * 512],
                bytes,
                "pieces of {step}"
            );
            let mut read = vec![0; bytes.len()];
            transfer.moved = 0;
            for piece in read.chunks_mut(step) {
                transfer.read_next(piece, &volume).expect("a read");
                transfer.moved += piece.len() as u64;
            }
            assert_eq!(read, bytes, "pieces of {step}");
        }
    }
}
