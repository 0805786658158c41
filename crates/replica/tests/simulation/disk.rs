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

/// Contents of blocks.
#[derive(Clone, Debug)]
pub enum Data {
    Blocks(Vec<u64>),
    /// The same in all of them: what zeros are in real copies, which may cover more than a piece.
    Fill {
        value: u64,
        blocks: u64,
    },
}

impl Disk {
    pub fn empty(blocks: Blocks, refuses: Rc<Cell<u32>>) -> Self {
        Self {
            blocks: vec![0; blocks.0 as usize],
            refuses,
        }
    }
}

impl Data {
    pub fn values(&self) -> Vec<u64> {
        match self {
            Self::Blocks(values) => values.clone(),
            Self::Fill { value, blocks } => vec![*value; *blocks as usize],
        }
    }
}

impl Medium for Disk {
    type Data = Data;

    fn read(&self, extent: Extent) -> Data {
        let start = extent.lba.0 as usize;
        let blocks = &self.blocks[start..start + extent.blocks.0 as usize];
        Data::Blocks(blocks.to_vec())
    }

    fn write(&mut self, extent: Extent, data: &Data) -> Result<(), Unwritten> {
        let start = extent.lba.0 as usize;
        let refuses = self.refuses.get();
        self.refuses.set(refuses.saturating_sub(1));
        let values = data.values();
        let written = if refuses > 0 {
            values.len() / 2
        } else {
            values.len()
        };
        self.blocks[start..start + written].copy_from_slice(&values[..written]);
        if refuses > 0 { Err(Unwritten) } else { Ok(()) }
    }

    fn blocks(data: &Data) -> u64 {
        match data {
            Data::Blocks(values) => values.len() as u64,
            Data::Fill { blocks, .. } => *blocks,
        }
    }

    fn needs_memory(data: &Data) -> bool {
        matches!(data, Data::Blocks(_))
    }
}
