use std::sync::Arc;
use std::time::Instant;

use ::session::{BufferRange, Buffers, Segment, SendList, StreamSession as _};
use block::testing::VecVolume;
use block::{BlockSize, Blocks, Extent, Lba};
use proptest::prelude::*;
use scsi::host::{Command, CommandFailure, CommandKey, Outcome, Setup, SetupStep, io};

use super::*;
use crate::PeerError;
use crate::backend::Authentication;
use crate::tcp::TargetSession;
use crate::testing::{TestBackend, TestTarget};
use crate::{Credentials, Digest};

mod hostile;

const SLOTS: u16 = 8;
const SLOT_BYTES: usize = 2 << 20;
const BLOCKS: u64 = 8192;

fn config() -> SessionConfig {
    SessionConfig {
        initiator: "iqn.2026-11.com.example:host".into(),
        target: Some(TestTarget::NAME.into()),
        lun: 0,
        isid: [0x80, 1, 2, 3, 0, 0],
        credentials: None,
        target_credentials: None,
        challenge: [9; 17],
        header_digest: Digest::None,
        data_digest: Digest::None,
        keys: SLOTS,
    }
}

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials {
        name: name.into(),
        secret: secret.as_bytes().to_vec().into(),
    }
}

fn target() -> TestTarget {
    let volumes = (0..2).map(|_| Arc::new(VecVolume::new(BlockSize::B512, BLOCKS)));
    TestTarget::new(volumes.collect())
}

/// Both ends, and what is on its way between them.
struct Pair {
    session: Session,
    buffers: Buffers,
    list: SendList,
    connection: TargetSession<TestBackend>,
    backend: TestBackend,
    done: Vec<Outcome>,
    now: Instant,
    /// Bytes that arrive together, in both directions.
    chunk: usize,
}

impl Pair {
    fn new(target: &TestTarget, config: &SessionConfig, chunk: usize) -> Self {
        Self {
            session: Session::new(config).expect("a sensible configuration"),
            buffers: Buffers::new(SLOTS, SLOT_BYTES),
            list: SendList::with_capacity(64 * 1024),
            connection: TargetSession::new(),
            backend: target.backend(),
            done: Vec::new(),
            now: Instant::now(),
            chunk,
        }
    }

    fn logged_in(target: &TestTarget, config: &SessionConfig, chunk: usize) -> Self {
        let mut pair = Self::new(target, config, chunk);
        pair.settle().expect("the login succeeds");
        assert_eq!(pair.session.poll_event(), Some(Event::LoggedIn));
        pair
    }

    /// What the session sends, as far as its list holds it.
    fn emit(&mut self) -> Vec<u8> {
        self.session.poll_transmit(&self.buffers, &mut self.list);
        let mut bytes = Vec::new();
        for segment in self.list.segments() {
            bytes.extend_from_slice(match segment {
                Segment::Bytes(bytes) => bytes,
                Segment::Place(place) => self.buffers.at(place.range.offset, place.range.len),
            });
        }
        self.list.consume(bytes.len() as u64);
        self.session.handle_sent(bytes.len() as u64, &mut self.done);
        bytes
    }

    /// Gives bytes to the session, long data in place.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let len = rest.len().min(self.chunk);
            let place = self.session.direct();
            let len = place.map_or(len, |place| len.min(place.len_bytes as usize));
            let (piece, tail) = rest.split_at(len);
            rest = tail;
            match place {
                Some(place) => {
                    let len_bytes = len as u32;
                    let part = BufferRange { len_bytes, ..place };
                    self.buffers.range_mut(part).copy_from_slice(piece);
                    self.session
                        .handle_placed(len_bytes, &self.buffers, &mut self.done)?;
                }
                None => self
                    .session
                    .handle_bytes(piece, &mut self.buffers, &mut self.done)?,
            }
        }
        Ok(())
    }

    /// Carries bytes back and forth until both are silent.
    fn settle(&mut self) -> Result<(), SessionError> {
        loop {
            let sent = self.emit();
            for piece in sent.chunks(self.chunk) {
                let taken: Result<(), PeerError> =
                    self.connection
                        .handle_bytes(self.now, piece, &mut self.backend);
                taken.expect("the session keeps to the protocol");
            }
            let answer = self.backend.drain(self.now, &mut self.connection);
            self.feed(&answer)?;
            if sent.is_empty() && answer.is_empty() {
                return Ok(());
            }
        }
    }

    fn submit(&mut self, key: u16, command: &Command) {
        let taken = self.session.submit(CommandKey(key), command, &self.buffers);
        assert_eq!(taken, Ok(()));
    }

    /// Submits and gives the outcome.
    fn run(&mut self, key: u16, command: &Command) -> Result<u32, CommandFailure> {
        self.submit(key, command);
        self.settle().expect("the session goes on");
        assert_eq!(self.done.len(), 1);
        let outcome = self.done.remove(0);
        assert_eq!(outcome.key, CommandKey(key));
        outcome.result
    }

    /// Sets the logical unit up, which takes its unit attentions away.
    fn set_up(&mut self) -> scsi::host::UnitFacts {
        let mut setup = Setup::new(0);
        loop {
            match setup.poll() {
                SetupStep::Submit(command) => {
                    let outcome = Outcome {
                        key: Setup::KEY,
                        result: self.run(Setup::KEY.0, &command),
                    };
                    setup
                        .handle_outcome(&outcome, self.buffers.slot(Setup::SLOT))
                        .expect("a disk");
                }
                SetupStep::Wait { .. } => panic!("a disk in RAM is ready"),
                SetupStep::Done => return setup.facts().clone(),
            }
        }
    }
}

fn extent(lba: u64, len_bytes: u32) -> Extent {
    Extent::new(Lba(lba), Blocks(u64::from(len_bytes) / 512))
}

fn data(key: u16, len_bytes: u32) -> BufferRange {
    BufferRange::first(key, len_bytes)
}

#[test]
fn a_disk_is_set_up_written_and_read() {
    let target = target();
    let mut pair = Pair::logged_in(&target, &config(), usize::MAX);
    let facts = pair.set_up();
    let geometry = facts.geometry.expect("the capacity was read");
    assert_eq!(geometry.blocks, Blocks(BLOCKS));
    pair.buffers.slot_mut(1)[..4096].fill(0xA5);
    assert_eq!(
        pair.run(1, &io::write(extent(8, 4096), data(1, 4096))),
        Ok(4096)
    );
    assert_eq!(target.volume(0).block(8), [0xA5; 512]);
    assert_eq!(
        pair.run(2, &io::read(extent(8, 4096), data(2, 4096))),
        Ok(4096)
    );
    assert_eq!(pair.buffers.slot(2)[..4096], [0xA5; 4096]);
    assert_eq!(pair.run(3, &io::synchronize_cache()), Ok(0));
}

#[test]
fn chap_works_one_way_and_mutually_and_fails_with_the_wrong_secret() {
    let ours = credentials("alice", "initiator secret");
    let theirs = credentials("bob", "target's own secret");
    let target = target().with_authentication(Authentication {
        initiator: Some(ours.clone()),
        target: Some(theirs.clone()),
    });
    let one_way = SessionConfig {
        credentials: Some(ours.clone()),
        ..config()
    };
    let mutual = SessionConfig {
        target_credentials: Some(theirs),
        ..one_way.clone()
    };
    for config in [&one_way, &mutual] {
        for chunk in [1, usize::MAX] {
            let mut pair = Pair::logged_in(&target, config, chunk);
            pair.set_up();
        }
    }
    let fails = |config: &SessionConfig| {
        let error = Pair::new(&target, config, usize::MAX).settle();
        error.expect_err("the login fails")
    };
    let refused = SessionError::Login(LoginError::Refused {
        class: 2,
        detail: 1,
    });
    let wrong = SessionConfig {
        credentials: Some(credentials("alice", "something else")),
        ..config()
    };
    assert_eq!(fails(&wrong), refused);
    assert_eq!(fails(&config()), refused);
    let other_target = SessionConfig {
        target_credentials: Some(credentials("bob", "another secret of it")),
        ..mutual
    };
    assert_eq!(
        fails(&other_target),
        SessionError::Login(LoginError::TargetNotProven)
    );
}

#[test]
fn a_target_that_proves_nothing_is_not_believed() {
    let needs_proof = SessionConfig {
        credentials: Some(credentials("alice", "initiator secret")),
        target_credentials: Some(credentials("bob", "target's own secret")),
        ..config()
    };
    let open = target();
    let error = Pair::new(&open, &needs_proof, usize::MAX).settle();
    assert!(matches!(error, Err(SessionError::Login(_))), "{error:?}");
    let one_sided = SessionConfig {
        credentials: None,
        ..needs_proof.clone()
    };
    assert_eq!(
        Session::new(&one_sided).expect_err("no user"),
        LoginError::OneSided
    );
    let same = SessionConfig {
        target_credentials: needs_proof.credentials.clone(),
        ..needs_proof
    };
    assert_eq!(
        Session::new(&same).expect_err("reflectable"),
        LoginError::SameSecrets
    );
}

#[test]
fn an_unknown_target_is_refused_with_a_hint() {
    let config = SessionConfig {
        target: Some("iqn.2026-11.com.example:other".into()),
        ..config()
    };
    let error = Pair::new(&target(), &config, usize::MAX).settle();
    let error = error.expect_err("no such target").to_string();
    assert!(error.contains("`discover` lists"), "{error}");
}

#[test]
fn discovery_lists_targets_and_logs_out() {
    let config = SessionConfig {
        target: None,
        ..config()
    };
    for chunk in [1, 7, usize::MAX] {
        let mut pair = Pair::logged_in(&target(), &config, chunk);
        pair.session.send_targets();
        pair.settle().expect("answered");
        let Some(Event::Targets(targets)) = pair.session.poll_event() else {
            panic!("targets come");
        };
        assert_eq!(targets.len(), 1);
        assert_eq!(targets[0].name, TestTarget::NAME);
        assert_eq!(targets[0].portals[0].port, 3260);
        pair.session.logout();
        pair.settle().expect("answered");
        assert_eq!(pair.session.poll_event(), Some(Event::LoggedOut));
        assert!(pair.session.is_closing());
    }
}

#[test]
fn more_commands_than_the_window_takes_wait_for_it() {
    const KEYS: u16 = 1000;
    let target = target();
    let config = SessionConfig {
        keys: KEYS,
        ..config()
    };
    let mut pair = Pair::logged_in(&target, &config, usize::MAX);
    pair.set_up();
    pair.buffers = Buffers::new(KEYS, 512);
    for key in 0..KEYS {
        pair.submit(key, &io::read(extent(key.into(), 512), data(key, 512)));
    }
    assert_eq!(pair.session.in_flight(), KEYS);
    // A target that takes one command more than the session may send would drop it silently.
    pair.settle().expect("all are answered");
    assert_eq!(pair.done.len(), usize::from(KEYS));
    assert!(pair.done.iter().all(|outcome| outcome.result == Ok(512)));
}

#[test]
fn sense_data_reach_the_caller() {
    let target = target();
    let mut pair = Pair::logged_in(&target, &config(), 5);
    let attention = pair.run(0, &io::synchronize_cache());
    let failure = attention.expect_err("power on");
    let sense = failure.sense().expect("with sense data");
    assert!(sense.attention().is_some());
    pair.set_up();
    let beyond = pair.run(0, &io::read(extent(BLOCKS, 512), data(0, 512)));
    let failure = beyond.expect_err("beyond the end");
    assert_eq!(
        failure.to_string(),
        "illegal request: beyond the end of the logical unit (21h/00h)"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(48)))]

    /// Whatever the chunking, digests and lengths: what is read is what was written.
    #[test]
    fn any_chunking_carries_the_same_blocks(
        chunk in prop_oneof![1usize..200, 200usize..100_000],
        digests in 0u8..4,
        lens in prop::collection::vec(1u32..2200, 1..5),
        seed: u8,
    ) {
        let target = target();
        let on = |bit| if digests & bit != 0 { Digest::Crc32c } else { Digest::None };
        let config = SessionConfig { header_digest: on(1), data_digest: on(2), ..config() };
        let mut pair = Pair::logged_in(&target, &config, chunk);
        pair.set_up();
        let ranges: Vec<(u16, u64, u32)> = lens
            .iter()
            .zip(0..)
            .map(|(&blocks, key)| (key, u64::from(key) * 1600, blocks.min(1600) * 512))
            .collect();
        for &(key, lba, len) in &ranges {
            for (byte, i) in pair.buffers.slot_mut(key)[..len as usize].iter_mut().zip(0u32..) {
                *byte = (i.wrapping_mul(31) >> 3) as u8 ^ seed ^ key as u8;
            }
            pair.submit(key, &io::write(extent(lba, len), data(key, len)));
        }
        pair.settle().expect("written");
        prop_assert_eq!(pair.done.len(), ranges.len());
        for outcome in pair.done.drain(..) {
            prop_assert_eq!(outcome.result, Ok(ranges[usize::from(outcome.key.0)].2));
        }
        let written: Vec<Vec<u8>> = ranges
            .iter()
            .map(|&(key, _, len)| pair.buffers.slot(key)[..len as usize].to_vec())
            .collect();
        for &(key, lba, len) in &ranges {
            pair.buffers.slot_mut(key).fill(0);
            pair.submit(key, &io::read(extent(lba, len), data(key, len)));
        }
        pair.settle().expect("read");
        for (&(key, _, len), written) in ranges.iter().zip(&written) {
            prop_assert!(&pair.buffers.slot(key)[..len as usize] == written);
        }
        for outcome in pair.done.drain(..) {
            prop_assert_eq!(outcome.result, Ok(ranges[usize::from(outcome.key.0)].2));
        }
    }
}
