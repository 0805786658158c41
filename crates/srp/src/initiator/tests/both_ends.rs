//! Our initiator against our target, in any order of messages and requests.

use std::sync::Arc;

use block::BlockSize;
use block::testing::VecVolume;
use proptest::prelude::*;
use scsi::host::Transfer;

use super::*;
use crate::testing::{ChannelLink, TestTarget};

/// Each key has blocks of its own, so that commands in flight do not depend on each other.
const KEYS: u16 = 6;
const BLOCKS_PER_KEY: u64 = 64;
const BLOCK: usize = 512;

/// What a command of a key did last, for the check of its outcome.
#[derive(Clone, Debug)]
struct Pending {
    command: Command,
    extent: Extent,
    /// The bytes that a write writes.
    bytes: Vec<u8>,
}

struct Model {
    link: ChannelLink,
    /// What the volume holds, by key.
    held: Vec<Vec<u8>>,
    pending: Vec<Option<Pending>>,
    aborted: usize,
}

impl Model {
    fn new(volume: &Arc<VecVolume>) -> Self {
        let target = TestTarget::new([Arc::clone(volume)]);
        let slot_bytes = BLOCKS_PER_KEY as usize * BLOCK;
        Self {
            link: ChannelLink::new(target.backend(), KEYS, slot_bytes),
            held: vec![vec![0; slot_bytes]; KEYS.into()],
            pending: vec![None; KEYS.into()],
            aborted: 0,
        }
    }

    fn begin(&mut self, key: u16, is_write: bool, lba: u64, blocks: u64, fill: u8) {
        if self.pending[usize::from(key)].is_some() {
            return;
        }
        let lba = lba % BLOCKS_PER_KEY;
        let blocks = 1 + blocks % (BLOCKS_PER_KEY - lba);
        let first = u64::from(key) * BLOCKS_PER_KEY;
        let extent = Extent::new(Lba(first + lba), Blocks(blocks));
        let range = BufferRange::first(key, blocks as u32 * BLOCK as u32);
        let bytes = vec![fill; range.len_bytes as usize];
        let command = if is_write {
            self.link
                .memory
                .buffers
                .range_mut(range)
                .copy_from_slice(&bytes);
            io::write(extent, range)
        } else {
            self.link.memory.buffers.range_mut(range).fill(0xEE);
            io::read(extent, range)
        };
        if self.link.submit(key, &command) {
            self.pending[usize::from(key)] = Some(Pending {
                command,
                extent,
                bytes,
            });
        }
    }

    fn check(&mut self, volume: &VecVolume) {
        for (key, result) in self.link.take_done() {
            let pending = self.pending[usize::from(key)].take();
            let Pending {
                command,
                extent,
                bytes,
            } = pending.expect("a command ends once");
            let at = (extent.lba.0 % BLOCKS_PER_KEY) as usize * BLOCK;
            let held = &mut self.held[usize::from(key)][at..at + bytes.len()];
            match (command.transfer, result) {
                (Transfer::ToTarget(_), Ok(moved)) => {
                    assert_eq!(moved as usize, bytes.len());
                    held.copy_from_slice(&bytes);
                }
                (Transfer::ToHost(range), Ok(moved)) => {
                    assert_eq!(moved, range.len_bytes);
                    assert_eq!(self.link.memory.buffers.range(range), held);
                }
                (transfer, Err(CommandFailure::Aborted)) => {
                    self.aborted += 1;
                    let from = extent.lba.0 as usize * BLOCK;
                    let now = &volume.contents()[from..from + bytes.len()];
                    let blocks = now.chunks(BLOCK).zip(held.chunks(BLOCK));
                    for ((now, old), new) in blocks.zip(bytes.chunks(BLOCK)) {
                        let is_write = matches!(transfer, Transfer::ToTarget(_));
                        assert!(now == old || (is_write && now == new), "a torn block");
                    }
                    held.copy_from_slice(now);
                }
                (transfer, result) => panic!("{transfer:?}: {result:?}"),
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Begin(u16, bool, u64, u64, u8),
    Abort(u16),
    Advance(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let begin = (
        0..KEYS,
        any::<bool>(),
        any::<u64>(),
        any::<u64>(),
        any::<u8>(),
    );
    prop_oneof![
        3 => begin.prop_map(|(key, is_write, lba, blocks, fill)| {
            Step::Begin(key, is_write, lba, blocks, fill)
        }),
        1 => (0..KEYS).prop_map(Step::Abort),
        4 => any::<u8>().prop_map(Step::Advance),
    ]
}

proptest! {
    #[test]
    fn data_stay_whole_in_any_order(steps in prop::collection::vec(step(), 1..200)) {
        let blocks = BLOCKS_PER_KEY * u64::from(KEYS);
        let volume = Arc::new(VecVolume::new(BlockSize::B512, blocks));
        let mut model = Model::new(&volume);
        for step in steps {
            match step {
                Step::Begin(key, is_write, lba, blocks, fill) => {
                    model.begin(key, is_write, lba, blocks, fill);
                }
                Step::Abort(key) => {
                    model.link.initiator.abort(CommandKey(key));
                }
                Step::Advance(amount) => model.link.advance(amount),
            }
            model.check(&volume);
        }
        model.link.settle();
        model.check(&volume);
        prop_assert!(model.pending.iter().all(Option::is_none));
        prop_assert_eq!(volume.contents(), model.held.concat());
    }
}

#[test]
fn a_command_whose_data_are_being_fetched_is_aborted() {
    let volume = Arc::new(VecVolume::new(
        BlockSize::B512,
        BLOCKS_PER_KEY * u64::from(KEYS),
    ));
    let mut model = Model::new(&volume);
    // Longer than immediate data, so that the target reads them.
    model.begin(0, true, 0, BLOCKS_PER_KEY - 1, 7);
    model.link.advance(0);
    assert_eq!(model.link.initiator.abort(CommandKey(0)), Abort::Asked);
    model.link.settle();
    model.check(&volume);
    assert_eq!(model.aborted, 1);
    model.begin(0, false, 0, BLOCKS_PER_KEY - 1, 0);
    model.link.settle();
    model.check(&volume);
}

#[test]
fn a_lost_connection_leaves_no_key() {
    let volume = Arc::new(VecVolume::new(
        BlockSize::B512,
        BLOCKS_PER_KEY * u64::from(KEYS),
    ));
    let mut model = Model::new(&volume);
    model.begin(0, false, 0, 8, 0);
    model.begin(1, true, 0, 40, 1);
    model.link.advance(0);
    assert_eq!(model.link.memory.keys(), 2);
    model.link.cut();
}
