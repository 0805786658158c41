//! How connections are made and ended, and how they are not.

mod waiting;

use zerocopy::FromBytes;

use super::captured::Captured;
use super::*;
use crate::testing::{Faults, forge};
use crate::wire::cm::{
    CommId, Dreq, Gid, IpCmHeader, Message, Path, Rej, RejReason, RejectedMessage, Rep, Req, Rtu,
    ServiceId, TimeCode,
};
use crate::wire::{Extended, Ipv4Identification, Packet, U24};
use crate::{CmError, CmLimits, CmState, ConnectParams, Event, Flow, QpFailure, QpState, Received};

/// Makes a request odd.
type Change = fn(&mut Req);

fn pair() -> Pair {
    Pair::new(9, &EndpointConfig::default(), V6, MEMORY_BYTES)
}

/// The messages of communication management among what an end sends.
fn messages(sent: &[(Flow, u16, Vec<u8>)]) -> Vec<(u64, Message)> {
    let parse = |bytes: &Vec<u8>| {
        let packet = Packet::parse(bytes).unwrap();
        assert!(matches!(packet.extended, Extended::Datagram(_)));
        Message::parse(packet.payload).unwrap()
    };
    sent.iter().map(|(_, _, bytes)| parse(bytes)).collect()
}

/// What end 1 answers to a message.
fn ask(pair: &mut Pair, message: &Message) -> Vec<Message> {
    let datagram = forge::message(&pair.flow(0), 77, message);
    pair.inject(1, &datagram);
    let answers = messages(&pair.intercept(1));
    answers
        .into_iter()
        .map(|(tid, message)| {
            assert_eq!(tid, 77);
            message
        })
        .collect()
}

/// A request like those of Linux.
fn request(pair: &Pair, comm_id: u32, qpn: u32) -> Req {
    let [from, to] = [pair.ends[0].address, pair.ends[1].address];
    let path = Path::roce(Gid::from_ip(from), Gid::from_ip(to), TimeCode::new(17));
    let mut req = Req::reliable(Pair::SERVICE, path);
    req.local_comm_id = comm_id.into();
    req.ca_guid = 0xAAAA.into();
    req.qpn = U24::new(qpn);
    req.responder_resources = 128;
    req.initiator_depth = 4;
    req.starting_psn = U24::new(0x00AB_CDEF);
    req.set_cm_timeouts(TimeCode::new(20));
    req.set_retry_counts(7, 7);
    req.set_path_mtu(PathMtu::B1024);
    req.set_cm_retries_max(15);
    let header = IpCmHeader::new((from, 55_410).into(), to);
    req.private_data[..36].copy_from_slice(zerocopy::IntoBytes::as_bytes(&header));
    req.private_data[36..40].copy_from_slice(b"nvme");
    req
}

fn rejection(answers: &[Message]) -> RejReason {
    match answers {
        [Message::Rej(rej)] => rej.reason(),
        other => panic!("{other:?}"),
    }
}

fn replied(answers: &[Message]) -> Rep {
    match answers {
        [Message::Rep(rep)] => *rep,
        other => panic!("{other:?}"),
    }
}

fn state(pair: &Pair, end: usize, id: CommId) -> Option<CmState> {
    pair.ends[end].endpoint.connection_state(id)
}

#[test]
fn both_ends_learn_of_each_other() {
    for addresses in [V4, V6] {
        let mut pair = Pair::new(2, &EndpointConfig::default(), addresses, MEMORY_BYTES);
        let (id, qpn) = pair.connect(config(), PathMtu::B2048);
        pair.run(SECOND, |p| !p.ends[1].events.is_empty());
        let Event::Request(request) = pair.ends[1].events.remove(0) else {
            panic!("a request comes first");
        };
        assert_eq!(request.service, Pair::SERVICE);
        assert_eq!(request.path_mtu, PathMtu::B2048);
        assert_eq!(&request.private_data[..6], b"hello\0");
        assert_eq!(request.private_data.len(), 56);
        let (source, asked) = request.addresses.unwrap();
        assert_eq!(
            (source.ip(), asked),
            (pair.ends[0].address, pair.ends[1].address)
        );
        let accepted = pair.accept(request.id, config());
        pair.run(SECOND, |_| false);
        let Event::Connected { private_data, .. } = &pair.ends[0].events[0] else {
            panic!("{:?}", pair.ends[0].events);
        };
        assert_eq!(&private_data[..8], b"welcome\0");
        let established = Event::Established {
            id: request.id,
            qpn: accepted,
        };
        assert_eq!(pair.ends[1].events, [established]);
        assert_eq!(state(&pair, 0, id), Some(CmState::Established));
        let endpoint = &mut pair.ends[0].endpoint;
        assert_eq!(endpoint.qp_state(qpn), Some(QpState::ReadyToSend));
    }
}

#[test]
fn a_request_of_linux_is_answered_with_what_it_needs() {
    for (name, private_data) in [
        ("nvme4_request", &[0, 0, 0, 0, 0x20, 0, 0x1F, 0][..]),
        ("nvme6_request", &[0, 0, 0, 0, 0x20, 0, 0x1F, 0]),
        ("iser4_request", &[0x80, 0, 0, 0]),
    ] {
        let captured = Captured::new(name);
        let (tid, Message::Req(req)) = captured.message() else {
            panic!("{name} is a request");
        };
        let ends = [captured.flow.local(), captured.flow.remote()].map(|end| end.ip().to_string());
        let ends = ends.each_ref().map(String::as_str);
        let mut pair = Pair::new(9, &EndpointConfig::default(), ends, MEMORY_BYTES);
        pair.ends[1].endpoint.listen(req.service());
        pair.inject_received(1, &captured.received());
        let Some(Event::Request(asked)) = pair.ends[1].events.pop() else {
            panic!("{name} is taken");
        };
        let header = IpCmHeader::read_from_prefix(&req.private_data).unwrap().0;
        assert_eq!(asked.addresses, header.addresses());
        assert_eq!(asked.service, req.service());
        assert_eq!(asked.path_mtu, PathMtu::B4096);
        assert_eq!(asked.responder_resources, 128);
        assert_eq!(asked.initiator_depth, req.initiator_depth);
        assert_eq!(asked.private_data.len(), 56);
        assert_eq!(asked.private_data[..private_data.len()], *private_data);
        let qpn = pair.accept(asked.id, config());
        let sent = messages(&pair.intercept(1));
        assert_eq!(sent[0].0, tid, "the request's transaction");
        let rep = replied(&[sent[0].1]);
        assert_eq!((rep.remote(), rep.local()), (req.local(), asked.id));
        assert_eq!(rep.qpn(), qpn);
        assert_eq!(rep.responder_resources, req.initiator_depth);
        assert_eq!(rep.rnr_retry_count(), 7);
        assert_ne!(rep.ca_guid.get(), 0);
        assert_eq!(&rep.private_data[..7], b"welcome");
        let rtu = Message::Rtu(Rtu::new(req.local(), asked.id));
        assert_eq!(ask(&mut pair, &rtu), []);
        let established = Event::Established { id: asked.id, qpn };
        assert_eq!(pair.ends[1].events, [established]);
        // We send from where the request says.
        let send = SendRequest {
            id: WorkId(0),
            op: SendOp::Send(inline(b"x")),
            signal: Signal::Always,
        };
        pair.ends[1].endpoint.post_send(qpn, send).unwrap();
        let sent = pair.intercept(1);
        let packet = Packet::parse(&sent[0].2).unwrap();
        assert_eq!(
            (packet.bth.psn(), packet.bth.dest()),
            (req.starting_psn(), req.qpn())
        );
    }
}

#[test]
fn a_reply_grants_what_both_ends_take() {
    let mut pair = pair();
    let req = request(&pair, 0x1234, 17);
    assert_eq!(ask(&mut pair, &Message::Req(req)), []);
    let id = pair.take_request().unwrap();
    let shallow = QpConfig {
        responder_resources: req.initiator_depth - 2,
        initiator_depth: 9,
        ..config()
    };
    pair.accept(id, shallow);
    let sent = messages(&pair.intercept(1));
    let rep = replied(&[sent[0].1]);
    assert_eq!((rep.responder_resources, rep.initiator_depth), (2, 9));
}

#[test]
fn requests_that_can_not_be_taken_are_rejected_with_their_reason() {
    let cases: [(RejReason, Change); 8] = [
        (RejReason::INVALID_SERVICE_ID, |r| {
            r.service_id = ServiceId::tcp(1).0.into();
        }),
        (RejReason::INVALID_MTU, |r| r.set_path_mtu(PathMtu::B4096)),
        (RejReason::INVALID_MTU, |r| r.mtu |= 0xF0),
        (RejReason::INVALID_TRANSPORT, |r| r.remote_timeout |= 2),
        (RejReason::INVALID_GID, |r| r.primary.local_gid.0[15] ^= 1),
        (RejReason::UNSUPPORTED, |r| r.private_data[0] = 1),
        (RejReason::UNSUPPORTED, |r| r.private_data[1] = 0x70),
        (RejReason::INVALID_GID, |r| r.private_data[19] ^= 1),
    ];
    let small = EndpointConfig {
        path_mtu_max: PathMtu::B2048,
        ..EndpointConfig::default()
    };
    let mut pair = Pair::new(9, &small, V6, MEMORY_BYTES);
    for (index, (reason, change)) in cases.into_iter().enumerate() {
        let mut req = request(&pair, 1, 17);
        change(&mut req);
        let answers = ask(&mut pair, &Message::Req(req));
        assert_eq!(rejection(&answers), reason, "case {index}");
    }
    assert!(pair.ends[1].events.is_empty());
    assert_eq!(pair.ends[1].endpoint.connections(), 0);
}

#[test]
fn a_consumers_rejection_carries_its_data() {
    let mut pair = pair();
    let (id, qpn) = pair.connect(config(), PathMtu::B1024);
    pair.run(SECOND, |p| !p.ends[1].events.is_empty());
    let asked = pair.take_request().unwrap();
    let endpoint = &mut pair.ends[1].endpoint;
    let long = endpoint.reject(asked, RejReason::CONSUMER, &[0; 149]);
    assert_eq!(long, Err(CmError::PrivateData { len: 149, max: 148 }));
    endpoint.reject(asked, RejReason::CONSUMER, b"no").unwrap();
    let gone = endpoint.reject(asked, RejReason::CONSUMER, b"no");
    assert_eq!(gone, Err(CmError::NoSuchConnection));
    pair.run(SECOND, |p| !p.ends[0].events.is_empty());
    let Event::Rejected {
        id: rejected,
        qpn: of,
        reason,
        private_data,
    } = &pair.ends[0].events[0]
    else {
        panic!("{:?}", pair.ends[0].events);
    };
    assert_eq!(
        (*rejected, *of, *reason),
        (id, Some(qpn), RejReason::CONSUMER)
    );
    assert_eq!(&private_data[..3], b"no\0");
    assert_eq!(state(&pair, 0, id), None);
    let endpoint = &mut pair.ends[0].endpoint;
    assert_eq!(endpoint.qp_state(qpn), Some(QpState::Error));
}

#[test]
fn duplicates_of_a_request_are_answered_by_what_has_become_of_it() {
    let mut pair = pair();
    let req = Message::Req(request(&pair, 5, 17));
    assert_eq!(ask(&mut pair, &req), []);
    let again = ask(&mut pair, &req);
    assert!(matches!(again[..], [Message::Mra(_)]), "{again:?}");
    let id = pair.take_request().unwrap();
    assert_eq!(pair.take_request(), None, "one request, one event");
    let qpn = pair.accept(id, config());
    let first = replied(
        &messages(&pair.intercept(1))
            .iter()
            .map(|m| m.1)
            .collect::<Vec<_>>(),
    );
    assert_eq!(replied(&ask(&mut pair, &req)), first);
    ask(&mut pair, &Message::Rtu(Rtu::new(CommId(5), id)));
    assert_eq!(ask(&mut pair, &req), [], "established");
    let dreq = Message::Dreq(Dreq::new(CommId(5), id, qpn));
    let answer = ask(&mut pair, &dreq);
    assert!(matches!(answer[..], [Message::Drep(_)]), "{answer:?}");
    let late = ask(&mut pair, &req);
    assert_eq!(rejection(&late), RejReason::STALE_CONNECTION, "time-wait");
    let again = ask(&mut pair, &dreq);
    assert!(matches!(again[..], [Message::Drep(_)]), "time-wait answers");
    pair.run(3 * SECOND, |_| false);
    assert_eq!(state(&pair, 1, id), None);
    let unknown = ask(&mut pair, &dreq);
    assert!(matches!(unknown[..], [Message::Drep(_)]), "forgotten");
    assert_eq!(ask(&mut pair, &req), [], "a new request");
}

#[test]
fn a_reply_is_repeated_until_it_is_given_up() {
    let mut pair = pair();
    let req = Message::Req(request(&pair, 5, 17));
    ask(&mut pair, &req);
    let id = pair.take_request().unwrap();
    let qpn = pair.accept(id, config());
    pair.faults.loss = 100;
    let start = pair.now;
    let given_up = pair.run(100 * SECOND, |p| !p.ends[1].events.is_empty());
    assert!(given_up);
    // 2^20 * 4.096 us, eight times.
    assert_eq!((pair.now - start).as_secs(), 34);
    let unreachable = Event::Unreachable { id, qpn: Some(qpn) };
    assert_eq!(pair.ends[1].events, [unreachable]);
    assert_eq!(pair.ends[1].endpoint.connections(), 0);
    let endpoint = &mut pair.ends[1].endpoint;
    assert_eq!(endpoint.qp_state(qpn), Some(QpState::Error));
}

#[test]
fn a_peer_that_does_not_answer_is_unreachable() {
    let mut pair = pair();
    pair.faults.loss = 100;
    let (id, qpn) = pair.connect(config(), PathMtu::B1024);
    assert!(pair.run(20 * SECOND, |p| !p.ends[0].events.is_empty()));
    let unreachable = Event::Unreachable { id, qpn: Some(qpn) };
    assert_eq!(pair.ends[0].events, [unreachable]);
    assert_eq!(state(&pair, 0, id), None);
}

#[test]
fn a_first_packet_acknowledges_a_lost_reply() {
    let mut pair = pair();
    let (_, client) = pair.connect(config(), PathMtu::B1024);
    pair.run(SECOND, |p| !p.ends[1].events.is_empty());
    let id = pair.take_request().unwrap();
    let server = pair.accept(id, config());
    for (_, _, reply) in pair.intercept(1) {
        pair.inject(0, &reply);
    }
    let rtu = pair.intercept(0);
    assert!(matches!(messages(&rtu)[..], [(_, Message::Rtu(_))]));
    assert!(pair.ends[1].events.is_empty());
    let send = SendRequest {
        id: WorkId(0),
        op: SendOp::Send(inline(b"x")),
        signal: Signal::Always,
    };
    pair.ends[0].endpoint.post_send(client, send).unwrap();
    for (_, _, packet) in pair.intercept(0) {
        pair.inject(1, &packet);
    }
    assert_eq!(
        pair.ends[1].events,
        [Event::Established { id, qpn: server }]
    );
    for (_, _, late) in rtu {
        pair.inject(1, &late);
    }
    assert_eq!(pair.ends[1].events.len(), 1);
}

#[test]
fn a_restarted_peer_replaces_its_stale_connection() {
    let mut pair = pair();
    let old = Message::Req(request(&pair, 5, 17));
    ask(&mut pair, &old);
    let id = pair.take_request().unwrap();
    let qpn = pair.accept(id, config());
    pair.intercept(1);
    ask(&mut pair, &Message::Rtu(Rtu::new(CommId(5), id)));
    let new = Message::Req(request(&pair, 6, 17));
    let datagram = forge::message(&pair.flow(0), 77, &new);
    pair.inject(1, &datagram);
    let answers = messages(&pair.intercept(1));
    let [(77, Message::Rej(rej)), (_, Message::Dreq(dreq))] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(rej.reason(), RejReason::STALE_CONNECTION);
    assert_eq!((dreq.local(), dreq.remote()), (id, CommId(5)));
    assert_eq!(dreq.remote_qpn(), Qpn::new(17));
    pair.ends[1].events.clear();
    assert!(pair.run(30 * SECOND, |p| !p.ends[1].events.is_empty()));
    assert_eq!(pair.ends[1].events, [Event::Disconnected { id, qpn }]);
    pair.run(3 * SECOND, |_| false);
    assert_eq!(
        ask(&mut pair, &new),
        [],
        "taken once the old one is forgotten"
    );
}

#[test]
fn either_end_disconnects_and_both_learn_of_it() {
    for closer in 0..2 {
        let mut pair = pair();
        let ends = pair.connected([config(); 2], PathMtu::B1024);
        pair.run(SECOND, |_| false);
        pair.ends[1].events.clear();
        let (id, qpn) = ends[closer];
        let now = pair.now;
        pair.ends[closer].endpoint.disconnect(now, id).unwrap();
        let endpoint = &mut pair.ends[closer].endpoint;
        assert_eq!(endpoint.qp_state(qpn), Some(QpState::Error));
        let twice = endpoint.disconnect(now, id);
        assert_eq!(twice, Err(CmError::State(CmState::DreqSent)));
        pair.run(SECOND, |_| false);
        for (end, (id, qpn)) in pair.ends.iter_mut().zip(ends) {
            assert_eq!(end.events, [Event::Disconnected { id, qpn }]);
            assert_eq!(end.endpoint.qp_state(qpn), Some(QpState::Error));
            assert_eq!(end.endpoint.connections(), 0);
        }
    }
}

#[test]
fn both_ends_may_disconnect_at_once() {
    let mut pair = pair();
    let ends = pair.connected([config(); 2], PathMtu::B1024);
    pair.run(SECOND, |_| false);
    let now = pair.now;
    for (end, (id, _)) in pair.ends.iter_mut().zip(ends) {
        end.endpoint.disconnect(now, id).unwrap();
    }
    pair.run(5 * SECOND, |_| false);
    for (end, (id, _)) in pair.ends.iter().zip(ends) {
        assert_eq!(end.endpoint.connection_state(id), None);
        let ended = |e: &&Event| matches!(e, Event::Disconnected { .. });
        assert_eq!(end.events.iter().filter(ended).count(), 1);
    }
}

#[test]
fn forged_messages_of_other_addresses_change_nothing() {
    let mut pair = pair();
    let ends = pair.connected([config(); 2], PathMtu::B1024);
    pair.run(SECOND, |_| false);
    let [(client, _), (server, server_qpn)] = ends;
    let stranger: Flow = Flow::new(
        "[fd09::66]:4791".parse().unwrap(),
        "[fd09::2]:4791".parse().unwrap(),
    )
    .unwrap();
    let forged = [
        Message::Dreq(Dreq::new(client, server, server_qpn)),
        Message::Rtu(Rtu::new(client, server)),
        Message::Rej(Rej::new(
            client,
            server,
            RejectedMessage::Rep,
            RejReason::CONSUMER,
            &[],
        )),
    ];
    for message in &forged {
        let bytes = forge::message(&stranger, 1, message);
        let received = Received {
            flow: stranger,
            bytes: &bytes,
            segment_len_bytes: None,
            identification: Ipv4Identification::Unknown,
            congestion_experienced: false,
        };
        pair.inject_received(1, &received);
    }
    assert_eq!(state(&pair, 1, server), Some(CmState::Established));
    assert_eq!(pair.ends[1].endpoint.counters().cm.unmatched, 3);
    // The right address, but a wrong queue pair or identifier.
    for (local, qpn) in [(client, Qpn::new(3)), (CommId(client.0 ^ 1), server_qpn)] {
        let dreq = Message::Dreq(Dreq::new(local, server, qpn));
        assert_eq!(ask(&mut pair, &dreq), []);
    }
    assert_eq!(state(&pair, 1, server), Some(CmState::Established));
}

#[test]
fn a_reply_to_nothing_is_rejected() {
    let mut pair = pair();
    let mut rep = Rep::read_from_bytes(&[0; 232]).unwrap();
    rep.remote_comm_id = 99.into();
    let answers = ask(&mut pair, &Message::Rep(rep));
    assert_eq!(rejection(&answers), RejReason::INVALID_COMM_ID);
}

#[test]
fn floods_of_requests_are_bounded_and_pass() {
    let limits = CmLimits {
        half_open_max: 20,
        half_open_per_peer_max: 8,
        ..CmLimits::default()
    };
    let config = EndpointConfig {
        cm: limits,
        ..EndpointConfig::default()
    };
    let mut pair = Pair::new(9, &config, V6, MEMORY_BYTES);
    let mut refused = 0;
    for attempt in 0..2000u32 {
        let req = Message::Req(request(&pair, 1000 + attempt, 100 + attempt));
        if let [Message::Rej(rej)] = ask(&mut pair, &req)[..] {
            assert_eq!(rej.reason(), RejReason::NO_RESOURCES);
            refused += 1;
        }
    }
    assert_eq!(refused, 2000 - 8);
    assert_eq!(
        pair.ends[1].endpoint.counters().cm.refused_by_limit,
        refused
    );
    assert_eq!(pair.ends[1].endpoint.connections(), 8);
    // These requests are not answered, so they are dropped and others are accepted.
    pair.run(31 * SECOND, |_| false);
    assert_eq!(pair.ends[1].endpoint.connections(), 0);
    let req = Message::Req(request(&pair, 1, 50));
    assert_eq!(ask(&mut pair, &req), []);
}

#[test]
fn floods_from_many_networks_are_bounded_in_total() {
    let limits = CmLimits {
        half_open_max: 20,
        half_open_per_peer_max: 8,
        ..CmLimits::default()
    };
    let config = EndpointConfig {
        cm: limits,
        ..EndpointConfig::default()
    };
    let mut pair = Pair::new(9, &config, V6, MEMORY_BYTES);
    for network in 0..100u16 {
        for host in 0..3u16 {
            let ip = std::net::Ipv6Addr::new(0xFD77, 0, 0, network, 0, 0, 0, host);
            pair.ends[0].address = ip.into();
            let req = Message::Req(request(&pair, 7, 100));
            let datagram = forge::message(&pair.flow(0), 77, &req);
            pair.inject(1, &datagram);
            pair.intercept(1);
        }
    }
    assert_eq!(pair.ends[1].endpoint.connections(), 20);
}

#[test]
fn the_oldest_half_open_connection_of_the_greediest_network_makes_room() {
    let limits = CmLimits {
        half_open_max: 20,
        half_open_per_peer_max: 8,
        ..CmLimits::default()
    };
    let config_of_end = EndpointConfig {
        cm: limits,
        ..EndpointConfig::default()
    };
    let mut pair = Pair::new(9, &config_of_end, V6, MEMORY_BYTES);
    let mut ask_from = |network: u16, number: u32| {
        let ip = std::net::Ipv6Addr::new(0xFD77, 0, 0, network, 0, 0, 0, 1);
        pair.ends[0].address = ip.into();
        let req = Message::Req(request(&pair, number, number));
        let datagram = forge::message(&pair.flow(0), 77, &req);
        pair.inject(1, &datagram);
        pair.intercept(1);
        let id = pair.take_request();
        let qpn = id.map(|id| pair.accept(id, config()));
        pair.intercept(1);
        let unreachable = |event| match event {
            Event::Unreachable { qpn, .. } => qpn,
            _ => None,
        };
        let events = std::mem::take(&mut pair.ends[1].events);
        let evicted: Vec<_> = events.into_iter().filter_map(unreachable).collect();
        (qpn, evicted)
    };
    // Three networks have 7, 7 and 6 of the 20; then strangers come from a fourth.
    let mut asked = Vec::new();
    for number in 0..20 {
        let (qpn, evicted) = ask_from(number as u16 % 3, 100 + number);
        assert_eq!(evicted, []);
        asked.push(qpn.expect("there is room"));
    }
    // The order in which the networks have most.
    for (number, oldest) in [0, 1, 2, 3, 4, 5].into_iter().enumerate() {
        let (qpn, evicted) = ask_from(3, 200 + number as u32);
        assert_eq!((qpn.is_some(), evicted), (true, vec![asked[oldest]]));
    }
    assert_eq!(pair.ends[1].endpoint.connections(), 20);
}

#[test]
fn unanswered_messages_do_not_pile_up() {
    let mut pair = pair();
    for attempt in 0..5000u32 {
        let mut req = request(&pair, attempt, 100);
        req.service_id = 1.into();
        let datagram = forge::message(&pair.flow(0), 77, &Message::Req(req));
        pair.inject(1, &datagram);
    }
    let answers = pair.intercept(1);
    assert_eq!(answers.len(), 512);
    assert_eq!(pair.ends[1].endpoint.counters().cm.outbox_full, 5000 - 512);
}

/// In both cases 28 % of datagrams do not arrive whole. Where 36 % do not, some connection of a few
/// hundred uses all eight tries of a message up, and its peer is unreachable, or never learns of
/// the end.
#[test]
fn connections_survive_a_lossy_network_and_leave_nothing() {
    for (loss, corruption) in [(20, 10), (10, 20)] {
        connect_and_disconnect(Faults {
            loss,
            duplication: 20,
            corruption,
            reordering: 20,
            delay: 20,
        });
    }
}

fn connect_and_disconnect(faults: Faults) {
    let config = EndpointConfig {
        qps_max: 8,
        ..EndpointConfig::default()
    };
    let mut pair = Pair::new(4, &config, V4, MEMORY_BYTES);
    pair.faults = faults;
    let limit = Duration::from_secs(120);
    for round in 0..300 {
        let ends = pair.connected([self::config(); 2], PathMtu::B1024);
        let closer = round % 2;
        let now = pair.now;
        let (id, _) = ends[closer];
        pair.ends[closer].endpoint.disconnect(now, id).unwrap();
        let both_know = pair.run(limit, |pair| {
            let ended = |e: &Event| matches!(e, Event::Disconnected { .. });
            pair.ends.iter().all(|end| end.events.iter().any(ended))
        });
        assert!(
            both_know,
            "round {round}: {:?}",
            pair.ends.each_ref().map(|e| &e.events)
        );
        let now = pair.now;
        for (end, (_, qpn)) in pair.ends.iter_mut().zip(ends) {
            end.endpoint.destroy_qp(now, qpn);
            end.events.clear();
        }
    }
    pair.run(limit, |_| false);
    for end in &pair.ends {
        assert_eq!(end.endpoint.connections(), 0);
        assert_eq!(end.endpoint.poll_timeout(), None);
    }
}

#[test]
fn queue_pairs_are_connected_once() {
    let mut pair = pair();
    let (_, qpn) = pair.connect(config(), PathMtu::B1024);
    let flow = pair.flow(0);
    let params = ConnectParams {
        flow,
        service: Pair::SERVICE,
        path_mtu: PathMtu::B1024,
        private_data: &[0; 57],
    };
    let now = pair.now;
    let end = &mut pair.ends[0];
    let twice = end.endpoint.connect(now, qpn, &params, &mut end.memory);
    assert_eq!(twice, Err(CmError::QueuePair));
    let other = end.endpoint.create_qp(config()).unwrap();
    let long = end.endpoint.connect(now, other, &params, &mut end.memory);
    assert_eq!(long, Err(CmError::PrivateData { len: 57, max: 56 }));
    let unknown = end
        .endpoint
        .accept(now, CommId(1), other, &[], &mut end.memory);
    assert_eq!(unknown, Err(CmError::NoSuchConnection));
}

#[test]
fn a_queue_pair_that_is_destroyed_ends_its_connection() {
    let mut pair = pair();
    let [(_, client), (server, server_qpn)] = pair.connected([config(); 2], PathMtu::B1024);
    pair.run(SECOND, |_| false);
    pair.ends[1].events.clear();
    let now = pair.now;
    pair.ends[0].endpoint.destroy_qp(now, client);
    pair.run(SECOND, |_| false);
    let ended = Event::Disconnected {
        id: server,
        qpn: server_qpn,
    };
    assert_eq!(pair.ends[1].events, [ended]);
}

#[test]
fn a_failed_queue_pair_says_why_and_of_which_connection() {
    let mut both = Connected::new(PathMtu::B1024);
    let remote = Remote {
        va: 0,
        rkey: Rkey(1),
    };
    both.post(0, 1, SendOp::Write(inline(b"x"), remote));
    both.complete(0, 1);
    let (failures, qpns): (Vec<QpFailure>, Vec<Qpn>) = both
        .pair
        .ends
        .iter()
        .flat_map(|end| &end.events)
        .filter_map(|event| match event {
            Event::QpFailed {
                qpn,
                id: Some(_),
                failure,
            } => Some((*failure, *qpn)),
            _ => None,
        })
        .unzip();
    assert_eq!(qpns, both.qpns);
    assert_eq!(
        failures,
        [
            QpFailure::Request(WorkStatus::RemoteAccess),
            QpFailure::Responder(crate::wire::NakCode::RemoteAccessError)
        ]
    );
}
