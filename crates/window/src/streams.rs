//! Sequential streams: commands that follow each other without a gap.

use block::Extent;

/// The most streams that are followed at a time.
const STREAMS: usize = 32;

/// Recent commands by where they ended.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    /// Commands so far.
    clock: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The block after its last command.
    end: u64,
    /// Blocks without a gap.
    len_blocks: u64,
    /// When its last command came; 0 if there was none.
    last: u64,
}

impl Streams {
    /// A command on `extent`; how many blocks its stream has so far, with it.
    pub(crate) fn follow(&mut self, extent: Extent) -> u64 {
        self.clock += 1;
        let continued = |stream: &Stream| stream.last > 0 && stream.end == extent.lba.0;
        let at = self.streams.iter().position(continued).unwrap_or_else(|| {
            let ages = self.streams.iter().enumerate();
            let oldest = ages.min_by_key(|(_, stream)| stream.last);
            let at = oldest.map_or(0, |(at, _)| at);
            self.streams[at].len_blocks = 0;
            at
        });
        let stream = &mut self.streams[at];
        stream.last = self.clock;
        stream.end = extent.lba.0 + extent.blocks.0;
        stream.len_blocks += extent.blocks.0;
        stream.len_blocks
    }
}

#[cfg(test)]
mod tests {
    use block::{Blocks, Lba};

    use super::*;

    #[test]
    fn streams_beside_each_other_are_told_apart() {
        let mut streams = Streams::default();
        for step in 0..10 {
            for stream in 0..STREAMS as u64 {
                let extent = Extent::new(Lba(stream * 1000 + step * 8), Blocks(8));
                assert_eq!(streams.follow(extent), (step + 1) * 8);
            }
        }
        assert_eq!(streams.follow(Extent::new(Lba(77), Blocks(1))), 1);
        // The stream of the oldest command was given up for that.
        assert_eq!(streams.follow(Extent::new(Lba(80), Blocks(1))), 1);
    }
}
