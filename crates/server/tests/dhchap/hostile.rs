//! Peers that do not authenticate as they should, over sockets.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};

use block::testing::assert_not_delayed;

use crate::crowd::{HALF_OPEN_MAX, assert_bounded, open_of};
use crate::raw_host::{AUTHENTICATION_REQUIRED, Answer, Raw, fabrics};
use crate::sockets::is_open;

use super::*;

const FCTYPE_PROPERTY_GET: u8 = 0x04;
/// AUTH_Failure1: AUTH_TYPE and AUTH_ID.
const FAILURE_1: [u8; 2] = [0x00, 0xF1];
const INCORRECT_PAYLOAD: u8 = 6;
const MESSAGE_BYTES: u32 = 4096;

impl Answer {
    /// An error, the end, or AUTH_Failure1 in place of the next message.
    fn is_rejection(&self) -> bool {
        match self {
            Self::Done(0, message) => message.starts_with(&FAILURE_1),
            Self::Done(..) | Self::Ended => true,
        }
    }
}

impl Raw {
    /// After ICReq and Connect as HOST, whose response requires authentication.
    pub(super) fn connected(portal: &PortalDefinition) -> Self {
        let mut raw = Self::plain(portal.address);
        let (status, dw0) = raw.connect(NQN, HOST);
        assert_eq!(status, 0);
        assert_ne!(dw0 & AUTHENTICATION_REQUIRED, 0, "{dw0:#x}");
        raw
    }

    /// Whether the host can use the controller: Property Get of its capabilities.
    pub(super) fn is_admitted(&mut self) -> bool {
        let mut sqe = fabrics(FCTYPE_PROPERTY_GET);
        sqe[40] = 1;
        self.command(sqe, &[]);
        matches!(self.data(), Answer::Done(0, _))
    }
}

/// AUTH_Negotiate with DH-HMAC-CHAP, SHA-256 and no group.
fn negotiate() -> Vec<u8> {
    let mut message = vec![0, 0, 0, 0, 7, 0, 0, 1];
    let mut descriptor = [0; 64];
    // AuthID, HALEN, DHLEN, then the lists of 30 each.
    (descriptor[0], descriptor[2], descriptor[3]) = (1, 1, 1);
    (descriptor[4], descriptor[34]) = (1, 0);
    message.extend(descriptor);
    message
}

/// DHCHAP_Reply with a response of 32 bytes that is wrong.
fn reply() -> Vec<u8> {
    let mut message = vec![1, 2, 0, 0, 7, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    message.extend([0x5A; 64]);
    message
}

/// DHCHAP_Success2.
fn success_2() -> Vec<u8> {
    let mut message = vec![1, 4, 0, 0, 7, 0];
    message.resize(16, 0);
    message
}

pub(super) fn portal_that_requires_proof(fixture: &Fixture) -> PortalDefinition {
    let required = PortalDefinition {
        auth: PortalAuth::Required,
        ..fixture::portal(Transport::NvmeTcp, ([127, 0, 0, 1], 0))
    };
    fixture.server.add_portal(required).expect("a portal")
}

fn len_of(message: &[u8]) -> u32 {
    u32::try_from(message.len()).expect("a short message")
}

#[test]
fn what_the_raw_host_sends_is_understood() {
    let fixture = Fixture::new(None, DhGroupPolicy::NoGroup);
    let mut raw = Raw::connected(&portal_that_requires_proof(&fixture));
    let message = negotiate();
    assert_eq!(
        raw.send(&message, len_of(&message)),
        Answer::Done(0, Vec::new())
    );
    let Answer::Done(0, challenge) = raw.receive(MESSAGE_BYTES) else {
        panic!("no challenge");
    };
    // DHCHAP_Challenge of transaction 7.
    assert_eq!(challenge[..6], [1, 1, 0, 0, 7, 0], "{challenge:?}");
}

#[test]
fn messages_that_are_cut_too_long_or_out_of_order_end_that_connection_alone() {
    let fixture = Fixture::new(None, DhGroupPolicy::NoGroup);
    let portal = portal_that_requires_proof(&fixture);
    let secrets = fixture.secrets(HOST_SECRET, CTRL_SECRET);
    let (_device, mut queue) = fixture.attach(&secrets);
    let whole = negotiate();
    let mut cases: Vec<(String, Vec<u8>)> = Vec::new();
    for len in [1, 4, 7, 8, 9, whole.len() - 1] {
        cases.push((format!("the first {len} bytes"), whole[..len].to_vec()));
    }
    let mut many = whole.clone();
    many[7] = 0xFF;
    cases.push(("255 protocols are announced".to_owned(), many));
    let twice = [&whole[..], &whole[8..]].concat();
    cases.push(("more protocols than are announced".to_owned(), twice));
    let mut long = whole.clone();
    (long[10], long[11]) = (0xFF, 0xFF);
    cases.push(("lists that are longer than their room".to_owned(), long));
    let mut padded = whole.clone();
    padded.resize(8192, 0xA5);
    cases.push(("8192 bytes".to_owned(), padded));
    cases.push(("a reply first".to_owned(), reply()));
    cases.push(("the end first".to_owned(), success_2()));
    cases.push(("another type".to_owned(), vec![0xFF; 72]));
    for (name, message) in cases {
        let mut raw = Raw::connected(&portal);
        if raw.send(&message, len_of(&message)) != Answer::Ended {
            let answer = raw.receive(MESSAGE_BYTES);
            assert!(answer.is_rejection(), "{name}: {answer:?}");
            if name.contains("announced") {
                let Answer::Done(0, message) = answer else {
                    panic!("{name}: {answer:?}");
                };
                assert_eq!(message[7], INCORRECT_PAYLOAD, "{name}");
            }
        }
        assert!(!raw.is_admitted(), "{name}");
        read(&mut queue).expect("another host goes on");
    }
    let started = Instant::now();
    while fixture.server.sessions().len() > 1 {
        assert!(started.elapsed() < PATIENCE, "a connection stays");
    }
}

#[test]
fn commands_without_and_amid_authentication_are_rejected() {
    let fixture = Fixture::new(None, DhGroupPolicy::NoGroup);
    let portal = portal_that_requires_proof(&fixture);
    let message = negotiate();
    // Nothing but authentication.
    let mut raw = Raw::connected(&portal);
    assert!(!raw.is_admitted());
    // A message is asked for that does not exist yet.
    let mut raw = Raw::connected(&portal);
    let answer = raw.receive(MESSAGE_BYTES);
    assert!(answer.is_rejection(), "{answer:?}");
    assert!(!raw.is_admitted());
    // Less room than the challenge has.
    let mut raw = Raw::connected(&portal);
    raw.send(&message, len_of(&message));
    let answer = raw.receive(8);
    assert!(answer.is_rejection(), "{answer:?}");
    assert!(!raw.is_admitted());
    // The challenge twice, a reply that is wrong, and the end without a success.
    let mut raw = Raw::connected(&portal);
    raw.send(&message, len_of(&message));
    raw.receive(MESSAGE_BYTES);
    raw.send(&reply(), len_of(&reply()));
    raw.receive(MESSAGE_BYTES);
    raw.send(&success_2(), len_of(&success_2()));
    assert!(!raw.is_admitted());
    // A length of which less is sent than announced.
    let mut raw = Raw::connected(&portal);
    raw.send(&message, u32::MAX);
    assert!(!raw.is_admitted());
    assert_eq!(
        fixture.try_tcp(&fixture.secrets(HOST_SECRET, CTRL_SECRET)),
        Ok(())
    );
}

/// What one connection is charged, at most.
const CONNECTION_BYTES: u64 = 192 << 10;

#[test]
fn a_thousand_half_open_connections_are_bounded_and_end_and_slow_no_one() {
    let fixture = Fixture::alone(None, DhGroupPolicy::NoGroup);
    let portal = portal_that_requires_proof(&fixture);
    let secrets = fixture.secrets(HOST_SECRET, CTRL_SECRET);
    let (_device, mut queue) = fixture.attach(&secrets);
    let begin = |at: usize| {
        // Some of those that are not refused are in the middle of an authentication.
        if at < HALF_OPEN_MAX / 2 && at.is_multiple_of(8) {
            let mut raw = Raw::plain(portal.address);
            if raw.connect(NQN, HOST).0 == 0 {
                raw.send(&negotiate(), len_of(&negotiate()));
            }
            return raw.stream;
        }
        let mut stream = TcpStream::connect(portal.address).expect("connects");
        // Nothing, or a part of an ICReq.
        let icreq = [0, 0, 128, 0, 128, 0, 0, 0];
        let _ = stream.write_all(&icreq[..at % 2 * 8]);
        stream
    };
    let mut probe = || read(&mut queue).expect("another host goes on");
    let bounds = (CONNECTION_BYTES, 2 * PATIENCE);
    let reads = assert_bounded(&fixture.server, bounds, begin, &mut probe);
    assert_not_delayed(&reads, probe);
    let options = fixture.secrets(HOST_SECRET, CTRL_SECRET);
    assert_eq!(Fixture::try_portal(&fixture.tcp, &options), Ok(()));
}

/// Hosts that connect and then send nothing. The server admits one more of their address.
const SILENT: usize = 15;

#[test]
fn a_host_that_connects_and_proves_nothing_is_disconnected_in_time() {
    let fixture = Fixture::new(None, DhGroupPolicy::NoGroup);
    let portal = portal_that_requires_proof(&fixture);
    let silent: Vec<_> = (0..SILENT).map(|_| Raw::connected(&portal)).collect();
    let started = Instant::now();
    let secrets = fixture.secrets(HOST_SECRET, CTRL_SECRET);
    assert_eq!(fixture.try_tcp(&secrets), Ok(()));
    while silent.iter().any(|raw| is_open(&raw.stream)) {
        assert!(started.elapsed() < 2 * PATIENCE, "silent hosts stay");
    }
}

/// How long a login may take.
const LOGIN_MAX: Duration = Duration::from_secs(10);

/// How many more connections an address may begin: all are begun, and dropped.
fn room_at(address: SocketAddr) -> usize {
    let connect = |_| TcpStream::connect(address).expect("the portal listens");
    let crowd: Vec<_> = (0..=HALF_OPEN_MAX).map(connect).collect();
    let started = Instant::now();
    let mut open = crowd.len();
    loop {
        // They are accepted in order, so all refusals are there once no more come.
        std::thread::sleep(Duration::from_millis(100));
        let now = open_of(&crowd);
        if now == open && now < crowd.len() {
            return now;
        }
        open = now;
        assert!(started.elapsed() < LOGIN_MAX / 2, "none is refused");
    }
}

#[test]
fn a_slow_host_may_authenticate_after_the_time_of_logins_and_is_half_open_until_then() {
    let group = DhGroupPolicy::Only(DhGroup::Ffdhe8192);
    let fixture = Fixture::new(Some(DhChapHash::Sha512), group);
    let portal = portal_that_requires_proof(&fixture);
    let mut raw = Raw::connected(&portal);
    let connected = Instant::now();
    let mut auth = prover(HOST_SECRET);
    assert_eq!(raw.step(&mut auth), None);
    assert_eq!(room_at(portal.address), HALF_OPEN_MAX - 1);
    std::thread::sleep((LOGIN_MAX + LOGIN_MAX / 10).saturating_sub(connected.elapsed()));
    assert_eq!(raw.authenticate(&mut auth), AuthStep::Done);
    assert!(raw.is_admitted());
    // Its place among the half-open ones is free again.
    while room_at(portal.address) < HALF_OPEN_MAX {
        assert!(connected.elapsed() < 2 * PATIENCE, "it counts still");
    }
    assert!(raw.is_admitted());
}
