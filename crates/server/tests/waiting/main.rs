//! Commands that wait for their volume, through the whole server: what becomes of them if someone
//! changes or removes the volume, the target or the session, or stops the server. Each outcome
//! comes within a bound, and no acknowledged write is lost.

#[path = "../fixture/mod.rs"]
mod fixture;
mod host;
#[expect(dead_code, reason = "the rest is for the tests of portals")]
#[path = "../iser/peer.rs"]
mod peer;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use block::testing::{LateVolume, Lateness};
use block::{BlockSize, ByteRange, Status};
use host::{Host, Initiator, IserHost, Outcome};
use initiator::{CommandError, Operation, Slot};
use scsi::Sense;
use scsi::host::CommandFailure;
use server::{
    Availability, ByteSize, Force, HostPolicy, Server, Transport, VolumeName, VolumeSpec, WriteLock,
};
use volume::Managed;
use volume::filters::{Delay, FilterSpec, Latency};

const MIB: u64 = 1 << 20;
/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough that a command which should wait would have been answered.
const MOMENT: Duration = Duration::from_millis(100);
const NQN: &str = "nqn.2026-11.com.example:late";
const IQN: &str = "iqn.2026-11.com.example:late";
/// The blocks of all commands, which a volume of 1 MiB does not have.
const LBA: u64 = 3000;
const BLOCKS: u64 = 8;
const LEN_BYTES: usize = BLOCKS as usize * 512;

/// A server that offers a volume which answers late, a volume in memory beside it, and a host of
/// the late one.
struct Fixture {
    server: Server,
    late: Arc<Managed<LateVolume>>,
    target: &'static str,
    /// None once it has gone.
    host: Option<Box<dyn Host>>,
}

impl Fixture {
    fn new(transport: Transport) -> Self {
        let target = match transport {
            Transport::Iscsi | Transport::Iser => IQN,
            Transport::NvmeTcp | Transport::NvmeRdma | Transport::Brp | Transport::BrpRdma => NQN,
            Transport::Nfs | Transport::NfsUdp | Transport::NfsRdma => panic!("NFS has no volumes"),
            Transport::Srp => panic!("there is no initiator of SRP"),
        };
        let spec = VolumeSpec::thin(ByteSize(MIB));
        let server = fixture::start(fixture::config(1, 64 * MIB), "ram", &spec);
        let late = Arc::new(Managed::new(LateVolume::new(
            BlockSize::B512,
            2 * MIB / 512,
        )));
        late.volume().set_lateness(Lateness::Never);
        let volume = Arc::clone(&late);
        server.add_volume(name(), volume).expect("a new name");
        fixture::offer(&server, target, "late", HostPolicy::Local);
        let (server_at, host_at) = addresses();
        let port = match transport {
            Transport::NvmeTcp
            | Transport::Iscsi
            | Transport::Nfs
            | Transport::NfsUdp
            | Transport::Brp => 0,
            Transport::NvmeRdma => 4420,
            Transport::Iser => 3260,
            Transport::NfsRdma => 20_049,
            Transport::Srp => 5555,
            Transport::BrpRdma => 4424,
        };
        let portal = fixture::portal(transport, (server_at, port));
        let portal = server.add_portal(portal).expect("a free port");
        let at_portal = |query| Initiator::connect(&format!("{portal}/{target}{query}"));
        let host: Box<dyn Host> = match transport {
            Transport::NvmeTcp => Box::new(at_portal("?ns=1")),
            Transport::Brp => Box::new(at_portal("?unit=1")),
            Transport::NvmeRdma => {
                let query = &format!("?ns=1&rdma=soft&local={host_at}");
                Box::new(at_portal(query))
            }
            Transport::BrpRdma => {
                let query = &format!("?unit=1&rdma=soft&local={host_at}");
                Box::new(at_portal(query))
            }
            Transport::Iscsi => Box::new(at_portal("/0")),
            Transport::Iser => {
                let from = host::rdma_address(host_at);
                Box::new(IserHost::connect(from, portal.address))
            }
            Transport::Nfs | Transport::NfsUdp | Transport::NfsRdma => panic!("NFS has no volumes"),
            Transport::Srp => panic!("there is no initiator of SRP"),
        };
        late.volume().set_lateness(Lateness::Both);
        Self {
            server,
            late,
            target,
            host: Some(host),
        }
    }

    fn host(&mut self) -> &mut dyn Host {
        &mut **self.host.as_mut().expect("the host is there")
    }

    /// Submits a write of `byte`, which now waits for its blocks.
    fn write(&mut self, slot: u16, byte: u8) {
        let slot = Slot(slot);
        self.host().buffer_mut(slot).fill(byte);
        let waiting = self.late.volume().waiting().len();
        self.host().submit(slot, Operation::Write);
        let end = Instant::now() + PATIENCE;
        while self.late.volume().waiting().len() == waiting {
            assert!(Instant::now() < end, "the write waits");
            // The target may first have something to say, such as another capacity.
            self.assert_waits_for(Duration::from_millis(1));
        }
    }

    /// The command that has waited longest continues.
    fn complete(&self, result: Result<(), Status>) {
        let late = self.late.volume();
        let ticket = late.waiting()[0];
        let completion = late.complete(ticket, result);
        self.server.completions().done(completion);
    }

    /// The write in `slot`, which waits for its blocks, is executed and now waits until its effects
    /// are safe.
    fn fill(&mut self, byte: u8) {
        self.complete(Ok(()));
        let is_written = |it: &Self| it.blocks() == [byte; LEN_BYTES];
        self.until("the write is executed", is_written);
        self.until("it settles", |it| it.late.volume().waiting().len() == 1);
    }

    /// The outcomes of all commands, which are `N`.
    fn outcomes<const N: usize>(&mut self) -> [Outcome; N] {
        let mut done = Vec::new();
        while done.len() < N {
            let more = self.host().wait(PATIENCE);
            assert_ne!(more, [], "no outcome");
            done.extend(more);
        }
        done.try_into().expect("one outcome for each command")
    }

    fn outcome(&mut self) -> Outcome {
        let [outcome] = self.outcomes();
        outcome
    }

    fn stop_meanwhile(&self) -> thread::JoinHandle<()> {
        let server = self.server.clone();
        thread::spawn(move || server.stop(PATIENCE))
    }

    /// Asserts that two commands end with their connection.
    fn assert_both_lost(&mut self) {
        assert_eq!(self.outcomes(), [Err(CommandError::ConnectionLost); 2]);
    }

    /// Asserts that no command ends for so long.
    fn assert_waits_for(&mut self, time: Duration) {
        assert_eq!(self.host().wait(time), []);
    }

    fn assert_waits(&mut self) {
        self.assert_waits_for(MOMENT);
    }

    /// What the volume holds in the blocks of the commands.
    fn blocks(&self) -> Vec<u8> {
        self.late.volume().disk().bytes(ByteRange {
            offset: LBA * 512,
            len: LEN_BYTES as u64,
        })
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < end, "{what}");
            match &mut self.host {
                Some(host) => host.pass(),
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Asserts that nothing is left of commands and sessions, and that the server still serves
    /// others.
    fn assert_nothing_is_left(&mut self) {
        self.until("leases end", |it| it.late.volume().leases() == 0);
        self.until("sessions end", |it| it.server.sessions().is_empty());
        // What the volume says late is about commands that no longer exist.
        while !self.late.volume().waiting().is_empty() {
            self.complete(Ok(()));
        }
        let ram = self.server.volume(&"ram".parse().expect("a name"));
        assert_eq!(ram.expect("it exists").used_bytes, 0);
    }
}

/// Addresses of a server and a host that no other test has: RDMA has one UDP port for all.
fn addresses() -> (Ipv4Addr, Ipv4Addr) {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let network = NEXT.fetch_add(1, Ordering::Relaxed);
    [1, 2]
        .map(|host| Ipv4Addr::new(127, 43, network, host))
        .into()
}

fn name() -> VolumeName {
    "late".parse().expect("a name")
}

/// Runs a test over each protocol.
fn over_each_protocol(test: impl Fn(&mut Fixture)) {
    for transport in [
        Transport::NvmeTcp,
        Transport::NvmeRdma,
        Transport::Iscsi,
        Transport::Iser,
        Transport::Brp,
        Transport::BrpRdma,
    ] {
        test(&mut Fixture::new(transport));
    }
}

/// Asserts that a command failed with what its protocol says for `status` of a volume.
fn assert_failed(result: Outcome, status: Status) {
    match result {
        Err(CommandError::Status(given)) => assert_eq!(given, status.into()),
        Err(CommandError::Brp(given)) => assert_eq!(given, status.into()),
        Err(CommandError::Scsi(CommandFailure::Status { sense, .. })) => {
            let expected = Sense::of_volume(status);
            let given = sense.expect("CHECK CONDITION has sense data");
            assert_eq!((given.key, given.asc), (expected.key as u8, expected.asc));
        }
        other => panic!("{other:?} instead of {status:?}"),
    }
}

#[test]
fn a_command_is_answered_when_its_volume_allows() {
    over_each_protocol(|it| {
        it.write(0, 7);
        it.assert_waits();
        assert_eq!(it.blocks(), [0; LEN_BYTES], "its blocks are not in memory");
        it.fill(7);
        it.assert_waits();
        it.complete(Ok(()));
        assert_eq!(it.outcome(), Ok(()));
        it.host().buffer_mut(Slot(0)).fill(0);
        it.host().submit(Slot(0), Operation::Read);
        it.until("the read waits", |it| it.late.volume().waiting().len() == 1);
        it.complete(Ok(()));
        assert_eq!(it.outcome(), Ok(()));
        assert_eq!(it.host().buffer_mut(Slot(0)), [7; LEN_BYTES]);
        it.write(0, 8);
        it.complete(Err(Status::WriteError));
        assert_failed(it.outcome(), Status::WriteError);
        it.until("leases end", |it| it.late.volume().leases() == 0);
    });
}

#[test]
fn a_filter_holds_back_an_answer_that_comes_late() {
    let latency = Duration::from_millis(200);
    over_each_protocol(|it| {
        let delay = Some(Delay {
            latency: Latency::same(latency),
            bytes_per_second: None,
        });
        let filters = FilterSpec {
            delay,
            ..FilterSpec::default()
        };
        let set = it.server.set_volume_filters(&name(), filters);
        set.expect("it exists");
        let started = Instant::now();
        it.write(0, 7);
        it.fill(7);
        it.complete(Ok(()));
        assert_eq!(it.outcome(), Ok(()));
        assert!(started.elapsed() >= latency, "{:?}", started.elapsed());
    });
}

/// With hosts that keep their session until the server ends it.
#[test]
fn stopping_waits_for_the_volume_and_answers() {
    for transport in [Transport::NvmeTcp, Transport::NvmeRdma, Transport::Iser] {
        let it = &mut Fixture::new(transport);
        it.write(0, 7);
        let connections = it.server.sessions()[0].connections;
        let stopping = it.stop_meanwhile();
        it.assert_waits();
        assert!(!stopping.is_finished(), "a command waits");
        // A host that loses one of its queues cancels what is in flight on all of them.
        assert_eq!(it.server.sessions()[0].connections, connections);
        it.fill(7);
        it.complete(Ok(()));
        assert_eq!(it.outcome(), Ok(()));
        let answered = Instant::now();
        stopping.join().expect("no panic");
        assert!(answered.elapsed() < PATIENCE / 2, "it ends at once");
        assert_eq!(
            it.blocks(),
            [7; LEN_BYTES],
            "what was acknowledged is there"
        );
        it.assert_nothing_is_left();
    }
}

/// Our initiator logs out as soon as it is asked to, which ends its commands.
#[test]
fn stopping_does_not_wait_for_commands_of_an_initiator_that_logs_out() {
    let it = &mut Fixture::new(Transport::Iscsi);
    it.write(0, 7);
    it.fill(7);
    it.write(1, 8);
    let started = Instant::now();
    let stopping = it.stop_meanwhile();
    it.assert_both_lost();
    stopping.join().expect("no panic");
    assert!(started.elapsed() < PATIENCE / 2, "{:?}", started.elapsed());
    it.assert_nothing_is_left();
}

#[test]
fn stopping_cuts_off_a_command_whose_volume_never_answers() {
    over_each_protocol(|it| {
        it.write(0, 7);
        it.fill(7);
        it.write(1, 8);
        let started = Instant::now();
        it.server.stop(Duration::from_millis(300));
        assert!(started.elapsed() < PATIENCE / 2, "{:?}", started.elapsed());
        it.assert_both_lost();
        assert_eq!(it.blocks(), [7; LEN_BYTES]);
        it.assert_nothing_is_left();
    });
}

#[test]
fn a_shrink_does_not_wait_and_fails_what_lies_beyond_the_end() {
    over_each_protocol(|it| {
        it.write(0, 7);
        it.server
            .resize_volume(&name(), MIB, Force::Yes, &mut |_| {})
            .expect("it shrinks");
        it.complete(Ok(()));
        assert_failed(it.outcome(), Status::LbaOutOfRange);
        it.server
            .resize_volume(&name(), 2 * MIB, Force::No, &mut |_| {})
            .expect("it grows");
        it.write(0, 8);
        it.fill(8);
        it.complete(Ok(()));
        assert_eq!(it.outcome(), Ok(()));
    });
}

#[test]
fn a_lock_fails_a_write_that_waits() {
    over_each_protocol(|it| {
        it.write(0, 7);
        it.server
            .set_volume_lock(&name(), WriteLock::ReadOnly)
            .expect("it exists");
        it.complete(Ok(()));
        assert_failed(it.outcome(), Status::WriteProtected);
        assert_eq!(it.blocks(), [0; LEN_BYTES]);
        it.until("leases end", |it| it.late.volume().leases() == 0);
    });
}

#[test]
fn a_volume_taken_offline_fails_a_command_that_waits() {
    over_each_protocol(|it| {
        it.write(0, 7);
        it.server
            .set_volume_availability(&name(), Availability::Offline)
            .expect("it exists");
        it.complete(Ok(()));
        assert_failed(it.outcome(), Status::NotReady);
        assert_eq!(it.blocks(), [0; LEN_BYTES]);
        it.until("leases end", |it| it.late.volume().leases() == 0);
    });
}

#[test]
fn an_erase_comes_before_a_write_that_waits_for_its_blocks() {
    over_each_protocol(|it| {
        it.late
            .volume()
            .disk()
            .fill(LBA as usize * 512, &[9; LEN_BYTES]);
        it.write(0, 7);
        it.server.erase_volume(&name()).expect("it exists");
        assert_eq!(it.blocks(), [0; LEN_BYTES]);
        it.fill(7);
        it.complete(Ok(()));
        assert_eq!(it.outcome(), Ok(()));
        assert_eq!(it.blocks(), [7; LEN_BYTES], "it was acknowledged after");
    });
}

#[test]
fn a_removed_volume_fails_commands_without_waiting_for_it() {
    over_each_protocol(|it| {
        it.write(0, 7);
        it.fill(7);
        it.write(1, 8);
        it.server
            .remove_volume(&name(), Force::Yes)
            .expect("by force");
        for result in it.outcomes::<2>() {
            let is_answer = matches!(
                result,
                Err(CommandError::Status(_) | CommandError::Scsi(_) | CommandError::Brp(_))
            );
            assert!(is_answer, "{result:?}");
        }
        it.host = None;
        it.assert_nothing_is_left();
    });
}

#[test]
fn a_removed_target_ends_its_sessions_at_once() {
    over_each_protocol(|it| {
        it.write(0, 7);
        it.fill(7);
        it.write(1, 8);
        let target = it.target.parse().expect("a name");
        it.server
            .remove_target(&target, Force::Yes)
            .expect("by force");
        it.assert_both_lost();
        it.assert_nothing_is_left();
        assert_eq!(it.blocks(), [7; LEN_BYTES], "the volume stays");
    });
}

#[test]
fn a_session_that_is_ended_takes_its_commands_with_it() {
    over_each_protocol(|it| {
        it.write(0, 7);
        it.fill(7);
        it.write(1, 8);
        let session = it.server.sessions()[0].id;
        it.server.end_session(session).expect("it exists");
        it.assert_both_lost();
        it.until("the session ends", |it| {
            it.server.sessions().iter().all(|now| now.id != session)
        });
        it.until("leases end", |it| it.late.volume().leases() == 0);
    });
}

#[test]
fn a_host_that_goes_away_leaves_nothing_behind() {
    over_each_protocol(|it| {
        it.write(0, 7);
        it.fill(7);
        it.write(1, 8);
        it.host = None;
        it.assert_nothing_is_left();
        assert_eq!(it.blocks(), [7; LEN_BYTES]);
    });
}
