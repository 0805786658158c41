//! Targets that break the protocol: the channel ends, and nothing is reported or left open.

use super::*;

/// Asserts that a message ends a channel with a read of 512 bytes in flight.
#[track_caller]
fn assert_ends(make: impl Fn(Tag) -> (Vec<u8>, Option<RemoteKey>), error: &InitiatorError) {
    let mut fixture = Fixture::new(TERMS);
    let command = fixture.post(0, read(0, 512));
    let (message, invalidated) = make(tag(&command));
    assert_eq!(
        fixture.receive(&message, invalidated).as_ref(),
        Err(error),
        "{message:02x?}"
    );
    assert_eq!(fixture.results(), []);
    let answer = ResponseHeader::new(tag(&command), 1);
    assert_eq!(fixture.answer(&answer, &[]), Err(InitiatorError::Closed));
    assert!(!fixture.session.wants_transmit());
    fixture.session.handle_close(&mut fixture.memory);
    assert_eq!(fixture.memory.keys(), 0);
}

/// A response that was changed.
fn changed(tag: Tag, change: impl Fn(&mut ResponseHeader)) -> (Vec<u8>, Option<RemoteKey>) {
    let mut header = ResponseHeader::new(tag, 1);
    change(&mut header);
    (header.as_bytes().to_vec(), None)
}

#[test]
fn messages_that_are_none_end_the_channel() {
    assert_ends(|_| (Vec::new(), None), &InitiatorError::Length(0));
    for opcode in [opcode::CMD, opcode::LOGIN_RSP, 0x7F] {
        let message = vec![opcode; 64];
        let error = InitiatorError::Opcode(opcode);
        assert_ends(|_| (message.clone(), None), &error);
    }
    let short = vec![opcode::RSP; 35];
    assert_ends(|_| (short.clone(), None), &InitiatorError::Length(35));
    let short = vec![opcode::CRED_REQ; 15];
    assert_ends(|_| (short.clone(), None), &InitiatorError::Length(15));
}

#[test]
fn lists_that_are_longer_than_their_message_end_the_channel() {
    for len in [1, u32::MAX] {
        let sense = |tag| {
            changed(tag, |header| {
                header.flags = ResponseHeader::SENSE_VALID;
                header.sense_len = U32::new(len);
            })
        };
        assert_ends(sense, &InitiatorError::Length(36));
        let response = |tag| {
            changed(tag, |header| {
                header.flags = ResponseHeader::RESPONSE_VALID;
                header.response_len = U32::new(len);
            })
        };
        assert_ends(response, &InitiatorError::Length(36));
    }
}

#[test]
fn tags_that_no_request_has_end_the_channel() {
    for other in [
        [0xFF; 8],
        [0, 0, 0, 0, 0, 0, 0, 1],
        [0, 0, 0, 0, 0, 1, 0, 0],
    ] {
        let answer = |_| changed(other, |_| {});
        assert_ends(answer, &InitiatorError::Tag(other));
    }
    // SRP_I_LOGOUT has no answer.
    let logout = [0, 0, 0, 0, 0, 2, 0, 0];
    assert_ends(|_| changed(logout, |_| {}), &InitiatorError::Tag(logout));
}

#[test]
fn a_residual_beyond_the_data_ends_the_channel() {
    let under = |tag| {
        changed(tag, |header| {
            header.flags = ResponseHeader::DATA_IN_UNDER;
            header.data_in_residual = U32::new(513);
        })
    };
    let error = InitiatorError::Residual {
        residual: 513,
        len_bytes: 512,
    };
    assert_ends(under, &error);
}

#[test]
fn the_key_of_another_command_ends_the_channel() {
    let key = RemoteKey(77);
    let other = |tag| (changed(tag, |_| {}).0, Some(key));
    assert_ends(other, &InitiatorError::Key(key));
}

#[test]
fn requests_that_are_never_answered_are_bounded() {
    let mut fixture = Fixture::new(TERMS);
    let mut request = [0; 16];
    request[0] = opcode::CRED_REQ;
    let ended = (0..10_000).find_map(|_| fixture.receive(&request, None).err());
    assert_eq!(ended, Some(InitiatorError::Flood));
}

#[test]
fn credits_do_not_overflow() {
    let mut fixture = Fixture::new(TERMS);
    for delta in [i32::MAX, i32::MAX, i32::MIN, i32::MIN, i32::MIN] {
        let message = fixture.post(0, read(0, 512));
        let answer = ResponseHeader::new(tag(&message), delta.cast_unsigned());
        fixture.answer(&answer, &[]).expect("a valid delta");
        if delta < 0 {
            break;
        }
    }
    let command = read(0, 512);
    let refused = fixture.session.submit(CommandKey(0), &command);
    assert_eq!(refused, Err(NoRoom::Credits), "2³¹-1 less 2³¹ and 1");
}
