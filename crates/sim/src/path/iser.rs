//! iSER: messages, and the initiator's memory.

use std::collections::VecDeque;
use std::time::Instant;

use block::Completion;
use iscsi::iser::TargetConfig;
use iscsi::iser::wire::Tag;
use iscsi::testing::{IserBed, IserInitiator, TestTarget};
use rand::Rng;
use rand::rngs::SmallRng;
use scsi::host::{ReceivedSense, Transfer};
use session::Session as _;

use super::iscsi::{command, is_miscompare};
use super::{AfterCut, DEPTH, Done, End, Path, Request, SLOT_BYTES};

/// Flags of a SCSI Command: F, R and W.
const FINAL: u8 = 0x80;
const READS: u8 = 0x40;
const WRITES: u8 = 0x20;

pub(crate) struct IserPath {
    fixture: IserBed,
    initiator: IserInitiator,
    buffers: Vec<Vec<u8>>,
    /// Messages in flight to the target.
    outbox: VecDeque<Vec<u8>>,
}

impl IserPath {
    pub(crate) fn new(target: &TestTarget, now: Instant, host: u64) -> Self {
        // Nothing is invalidated, so that the memory stays until its command has ended.
        let mut fixture = IserBed::new(target, &[], TargetConfig::default());
        fixture.now = now;
        let initiator = IserInitiator::default();
        let name = format!("iqn.2026-11.com.example:host{host}");
        let mut keys = IserInitiator::KEYS;
        keys[0].1 = &name;
        let login = initiator.login(&keys);
        fixture.send(&login).expect("a sensible login");
        let answer = fixture.inbox.pop_front().expect("the login is answered");
        assert_eq!(answer.bhs.specific_20[16], 0, "the login succeeds");
        fixture.backend.clear_attention();
        fixture.holds_reads = true;
        Self {
            fixture,
            initiator,
            buffers: vec![vec![0; SLOT_BYTES]; usize::from(DEPTH)],
            outbox: VecDeque::new(),
        }
    }
}

impl Path for IserPath {
    fn is_up(&mut self, _: Instant) -> bool {
        true
    }

    fn buffer(&mut self, key: u16) -> &mut [u8] {
        &mut self.buffers[usize::from(key)]
    }

    fn submit(&mut self, key: u16, request: Request) -> bool {
        let command = command(key, request, &mut self.buffers[usize::from(key)]);
        let stag = u32::from(key) + 1;
        let tag = Tag { stag, base: 0 };
        let (flags, tags) = match command.transfer {
            Transfer::None => (FINAL, (None, None)),
            Transfer::ToHost(range) => {
                let bytes = vec![0; range.len_bytes as usize];
                self.fixture.memory.push((stag, 0, bytes));
                (FINAL | READS, (None, Some(tag)))
            }
            Transfer::ToTarget(range) => {
                let buffer = &self.buffers[usize::from(key)];
                let bytes = buffer[..range.len_bytes as usize].to_vec();
                self.fixture.memory.push((stag, 0, bytes));
                (FINAL | WRITES, (Some(tag), None))
            }
        };
        let len = command.transfer.len_bytes();
        let message = self
            .initiator
            .command((stag, flags), &command.cdb, len, &[], tags);
        self.outbox.push_back(message);
        true
    }

    fn take_done(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        while let Some(answer) = self.fixture.inbox.pop_front() {
            let stag = answer.bhs.itt.get();
            let key = (stag - 1) as u16;
            let at = self.fixture.memory.iter().position(|(of, ..)| *of == stag);
            if let Some(at) = at {
                let (_, _, bytes) = self.fixture.memory.remove(at);
                self.buffers[usize::from(key)][..bytes.len()].copy_from_slice(&bytes);
            }
            done.push(Done {
                key,
                end: End::of(
                    answer.status() == (0, 0),
                    answer
                        .segment
                        .get(2..)
                        .and_then(ReceivedSense::parse)
                        .is_some_and(is_miscompare),
                ),
            });
        }
        done
    }

    fn shuffle(&mut self, now: Instant, rng: &mut SmallRng) {
        let fixture = &mut self.fixture;
        fixture.now = now;
        if fixture.session.poll_timeout().is_some_and(|due| due <= now) {
            let result = fixture.session.handle_timeout(now, &mut fixture.backend);
            result.expect("nothing is late in this world");
        }
        let moved = if rng.random_bool(0.5) {
            let message = self.outbox.pop_front();
            message.map_or(Ok(()), |message| self.fixture.send(&message))
        } else {
            self.fixture.finish_read().and_then(|()| self.fixture.run())
        };
        moved.expect("our initiator keeps to the protocol");
        assert_eq!(self.fixture.refused, [], "only what was named is reached");
    }

    fn complete(&mut self, now: Instant, completion: Completion) {
        self.fixture.now = now;
        self.fixture.complete(completion);
    }

    fn cut(&mut self, now: Instant) -> AfterCut {
        let fixture = &mut self.fixture;
        fixture.session.handle_close(now, &mut fixture.backend);
        AfterCut::Ended
    }
}
