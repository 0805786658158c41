//! Acknowledgements that are not urgent are requested with later packets or after a delay.

use super::*;
use crate::wire::Packet;

const LEN: u64 = 3000;
const MESSAGES: u64 = 2;
/// Packets of a message.
const PACKETS: usize = 3;

fn wants_ack(bytes: &[u8]) -> bool {
    Packet::parse(bytes).unwrap().bth.wants_ack()
}

/// Two ends, the first of which has sent messages that need not be acknowledged at once; those
/// packets that `comes` says have come.
fn sent(comes: impl Fn(usize) -> bool) -> Connected {
    let mut both = Connected::new(PathMtu::B1024);
    for id in 0..MESSAGES {
        both.recv(1, id, place(SINK + id * LEN, LEN));
        let message = SendOp::Send(data(SOURCE + id, LEN));
        both.post_signaled(0, id, message, Signal::Eventually);
    }
    let packets = both.pair.intercept(0);
    assert_eq!(packets.len(), MESSAGES as usize * PACKETS);
    for (index, (_, _, bytes)) in packets.iter().enumerate() {
        assert!(!wants_ack(bytes), "packet {index} asks at once");
        if comes(index) {
            both.pair.inject(1, bytes);
        }
    }
    both
}

fn assert_all_has_come(both: &mut Connected) {
    let done = both.complete(0, MESSAGES as usize);
    assert!(done.iter().all(|c| c.status == WorkStatus::Success));
    both.complete(1, MESSAGES as usize);
    for id in 0..MESSAGES {
        both.assert_moved(0, place(SOURCE + id, LEN), place(SINK + id * LEN, LEN));
    }
}

#[test]
fn the_last_packet_asks_after_a_while_and_once() {
    let mut both = sent(|_| true);
    let before = both.pair.sent;
    both.pair.run(Duration::from_millis(3), |_| false);
    assert_eq!(both.pair.sent, before, "it is not asked for yet");
    assert_all_has_come(&mut both);
    both.pair.run(SECOND, |_| false);
    assert_eq!(
        both.pair.sent,
        before + 2,
        "the last packet, and the answer"
    );
}

#[test]
fn what_was_lost_meanwhile_is_sent_again() {
    // Nothing came, the end did not, something amidst or the beginning did not.
    let losses: [fn(usize) -> bool; 4] = [|_| false, |at| at < 4, |at| at != 3, |at| at > 1];
    for comes in losses {
        assert_all_has_come(&mut sent(comes));
    }
}

/// Two ends, the first of which has sent short messages with a packet each, one by one, of which
/// every eighth asks.
fn sent_one_by_one(signal: Signal) -> Connected {
    let mut both = Connected::new(PathMtu::B1024);
    let mut asking = Vec::new();
    for id in 0..20 {
        both.recv(1, id, place(SINK + id * 100, 100));
        both.post_signaled(0, id, SendOp::Send(inline(b"no hurry")), signal);
        let packets = both.pair.intercept(0);
        assert_eq!(packets.len(), 1);
        asking.push(wants_ack(&packets[0].2));
        both.pair.inject(1, &packets[0].2);
        for (_, _, answer) in both.pair.intercept(1) {
            both.pair.inject(0, &answer);
        }
    }
    let asked: Vec<usize> = (0..20).filter(|&at| asking[at]).collect();
    assert_eq!(asked, [7, 15]);
    both
}

#[test]
fn the_eighth_packet_asks_where_requests_follow_each_other() {
    let mut both = sent_one_by_one(Signal::Eventually);
    assert_eq!(both.pair.ends[0].completions.len(), 16);
    assert_eq!(both.complete(0, 20).len(), 20);
}

#[test]
fn silent_requests_are_acknowledged_now_and_then_or_after_a_while() {
    let mut both = sent_one_by_one(Signal::OnError);
    let sent = both.pair.sent;
    both.pair.run(Duration::from_millis(3), |_| false);
    assert_eq!(both.pair.sent, sent, "nothing is late yet");
    both.pair.run(Duration::from_millis(3), |_| false);
    assert!(both.pair.sent > sent, "the peer is asked");
    for id in 0..64 {
        both.post_signaled(0, id, SendOp::Send(inline(b"no hurry")), Signal::OnError);
    }
}

#[test]
fn a_read_whose_response_is_late_is_retried_itself() {
    for answers_lost in 0..=PACKETS {
        let mut both = sent(|_| true);
        let remote = both.register(1, place(SOURCE, LEN), EVERYTHING);
        let into = place(SINK + 4 * LEN, LEN);
        let read = SendOp::Read(Gather::new(&[into]).unwrap(), remote);
        both.post(0, MESSAGES, read);
        for (_, _, bytes) in both.pair.intercept(0) {
            both.pair.inject(1, &bytes);
        }
        let answers = both.pair.intercept(1);
        assert_eq!(answers.len(), PACKETS);
        for (_, _, bytes) in &answers[..PACKETS - answers_lost] {
            both.pair.inject(0, bytes);
        }
        let before = both.pair.sent;
        let done = both.complete(0, MESSAGES as usize + 1);
        assert!(done.iter().all(|c| c.status == WorkStatus::Success));
        both.assert_moved(1, place(SOURCE, LEN), into);
        let again = both.pair.sent - before;
        // Any answer acknowledges the messages before, so that they need not be sent again.
        let expected = match answers_lost {
            0 => 0..=0,
            PACKETS => 1..=11,
            some => 1 + some as u64..=1 + some as u64,
        };
        assert!(
            expected.contains(&again),
            "{again} packets for {answers_lost} that were lost"
        );
    }
}

#[test]
fn a_lost_peer_is_given_up() {
    let mut both = sent(|_| true);
    both.pair.faults.loss = 100;
    let done = both.complete(0, MESSAGES as usize);
    let statuses: Vec<_> = done.iter().map(|c| c.status).collect();
    assert_eq!(statuses, [WorkStatus::RetryExceeded, WorkStatus::Flushed]);
}
