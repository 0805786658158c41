//! The daemon over iSCSI, spoken to in bare PDUs: what no stock initiator can be made to do on
//! demand.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::daemon::Daemon;

pub(crate) const TARGET: &str = "iqn.2025-01.io.ramport:pdus";
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const GOOD: u8 = 0x00;
pub(crate) const CHECK_CONDITION: u8 = 0x02;
const RESERVATION_CONFLICT: u8 = 0x18;
const TASK_ABORTED: u8 = 0x40;

/// Events of Asynchronous Messages.
const LOGOUT_REQUEST: u8 = 1;
const CONNECTION_DROP: u8 = 2;
const SESSION_DROP: u8 = 3;

/// A PDU: its basic header segment and data.
struct Pdu {
    header: [u8; 48],
    data: Vec<u8>,
}

/// What a command was answered with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u8,
    data: Vec<u8>,
    /// ASC and ASCQ.
    pub(crate) sense: Option<(u8, u8)>,
}

/// An initiator with one connection.
pub(crate) struct Initiator {
    stream: TcpStream,
    cmd_sn: u32,
    itt: u32,
}

impl Initiator {
    pub(crate) fn login(portal: &str, name: &str, isid: u8) -> Self {
        let (initiator, answer) = Self::try_login(portal, name, isid, (0, 0), "");
        assert_eq!((answer.header[0], answer.header[36]), (0x23, 0));
        initiator
    }

    /// Logs in a connection of TSIH and CID, with further keys; the initiator and the answer.
    fn try_login(
        portal: &str,
        name: &str,
        isid: u8,
        (tsih, cid): (u16, u16),
        keys: &str,
    ) -> (Self, Pdu) {
        let stream = TcpStream::connect(portal).expect("the portal listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        let mut initiator = Self {
            stream,
            cmd_sn: 1,
            itt: 1,
        };
        let text = format!(
            "InitiatorName={name}\0TargetName={TARGET}\0InitialR2T=No\0ImmediateData=Yes\0{keys}"
        );
        let mut header = [0; 48];
        header[..2].copy_from_slice(&[0x43, 0x87]);
        header[13] = isid;
        header[14..16].copy_from_slice(&tsih.to_be_bytes());
        header[20..22].copy_from_slice(&cid.to_be_bytes());
        header[24..28].copy_from_slice(&1_u32.to_be_bytes());
        initiator.send(header, text.as_bytes());
        let answer = initiator.receive().expect("an answer");
        (initiator, answer)
    }

    /// Asks for the logout of a connection of the session; the response code.
    fn log_out(&mut self, cid: u16) -> u8 {
        let mut header = [0; 48];
        header[..2].copy_from_slice(&[0x46, 0x81]);
        header[16..20].copy_from_slice(&0xFFFF_u32.to_be_bytes());
        header[20..22].copy_from_slice(&cid.to_be_bytes());
        header[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        self.send(header, &[]);
        let answer = self.receive().expect("an answer");
        assert_eq!(answer.header[0], 0x26, "a logout response");
        answer.header[2]
    }

    fn send(&mut self, mut header: [u8; 48], data: &[u8]) {
        header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        let mut bytes = header.to_vec();
        bytes.extend(data);
        bytes.resize(48 + data.len().next_multiple_of(4), 0);
        self.stream.write_all(&bytes).expect("sent");
    }

    /// The next PDU; none where the connection was closed.
    fn receive(&mut self) -> Option<Pdu> {
        let mut header = [0; 48];
        match self.stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("nothing comes"),
            Err(_) => return None,
        }
        let len = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let mut data = vec![0; len.next_multiple_of(4)];
        self.stream.read_exact(&mut data).expect("all of it");
        data.truncate(len);
        Some(Pdu { header, data })
    }

    /// Sends a command to LUN 0 and returns its tag.
    fn submit(&mut self, cdb: &[u8], data_out: &[u8], expected_in: u32) -> u32 {
        let direction = if data_out.is_empty() { 0x40 } else { 0x20 };
        let expected = (data_out.len() as u32).max(expected_in);
        let mut header = [0; 48];
        header[..2].copy_from_slice(&[0x01, 0x80 | direction]);
        self.itt += 1;
        header[16..20].copy_from_slice(&self.itt.to_be_bytes());
        header[20..24].copy_from_slice(&expected.to_be_bytes());
        header[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        header[32..32 + cdb.len()].copy_from_slice(cdb);
        self.cmd_sn += 1;
        self.send(header, data_out);
        self.itt
    }

    /// The answer to the only command that is outstanding.
    fn answer(&mut self) -> Answer {
        let mut data = Vec::new();
        loop {
            let pdu = self.receive().expect("the connection stands");
            let (opcode, flags, status) = (pdu.header[0], pdu.header[1], pdu.header[3]);
            if opcode == 0x25 {
                data.extend(&pdu.data);
            }
            let carries_status = opcode == 0x21 || opcode == 0x25 && flags & 1 != 0;
            if carries_status {
                let sense =
                    (opcode == 0x21 && pdu.data.len() >= 16).then(|| (pdu.data[14], pdu.data[15]));
                return Answer {
                    status,
                    data,
                    sense,
                };
            }
        }
    }

    /// The next Asynchronous Message: its event and its parameters; none where the connection was
    /// closed.
    fn event(&mut self) -> Option<(u8, [u16; 3])> {
        let pdu = self.receive()?;
        assert_eq!(pdu.header[0], 0x32, "an asynchronous message");
        let be16 = |at: usize| u16::from_be_bytes([pdu.header[at], pdu.header[at + 1]]);
        Some((pdu.header[36], [be16(38), be16(40), be16(42)]))
    }

    fn run(&mut self, cdb: &[u8], data_out: &[u8], expected_in: u32) -> Answer {
        self.submit(cdb, data_out, expected_in);
        self.answer()
    }

    /// TEST UNIT READY until no unit attention is left; the last answer.
    pub(crate) fn ready(&mut self) -> Answer {
        loop {
            let answer = self.run(&[0; 6], &[], 0);
            if answer.status == GOOD {
                return answer;
            }
        }
    }

    pub(crate) fn test_unit_ready(&mut self) -> Answer {
        self.run(&[0; 6], &[], 0)
    }

    /// PERSISTENT RESERVE OUT.
    fn reserve_out(&mut self, action: u8, kind: u8, keys: (u64, u64), persist: bool) -> Answer {
        let mut list = [0; 24];
        list[..8].copy_from_slice(&keys.0.to_be_bytes());
        list[8..16].copy_from_slice(&keys.1.to_be_bytes());
        list[20] = u8::from(persist);
        self.run(&[0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0], &list, 0)
    }

    pub(crate) fn write_block(&mut self) -> Answer {
        self.run(&[0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[7; 512], 0)
    }

    /// A task management function of LUN 0; its response code.
    fn manage(&mut self, function: u8, tag: u32) -> u8 {
        let mut header = [0; 48];
        header[..2].copy_from_slice(&[0x42, 0x80 | function]);
        self.itt += 1;
        header[16..20].copy_from_slice(&self.itt.to_be_bytes());
        header[20..24].copy_from_slice(&tag.to_be_bytes());
        header[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        header[32..36].copy_from_slice(&(self.cmd_sn - 1).to_be_bytes());
        self.send(header, &[]);
        let answer = self.receive().expect("an answer");
        assert_eq!(answer.header[0], 0x22, "a task management response");
        answer.header[2]
    }
}

/// A daemon with a volume, the target, and the address of its portal.
pub(crate) fn served(name: &str) -> (Daemon, String) {
    let daemon = Daemon::start(name);
    daemon.ok(&["volume", "create", "rd0", "--size", "8M"]);
    daemon.ok(&["target", "create", TARGET, "--volume", "rd0"]);
    daemon.ok(&["portal", "create", "iscsi://127.0.0.1:0"]);
    let portal = portal_of(&daemon);
    (daemon, portal)
}

pub(crate) fn portal_of(daemon: &Daemon) -> String {
    let portals = daemon.json(&["portal", "ls"]);
    let mut urls = portals.as_array().expect("a list").iter();
    urls.find_map(|portal| portal["url"].as_str()?.strip_prefix("iscsi://"))
        .expect("an iSCSI portal")
        .to_owned()
}

#[test]
fn reservations_that_are_to_outlive_a_kill_do() {
    let (mut daemon, portal) = served("aptpl");
    let mut host = Initiator::login(&portal, "iqn.2025-01.io.ramport:a", 1);
    host.ready();
    assert_eq!(host.reserve_out(0, 0, (0, 0xABCD), true).status, GOOD);
    assert_eq!(host.reserve_out(1, 1, (0xABCD, 0), false).status, GOOD);
    daemon.kill_and_restart();
    let portal = portal_of(&daemon);
    let mut host = Initiator::login(&portal, "iqn.2025-01.io.ramport:a", 1);
    let mut other = Initiator::login(&portal, "iqn.2025-01.io.ramport:b", 1);
    host.ready();
    other.ready();
    let keys = host.run(&[0x5E, 0, 0, 0, 0, 0, 0, 0, 32, 0], &[], 32);
    assert_eq!(keys.data[8..], 0xABCD_u64.to_be_bytes());
    assert_eq!(other.write_block().status, RESERVATION_CONFLICT);
    assert_eq!(host.write_block().status, GOOD);
    // What is given up is forgotten for good.
    assert_eq!(host.reserve_out(3, 0, (0xABCD, 0), false).status, GOOD);
    daemon.kill_and_restart();
    let mut other = Initiator::login(&portal_of(&daemon), "iqn.2025-01.io.ramport:b", 1);
    other.ready();
    assert_eq!(other.write_block().status, GOOD);
}

#[test]
fn initiators_are_told_once_when_memory_becomes_short() {
    const THIN_SOFT_THRESHOLD: (u8, u8) = (0x38, 0x07);
    let (daemon, portal) = served("short");
    let mut host = Initiator::login(&portal, "iqn.2025-01.io.ramport:a", 1);
    host.ready();
    assert_eq!(host.write_block().status, GOOD);
    // Nine tenths of the daemon's 256 MiB.
    daemon.ok(&["volume", "create", "ballast", "--size", "231M", "--thick"]);
    let mut senses = Vec::new();
    for _ in 0..4 {
        senses.extend(host.run(&[0; 6], &[], 0).sense);
    }
    assert_eq!(senses, [THIN_SOFT_THRESHOLD]);
    assert_eq!(host.write_block().status, GOOD);
}

#[test]
fn a_session_with_the_same_ends_takes_the_place_of_the_older() {
    let (daemon, portal) = served("reinstate");
    let mut first = Initiator::login(&portal, "iqn.2025-01.io.ramport:a", 1);
    first.ready();
    let mut other = Initiator::login(&portal, "iqn.2025-01.io.ramport:a", 2);
    other.ready();
    let mut second = Initiator::login(&portal, "iqn.2025-01.io.ramport:a", 1);
    assert!(first.receive().is_none(), "the older session is closed");
    second.ready();
    assert_eq!(other.write_block().status, GOOD);
    drop(first);
    let begin = Instant::now();
    let mut sessions = daemon.json(&["session", "ls"]);
    while sessions.as_array().map(Vec::len) != Some(2) {
        assert!(begin.elapsed() < PATIENCE, "the older session stays");
        sessions = daemon.json(&["session", "ls"]);
    }
    let id = sessions[0]["id"].to_string();
    daemon.ok(&["session", "rm", &id]);
    assert_eq!(other.event(), Some((LOGOUT_REQUEST, [0, 0, 3])));
    assert_eq!(other.log_out(0), 0);
    assert!(other.receive().is_none(), "the session was ended");
}

/// The ID of the only session. An older one may still be ending.
fn only_session(daemon: &Daemon) -> String {
    let begin = Instant::now();
    loop {
        let sessions = daemon.json(&["session", "ls"]);
        if sessions.as_array().map(Vec::len) == Some(1) {
            return sessions[0]["id"].to_string();
        }
        assert!(begin.elapsed() < PATIENCE, "the older session stays");
    }
}

#[test]
fn initiators_are_notified_before_they_are_disconnected() {
    let (daemon, portal) = served("farewell");
    let name = "iqn.2025-01.io.ramport:a";

    // One that does not log out has its time, and is dropped; asked again, at once.
    let mut silent = Initiator::login(&portal, name, 1);
    let begin = Instant::now();
    daemon.ok(&["session", "rm", &only_session(&daemon)]);
    assert_eq!(silent.event(), Some((LOGOUT_REQUEST, [0, 0, 3])));
    assert_eq!(silent.event(), Some((SESSION_DROP, [0, 2, 20])));
    assert!(silent.receive().is_none(), "it is dropped");
    assert!(begin.elapsed() >= Duration::from_secs(3), "it had its time");
    let mut silent = Initiator::login(&portal, name, 1);
    let session = only_session(&daemon);
    for _ in 0..2 {
        daemon.ok(&["session", "rm", &session]);
    }
    assert_eq!(silent.event().map(|(event, _)| event), Some(LOGOUT_REQUEST));
    assert_eq!(silent.event().map(|(event, _)| event), Some(SESSION_DROP));

    // A portal takes its own connections with it.
    daemon.ok(&["portal", "create", "iscsi://127.0.0.1:0,2"]);
    let other = daemon.json(&["portal", "ls"]);
    let other = other.as_array().expect("a list").iter();
    let mut others = other.filter_map(|portal| portal["url"].as_str()?.strip_prefix("iscsi://"));
    let other = others
        .find(|url| url.ends_with(",2"))
        .expect("the portal")
        .to_owned();
    let mut through_other = Initiator::login(other.trim_end_matches(",2"), name, 2);
    let mut stays = Initiator::login(&portal, name, 3);
    daemon.ok(&["portal", "rm", &format!("iscsi://{other}"), "--force"]);
    assert_eq!(through_other.event(), Some((CONNECTION_DROP, [0, 2, 20])));
    assert!(through_other.receive().is_none());
    stays.ready();

    // A target that is removed takes its sessions with it, and does not wait.
    daemon.ok(&["target", "rm", TARGET, "--force"]);
    assert_eq!(stays.event().map(|(event, _)| event), Some(SESSION_DROP));
    assert!(stays.receive().is_none());
}

#[test]
fn a_daemon_that_stops_waits_for_logouts() {
    let (mut daemon, portal) = served("stop");
    let mut last = Initiator::login(&portal, "iqn.2025-01.io.ramport:a", 1);
    let pid = daemon.child.id().to_string();
    let sent = std::process::Command::new("kill").arg(&pid).status();
    assert!(sent.expect("kill runs").success());
    assert_eq!(last.event().map(|(event, _)| event), Some(LOGOUT_REQUEST));
    assert_eq!(last.log_out(0), 0);
    assert!(last.receive().is_none());
    assert!(daemon.child.wait().expect("it ends").success());
}

#[test]
fn hosts_are_told_by_unit_attentions() {
    let (daemon, portal) = served("attention");
    let mut host = Initiator::login(&portal, "iqn.2025-01.io.ramport:a", 1);
    host.ready();
    let sense = |answer: Answer| (answer.status, answer.sense);
    daemon.ok(&["volume", "grow", "rd0", "8M"]);
    // CAPACITY DATA HAS CHANGED.
    assert_eq!(
        sense(host.write_block()),
        (CHECK_CONDITION, Some((0x2A, 0x09)))
    );
    let capacity = host.run(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[], 8);
    assert_eq!(capacity.data[..4], (16_u32 * 2048 - 1).to_be_bytes());
    daemon.ok(&["volume", "lock", "rd0"]);
    // MODE PARAMETERS CHANGED, then SOFTWARE WRITE PROTECTED.
    assert_eq!(
        sense(host.write_block()),
        (CHECK_CONDITION, Some((0x2A, 0x01)))
    );
    assert_eq!(
        sense(host.write_block()),
        (CHECK_CONDITION, Some((0x27, 0x02)))
    );
    daemon.ok(&["volume", "unlock", "rd0"]);
    host.ready();
    daemon.ok(&["volume", "create", "rd1", "--size", "8M"]);
    daemon.ok(&["target", "attach", TARGET, "rd1", "--lun", "9"]);
    // REPORTED LUNS DATA HAS CHANGED.
    assert_eq!(
        sense(host.write_block()),
        (CHECK_CONDITION, Some((0x3F, 0x0E)))
    );
    let luns = host.run(&[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0], &[], 64);
    assert_eq!((luns.data[9], luns.data[17]), (0, 9));
    assert_eq!(host.write_block().status, GOOD);
}

#[test]
fn held_commands_are_aborted_by_their_host_and_by_others() {
    let (daemon, portal) = served("abort");
    let mut host = Initiator::login(&portal, "iqn.2025-01.io.ramport:a", 1);
    let mut other = Initiator::login(&portal, "iqn.2025-01.io.ramport:b", 1);
    host.ready();
    other.ready();
    daemon.ok(&["volume", "filter", "set", "rd0", "--delay-read", "60s"]);
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let begin = Instant::now();
    // ABORT TASK: function complete, and the command itself is not answered.
    let tag = host.submit(&read, &[], 512);
    assert_eq!(host.manage(1, tag), 0);
    // LOGICAL UNIT RESET by another host: TASK ABORTED.
    host.submit(&read, &[], 512);
    // The command has arrived when a later one is answered.
    host.submit(&[0x12, 0, 0, 0, 36, 0], &[], 36);
    assert_eq!(host.answer().status, GOOD);
    assert_eq!(other.manage(5, u32::MAX), 0);
    assert_eq!(host.answer().status, TASK_ABORTED);
    assert!(begin.elapsed() < PATIENCE, "nothing waited for its delay");
}

/// Two connections of a session of `name`, with CIDs 5 and 6, and the session's TSIH.
fn two_connections(portal: &str, name: &str) -> (Initiator, Initiator, u16) {
    let keys = "MaxConnections=2\0";
    let (mut first, answer) = Initiator::try_login(portal, name, 1, (0, 5), keys);
    let text = String::from_utf8_lossy(&answer.data).into_owned();
    assert!(text.contains(keys), "{text}");
    let tsih = u16::from_be_bytes([answer.header[14], answer.header[15]]);
    first.ready();
    let (second, answer) = Initiator::try_login(portal, name, 1, (tsih, 6), "");
    assert_eq!(answer.header[36..38], [0, 0]);
    (first, second, tsih)
}

#[test]
fn a_session_has_several_connections_with_one_window() {
    let (daemon, portal) = served("mcs");
    let name = "iqn.2025-01.io.ramport:a";
    let (mut first, mut second, tsih) = two_connections(&portal, name);
    // A third is one too many; a session that does not exist cannot be joined.
    let (_, answer) = Initiator::try_login(&portal, name, 1, (tsih, 7), "");
    assert_eq!(answer.header[36..38], [2, 6]);
    let (_, answer) = Initiator::try_login(&portal, name, 2, (tsih, 6), "");
    assert_eq!(answer.header[36..38], [2, 10]);

    // Numbers are the session's: the later command, which arrives first on the other connection,
    // waits.
    second.cmd_sn = first.cmd_sn + 1;
    second.submit(&[0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[7; 512], 0);
    second.stream.set_nonblocking(true).expect("a socket");
    let early = second
        .stream
        .read(&mut [0; 1])
        .map_err(|error| error.kind());
    assert_eq!(early, Err(ErrorKind::WouldBlock));
    second.stream.set_nonblocking(false).expect("a socket");
    assert_eq!(first.write_block().status, GOOD);
    assert_eq!(second.answer().status, GOOD);
    first.cmd_sn += 1;
    assert_eq!(first.ready().status, GOOD);
    assert_both_are_shown(&daemon, &first);
}

/// Asserts that the session is shown with the two connections of [`two_connections`].
fn assert_both_are_shown(daemon: &Daemon, first: &Initiator) {
    let sessions = daemon.json(&["session", "ls"]);
    assert_eq!(sessions[0]["connections"], 2);
    let iscsi = &sessions[0]["iscsi"];
    assert_eq!(iscsi["state"], "logged_in");
    let connections = &iscsi["connections"];
    assert_eq!([&connections[0]["cid"], &connections[1]["cid"]], [5, 6]);
    let local = first.stream.local_addr().expect("an address").to_string();
    assert_eq!(connections[0]["peer"], local);
    let shown = daemon.ok(&["session", "show", &sessions[0]["id"].to_string()]);
    assert!(
        shown.contains("CID 6, from ") && shown.contains("HeaderDigest None"),
        "{shown}"
    );
}

#[test]
fn connections_of_a_session_abort_replace_and_log_out_each_other() {
    let (daemon, portal) = served("mcs-abort");
    let name = "iqn.2025-01.io.ramport:a";
    let (mut first, mut second, tsih) = two_connections(&portal, name);
    second.cmd_sn = first.cmd_sn;
    second.ready();

    // A held command is aborted from the other connection.
    daemon.ok(&["volume", "filter", "set", "rd0", "--delay-read", "60s"]);
    let tag = second.submit(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[], 512);
    second.submit(&[0x12, 0, 0, 0, 36, 0], &[], 36);
    assert_eq!(second.answer().status, GOOD);
    first.cmd_sn = second.cmd_sn;
    assert_eq!(first.manage(1, tag), 0);
    second.submit(&[0x12, 0, 0, 0, 36, 0], &[], 36);
    assert_eq!(second.answer().status, GOOD, "the read is not answered");

    // A connection of the same CID takes the other's place; one connection logs another out.
    let (mut third, answer) = Initiator::try_login(&portal, name, 1, (tsih, 6), "");
    assert_eq!(answer.header[36..38], [0, 0]);
    assert!(second.receive().is_none(), "the older connection is closed");
    assert_eq!(first.log_out(9), 1, "there is no such CID");
    assert_eq!(first.log_out(6), 0);
    assert!(third.receive().is_none(), "it was logged out");
    first.cmd_sn = second.cmd_sn;
    assert_eq!(first.ready().status, GOOD, "the session goes on");
}
