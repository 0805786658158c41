//! Peers that acknowledge the receipt of a message (MRA), since their answer takes time.

use super::*;
use crate::wire::cm::{Mra, MraMessage};

/// The peer's identifier.
const PEER: CommId = CommId(5);
/// How long a waiting end waits before it sends again: end 0 as this crate does, end 1 as its peer
/// wants it.
const REPEAT: [TimeCode; 2] = [TimeCode::new(18), TimeCode::new(20)];
const INSTANT: Duration = Duration::from_millis(1);

/// End 0 waits for the answer to its request, or end 1 for that to its reply; what they send from
/// now on is lost.
fn waiting(end: usize) -> (Pair, CommId) {
    let mut pair = pair();
    let id = if end == 0 {
        pair.connect(config(), PathMtu::B1024).0
    } else {
        let req = Message::Req(request(&pair, PEER.0, 17));
        assert_eq!(ask(&mut pair, &req), []);
        let id = pair.take_request().unwrap();
        pair.accept(id, config());
        id
    };
    assert_eq!(pair.intercept(end).len(), 1);
    pair.faults.loss = 100;
    (pair, id)
}

/// The peer of a waiting end says that its answer takes `time`.
fn ask_for_time(pair: &mut Pair, end: usize, id: CommId, time: TimeCode) {
    let mra = receipt(end, id, time);
    let datagram = forge::message(&pair.flow(1 - end), 77, &mra);
    pair.inject(end, &datagram);
}

fn receipt(end: usize, id: CommId, time: TimeCode) -> Message {
    let about = [MraMessage::Req, MraMessage::Rep][end];
    Message::Mra(Mra::new(PEER, id, about, time))
}

#[test]
fn an_mra_delays_the_retry_once() {
    let capped = Duration::from_secs(70);
    let long = TimeCode::new(22);
    for (time, wait) in [(long, long.duration()), (TimeCode::new(31), capped)] {
        for (end, repeat) in REPEAT.into_iter().enumerate() {
            let (mut pair, id) = waiting(end);
            ask_for_time(&mut pair, end, id, time);
            pair.run(wait.saturating_sub(INSTANT), |_| false);
            assert_eq!(pair.sent, 0, "end {end} waits for {wait:?}");
            pair.run(2 * INSTANT, |_| false);
            assert_eq!(pair.sent, 1, "end {end} goes on");
            ask_for_time(&mut pair, end, id, time);
            pair.run(repeat.duration(), |_| false);
            assert_eq!(pair.sent, 2, "end {end} waits so once");
            assert!(pair.run(7 * repeat.duration(), |p| !p.ends[end].events.is_empty()));
            assert!(
                matches!(pair.ends[end].events[..], [Event::Unreachable { id: of, .. }] if of == id)
            );
            assert_eq!(pair.sent, 8, "seven repetitions, and a rejection");
            assert_eq!(pair.ends[end].endpoint.connections(), 0);
        }
    }
}

#[test]
fn an_mra_with_a_shorter_time_changes_nothing() {
    for (end, repeat) in REPEAT.into_iter().enumerate() {
        let (mut pair, id) = waiting(end);
        ask_for_time(&mut pair, end, id, TimeCode::new(3));
        pair.run(repeat.duration().saturating_sub(INSTANT), |_| false);
        assert_eq!(pair.sent, 0);
        pair.run(2 * INSTANT, |_| false);
        assert_eq!(pair.sent, 1);
    }
}

#[test]
fn a_reply_ends_the_time_of_an_mra() {
    for end in 0..2 {
        let (mut pair, id) = waiting(end);
        ask_for_time(&mut pair, end, id, TimeCode::new(22));
        pair.run(10 * SECOND, |_| false);
        let answer = if end == 0 {
            let mut rep = Rep::read_from_bytes(&[0; 232]).unwrap();
            rep.local_comm_id = PEER.0.into();
            rep.remote_comm_id = id.0.into();
            Message::Rep(rep)
        } else {
            Message::Rtu(Rtu::new(PEER, id))
        };
        let datagram = forge::message(&pair.flow(1 - end), 77, &answer);
        pair.inject(end, &datagram);
        assert_eq!(state(&pair, end, id), Some(CmState::Established));
        pair.run(100 * SECOND, |_| false);
        assert_eq!(state(&pair, end, id), Some(CmState::Established));
        assert_eq!(pair.sent, 1 - end as u64, "nothing but end 0's answer");
    }
}

#[test]
fn an_mra_of_another_peer_is_ignored() {
    for (end, repeat) in REPEAT.into_iter().enumerate() {
        let (mut pair, id) = waiting(end);
        let own = pair.ends[end].address;
        let stranger = Flow::new(
            "[fd09::66]:4791".parse().unwrap(),
            std::net::SocketAddr::new(own, crate::wire::UDP_PORT),
        );
        let stranger = stranger.unwrap();
        let bytes = forge::message(&stranger, 77, &receipt(end, id, TimeCode::new(22)));
        let received = Received {
            flow: stranger,
            bytes: &bytes,
            segment_len_bytes: None,
            identification: Ipv4Identification::Unknown,
            congestion_experienced: false,
        };
        pair.inject_received(end, &received);
        assert_eq!(pair.ends[end].endpoint.counters().cm.unmatched, 1);
        pair.run(repeat.duration(), |_| false);
        assert_eq!(pair.sent, 1);
    }
}
