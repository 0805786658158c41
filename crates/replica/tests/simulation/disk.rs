//! A copy in a vector: one number stands for a block.

use std::cell::Cell;
use std::rc::Rc;

use block::{Blocks, Extent};
use replica::{Medium, Unwritten};

#[derive(Clone, Debug)]
pub struct Disk {
    pub blocks: Vec<u64>,
    /// How many of the next writes find no memory. Half of their blocks are written.
    refuses: Rc<Cell<u32>>,
}

impl Disk {
    pub fn empty(blocks: Blocks, refuses: Rc<Cell<u32>>) -> Self {
        Self {
            blocks: vec![0; blocks.0 as usize],
            refuses,
        }
    }
}

impl Medium for Disk {
    type Data = Vec<u64>;

    fn read(&self, extent: Extent) -> Vec<u64> {
        let start = extent.lba.0 as usize;
        self.blocks[start..start + extent.blocks.0 as usize].to_vec()
    }

    fn write(&mut self, extent: Extent, data: &Vec<u64>) -> Result<(), Unwritten> {
        let start = extent.lba.0 as usize;
        let refuses = self.refuses.get();
        self.refuses.set(refuses.saturating_sub(1));
        let written = if refuses > 0 {
            data.len() / 2
        } else {
            data.len()
        };
        self.blocks[start..start + written].copy_from_slice(&data[..written]);
        if refuses > 0 { Err(Unwritten) } else { Ok(()) }
    }

    fn blocks(data: &Vec<u64>) -> u64 {
        data.len() as u64
    }

    fn needs_memory(_data: &Vec<u64>) -> bool {
        true
    }
}
