//! A channel against targets that keep to the protocol, and against those that do not.

mod both_ends;
mod hostile;

use proptest::prelude::*;

use block::{Blocks, Extent, Lba};
use scsi::host::{Command, CommandFailure, CommandKey, Outcome, io};
use session::testing::HostMemory;
use session::{BufferRange, Buffers, RemoteKey};
use zerocopy::IntoBytes as _;
use zerocopy::big_endian::U32;

use super::*;
use crate::wire::{
    ChannelFlags, LoginResponse, ManagementResult, PortId, ResponseHeader, Tag, opcode,
};

const TERMS: Terms = Terms {
    request_limit: 4,
    immediate_max_bytes: 1024,
};
const SLOT_BYTES: usize = 8192;

struct Fixture {
    session: InitiatorSession,
    memory: HostMemory,
    done: Vec<Outcome>,
}

impl Fixture {
    fn new(terms: Terms) -> Self {
        Self {
            session: InitiatorSession::new(terms, 3, 4),
            memory: HostMemory::new(Buffers::new(4, SLOT_BYTES), 8, 4096),
            done: Vec::new(),
        }
    }

    /// Submits a command and gives its message.
    fn post(&mut self, key: u16, command: Command) -> Vec<u8> {
        self.session
            .submit(CommandKey(key), &command)
            .expect("room");
        self.next()
    }

    /// The next message.
    fn next(&mut self) -> Vec<u8> {
        self.session.poll_transmit(&mut self.memory);
        self.memory.sent.pop_front().expect("a message")
    }

    fn receive(
        &mut self,
        message: &[u8],
        invalidated: Option<RemoteKey>,
    ) -> Result<(), InitiatorError> {
        let (memory, done) = (&mut self.memory, &mut self.done);
        self.session
            .handle_message(message, invalidated, memory, done)
    }

    fn answer(&mut self, header: &ResponseHeader, rest: &[u8]) -> Result<(), InitiatorError> {
        self.receive(&[header.as_bytes(), rest].concat(), None)
    }

    fn results(&mut self) -> Vec<(u16, Result<u32, CommandFailure>)> {
        let done = self.done.drain(..);
        done.map(|outcome| (outcome.key.0, outcome.result))
            .collect()
    }
}

fn extent(len_bytes: u32) -> Extent {
    Extent::new(Lba(0x10), Blocks(u64::from(len_bytes) / 512))
}

fn read(key: u16, len_bytes: u32) -> Command {
    io::read(extent(len_bytes), BufferRange::first(key, len_bytes))
}

fn write(key: u16, len_bytes: u32) -> Command {
    io::write(extent(len_bytes), BufferRange::first(key, len_bytes))
}

/// The tag of a message.
fn tag(message: &[u8]) -> Tag {
    message[8..16].try_into().expect("8 bytes")
}

fn response() -> LoginResponse {
    let login = request(PortId([1; 16]), PortId([2; 16]));
    LoginResponse::new(&login, 128, [8320, 68], ChannelFlags::IMMEDIATE)
}

#[test]
fn the_login_asks_for_direct_descriptors_and_immediate_data() {
    let mut expected = [0; 56];
    (expected[9], expected[10]) = (0x02, 0x80);
    expected[12..16].copy_from_slice(&8260_u32.to_be_bytes());
    expected[16..32].fill(1);
    expected[32..48].fill(2);
    expected[49] = 68;
    let login = request(PortId([1; 16]), PortId([2; 16]));
    assert_eq!(login.as_bytes(), expected);
}

#[test]
fn an_answer_gives_the_terms() {
    let padded = [response().as_bytes(), &[0; 140]].concat();
    let all = Terms {
        request_limit: 128,
        immediate_max_bytes: 8192,
    };
    assert_eq!(Terms::of(&padded), Ok(all));
    let short = LoginResponse {
        request_len_max_bytes: U32::new(70),
        ..response()
    };
    let two = Terms::of(short.as_bytes()).map(|terms| terms.immediate_max_bytes);
    assert_eq!(two, Ok(2), "what fits behind byte 68");
    let without = LoginResponse {
        flags: 0,
        ..response()
    };
    let none = Terms::of(without.as_bytes()).map(|terms| terms.immediate_max_bytes);
    assert_eq!(none, Ok(0));
}

#[test]
fn an_answer_under_which_no_command_can_be_sent_is_none() {
    let refused = |response: LoginResponse| Terms::of(response.as_bytes()).err();
    for (limit, granted) in [(0, 0), (u32::MAX, -1)] {
        let response = LoginResponse {
            request_limit: U32::new(limit),
            ..response()
        };
        assert_eq!(refused(response), Some(LoginError::RequestLimit(granted)));
    }
    let indirect = LoginResponse {
        formats: 4.into(),
        ..response()
    };
    assert_eq!(refused(indirect), Some(LoginError::Formats(4)));
    let short = LoginResponse {
        request_len_max_bytes: U32::new(63),
        ..response()
    };
    assert_eq!(refused(short), Some(LoginError::MessageLength(63)));
    let other = LoginResponse {
        opcode: opcode::LOGIN_REJ,
        ..response()
    };
    assert_eq!(refused(other), Some(LoginError::Reply(52)));
    assert_eq!(Terms::of(&[0xC0; 51]), Err(LoginError::Reply(51)));
}

#[test]
fn a_read_names_its_buffer_by_one_descriptor() {
    let mut fixture = Fixture::new(TERMS);
    let message = fixture.post(1, read(1, 4096));
    assert_eq!(message.len(), 64);
    let mut expected = [0; 64];
    (expected[0], expected[5]) = (opcode::CMD, 0x01);
    expected[15] = 1;
    expected[21] = 3;
    expected[32..42].copy_from_slice(&[0x28, 0, 0, 0, 0, 0x10, 0, 0, 8, 0]);
    // Address, key and length.
    expected[48..56].copy_from_slice(&(2_u64 << 32).to_be_bytes());
    expected[59] = 1;
    expected[62] = 0x10;
    assert_eq!(message, expected);
    fixture
        .answer(&ResponseHeader::new(tag(&message), 1), &[])
        .expect("its answer");
    assert_eq!(fixture.results(), [(1, Ok(4096))]);
    assert_eq!(fixture.memory.keys(), 0, "no late write reaches the buffer");
}

#[test]
fn short_data_out_are_inside_the_message_and_long_ones_are_not() {
    let mut fixture = Fixture::new(TERMS);
    fixture.memory.buffers.slot_mut(0)[..1024].fill(0xAB);
    let message = fixture.post(0, write(0, 1024));
    assert_eq!(message.len(), 68 + 1024);
    assert_eq!(message[5], 0x30);
    assert_eq!(message[48..52], 1024_u32.to_be_bytes());
    assert_eq!(message[68..], [0xAB; 1024]);
    assert_eq!(fixture.memory.keys(), 0);
    let message = fixture.post(1, write(1, 1536));
    assert_eq!((message.len(), message[5]), (64, 0x10));
    assert_eq!(fixture.memory.keys(), 1);
    let mut none = Fixture::new(Terms {
        immediate_max_bytes: 0,
        ..TERMS
    });
    assert_eq!(none.post(0, write(0, 512)).len(), 64);
}

#[test]
fn commands_leave_a_request_for_aborts_and_deltas_give_them_back() {
    let mut fixture = Fixture::new(TERMS);
    let messages = [0, 1, 2].map(|key| fixture.post(key, read(key, 512)));
    let one_more = |fixture: &mut Fixture| {
        let command = read(3, 512);
        fixture.session.submit(CommandKey(3), &command)
    };
    assert_eq!(one_more(&mut fixture), Err(NoRoom::Credits));
    // A target may take requests back.
    let lower = ResponseHeader::new(tag(&messages[0]), (-1_i32).cast_unsigned());
    fixture.answer(&lower, &[]).expect("its answer");
    assert_eq!(one_more(&mut fixture), Err(NoRoom::Credits));
    let raise = ResponseHeader::new(tag(&messages[1]), 2);
    fixture.answer(&raise, &[]).expect("its answer");
    assert_eq!(one_more(&mut fixture), Ok(()));
    let mut single = Fixture::new(Terms {
        request_limit: 1,
        ..TERMS
    });
    assert_eq!(
        one_more(&mut single),
        Ok(()),
        "a limit of 1 is for commands"
    );
}

#[test]
fn requests_of_the_target_are_answered_and_give_credits() {
    let mut fixture = Fixture::new(TERMS);
    for key in 0..3 {
        fixture.post(key, read(key, 512));
    }
    let mut request = [0; 16];
    (request[0], request[7]) = (opcode::CRED_REQ, 1);
    request[8..].fill(9);
    fixture.receive(&request, None).expect("a request");
    let mut answer = [0; 16];
    answer[0] = opcode::CRED_RSP;
    answer[8..].fill(9);
    assert_eq!(fixture.next(), answer);
    fixture.post(3, read(3, 512));
    // An asynchronous event begins like it.
    request[0] = opcode::AER_REQ;
    fixture
        .receive(&[&request[..], &[0; 24]].concat(), None)
        .expect("a request");
    answer[0] = opcode::AER_RSP;
    assert_eq!(fixture.next(), answer);
}

#[test]
fn the_result_of_a_command_is_what_the_response_says() {
    let mut fixture = Fixture::new(TERMS);
    let mut outcome = |header: &dyn Fn(&mut ResponseHeader), rest: &[u8]| {
        let message = fixture.post(0, read(0, 2048));
        let mut response = ResponseHeader::new(tag(&message), 1);
        header(&mut response);
        fixture.answer(&response, rest).expect("a valid response");
        fixture.results().remove(0).1
    };
    let under = |header: &mut ResponseHeader| {
        header.flags = ResponseHeader::DATA_IN_UNDER;
        header.data_in_residual = U32::new(512);
    };
    assert_eq!(outcome(&under, &[]), Ok(1536));
    let failed = |header: &mut ResponseHeader| {
        header.flags = ResponseHeader::RESPONSE_VALID;
        header.response_len = U32::new(4);
    };
    let undelivered = CommandFailure::Undelivered { response: 5 };
    assert_eq!(outcome(&failed, &[0, 0, 0, 5]), Err(undelivered));
    // Response data stand before sense data.
    let check = |header: &mut ResponseHeader| {
        header.flags = ResponseHeader::RESPONSE_VALID | ResponseHeader::SENSE_VALID;
        header.status = 2;
        header.response_len = U32::new(4);
        header.sense_len = U32::new(18);
    };
    let mut rest = [0; 22];
    (rest[4], rest[6], rest[16]) = (0x70, 0x05, 0x21);
    let failure = outcome(&check, &rest).expect_err("a check condition");
    let sense = failure.sense().expect("sense data");
    assert_eq!((sense.key, sense.asc.0), (5, 0x2100));
}

#[test]
fn an_aborted_command_ends_with_the_answer_to_the_abort() {
    let mut fixture = Fixture::new(TERMS);
    let command = fixture.post(0, read(0, 512));
    assert_eq!(fixture.session.abort(CommandKey(1)), Abort::NotInFlight);
    assert_eq!(fixture.session.abort(CommandKey(0)), Abort::Asked);
    assert_eq!(fixture.session.abort(CommandKey(0)), Abort::AskedBefore);
    let abort = fixture.next();
    assert_eq!((abort[0], abort[30]), (opcode::TSK_MGMT, 0x01));
    assert_eq!(abort[32..40], tag(&command), "the task's tag");
    assert_ne!(tag(&abort), tag(&command));
    let mut response = ResponseHeader::new(tag(&abort), 2);
    response.flags = ResponseHeader::RESPONSE_VALID;
    response.response_len = U32::new(4);
    let complete = [0, 0, 0, ManagementResult::Complete as u8];
    fixture.answer(&response, &complete).expect("its answer");
    assert_eq!(fixture.results(), [(0, Err(CommandFailure::Aborted))]);
    assert_eq!(fixture.memory.keys(), 0);
    // The key's next command has another tag.
    let next = fixture.post(0, read(0, 512));
    assert_ne!(tag(&next), tag(&command));
    let late = ResponseHeader::new(tag(&command), 1);
    let ended = fixture.answer(&late, &[]);
    assert_eq!(ended, Err(InitiatorError::Tag(tag(&command))));
}

#[test]
fn an_abort_that_fails_leaves_the_command_in_progress() {
    let mut fixture = Fixture::new(TERMS);
    let command = fixture.post(0, read(0, 512));
    fixture.session.abort(CommandKey(0));
    let abort = fixture.next();
    let mut response = ResponseHeader::new(tag(&abort), 1);
    response.flags = ResponseHeader::RESPONSE_VALID;
    response.response_len = U32::new(4);
    let failed = [0, 0, 0, ManagementResult::Failed as u8];
    fixture.answer(&response, &failed).expect("its answer");
    assert_eq!(fixture.results(), []);
    fixture
        .answer(&ResponseHeader::new(tag(&command), 1), &[])
        .expect("its answer");
    assert_eq!(fixture.results(), [(0, Ok(512))]);
}

#[test]
fn either_end_logs_the_channel_out() {
    let mut fixture = Fixture::new(TERMS);
    fixture.session.log_out();
    assert_eq!(fixture.next()[0], opcode::I_LOGOUT);
    let command = read(0, 512);
    let refused = fixture.session.submit(CommandKey(0), &command);
    assert_eq!(refused, Err(NoRoom::Closed));
    let mut fixture = Fixture::new(TERMS);
    let mut logout = [0; 16];
    logout[0] = opcode::T_LOGOUT;
    fixture.receive(&logout, None).expect("a logout");
    assert_eq!(fixture.session.poll_event(), Some(Event::LoggedOut));
    assert_eq!(fixture.session.poll_event(), None);
    let refused = fixture.session.submit(CommandKey(0), &command);
    assert_eq!(refused, Err(NoRoom::Closed));
}

#[test]
fn the_fuzz_corpus_runs() {
    let fuzz = crate::testing::fuzz::initiator_session;
    assert!(block::testing::replay("srp_initiator", fuzz) > 0);
}

proptest! {
    #[test]
    fn any_messages_leave_the_channel_whole(
        input in prop::collection::vec(prop_oneof![Just(21), Just(0), any::<u8>()], 0..600),
    ) {
        crate::testing::fuzz::initiator_session(&input);
    }
}
