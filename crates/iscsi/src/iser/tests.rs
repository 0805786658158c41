mod waiting;

use std::sync::Arc;
use std::time::Duration;

use ::session::testing::Work;
use ::session::{MessageSession as _, RemoteKey, Session as _};
use block::testing::VecVolume;
use block::{Admission, BlockSize, ByteRange};
use zerocopy::IntoBytes;

use super::wire::{Hello, HelloReply, Layout, Message, Tag};
use super::*;
use crate::PeerError as IscsiError;
use crate::backend::{Backend as _, SessionEnds};
use crate::testing::{IserBed, IserInitiator, Received, TestTarget, laid_out};
use crate::wire::command::ScsiResponse;
use crate::wire::{FINAL, NO_TASK_TAG, request, response};

const READ: u8 = 0x41;
const WRITE: u8 = 0x21;
const GOOD: (u8, u8) = (0, 0);
const CHECK_CONDITION: (u8, u8) = (0, 2);
/// The private data of a connection request of Linux's ib_iser.
const LINUX: &[u8] = &[0x80, 0, 0, 0];
const BLOCKS: u64 = 4096;

struct Fixture {
    inner: IserBed,
    initiator: IserInitiator,
    target: TestTarget,
    next_itt: u32,
}

impl std::ops::Deref for Fixture {
    type Target = IserBed;
    fn deref(&self) -> &IserBed {
        &self.inner
    }
}

impl std::ops::DerefMut for Fixture {
    fn deref_mut(&mut self) -> &mut IserBed {
        &mut self.inner
    }
}

impl Fixture {
    fn new(private_data: &[u8], keys: &[(&str, &str)]) -> Self {
        Self::with_layout(private_data, keys, Layout::Expanded)
    }

    fn with_layout(private_data: &[u8], keys: &[(&str, &str)], layout: Layout) -> Self {
        let volume = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
        Self::of(TestTarget::new(vec![volume]), private_data, keys, layout)
    }

    fn of(target: TestTarget, private_data: &[u8], keys: &[(&str, &str)], layout: Layout) -> Self {
        let mut fixture = Self {
            inner: IserBed::new(&target, private_data, TargetConfig::default()),
            initiator: IserInitiator::default(),
            target,
            next_itt: 1,
        };
        fixture.layout = layout;
        let mut all = IserInitiator::KEYS.to_vec();
        all.retain(|(key, _)| keys.iter().all(|(other, _)| other != key));
        all.extend_from_slice(keys);
        let login = fixture.initiator.login(&all);
        fixture.send(&login).expect("a sensible login");
        let answer = fixture.take();
        assert_eq!(answer.bhs.opcode(), response::LOGIN);
        assert_eq!(answer.bhs.specific_20[16], 0, "the login succeeds");
        fixture
    }

    fn linux() -> Self {
        Self::new(LINUX, &[])
    }

    fn take(&mut self) -> Received {
        self.inbox.pop_front().expect("an answer")
    }

    /// Logs in past UNIT ATTENTION.
    fn ready(mut self) -> Self {
        let (_, status) = self.command(READ, &[0; 6], 0, &[], (None, None));
        assert!(matches!(status, GOOD | CHECK_CONDITION));
        self
    }

    /// A command; its answer and status.
    fn command(
        &mut self,
        flags: u8,
        cdb: &[u8],
        expected_len: u32,
        immediate: &[u8],
        tags: (Option<Tag>, Option<Tag>),
    ) -> (Received, (u8, u8)) {
        self.post(flags | FINAL, cdb, expected_len, immediate, tags);
        let answer = self.take();
        assert_eq!(answer.bhs.opcode(), response::SCSI_RESPONSE);
        assert_eq!(self.refused, [], "only what was named is reached");
        let status = answer.status();
        (answer, status)
    }

    fn post(
        &mut self,
        flags: u8,
        cdb: &[u8],
        expected_len: u32,
        immediate: &[u8],
        tags: (Option<Tag>, Option<Tag>),
    ) -> u32 {
        let itt = self.next_itt;
        self.next_itt += 1;
        let message = self
            .initiator
            .command((itt, flags), cdb, expected_len, immediate, tags);
        self.send(&message).expect("the connection goes on");
        itt
    }

    /// A buffer of the initiator's.
    fn buffer(&mut self, key: u32, bytes: Vec<u8>) -> Tag {
        let base = 0x10_0000 * u64::from(key);
        self.memory.push((key, base, bytes));
        Tag { stag: key, base }
    }

    fn stored(&self, offset: u64, len: u64) -> Vec<u8> {
        self.target.volume(0).bytes(ByteRange { offset, len })
    }
}

fn read_10(lba: u32, blocks: u16) -> [u8; 10] {
    cdb_10(0x28, lba, blocks)
}

fn write_10(lba: u32, blocks: u16) -> [u8; 10] {
    cdb_10(0x2A, lba, blocks)
}

fn cdb_10(opcode: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = [0; 10];
    cdb[0] = opcode;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 7 + i % 251) as u8).collect()
}

/// Additional sense code and qualifier of an answer.
fn asc(answer: &Received) -> (u8, u8) {
    (answer.segment[2 + 12], answer.segment[2 + 13])
}

#[test]
fn the_login_negotiates_as_rfc_7145_says() {
    let fixture = Fixture::linux();
    let parameters = fixture.session.parameters().expect("logged in");
    assert_eq!(parameters.first_burst_len_max, 8192);
    assert_eq!(parameters.send_segment_len_max, 8192);
    assert!(!parameters.initial_r2t && parameters.immediate_data);
    let keys = parameters.rdma.as_ref().expect("over RDMA");
    assert_eq!(keys.extensions, Some(true));
    assert!(keys.solicited_only, "as Linux does without a word");
}

#[test]
fn refusing_the_extensions_fails_the_login() {
    let target = TestTarget::new(vec![]);
    let mut fixture = IserBed::new(&target, LINUX, TargetConfig::default());
    let mut keys = IserInitiator::KEYS.to_vec();
    keys.retain(|(key, _)| *key != "RDMAExtensions");
    keys.push(("RDMAExtensions", "No"));
    fixture
        .send(&IserInitiator::default().login(&keys))
        .expect("answered");
    let answer = fixture.inbox.pop_front().expect("an answer");
    assert_eq!(answer.bhs.specific_20[16..18], [2, 0]);
    assert!(fixture.session.is_closing());
}

#[test]
fn a_read_is_written_in_pieces_and_its_response_invalidates_the_key() {
    let mut fixture = Fixture::linux().ready();
    let data = pattern(300 << 10);
    fixture.target.volume(0).fill(512, &data);
    let to = fixture.buffer(7, vec![0; data.len() + 100]);
    let keys = fixture.memory.len();
    // The buffer is checked before its key is invalidated.
    fixture.session.invalidates = false;
    let (answer, status) = fixture.command(
        READ,
        &read_10(1, 600),
        data.len() as u32,
        &[],
        (None, Some(to)),
    );
    assert_eq!((status, fixture.memory.len()), (GOOD, keys));
    assert_eq!(fixture.memory[0].2[..data.len()], data);
    assert_eq!(
        fixture.memory[0].2[data.len()..],
        [0; 100],
        "nothing beyond is touched"
    );
    assert_eq!(answer.invalidated, None);
    fixture.session.invalidates = true;
    let (answer, status) = fixture.command(READ, &read_10(0, 1), 512, &[], (None, Some(to)));
    assert_eq!((status, answer.invalidated), (GOOD, Some(RemoteKey(7))));
}

#[test]
fn invalidation_is_what_both_ends_said() {
    for (private_data, invalidates, reply) in [
        (&[0x80, 0, 0, 0][..], true, 0x80),
        (&[0xC0, 0, 0, 0], false, 0xC0),
        (&[0x00; 56], true, 0x00),
        (&[0x40, 0, 0, 0], false, 0x40),
        (&[], false, 0xC0),
    ] {
        let (_, bytes) = accept(private_data);
        assert_eq!(bytes, [reply, 0, 0, 0]);
        let fixture = Fixture::new(private_data, &[]);
        assert_eq!(fixture.session.invalidates, invalidates);
    }
}

#[test]
fn a_write_takes_immediate_data_and_reads_the_rest_from_behind_them() {
    let mut fixture = Fixture::linux().ready();
    let data = pattern(200 << 10);
    // Linux names the whole buffer, with the address of the first solicited byte.
    let Tag { stag, base } = fixture.buffer(9, data.clone());
    let from = Tag {
        stag,
        base: base + 8192,
    };
    let (answer, status) = fixture.command(
        WRITE,
        &write_10(8, 400),
        data.len() as u32,
        &data[..8192],
        (Some(from), None),
    );
    assert_eq!((status, answer.invalidated), (GOOD, Some(RemoteKey(9))));
    assert_eq!(fixture.stored(8 * 512, data.len() as u64), data);
}

#[test]
fn the_base_is_that_of_all_data_where_the_initiator_says_so() {
    let mut fixture = Fixture::new(LINUX, &[("TaggedBufferForSolicitedDataOnly", "No")]).ready();
    let data = pattern(64 << 10);
    let from = fixture.buffer(9, data.clone());
    let (_, status) = fixture.command(
        WRITE,
        &write_10(0, 128),
        data.len() as u32,
        &data[..1000],
        (Some(from), None),
    );
    assert_eq!(status, GOOD);
    assert_eq!(fixture.stored(0, data.len() as u64), data);
}

#[test]
fn zero_based_addresses_are_served_with_and_without_base_offsets() {
    for layout in [Layout::Expanded, Layout::Short] {
        let keys = [("iSERHelloRequired", "Yes")];
        let mut fixture = Fixture::with_layout(&[0, 0, 0, 0], &keys, layout);
        fixture.send(Hello::new(4).as_bytes()).expect("announced");
        let reply = fixture.others.pop().expect("an answer");
        assert_eq!(reply.len(), layout.header_len());
        assert!(matches!(
            Message::parse(&reply, layout),
            Ok(Message::HelloReply(reply)) if !reply.is_rejection()
        ));
        let mut fixture = fixture.ready();
        fixture.posted.piece_max_bytes = 4096;
        let data = pattern(64 << 10);
        let len = data.len() as u32;
        // The key's offset 0 is the first byte of all data-out, immediate ones among them.
        fixture.memory.push((9, 0, data.clone()));
        let from = Some(Tag { stag: 9, base: 0 });
        let written = fixture.command(WRITE, &write_10(0, 128), len, &data[..1000], (from, None));
        assert_eq!(written.1, GOOD, "{layout:?}");
        assert_eq!(fixture.stored(0, data.len() as u64), data);
        fixture.memory.push((7, 0, vec![0; data.len() + 100]));
        fixture.session.invalidates = false;
        let to = Some(Tag { stag: 7, base: 0 });
        let read = fixture.command(READ, &read_10(0, 128), len, &[], (None, to));
        assert_eq!(read.1, GOOD, "{layout:?}");
        let (_, _, buffer) = fixture.memory.last().expect("it is left");
        assert_eq!(buffer[..data.len()], data);
        assert_eq!(buffer[data.len()..], [0; 100], "nothing beyond is touched");
    }
}

#[test]
fn headers_without_base_offsets_are_for_those_who_agreed_on_zero_based_addresses() {
    let login = IserInitiator::default().login(&IserInitiator::KEYS);
    let login = laid_out(&login, Layout::Short);
    let target = TestTarget::new(vec![Arc::new(VecVolume::new(BlockSize::B512, BLOCKS))]);
    for private_data in [LINUX, &[]] {
        let mut fixture = IserBed::new(&target, private_data, TargetConfig::default());
        fixture.send_bytes(&login).expect_err("not agreed");
    }
}

#[test]
fn unsolicited_data_out_come_as_messages() {
    let mut fixture = Fixture::new(LINUX, &[("ImmediateData", "No")]).ready();
    let data = pattern(32 << 10);
    let Tag { stag, base } = fixture.buffer(9, data.clone());
    let from = Tag {
        stag,
        base: base + 8192,
    };
    let itt = fixture.post(
        WRITE,
        &write_10(0, 64),
        data.len() as u32,
        &[],
        (Some(from), None),
    );
    assert!(fixture.inbox.is_empty(), "unsolicited data are awaited");
    for (sn, piece) in data[..8192].chunks(4096).enumerate() {
        let offset = sn as u32 * 4096;
        let message = IserInitiator::data_out(itt, sn as u32, offset, sn == 1, piece);
        fixture.send(&message).expect("taken");
    }
    assert_eq!(fixture.take().status(), GOOD);
    assert_eq!(fixture.stored(0, data.len() as u64), data);
}

#[test]
fn what_the_device_answers_is_written_too_and_residuals_are_told() {
    let mut fixture = Fixture::linux().ready();
    let to = fixture.buffer(5, vec![0xEE; 255]);
    fixture.session.invalidates = false;
    let (answer, status) =
        fixture.command(READ, &[0x12, 0, 0, 0, 255, 0], 255, &[], (None, Some(to)));
    assert_eq!(status, GOOD);
    let header: &ScsiResponse = answer.bhs.cast();
    let len = 255 - header.residual.get() as usize;
    assert_eq!(header.flags, FINAL | 0x02, "underflow");
    assert_eq!(header.exp_data_sn.get(), 0);
    let told = &fixture.memory[0].2;
    assert_eq!(usize::from(told[4]) + 5, len, "ADDITIONAL LENGTH");
    assert!(told[len..].iter().all(|byte| *byte == 0xEE));
    // Fewer bytes are expected than the CDB requests, and they end inside a block.
    fixture.target.volume(0).fill(0, &pattern(1024));
    let to = fixture.buffer(6, vec![0; 700]);
    let (answer, status) = fixture.command(READ, &read_10(0, 2), 700, &[], (None, Some(to)));
    let header: &ScsiResponse = answer.bhs.cast();
    assert_eq!((status, header.flags), (GOOD, FINAL | 0x04));
    assert_eq!(header.residual.get(), 1024 - 700);
    assert_eq!(fixture.memory[1].2, pattern(1024)[..700]);
}

#[test]
fn commands_that_name_no_buffer_fail_and_nothing_is_moved() {
    let mut fixture = Fixture::linux().ready();
    let (answer, status) = fixture.command(READ, &read_10(0, 8), 4096, &[], (None, None));
    assert_eq!((status, asc(&answer)), (CHECK_CONDITION, (0x4B, 0)));
    let (answer, status) =
        fixture.command(WRITE, &write_10(0, 32), 16384, &[1; 8192], (None, None));
    assert_eq!((status, asc(&answer)), (CHECK_CONDITION, (0x4B, 0)));
    assert_eq!(answer.invalidated, None);
    // A tag for the wrong direction is none.
    let tag = fixture.buffer(3, vec![0; 16384]);
    let (answer, status) = fixture.command(READ, &read_10(0, 8), 4096, &[], (Some(tag), None));
    assert_eq!((status, asc(&answer)), (CHECK_CONDITION, (0x4B, 0)));
    let (_, status) = fixture.command(WRITE, &write_10(0, 32), 16384, &[], (None, Some(tag)));
    assert_eq!(status, CHECK_CONDITION);
}

#[test]
fn an_address_without_room_behind_it_is_refused() {
    let mut fixture = Fixture::linux().ready();
    let tag = Tag {
        stag: 1,
        base: u64::MAX - 100,
    };
    fixture.memory.push((tag.stag, tag.base, Vec::new()));
    let (answer, status) = fixture.command(READ, &read_10(0, 1), 512, &[], (None, Some(tag)));
    assert_eq!((status, asc(&answer)), (CHECK_CONDITION, (0x4B, 0)));
    assert_eq!(answer.invalidated, Some(RemoteKey(1)));
}

#[test]
fn a_command_never_reaches_beyond_its_expected_length() {
    let mut fixture = Fixture::linux().ready();
    // The CDB requests 16 KiB, but the initiator's buffer has only 4 KiB.
    let to = fixture.buffer(2, vec![0; 4096]);
    let (_, status) = fixture.command(READ, &read_10(0, 32), 4096, &[], (None, Some(to)));
    assert_eq!(status, GOOD);
    let from = fixture.buffer(4, pattern(4096));
    let (_, status) = fixture.command(WRITE, &write_10(0, 32), 4096, &[], (Some(from), None));
    assert_eq!(status, GOOD);
    assert_eq!(fixture.stored(0, 4096), pattern(4096));
}

#[test]
fn unexpected_unsolicited_data_fail_the_command() {
    let mut fixture = Fixture::new(LINUX, &[("ImmediateData", "No")]).ready();
    let from = fixture.buffer(4, vec![7; 1024]);
    let (answer, status) =
        fixture.command(WRITE, &write_10(0, 2), 1024, &[7; 512], (Some(from), None));
    assert_eq!((status, asc(&answer)), (CHECK_CONDITION, (0x0C, 0x0C)));
    assert_eq!(fixture.stored(0, 512), [0; 512]);
}

#[test]
fn hello_is_answered_where_it_was_announced_and_refused_where_not() {
    let mut fixture = Fixture::new(LINUX, &[("iSERHelloRequired", "Yes")]);
    fixture.send(Hello::new(4).as_bytes()).expect("announced");
    let reply = fixture.others.pop().expect("an answer");
    let Ok(Message::HelloReply(reply)) = Message::parse(&reply, Layout::Expanded) else {
        panic!("a HelloReply");
    };
    assert!(!HelloReply::is_rejection(&reply));
    assert_eq!(reply.reads_max.get(), 4);
    let fixture = fixture.ready();
    assert!(!fixture.session.is_closing());

    let mut fixture = Fixture::new(LINUX, &[("iSERHelloRequired", "Yes")]);
    let nop = fixture
        .initiator
        .control(request::NOP_OUT, FINAL, 5, NO_TASK_TAG);
    assert_eq!(fixture.send(&nop), Err(PeerError::HelloMissing));

    let mut fixture = Fixture::new(LINUX, &[("iSERHelloRequired", "Yes")]);
    let mut hello = Hello::new(4);
    hello.versions = 0xFB;
    fixture.send(hello.as_bytes()).expect("answered");
    assert!(fixture.session.is_closing(), "no common version");

    let hello = Hello::new(4);
    assert_eq!(
        Fixture::linux().send(hello.as_bytes()),
        Err(PeerError::UnexpectedHello)
    );
    assert_eq!(
        Fixture::linux().send(hello.reply(1).as_bytes()),
        Err(PeerError::UnexpectedHello)
    );
}

#[test]
fn messages_that_end_before_their_pdu_end_the_connection() {
    let mut whole = IserInitiator::default().command(
        (1, WRITE | FINAL),
        &write_10(0, 1),
        512,
        &[1; 512],
        (None, None),
    );
    let lens = [28, 28 + 47, 28 + 48 + 511];
    for len in lens {
        let mut fixture = Fixture::linux();
        let error = fixture.send(&whole[..len]).expect_err("cut off");
        assert_eq!(error, IscsiError::Truncated(len - 28).into());
    }
    // TotalAHSLength beyond what is read.
    whole[28 + 4] = 200;
    let error = Fixture::linux().send(&whole).expect_err("too long");
    assert_eq!(error, IscsiError::AhsLength(800).into());
    assert_eq!(
        Fixture::linux().send(&[0; 76]),
        Err(wire::Malformed::Opcode(0).into())
    );
}

#[test]
fn padding_may_follow_data() {
    let mut fixture = Fixture::linux().ready();
    let mut message = fixture.initiator.command(
        (0x55, WRITE | FINAL),
        &write_10(0, 1),
        512,
        &pattern(511),
        (None, None),
    );
    message.push(0);
    fixture.send(&message).expect("padded");
    // 511 of 512 bytes came, and there is no buffer for the last.
    assert_eq!(fixture.take().status(), CHECK_CONDITION);
}

#[test]
fn a_task_that_is_aborted_is_told_of_after_its_reads() {
    let mut fixture = Fixture::linux().ready();
    fixture.holds_reads = true;
    let from = fixture.buffer(4, vec![7; 256 << 10]);
    let itt = fixture.post(
        WRITE | FINAL,
        &write_10(0, 512),
        256 << 10,
        &[],
        (Some(from), None),
    );
    assert_eq!(fixture.reads.len(), 4, "64 KiB each");
    let abort = fixture
        .initiator
        .control(request::TASK_MANAGEMENT, 0x81, 0x99, itt);
    fixture.send(&abort).expect("answered later");
    assert!(fixture.inbox.is_empty(), "the initiator's buffer is in use");
    for _ in 0..3 {
        fixture.finish_read().expect("taken");
        fixture.run().expect("goes on");
        assert!(fixture.inbox.is_empty());
    }
    fixture.finish_read().expect("taken");
    fixture.run().expect("goes on");
    let answer = fixture.take();
    assert_eq!(answer.bhs.opcode(), response::TASK_MANAGEMENT);
    assert_eq!(answer.status().0, 0, "function complete");
    assert_eq!(fixture.stored(0, 512), [0; 512]);
    assert!(fixture.session.is_idle() && fixture.inbox.is_empty());
}

#[test]
fn a_write_that_fails_is_answered_after_its_reads() {
    let mut fixture = Fixture::linux().ready();
    fixture.holds_reads = true;
    let from = fixture.buffer(4, vec![7; 256 << 10]);
    fixture.post(
        WRITE | FINAL,
        &write_10(0, 512),
        256 << 10,
        &[],
        (Some(from), None),
    );
    let failure = Some(block::Status::CapacityExceeded);
    fixture.target.volume(0).set_failure(failure);
    for left in (0..4).rev() {
        assert!(fixture.inbox.is_empty(), "{left} reads are outstanding");
        fixture.finish_read().expect("taken");
        fixture.run().expect("goes on");
    }
    assert_eq!(fixture.take().status(), CHECK_CONDITION);
    assert!(fixture.session.is_idle());
}

#[test]
fn completions_that_a_filter_holds_back_wait() {
    let mut fixture = Fixture::linux().ready();
    let until = fixture.now + Duration::from_millis(5);
    fixture
        .target
        .volume(0)
        .set_admission(Admission::NotBefore(until));
    let to = fixture.buffer(2, vec![0; 512]);
    fixture.post(READ | FINAL, &read_10(0, 1), 512, &[], (None, Some(to)));
    assert!(fixture.inbox.is_empty());
    assert_eq!(fixture.session.poll_timeout(), Some(until));
    fixture.now = until;
    let now = fixture.now;
    let IserBed {
        session, backend, ..
    } = &mut fixture.inner;
    session.handle_timeout(now, backend).expect("in time");
    fixture.run().expect("goes on");
    assert_eq!(fixture.take().status(), GOOD);
}

#[test]
fn what_does_not_fit_the_send_queue_is_posted_later() {
    for depth_max in [1, 2, 3] {
        let mut fixture = Fixture::linux().ready();
        fixture.posted.depth_max = depth_max;
        fixture.posted.piece_max_bytes = 4096;
        let data = pattern(40 << 10);
        let from = fixture.buffer(4, data.clone());
        let cdb = write_10(3, 80);
        let (_, status) = fixture.command(WRITE, &cdb, 40 << 10, &[], (Some(from), None));
        assert_eq!(status, GOOD);
        fixture.session.invalidates = false;
        let to = fixture.buffer(5, vec![0; 40 << 10]);
        let cdb = read_10(3, 80);
        let (_, status) = fixture.command(READ, &cdb, 40 << 10, &[], (None, Some(to)));
        assert_eq!(status, GOOD);
        assert_eq!(fixture.memory[0].2, data);
    }
}

#[test]
fn data_of_all_that_is_ready_are_posted_before_the_responses() {
    let mut fixture = Fixture::linux().ready();
    fixture.posted.depth_max = 0;
    for key in 1..=3 {
        let to = fixture.buffer(key, vec![0; 512]);
        fixture.post(READ | FINAL, &read_10(0, 1), 512, &[], (None, Some(to)));
    }
    for (depth_max, posted) in [(4, "WWWS"), (9, "SS")] {
        fixture.posted.depth_max = depth_max;
        let now = fixture.now;
        let IserBed {
            session,
            backend,
            posted: out,
            ..
        } = &mut fixture.inner;
        session.poll_transmit(now, backend, out);
        let kind = |work: &Work| {
            if matches!(work, Work::Send { .. }) {
                'S'
            } else {
                'W'
            }
        };
        assert_eq!(out.take().iter().map(kind).collect::<String>(), posted);
    }
    assert!(fixture.session.is_idle());
}

#[test]
fn numbers_windows_and_floods_are_those_of_iscsi() {
    let mut fixture = Fixture::linux().ready();
    let config = TargetConfig::default();
    let nop = fixture
        .initiator
        .control(request::NOP_OUT, FINAL, 77, NO_TASK_TAG);
    fixture.send(&nop).expect("answered");
    let answer = fixture.take();
    assert_eq!(answer.bhs.opcode(), response::NOP_IN);
    let at = |i: usize| {
        let bytes = answer.bhs.specific_20[i..i + 4].try_into();
        u32::from_be_bytes(bytes.expect("four bytes"))
    };
    assert_eq!(at(8), fixture.initiator.cmd_sn, "ExpCmdSN");
    assert_eq!(
        at(12),
        fixture.initiator.cmd_sn + u32::from(config.commands_max) - 1,
        "MaxCmdSN"
    );
    assert_eq!(config.receives(), 128 + 16);
    // Requests whose answers are not received.
    fixture.posted.depth_max = 0;
    let flood = (0..100).try_for_each(|_| {
        let nop = fixture
            .initiator
            .control(request::NOP_OUT | 0x40, FINAL, 78, NO_TASK_TAG);
        fixture.send(&nop)
    });
    assert_eq!(flood, Err(IscsiError::Flood.into()));
}

#[test]
fn logout_closes_once_it_is_answered() {
    let mut fixture = Fixture::linux().ready();
    let logout = fixture.initiator.control(request::LOGOUT, 0x80, 9, 0);
    fixture.send(&logout).expect("answered");
    assert_eq!(fixture.take().bhs.opcode(), response::LOGOUT);
    assert!(fixture.session.is_closing() && !fixture.session.wants_transmit());
}

/// Also where a Hello follows the login.
#[test]
fn a_login_is_answered_when_what_others_ended_is_over() {
    let target = TestTarget::new(vec![Arc::new(VecVolume::new(BlockSize::B512, BLOCKS))]);
    let ends = SessionEnds {
        initiator: "iqn.a",
        isid: [0; 6],
        target: TestTarget::NAME,
    };
    let [mut victim, mut other] = [(); 2].map(|()| target.backend());
    for backend in [&mut victim, &mut other] {
        backend.open(ends).expect("room for a session");
    }
    other.with_device(|device, nexus| device.reset_unit(nexus, 0));
    let mut fixture = IserBed::new(&target, LINUX, TargetConfig::default());
    let keys = [&IserInitiator::KEYS[..], &[("iSERHelloRequired", "Yes")]].concat();
    let login = IserInitiator::default().login(&keys);
    fixture.send(&login).expect("a sensible login");
    assert!(
        fixture.inbox.is_empty(),
        "the victim has not taken its abort"
    );
    victim.take_aborts();
    let woken = fixture
        .session
        .handle_wake(fixture.now, &mut fixture.backend);
    woken.and(fixture.run()).expect("the connection continues");
    let answer = fixture.inbox.pop_front().expect("an answer");
    assert_eq!(answer.bhs.opcode(), response::LOGIN);
    fixture
        .send(Hello::new(4).as_bytes())
        .expect("it was announced");
}

#[test]
fn data_out_are_not_written_into_another_volume_behind_the_lun() {
    let mut fixture = Fixture::linux().ready();
    let from = fixture.buffer(5, vec![9; 8192]);
    fixture.holds_reads = true;
    let tags = (Some(from), None);
    fixture.post(WRITE | FINAL, &write_10(0, 16), 8192, &[], tags);
    let other = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
    let identity = scsi::UnitIdentity::derived(9, "other".into());
    let unit = Arc::clone(&other);
    fixture.target.device().insert_unit(0, unit, identity);
    fixture.holds_reads = false;
    fixture.run().expect("the connection goes on");
    assert_eq!(fixture.take().status(), CHECK_CONDITION);
    assert_eq!(other.contents()[..8192], [0; 8192]);
}
