//! Sessions with several connections, driven in memory: requests come in any interleaving, wakes
//! whenever.

use std::sync::Arc;
use std::time::Instant;

use block::BlockSize;
use block::testing::VecVolume;
use proptest::prelude::*;
use session::{Session as _, StreamSession as _};

use crate::PeerError;
use crate::peer::GAP_TIMEOUT;
use crate::tcp::TargetSession;
use crate::testing::{TestBackend, TestTarget};
use crate::text::TextBuilder;
use crate::wire::command::{function, function_response};
use crate::wire::{FINAL, request, response};

const BLOCKS: u64 = 256;
const WRITE: u8 = FINAL | 0x20;
const TASK_SET_FULL: u8 = 0x28;
const ORDERED: u8 = 2;
const HEAD_OF_QUEUE: u8 = 3;
/// The first CmdSN after the login; near the end of the range, so that it wraps around.
const FIRST: u32 = u32::MAX - 5;

/// One connection with what it has been sent and has not read.
struct End {
    connection: TargetSession<TestBackend>,
    backend: TestBackend,
    unread: Vec<u8>,
    is_open: bool,
}

/// A PDU that came back: on which connection, its header and its data.
struct Answer {
    end: usize,
    header: [u8; 48],
    data: Vec<u8>,
}

/// A session with some connections.
struct Fixture {
    target: TestTarget,
    ends: Vec<End>,
    answers: Vec<Answer>,
    now: Instant,
}

impl Fixture {
    fn new(connections: usize) -> Self {
        let target = TestTarget::new(vec![Arc::new(VecVolume::new(BlockSize::B512, BLOCKS))]);
        let mut fixture = Self {
            target,
            ends: Vec::new(),
            answers: Vec::new(),
            now: Instant::now(),
        };
        for cid in 0..connections {
            fixture.log_in(cid as u8);
        }
        // The power-on unit attention.
        fixture.ends[0].backend.clear_attention();
        fixture
    }

    fn log_in(&mut self, cid: u8) {
        let mut text = TextBuilder::default();
        for (key, value) in [
            ("InitiatorName", "iqn.i"),
            ("TargetName", TestTarget::NAME),
            ("MaxConnections", "8"),
            ("InitialR2T", "No"),
            ("FirstBurstLength", "1024"),
        ] {
            text.push(key, value);
        }
        let mut header = [0; 48];
        (header[0], header[1], header[13]) = (0x43, 0x87, 1);
        header[15] = u8::from(cid > 0);
        header[21] = cid;
        header[24..28].copy_from_slice(&FIRST.to_be_bytes());
        self.ends.push(End {
            connection: TargetSession::new(),
            backend: self.target.backend(),
            unread: pdu(header, &text.into_bytes()),
            is_open: true,
        });
        let end = self.ends.len() - 1;
        self.deliver(end, usize::MAX);
        let answer = self.answers.pop().expect("an answer to the login");
        assert_eq!(answer.header[36..38], [0, 0]);
    }

    fn queue(&mut self, end: usize, bytes: &[u8]) {
        self.ends[end].unread.extend_from_slice(bytes);
    }

    /// A connection reads some of what was sent to it, and sends what it has.
    fn deliver(&mut self, end: usize, len: usize) {
        let (now, one) = (self.now, &mut self.ends[end]);
        let len = len.min(one.unread.len());
        let bytes: Vec<_> = one.unread.drain(..len).collect();
        let taken = one.connection.handle_bytes(now, &bytes, &mut one.backend);
        taken.expect("the connection goes on");
        self.collect(end);
    }

    fn wake(&mut self, end: usize) {
        let (now, one) = (self.now, &mut self.ends[end]);
        if one.backend.take_wake() && one.is_open {
            let woken = one.connection.handle_wake(now, &mut one.backend);
            woken.expect("the connection goes on");
            self.collect(end);
        }
    }

    /// Everything that was sent is read, and everyone is woken that is to be.
    fn finish(&mut self) {
        for _ in 0..100 {
            for end in 0..self.ends.len() {
                self.deliver(end, usize::MAX);
                self.wake(end);
            }
        }
    }

    fn collect(&mut self, end: usize) {
        let one = &mut self.ends[end];
        let bytes = one.backend.drain(self.now, &mut one.connection);
        let mut rest = &bytes[..];
        while let Some((header, after)) = rest.split_first_chunk::<48>() {
            let len = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
            self.answers.push(Answer {
                end,
                header: *header,
                data: after[..len].to_vec(),
            });
            rest = &after[len.next_multiple_of(4)..];
        }
    }

    /// How often each request was answered, by tag; R2Ts do not count.
    fn answered(&self, tag: u32) -> usize {
        let of_tag = |answer: &&Answer| {
            answer.header[16..20] == tag.to_be_bytes() && answer.header[0] != response::R2T
        };
        self.answers.iter().filter(of_tag).count()
    }

    /// SCSI status of a command, or the answer to task management.
    fn status(&self, tag: u32) -> Option<u8> {
        let find = |answer: &&Answer| answer.header[16..20] == tag.to_be_bytes();
        let answer = self.answers.iter().rfind(find)?;
        let at = if answer.header[0] == response::TASK_MANAGEMENT {
            2
        } else {
            3
        };
        (answer.header[0] != response::R2T).then_some(answer.header[at])
    }
}

fn pdu(mut header: [u8; 48], data: &[u8]) -> Vec<u8> {
    header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    let mut bytes = header.to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A request whose tag is `number`, and whose CmdSN is `number` after the first.
fn head(opcode: u8, flags: u8, number: u32) -> [u8; 48] {
    let mut header = [0; 48];
    (header[0], header[1]) = (opcode, flags);
    header[16..20].copy_from_slice(&number.to_be_bytes());
    header[24..28].copy_from_slice(&FIRST.wrapping_add(number).to_be_bytes());
    header
}

/// TEST UNIT READY to a LUN that does not exist, so that it is seen when it is begun.
fn probe(number: u32, attribute: u8) -> Vec<u8> {
    let mut header = head(request::SCSI_COMMAND, FINAL | attribute, number);
    header[9] = lun_of(number) as u8;
    pdu(header, &[])
}

fn lun_of(number: u32) -> u16 {
    100 + number as u16
}

/// A write of two blocks: one comes with the command, one in a PDU of its own, which is the second
/// part.
fn write(number: u32, attribute: u8) -> (Vec<u8>, Vec<u8>) {
    let mut header = head(request::SCSI_COMMAND, 0x20 | attribute, number);
    header[20..24].copy_from_slice(&1024_u32.to_be_bytes());
    header[32] = 0x2A;
    header[37] = 2 * number as u8;
    header[40] = 2;
    let data = [number as u8 + 1; 512];
    let mut more = head(request::DATA_OUT, FINAL, number);
    more[20..24].copy_from_slice(&[0xFF; 4]);
    more[24..28].copy_from_slice(&[0; 4]);
    more[40..44].copy_from_slice(&512_u32.to_be_bytes());
    (pdu(header, &data), pdu(more, &data))
}

/// A write whose data never come.
fn hanging_write(number: u32) -> Vec<u8> {
    let mut header = head(request::SCSI_COMMAND, WRITE, number);
    header[20..24].copy_from_slice(&512_u32.to_be_bytes());
    (header[32], header[40]) = (0x2A, 1);
    pdu(header, &[])
}

fn manage(function: u8, number: u32, tag: u32, about: u32) -> Vec<u8> {
    let mut header = head(request::TASK_MANAGEMENT | 0x40, FINAL | function, number);
    header[16..20].copy_from_slice(&tag.to_be_bytes());
    header[20..24].copy_from_slice(&about.to_be_bytes());
    header[32..36].copy_from_slice(&FIRST.wrapping_add(about).to_be_bytes());
    pdu(header, &[])
}

#[derive(Clone, Copy, Debug)]
enum Ask {
    Probe(u8),
    Write(u8),
    Nop,
}

fn ask() -> impl Strategy<Value = Ask> {
    let attribute =
        prop_oneof![4 => Just(0_u8), 2 => Just(1), 1 => Just(ORDERED), 1 => Just(HEAD_OF_QUEUE)];
    prop_oneof![
        4 => attribute.clone().prop_map(Ask::Probe),
        2 => attribute.prop_map(Ask::Write),
        1 => Just(Ask::Nop),
    ]
}

/// Which connections act, in which order: with how many bytes, or woken.
fn steps() -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop::collection::vec((0_usize..8, 0_usize..700), 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(200)))]

    #[test]
    fn commands_are_begun_in_the_order_of_their_numbers(
        connections in 2_usize..=8,
        asks in prop::collection::vec((ask(), 0_usize..8), 1..40),
        steps in steps(),
    ) {
        let mut fixture = Fixture::new(connections);
        for (number, (ask, end)) in (0..).zip(&asks) {
            let end = end % connections;
            match *ask {
                Ask::Probe(attribute) => fixture.queue(end, &probe(number, attribute)),
                Ask::Write(attribute) => {
                    let (command, data) = write(number, attribute);
                    fixture.queue(end, &command);
                    fixture.queue(end, &data);
                }
                Ask::Nop => {
                    let mut header = head(request::NOP_OUT, FINAL, number);
                    header[20..24].copy_from_slice(&[0xFF; 4]);
                    fixture.queue(end, &pdu(header, b"ping"));
                }
            }
        }
        for (end, len) in steps {
            let end = end % connections;
            if len == 0 { fixture.wake(end) } else { fixture.deliver(end, len) }
        }
        fixture.finish();
        for (number, (ask, _)) in (0..).zip(&asks) {
            prop_assert_eq!(fixture.answered(number), 1, "{:?} {}", ask, number);
            if let Ask::Write(_) = ask {
                prop_assert_eq!(fixture.status(number), Some(0));
                let range = block::ByteRange { offset: u64::from(number) * 1024, len: 1024 };
                prop_assert_eq!(fixture.target.volume(0).bytes(range), vec![number as u8 + 1; 1024]);
            }
        }
        let begun = fixture.target.looked_up();
        let place = |number: u32| begun.iter().position(|lun| *lun == lun_of(number));
        let probes = (0..).zip(&asks).filter_map(|(number, (ask, _))| match ask {
            Ask::Probe(attribute) => Some((place(number), *attribute == HEAD_OF_QUEUE)),
            _ => None,
        });
        let probes: Vec<_> = probes.collect();
        for (i, (place, _)) in probes.iter().enumerate() {
            // HEAD OF QUEUE may pass others; nothing else does.
            let later = probes[i + 1..].iter().filter(|(_, is_head)| !is_head);
            prop_assert!(later.clone().all(|(later, _)| later > place), "{:?}", begun);
        }
    }

    #[test]
    fn nothing_is_answered_after_the_task_management_that_ended_it(
        connections in 2_usize..=8,
        ends in prop::collection::vec(0_usize..8, 2..30),
        at in 0_usize..30,
        manager in 0_usize..8,
        function in prop::sample::select(vec![
            function::ABORT_TASK_SET, function::CLEAR_TASK_SET, function::LOGICAL_UNIT_RESET,
            function::TARGET_WARM_RESET, function::TARGET_COLD_RESET,
        ]),
        steps in steps(),
    ) {
        const TAG: u32 = 255;
        let mut fixture = Fixture::new(connections);
        let at = at % ends.len();
        for (number, end) in ends.iter().enumerate() {
            if number == at {
                fixture.queue(manager % connections, &manage(function, at as u32, TAG, 0));
            }
            // Some of the earlier commands have not ended by then, in any order.
            let bytes = if number < at { hanging_write(number as u32) } else { probe(number as u32, 1) };
            fixture.queue(end % connections, &bytes);
        }
        for (end, len) in steps {
            let end = end % connections;
            if len == 0 { fixture.wake(end) } else { fixture.deliver(end, len) }
        }
        fixture.finish();
        prop_assert_eq!(fixture.status(TAG), Some(function_response::COMPLETE));
        for number in at..ends.len() {
            prop_assert_eq!(fixture.answered(number as u32), 1, "{}", number);
        }
        // A command may still be answered before, never after; nor are data of one requested.
        let end = fixture.answers.iter().position(|answer| answer.header[16..20] == TAG.to_be_bytes());
        let after = &fixture.answers[end.expect("it was answered")..];
        prop_assert!(after.iter().all(|answer| answer.header[19] as usize >= at));
    }
}

#[test]
fn an_early_command_waits_for_the_one_before_it() {
    let mut fixture = Fixture::new(2);
    fixture.queue(1, &probe(1, 0));
    fixture.finish();
    assert_eq!(fixture.answers.len(), 0);
    fixture.queue(0, &probe(0, 0));
    fixture.finish();
    // Each is looked up again for the format of its sense data.
    let mut looked_up = fixture.target.looked_up();
    looked_up.dedup();
    assert_eq!(looked_up, [lun_of(0), lun_of(1)]);
    let ends: Vec<_> = fixture.answers.iter().map(|answer| answer.end).collect();
    assert_eq!(ends, [0, 1]);
}

#[test]
fn what_is_for_immediate_delivery_waits_for_nothing() {
    let mut fixture = Fixture::new(2);
    let mut immediate = probe(5, 0);
    immediate[0] |= 0x40;
    fixture.queue(1, &immediate);
    fixture.finish();
    assert_eq!(fixture.answered(5), 1);
}

#[test]
fn an_ordered_command_waits_for_those_before_it_and_keeps_those_after_it_waiting() {
    for connections in [1, 2] {
        let mut fixture = Fixture::new(connections);
        let other = connections - 1;
        let (first, first_data) = write(0, 1);
        let (ordered, ordered_data) = write(1, ORDERED);
        fixture.queue(0, &first);
        fixture.queue(other, &ordered);
        fixture.queue(other, &ordered_data);
        fixture.queue(0, &probe(2, 1));
        fixture.queue(other, &probe(3, HEAD_OF_QUEUE));
        fixture.finish();
        assert_eq!(
            fixture.target.looked_up().last(),
            Some(&lun_of(3)),
            "head of queue"
        );
        assert_eq!(
            (
                fixture.answered(0),
                fixture.answered(1),
                fixture.answered(2)
            ),
            (0, 0, 0)
        );
        fixture.queue(0, &first_data);
        fixture.finish();
        let order: Vec<_> = fixture
            .answers
            .iter()
            .map(|answer| answer.header[19])
            .collect();
        assert_eq!(order, [3, 0, 1, 2], "on {connections} connections");
    }
}

#[test]
fn a_command_that_never_comes_ends_the_session() {
    let mut fixture = Fixture::new(2);
    fixture.queue(1, &probe(1, 0));
    fixture.finish();
    let end = &mut fixture.ends[1];
    assert_eq!(
        end.connection.poll_timeout(),
        Some(fixture.now + GAP_TIMEOUT)
    );
    let late = fixture.now + GAP_TIMEOUT;
    let ended = end.connection.handle_timeout(late, &mut end.backend);
    assert_eq!(ended, Err(PeerError::Gap));
    fixture.ends[1].is_open = false;
    fixture.wake(0);
    assert!(fixture.ends[0].connection.is_closing());
}

#[test]
fn a_connection_that_ends_takes_what_waited_on_it_out_of_the_line() {
    let mut fixture = Fixture::new(3);
    let (_, data) = write(0, ORDERED);
    fixture.queue(0, &write(0, ORDERED).0);
    fixture.queue(1, &probe(1, 0));
    fixture.queue(2, &probe(2, 0));
    fixture.finish();
    assert_eq!(fixture.answers.len(), 0);
    let one = &mut fixture.ends[1];
    one.connection.handle_close(fixture.now, &mut one.backend);
    one.is_open = false;
    fixture.queue(0, &data);
    fixture.finish();
    assert_eq!(
        (
            fixture.answered(0),
            fixture.answered(1),
            fixture.answered(2)
        ),
        (1, 0, 1)
    );
}

#[test]
fn a_task_is_aborted_wherever_it_is() {
    const TAG: u32 = 1000;
    let cases = [
        (
            "on the other connection",
            Some(1),
            function_response::COMPLETE,
        ),
        ("on its own", Some(0), function_response::COMPLETE),
        (
            "nowhere, and its number has not come",
            None,
            function_response::COMPLETE,
        ),
    ];
    for (place, end, answer) in cases {
        let mut fixture = Fixture::new(2);
        if let Some(end) = end {
            fixture.queue(end, &hanging_write(0));
        }
        fixture.finish();
        fixture.queue(0, &manage(function::ABORT_TASK, 1, TAG, 0));
        fixture.queue(1, &probe(1, 0));
        fixture.finish();
        assert_eq!(fixture.status(TAG), Some(answer), "{place}");
        assert_eq!(
            (fixture.answered(0), fixture.answered(1)),
            (0, 1),
            "{place}"
        );
    }
    let mut fixture = Fixture::new(2);
    fixture.queue(0, &probe(0, 0));
    fixture.finish();
    fixture.queue(0, &manage(function::ABORT_TASK, 1, TAG, 0));
    fixture.finish();
    assert_eq!(
        fixture.status(TAG),
        Some(function_response::NO_TASK),
        "it has ended"
    );
}

#[test]
fn early_data_take_no_more_room_than_there_is() {
    let mut fixture = Fixture::new(2);
    fixture.ends[1].backend.gather_max = 0;
    let (early, data) = write(1, 0);
    fixture.queue(1, &early);
    fixture.queue(1, &data);
    fixture.queue(0, &probe(0, 0));
    fixture.finish();
    assert_eq!(fixture.status(1), Some(TASK_SET_FULL));
    assert_eq!(
        fixture.answers.last().map(|answer| answer.data.len()),
        Some(0)
    );
}

#[test]
fn requests_that_wait_are_as_few_as_replies() {
    let mut fixture = Fixture::new(2);
    for number in 1..200 {
        let mut header = head(request::NOP_OUT, FINAL, number);
        header[20..24].copy_from_slice(&[0xFF; 4]);
        fixture.queue(1, &pdu(header, &[]));
    }
    let end = &mut fixture.ends[1];
    let bytes = std::mem::take(&mut end.unread);
    let result = end
        .connection
        .handle_bytes(fixture.now, &bytes, &mut end.backend);
    assert_eq!(result, Err(PeerError::Flood));
}
