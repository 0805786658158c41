//! A copy in a vector, and the function of the fuzz target.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use block::{BlockSize, Blocks, Extent};

use crate::wire::{FrameHeader, Packet, WireError};
use crate::{
    Config, Contents, LocalTime, Medium, Member, MemberId, Output, Settings, StoreOp, Unwritten,
};

/// A copy of blocks of 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VecMedium(pub Vec<u8>);

/// Settings of a volume of 64 blocks.
pub fn settings() -> Settings {
    let ms = Duration::from_millis;
    Settings {
        blocks: Blocks(64),
        region_blocks: Blocks(8),
        piece_blocks: Blocks(4),
        lease: ms(100),
        drift_ppm: 50_000,
        answer_timeout: ms(100),
        beacon_interval: ms(20),
        resend_after: ms(10),
        store_timeout: ms(50),
        piece_interval: ms(1),
        writes_max: 8,
        pieces_max: 4,
        unsettled_max: 16,
    }
}

impl Medium for VecMedium {
    type Data = Contents;

    fn read(&self, extent: Extent) -> Contents {
        let bytes = Arc::from(&self.0[range(extent)]);
        let contents = Contents::of_bytes(BlockSize::B512, bytes);
        contents.expect("extents are not empty")
    }

    fn write(&mut self, extent: Extent, data: &Contents) -> Result<(), Unwritten> {
        match data.bytes() {
            Some(bytes) => self.0[range(extent)].copy_from_slice(bytes),
            None => self.0[range(extent)].fill(0),
        }
        Ok(())
    }

    fn blocks(data: &Contents) -> u64 {
        data.blocks()
    }

    fn needs_memory(data: &Contents) -> bool {
        data.bytes().is_some()
    }
}

fn range(extent: Extent) -> std::ops::Range<usize> {
    let start = extent.lba.0 as usize * 512;
    start..start + extent.blocks.0 as usize * 512
}

/// The packets of a stream of frames, until one is invalid or cut short.
pub fn packets(mut input: &[u8]) -> Vec<Result<Packet, WireError>> {
    let mut packets = Vec::new();
    while let Some((header, rest)) = input.split_first_chunk::<{ FrameHeader::LEN_BYTES }>() {
        let packet = match FrameHeader::decode(header) {
            Err(error) => Err(error),
            Ok((_, body_bytes)) if rest.len() < body_bytes => break,
            Ok((kind, body_bytes)) => {
                let (body, rest) = rest.split_at(body_bytes);
                input = rest;
                Packet::decode(kind, body)
            }
        };
        let is_over = packet.is_err();
        packets.push(packet);
        if is_over {
            break;
        }
    }
    packets
}

/// The fuzz target `replica_frames`: a node receives any frames. What it decodes is the same after
/// it was encoded, and a secondary that handles the messages keeps its bounds.
pub fn frames(input: &[u8]) {
    let id = |node| MemberId {
        node,
        incarnation: 1,
    };
    let medium = VecMedium(vec![0; 64 * 512]);
    let member = Member::new(id(2), settings(), medium, LocalTime::default());
    let mut member = member.expect("the settings are valid");
    let first = Config::first(id(1), &[id(1), id(2)]).expect("a configuration");
    let mut now = LocalTime::default();
    for packet in packets(input).into_iter().flatten() {
        let mut encoded = Vec::new();
        packet.encode(&mut encoded);
        let [Ok(decoded)] = &packets(&encoded)[..] else {
            panic!("our own frame is one packet");
        };
        let mut again = Vec::new();
        decoded.encode(&mut again);
        assert_eq!(encoded, again);
        now = now.plus(Duration::from_millis(7));
        if let Packet::Message { envelope, .. } = packet {
            let is_foreign = envelope.body.block_size() == Some(BlockSize::B4096);
            if !is_foreign {
                member.handle_message(now, envelope);
            }
        }
        member.handle_tick(now);
        answer(&mut member, now, &first);
    }
    assert_eq!(member.medium().0.len(), 64 * 512);
}

/// Answers the member's requests to the store; its messages are encoded, and lost.
fn answer(member: &mut Member<VecMedium>, now: LocalTime, first: &Config) {
    let mut asked = BTreeSet::new();
    while let Some(output) = member.poll_output() {
        match output {
            Output::Send(envelope) => {
                let volume = 1;
                let packet = Packet::Message { volume, envelope };
                packet.encode(&mut Vec::new());
            }
            Output::Store(id, StoreOp::Read) => {
                asked.insert(id);
            }
            Output::Store(..) | Output::Reply(..) => {}
        }
    }
    let known = member.config().unwrap_or(first).clone();
    for id in asked {
        member.handle_store_reply(now, id, known.clone());
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_passes() {
        assert!(block::testing::replay("replica_frames", super::frames) > 0);
    }
}
