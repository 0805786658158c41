//! Peers that do not authenticate as they should, over sockets.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use super::*;

const OPCODE_FABRICS: u8 = 0x7F;
const OPCODE_IDENTIFY: u8 = 0x06;
const FCTYPE_CONNECT: u8 = 0x01;
const FCTYPE_AUTHENTICATION_SEND: u8 = 0x05;
const FCTYPE_AUTHENTICATION_RECEIVE: u8 = 0x06;
const PDU_COMMAND: u8 = 0x04;
const PDU_RESPONSE: u8 = 0x05;
const PDU_DATA: u8 = 0x07;
/// AUTH_Failure1: AUTH_TYPE and AUTH_ID.
const FAILURE_1: [u8; 2] = [0x00, 0xF1];
const MESSAGE_BYTES: u32 = 4096;

/// A host that sends what it likes.
struct Raw(TcpStream);

/// What a command was answered.
#[derive(Debug, PartialEq)]
enum Answer {
    /// The status field, and data.
    Done(u16, Vec<u8>),
    /// The connection has ended.
    Ended,
}

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
    /// After ICReq and Connect as HOST, which is told to authenticate.
    fn connect(portal: &PortalDefinition) -> Self {
        let mut raw = Self::half(portal.address);
        let mut connect = [0; 1024];
        connect[16..18].fill(0xFF);
        connect[256..256 + NQN.len()].copy_from_slice(NQN.as_bytes());
        connect[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
        let mut sqe = fabrics(FCTYPE_CONNECT);
        // SQSIZE, 0's based.
        sqe[44] = 31;
        raw.command(sqe, &connect);
        let (status, dw0) = raw.response().expect("an answer to Connect");
        assert_eq!(status, 0);
        assert_ne!(dw0 >> 17, 0, "authentication is required: {dw0:#x}");
        raw
    }

    /// After ICReq alone.
    fn half(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.set_write_timeout(Some(PATIENCE)).expect("set");
        let mut icreq = [0; 128];
        icreq[2] = 128;
        icreq[4] = 128;
        stream.write_all(&icreq).expect("sent");
        let mut icresp = [0; 128];
        stream.read_exact(&mut icresp).expect("ICResp");
        assert_eq!(icresp[0], 1);
        Self(stream)
    }

    /// Sends a command with data in its capsule.
    fn command(&mut self, mut sqe: [u8; 64], data: &[u8]) {
        let len_bytes = u32::try_from(data.len()).expect("a small command");
        let data_offset = if data.is_empty() { 0 } else { 72 };
        let mut pdu = vec![PDU_COMMAND, 0, 72, data_offset];
        pdu.extend((72 + len_bytes).to_le_bytes());
        if !data.is_empty() {
            // In-capsule data: offset 0.
            sqe[32..36].copy_from_slice(&len_bytes.to_le_bytes());
            sqe[39] = 0x01;
        }
        pdu.extend(sqe);
        pdu.extend(data);
        // The other end may have closed the connection.
        let _ = self.0.write_all(&pdu);
    }

    /// The status of the next response, without its phase tag, and double word 0. `None` if the connection has ended.
    fn response(&mut self) -> Option<(u16, u32)> {
        match self.answer()? {
            (PDU_RESPONSE, pdu) => Some(status_of(&pdu)),
            (kind, _) => panic!("a PDU of type {kind}"),
        }
    }

    fn answer(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut header = [0; 8];
        if let Err(error) = self.0.read_exact(&mut header) {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "no answer");
            return None;
        }
        let len_bytes = u32::from_le_bytes(header[4..8].try_into().expect("4 bytes"));
        assert!(len_bytes <= 1 << 16, "{header:?}");
        let mut rest = vec![0; len_bytes as usize - 8];
        self.0.read_exact(&mut rest).ok()?;
        Some((header[0], rest))
    }

    /// Sends an authentication message, `transfer_bytes` of which are announced.
    fn send(&mut self, message: &[u8], transfer_bytes: u32) -> Answer {
        let mut sqe = authentication(FCTYPE_AUTHENTICATION_SEND, transfer_bytes);
        sqe[2] = 1;
        self.command(sqe, message);
        match self.response() {
            Some((status, _)) => Answer::Done(status, Vec::new()),
            None => Answer::Ended,
        }
    }

    /// Asks for the next authentication message.
    fn receive(&mut self, allocation_bytes: u32) -> Answer {
        let mut sqe = authentication(FCTYPE_AUTHENTICATION_RECEIVE, allocation_bytes);
        sqe[32..36].copy_from_slice(&allocation_bytes.to_le_bytes());
        sqe[39] = 0x5A;
        self.command(sqe, &[]);
        let mut data = Vec::new();
        loop {
            match self.answer() {
                // C2HData: CCCID, reserved, DATAO, DATAL, reserved, then the data.
                Some((PDU_DATA, pdu)) => data.extend_from_slice(&pdu[16..]),
                Some((_, pdu)) => return Answer::Done(status_of(&pdu).0, data),
                None => return Answer::Ended,
            }
        }
    }

    /// Whether the host can use the controller.
    fn is_admitted(&mut self) -> bool {
        let mut sqe = [0; 64];
        (sqe[0], sqe[1], sqe[40]) = (OPCODE_IDENTIFY, 0x40, 1);
        sqe[32..36].copy_from_slice(&4096_u32.to_le_bytes());
        sqe[39] = 0x5A;
        self.command(sqe, &[]);
        match self.answer() {
            Some((PDU_RESPONSE, pdu)) => status_of(&pdu).0 == 0,
            Some(_) => true,
            None => false,
        }
    }
}

fn fabrics(fctype: u8) -> [u8; 64] {
    let mut sqe = [0; 64];
    (sqe[0], sqe[1], sqe[4]) = (OPCODE_FABRICS, 0x40, fctype);
    sqe
}

/// Authentication Send or Receive: SPSP0, SPSP1, SECP, and the transfer or allocation length.
fn authentication(fctype: u8, len_bytes: u32) -> [u8; 64] {
    let mut sqe = fabrics(fctype);
    (sqe[41], sqe[42], sqe[43]) = (1, 1, 0xE9);
    sqe[44..48].copy_from_slice(&len_bytes.to_le_bytes());
    sqe
}

/// Status and double word 0 of the completion at the start of a response's body.
fn status_of(pdu: &[u8]) -> (u16, u32) {
    let status = u16::from_le_bytes([pdu[14], pdu[15]]) >> 1;
    let dw0 = u32::from_le_bytes([pdu[0], pdu[1], pdu[2], pdu[3]]);
    (status, dw0)
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

fn portal_that_requires_proof(fixture: &Fixture) -> PortalDefinition {
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
    let mut raw = Raw::connect(&portal_that_requires_proof(&fixture));
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

/// What may be ignored: the first protocol is all that is read, and the host has to prove its secret still.
const IGNORED: [&str; 2] = ["255 protocols are announced", "8192 bytes"];

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
    cases.push((IGNORED[0].to_owned(), many));
    let mut long = whole.clone();
    (long[10], long[11]) = (0xFF, 0xFF);
    cases.push(("lists that are longer than their room".to_owned(), long));
    let mut padded = whole.clone();
    padded.resize(8192, 0xA5);
    cases.push((IGNORED[1].to_owned(), padded));
    cases.push(("a reply first".to_owned(), reply()));
    cases.push(("the end first".to_owned(), success_2()));
    cases.push(("another type".to_owned(), vec![0xFF; 72]));
    for (name, message) in cases {
        let mut raw = Raw::connect(&portal);
        if raw.send(&message, len_of(&message)) != Answer::Ended && !IGNORED.contains(&&*name) {
            let answer = raw.receive(MESSAGE_BYTES);
            assert!(answer.is_rejection(), "{name}: {answer:?}");
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
    let mut raw = Raw::connect(&portal);
    assert!(!raw.is_admitted());
    // A message is asked for that does not exist yet.
    let mut raw = Raw::connect(&portal);
    let answer = raw.receive(MESSAGE_BYTES);
    assert!(answer.is_rejection(), "{answer:?}");
    assert!(!raw.is_admitted());
    // Less room than the challenge has.
    let mut raw = Raw::connect(&portal);
    raw.send(&message, len_of(&message));
    let answer = raw.receive(8);
    assert!(answer.is_rejection(), "{answer:?}");
    assert!(!raw.is_admitted());
    // The challenge twice, a reply that is wrong, and the end without a success.
    let mut raw = Raw::connect(&portal);
    raw.send(&message, len_of(&message));
    raw.receive(MESSAGE_BYTES);
    raw.send(&reply(), len_of(&reply()));
    raw.receive(MESSAGE_BYTES);
    raw.send(&success_2(), len_of(&success_2()));
    assert!(!raw.is_admitted());
    // A length of which less is sent than announced.
    let mut raw = Raw::connect(&portal);
    raw.send(&message, u32::MAX);
    assert!(!raw.is_admitted());
    assert_eq!(
        fixture.try_tcp(&fixture.secrets(HOST_SECRET, CTRL_SECRET)),
        Ok(())
    );
}

/// Connections of strangers.
const CROWD: usize = 1000;
/// The most of them at a time, all being of one address.
const HALF_OPEN_MAX: usize = 512;

#[test]
fn a_thousand_half_open_connections_are_bounded_and_end_and_slow_no_one() {
    let fixture = Fixture::new(None, DhGroupPolicy::NoGroup);
    let portal = portal_that_requires_proof(&fixture);
    let secrets = fixture.secrets(HOST_SECRET, CTRL_SECRET);
    let (_device, mut queue) = fixture.attach(&secrets);
    let before = fixture.server.capacity().used_bytes;
    let started = Instant::now();
    let mut slowest = Duration::ZERO;
    let mut crowd: Vec<TcpStream> = Vec::new();
    for at in 0..CROWD {
        let mut stream = TcpStream::connect(portal.address).expect("connects");
        // Nothing, or a part of an ICReq.
        let icreq = [0, 0, 128, 0, 128, 0, 0, 0];
        let _ = stream.write_all(&icreq[..at % 2 * 8]);
        crowd.push(stream);
        if at % 20 == 0 {
            let begin = Instant::now();
            read(&mut queue).expect("another host goes on");
            slowest = slowest.max(begin.elapsed());
        }
    }
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    let open = |crowd: &[TcpStream]| crowd.iter().filter(|stream| is_open(stream)).count();
    while open(&crowd) > HALF_OPEN_MAX {
        assert!(
            started.elapsed() < PATIENCE,
            "more than {HALF_OPEN_MAX} are open"
        );
    }
    // The time limit ends them; then there is room, and no memory of theirs is kept.
    while open(&crowd) > 0 || fixture.server.capacity().used_bytes > before {
        assert!(started.elapsed() < PATIENCE, "half-open connections stay");
        read(&mut queue).expect("another host goes on");
    }
    assert_eq!(fixture.server.sessions().len(), 1);
    let options = fixture.secrets(HOST_SECRET, CTRL_SECRET);
    assert_eq!(Fixture::try_portal(&fixture.tcp, &options), Ok(()));
}

/// Hosts that connect and then send nothing. The server admits one more of their address.
const SILENT: usize = 15;

#[test]
fn a_host_that_connects_and_proves_nothing_is_disconnected_in_time() {
    let fixture = Fixture::new(None, DhGroupPolicy::NoGroup);
    let portal = portal_that_requires_proof(&fixture);
    let silent: Vec<_> = (0..SILENT).map(|_| Raw::connect(&portal)).collect();
    let started = Instant::now();
    let secrets = fixture.secrets(HOST_SECRET, CTRL_SECRET);
    assert_eq!(fixture.try_tcp(&secrets), Ok(()));
    while silent.iter().any(|raw| is_open(&raw.0)) {
        assert!(started.elapsed() < 2 * PATIENCE, "silent hosts stay");
    }
}

fn is_open(mut stream: &TcpStream) -> bool {
    let limit = Some(Duration::from_millis(1));
    stream.set_read_timeout(limit).expect("set");
    match stream.read(&mut [0; 64]) {
        Ok(len) => len > 0,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}
