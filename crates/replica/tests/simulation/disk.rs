//! A copy in a vector: one number stands for a block.

use block::{Blocks, Extent};
use replica::Medium;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk(pub Vec<u64>);

impl Disk {
    pub fn empty(blocks: Blocks) -> Self {
        Self(vec![0; blocks.0 as usize])
    }
}

impl Medium for Disk {
    type Data = Vec<u64>;

    fn read(&self, extent: Extent) -> Vec<u64> {
        let start = extent.lba.0 as usize;
        self.0[start..start + extent.blocks.0 as usize].to_vec()
    }

    fn write(&mut self, extent: Extent, data: &Vec<u64>) {
        let start = extent.lba.0 as usize;
        self.0[start..start + data.len()].copy_from_slice(data);
    }

    fn blocks(data: &Vec<u64>) -> u64 {
        data.len() as u64
    }
}
