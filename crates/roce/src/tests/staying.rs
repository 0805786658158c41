//! What may stay where it came.

use crate::memory::MemoryId;
use block::ByteRange;

use super::*;

const UNTOUCHED: [u8; 600] = [0; 600];

fn both(may_stay: bool) -> Connected {
    let config = QpConfig {
        may_stay,
        ..config()
    };
    let mut both = Connected::with(1, V4, PathMtu::B1024, [config; 2]);
    for end in &mut both.pair.ends {
        end.memory.stayed = Some(Vec::new());
    }
    both
}

/// The data that an end left in place, and the range of the first.
fn stayed(both: &Connected, end: usize) -> (&[Vec<u8>], Option<MemoryRange>) {
    let stayed = both.pair.ends[end].memory.stayed.as_deref().unwrap();
    let first = stayed.first().map(|bytes| MemoryRange {
        memory: MemoryId(1),
        range: ByteRange {
            offset: 0,
            len: bytes.len() as u64,
        },
    });
    (stayed, first)
}

#[test]
fn a_message_of_one_packet_stays_and_is_not_copied() {
    for (may_stay, len, stays) in [(true, 600, true), (true, 1025, false), (false, 600, false)] {
        let mut both = both(may_stay);
        both.recv(1, 7, place(SINK, 2000));
        both.post(0, 3, SendOp::Send(data(SOURCE, len)));
        let received = both.complete(1, 1);
        assert_eq!(statuses(&received), [(7, WorkStatus::Success)]);
        assert_eq!(u64::from(received[0].len_bytes), len);
        let (bytes, at) = stayed(&both, 1);
        assert_eq!(received[0].at, at);
        if stays {
            assert_eq!(bytes, [both.bytes(0, place(SOURCE, len))]);
            assert_eq!(both.bytes(1, place(SINK, 600)), UNTOUCHED);
        } else {
            assert_eq!(at, None);
            both.assert_moved(0, place(SOURCE, len), place(SINK, len));
        }
    }
}

#[test]
fn a_message_that_is_too_long_for_its_receive_does_not_stay() {
    let mut both = both(true);
    both.recv(1, 7, place(SINK, 599));
    both.post(0, 3, SendOp::Send(data(SOURCE, 600)));
    let received = both.complete(1, 1);
    assert_ne!(received[0].status, WorkStatus::Success);
    assert_eq!(stayed(&both, 1), (&[][..], None));
}

#[test]
fn data_that_are_read_in_one_packet_stay_and_others_are_copied() {
    for (may_stay, len, stays) in [(true, 600, true), (true, 1025, false), (false, 600, false)] {
        let mut both = both(may_stay);
        let from = both.register(1, place(SOURCE, 4096), EVERYTHING);
        let into = Gather::new(&[place(SINK, len)]).unwrap();
        both.post(0, 5, SendOp::Read(into, from));
        let done = both.complete(0, 1);
        assert_eq!(statuses(&done), [(5, WorkStatus::Success)]);
        let (bytes, at) = stayed(&both, 0);
        assert_eq!(done[0].at, at);
        if stays {
            assert_eq!(bytes, [both.bytes(1, place(SOURCE, len))]);
            assert_eq!(both.bytes(0, place(SINK, 600)), UNTOUCHED);
        } else {
            assert_eq!(at, None);
            both.assert_moved(1, place(SOURCE, len), place(SINK, len));
        }
    }
}

#[test]
fn the_rest_of_what_was_lost_does_not_stay_though_it_is_one_packet() {
    let mut both = both(true);
    let from = both.register(1, place(SOURCE, 4096), EVERYTHING);
    let into = Gather::new(&[place(SINK, 2048)]).unwrap();
    both.post(0, 5, SendOp::Read(into, from));
    let request = both.pair.intercept(0);
    both.pair.inject(1, &request[0].2);
    let responses = both.pair.intercept(1);
    assert_eq!(responses.len(), 2);
    both.pair.inject(0, &responses[0].2);
    let done = both.complete(0, 1);
    assert_eq!((done[0].status, done[0].at), (WorkStatus::Success, None));
    both.assert_moved(1, place(SOURCE, 2048), place(SINK, 2048));
    assert_eq!(stayed(&both, 0), (&[][..], None));
}
