//! A thread is preempted in the middle of a write while another ends the write's session, aborts
//! it, or takes its target away. Whatever promises that the write is over comes after it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use block::testing::{LateVolume, Lateness, Turn};
use block::{BlockSize, ByteRange};
use server::{
    Availability, ByteSize, Force, HostPolicy, Server, ServerError, Transport, VolumeSpec,
    WriteLock,
};
use volume::Managed;

use super::raw::{MIB, OTHERS, PATIENCE, Peer, wait_until};
use super::{NO_DATA, WRITE, fixture};

/// Long enough that an answer which does not wait would have come.
const MOMENT: Duration = Duration::from_millis(200);
/// A block, which is executed as one.
const LEN_BYTES: usize = 512;
const WRITE_10: [u8; 10] = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const RESERVE_OUT: u8 = 0x5F;

/// A server of two reactors. One has the portal; the other is stopped in a write of `victim`.
struct Fixture {
    server: Server,
    volume: Arc<Managed<LateVolume>>,
    address: std::net::SocketAddr,
    /// On the reactor of the portal.
    other: Peer,
    victim: Peer,
    _turn: Turn,
}

impl Fixture {
    fn new() -> Self {
        let turn = Turn::shared();
        let spec = VolumeSpec::thin(ByteSize(MIB));
        let server = fixture::start(fixture::config(2, 64 * MIB), "ram", &spec);
        let volume = Arc::new(Managed::new(LateVolume::new(BlockSize::B512, MIB / 512)));
        volume.volume().set_lateness(Lateness::Never);
        let name = "slow".parse().expect("a name");
        server.add_volume(name, volume.clone()).expect("a new name");
        fixture::offer(&server, OTHERS, "slow", HostPolicy::Local);
        let portal = fixture::portal(Transport::Iscsi, ([127, 0, 0, 1], 0));
        let address = server.add_portal(portal).expect("a free port").address;
        // Each connection goes to the reactor with the fewest, the first of them to that of the
        // portal.
        let [other, victim] =
            ["other", "victim"].map(|name| ready(Peer::log_in(address, name, "")));
        Self {
            server,
            volume,
            address,
            other,
            victim,
            _turn: turn,
        }
    }

    /// The victim's reactor stops before it writes `byte`.
    fn stop_in_write(&mut self, byte: u8) {
        self.volume.volume().stop_next_write();
        write(&mut self.victim, byte);
        wait_until(|| self.volume.volume().is_stopped());
    }

    /// Asserts that `peer` is answered only once the victim's write is over; then whatever it
    /// writes stays.
    fn assert_answered_after(&self, peer: &Peer) {
        thread::sleep(MOMENT);
        assert!(!peer.has_answer(), "a thread is about to write");
        self.volume.volume().go_on();
        wait_until(|| peer.has_answer());
        assert_eq!(self.written(), 7, "the write was over before");
    }

    /// The first byte of the block, which is written as a whole.
    fn written(&self) -> u8 {
        let first = ByteRange { offset: 0, len: 1 };
        self.volume.volume().disk().bytes(first)[0]
    }
}

/// Receives the unit attention after the login.
fn ready(mut peer: Peer) -> Peer {
    peer.command(0, NO_DATA, &[0; 6], 0, &[]);
    assert_eq!(peer.receive().expect("an answer").header[3], 2);
    peer
}

/// Sends a write of `byte` to the first blocks.
fn write(peer: &mut Peer, byte: u8) {
    let len = LEN_BYTES as u32;
    peer.command(1, WRITE, &WRITE_10, len, &[byte; LEN_BYTES]);
}

/// Receives the status of a command.
fn status(peer: &mut Peer) -> u8 {
    let answer = peer.receive().expect("an answer");
    assert_eq!(answer.header[0], 0x21, "a SCSI Response");
    answer.header[3]
}

/// Runs `change` in a thread. The receiver learns when it has returned.
fn begin<T: Send + 'static>(change: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (done, is_done) = channel();
    thread::spawn(move || done.send(change()));
    is_done
}

#[test]
fn a_login_is_answered_when_the_session_that_it_replaces_executes_nothing_more() {
    let mut fixture = Fixture::new();
    fixture.stop_in_write(7);
    let mut again = Peer::begin_login(fixture.address, OTHERS, "victim", "");
    fixture.assert_answered_after(&again);
    again.finish_login();
    let mut again = ready(again);
    write(&mut again, 8);
    assert_eq!(status(&mut again), 0);
    assert_eq!(fixture.written(), 8);
    fixture.victim.finish();
}

#[test]
fn a_login_waits_no_longer_than_logins_may() {
    let mut fixture = Fixture::new();
    fixture.stop_in_write(7);
    let mut again = Peer::begin_login(fixture.address, OTHERS, "victim", "");
    assert!(again.receive().is_none(), "the connection is closed");
    assert!(fixture.volume.volume().is_stopped());
    fixture.volume.volume().go_on();
}

#[test]
fn a_login_that_replaces_nothing_does_not_wait() {
    let mut fixture = Fixture::new();
    fixture.stop_in_write(7);
    drop(Peer::log_in(fixture.address, "third", ""));
    assert!(fixture.volume.volume().is_stopped());
    fixture.volume.volume().go_on();
}

#[test]
fn task_management_is_answered_when_what_it_aborts_is_over() {
    // CLEAR TASK SET, LOGICAL UNIT RESET, TARGET WARM RESET.
    for function in [0x80 | 4, 0x80 | 5, 0x80 | 6] {
        let mut fixture = Fixture::new();
        fixture.stop_in_write(7);
        let mut header = [0; 48];
        (header[0], header[1], header[19]) = (0x42, function, 9);
        header[24..28].copy_from_slice(&fixture.other.cmd_sn.to_be_bytes());
        fixture.other.send(header, &[]);
        fixture.assert_answered_after(&fixture.other);
        let answer = fixture.other.receive().expect("an answer");
        assert_eq!((answer.header[0], answer.header[2]), (0x22, 0));
    }
}

/// Sends PERSISTENT RESERVE OUT.
fn reserve_out(peer: &mut Peer, action: u8, key: u8, other_key: u8) {
    const WRITE_EXCLUSIVE: u8 = 1;
    let mut list = [0; 24];
    (list[7], list[15]) = (key, other_key);
    let cdb = [RESERVE_OUT, action, WRITE_EXCLUSIVE, 0, 0, 0, 0, 0, 24, 0];
    peer.command(2, WRITE, &cdb, 24, &list);
}

#[test]
fn preempt_and_abort_is_answered_when_what_it_aborts_is_over() {
    const REGISTER: u8 = 0;
    const RESERVE: u8 = 1;
    const PREEMPT_AND_ABORT: u8 = 5;
    let mut fixture = Fixture::new();
    for (peer, key) in [(&mut fixture.other, 1), (&mut fixture.victim, 2)] {
        reserve_out(peer, REGISTER, 0, key);
        assert_eq!(status(peer), 0);
    }
    reserve_out(&mut fixture.victim, RESERVE, 2, 0);
    assert_eq!(status(&mut fixture.victim), 0);
    fixture.stop_in_write(7);
    reserve_out(&mut fixture.other, PREEMPT_AND_ABORT, 1, 2);
    fixture.assert_answered_after(&fixture.other);
    assert_eq!(status(&mut fixture.other), 0);
    write(&mut fixture.other, 8);
    assert_eq!(status(&mut fixture.other), 0);
    assert_eq!(fixture.written(), 8);
}

#[test]
fn changes_by_the_control_plane_return_when_no_thread_executes_by_the_old_state() {
    fn volume() -> server::VolumeName {
        "slow".parse().expect("a name")
    }
    fn target() -> server::TargetName {
        OTHERS.parse().expect("a name")
    }
    let changes: [fn(&Server); 4] = [
        |server| {
            server
                .remove_target(&target(), Force::Yes)
                .expect("by force");
        },
        |server| {
            server
                .detach_volume(&target(), 0, Force::Yes)
                .expect("by force");
        },
        |server| {
            server
                .set_volume_lock(&volume(), WriteLock::ReadOnly)
                .expect("it exists");
        },
        |server| {
            let sessions = server.sessions();
            let is_victims =
                |session: &&server::SessionInfo| session.host.as_str().ends_with("victim");
            let victims = sessions.iter().find(is_victims).expect("it has one");
            server.end_session(victims.id).expect("it exists");
        },
    ];
    for change in changes {
        let mut fixture = Fixture::new();
        fixture.stop_in_write(7);
        let server = fixture.server.clone();
        let done = begin(move || change(&server));
        assert!(
            done.recv_timeout(MOMENT).is_err(),
            "a thread is about to write"
        );
        fixture.volume.volume().go_on();
        done.recv_timeout(PATIENCE).expect("it returns");
        assert_eq!(fixture.written(), 7, "the write was over before");
    }
}

#[test]
fn a_change_reports_that_a_thread_which_hangs_may_not_obey_it() {
    let mut fixture = Fixture::new();
    fixture.stop_in_write(7);
    let server = &fixture.server;
    let name = "slow".parse().expect("a name");
    let locked = server.set_volume_lock(&name, WriteLock::ReadOnly);
    assert!(
        matches!(locked, Err(ServerError::Unfinished { .. })),
        "{locked:?}"
    );
    let lock = |server: &Server| server.volume(&name).expect("it exists").lock;
    assert_eq!(lock(server), WriteLock::ReadOnly, "the change is made");
    let ram = "ram".parse().expect("a name");
    let offline = server.set_volume_availability(&ram, Availability::Offline);
    assert!(
        matches!(offline, Err(ServerError::Unfinished { .. })),
        "{offline:?}"
    );
    fixture.volume.volume().go_on();
    server
        .set_volume_lock(&name, WriteLock::ReadOnly)
        .expect("the turn is over");
    assert_eq!(fixture.written(), 7, "what was executed is complete then");
    fixture.victim.finish();
}
