//! EXTENDED COPY and SANITIZE on volumes that answer late, over TCP and iSER.

use block::testing::{LateVolume, Lateness};
use block::{Completion, Status, Ticket};
use proptest::prelude::*;

use super::*;
use crate::iser::{self, TargetConfig};
use crate::testing::{IserBed, IserInitiator};

const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;
const IMMED: u8 = 0x80;
/// Of each of the two logical units: 8 MiB.
const BLOCKS: u64 = 8 << 11;
/// A copy of 2 slices: 6 MiB.
const LONG_BLOCKS: u16 = 6 << 11;
const TEST_UNIT_READY: [u8; 6] = [0; 6];

/// An initiator of either transport.
trait Peer: Sized {
    type Session: session::Session<Backend = TestBackend>;

    fn connect(target: &TestTarget, initiator: &str) -> Self;

    /// Sends a command to LUN 0.
    fn command(&mut self, itt: u32, flags: u8, cdb: &[u8], data: &[u8]);

    /// Sends task management of LUN 0.
    fn manage(&mut self, itt: u32, function: u8, tag: u32);

    fn parts(&mut self) -> (&mut Self::Session, &mut TestBackend, Instant);

    /// What was answered since the last call.
    fn answers(&mut self) -> Vec<(u32, u8)>;

    /// Copies from LUN 0 to LUN 1.
    fn copy(&mut self, itt: u32, blocks: u16, lbas: [u8; 2]) {
        let list = scsi::testing::copy_list([0, 1], blocks, lbas);
        let mut cdb = [0; 16];
        (cdb[0], cdb[13]) = (0x83, list.len() as u8);
        self.command(itt, WRITE, &cdb, &list);
    }

    fn sanitize(&mut self, itt: u32, flags: u8) {
        self.command(itt, FINAL, &[0x48, flags | 2, 0, 0, 0, 0, 0, 0, 0, 0], &[]);
        self.take_turns();
    }

    fn complete(&mut self, completion: Completion) {
        let (session, backend, now) = self.parts();
        let taken = session.handle_completion(now, completion, backend);
        taken.expect("completions end no connection");
        self.take_turns();
    }

    fn wake(&mut self) {
        let (session, backend, now) = self.parts();
        session
            .handle_wake(now, backend)
            .expect("the connection goes on");
    }

    fn close(&mut self) {
        let (session, backend, now) = self.parts();
        session.handle_close(now, backend);
    }

    fn is_idle(&mut self) -> bool {
        self.parts().0.is_idle()
    }

    /// Runs turns until none is due.
    fn take_turns(&mut self) {
        for _ in 0..1000 {
            let (session, backend, now) = self.parts();
            if session.poll_timeout().is_none_or(|due| due > now) {
                return;
            }
            session
                .handle_timeout(now, backend)
                .expect("the connection goes on");
        }
        panic!("it goes on without a turn's end");
    }
}

impl Peer for Session {
    type Session = TargetSession<TestBackend>;

    fn connect(target: &TestTarget, initiator: &str) -> Self {
        Self::new(target, initiator)
    }

    fn command(&mut self, itt: u32, flags: u8, cdb: &[u8], data: &[u8]) {
        Session::command(self, itt, flags, cdb, data.len() as u32, data);
    }

    fn manage(&mut self, itt: u32, function: u8, tag: u32) {
        self.task_management(itt, function, tag);
    }

    fn parts(&mut self) -> (&mut Self::Session, &mut TestBackend, Instant) {
        (&mut self.connection, &mut self.backend, self.now)
    }

    fn answers(&mut self) -> Vec<(u32, u8)> {
        self.collect();
        std::mem::take(&mut self.answers)
    }
}

struct Iser {
    fixture: IserBed,
    initiator: IserInitiator,
}

impl Peer for Iser {
    type Session = iser::TargetSession<TestBackend>;

    fn connect(target: &TestTarget, initiator: &str) -> Self {
        let mut peer = Self {
            fixture: IserBed::new(target, &[0x80, 0, 0, 0], TargetConfig::default()),
            initiator: IserInitiator::default(),
        };
        let mut keys = IserInitiator::KEYS;
        keys[0].1 = initiator;
        let login = peer.initiator.login(&keys);
        peer.fixture.send(&login).expect("a sensible login");
        peer.fixture.backend.clear_attention();
        peer.fixture.inbox.clear();
        peer
    }

    fn command(&mut self, itt: u32, flags: u8, cdb: &[u8], data: &[u8]) {
        let command = (itt, flags);
        let len = data.len() as u32;
        let message = self
            .initiator
            .command(command, cdb, len, data, (None, None));
        self.fixture.send(&message).expect("the connection goes on");
    }

    fn manage(&mut self, itt: u32, function: u8, tag: u32) {
        let opcode = request::TASK_MANAGEMENT | 0x40;
        let message = self.initiator.control(opcode, FINAL | function, itt, tag);
        self.fixture.send(&message).expect("the connection goes on");
    }

    fn parts(&mut self) -> (&mut Self::Session, &mut TestBackend, Instant) {
        let fixture = &mut self.fixture;
        (&mut fixture.session, &mut fixture.backend, fixture.now)
    }

    fn answers(&mut self) -> Vec<(u32, u8)> {
        self.fixture.run().expect("the connection goes on");
        let answer = |pdu: crate::testing::Received| {
            let (response, status) = pdu.status();
            let is_command = pdu.bhs.opcode() == response::SCSI_RESPONSE;
            let what = if is_command { status } else { response };
            (pdu.bhs.itt.get(), what)
        };
        self.fixture.inbox.drain(..).map(answer).collect()
    }
}

/// A target with two late volumes, the first full of sevens, and an initiator.
struct World<P> {
    volumes: [Arc<LateVolume>; 2],
    target: TestTarget,
    peer: P,
}

impl<P: Peer> World<P> {
    fn new() -> Self {
        let disks = [0, 1].map(|_| Arc::new(VecVolume::new(BlockSize::B512, BLOCKS)));
        disks[0].fill(0, &vec![7; (BLOCKS << 9) as usize]);
        let volumes = disks
            .each_ref()
            .map(|disk| Arc::new(LateVolume::over(Arc::clone(disk))));
        let target = TestTarget::over(volumes.to_vec(), disks.to_vec());
        let peer = P::connect(&target, "iqn.2026-11.com.example:host");
        Self {
            volumes,
            target,
            peer,
        }
    }

    fn waiting(&self) -> [Vec<Ticket>; 2] {
        self.volumes.each_ref().map(|late| late.waiting())
    }

    /// A volume answers a ticket.
    fn complete(&mut self, volume: usize, ticket: Ticket, result: Result<(), Status>) {
        let completion = self.volumes[volume].complete(ticket, result);
        self.peer.complete(completion);
    }

    /// A volume answers the one ticket that waits there, without an error.
    fn go_on(&mut self, volume: usize) {
        let waiting = self.volumes[volume].waiting();
        assert_eq!(waiting.len(), 1);
        self.complete(volume, waiting[0], Ok(()));
    }

    fn leases(&self) -> [usize; 2] {
        self.volumes.each_ref().map(|late| late.leases())
    }

    /// Completes waiting commands, even those whose connection has ended.
    fn answer_all_late(&mut self) {
        for (volume, tickets) in self.waiting().into_iter().enumerate() {
            for ticket in tickets {
                self.complete(volume, ticket, Ok(()));
            }
        }
    }

    /// The byte at the start of LUN 1.
    fn first_byte(&self) -> u8 {
        self.target.volume(1).contents()[0]
    }
}

/// How many answers of volumes a copy of one slice waits for: the source is filled, the destination
/// is filled, the destination is safe.
const COPY_STEPS: usize = 3;

/// A world with one command, a copy, after `steps` completions of its volumes.
fn copying<P: Peer>(steps: usize) -> World<P> {
    let mut world = World::<P>::new();
    world.peer.copy(LONG, 8, [0, 0]);
    if steps > 0 {
        world.go_on(0);
    }
    if steps > 1 {
        world.go_on(1);
    }
    assert_eq!(world.first_byte(), if steps == 2 { 7 } else { 0 });
    assert!(world.peer.answers().is_empty() && !world.peer.is_idle());
    world
}

#[test]
fn a_copy_waits_for_both_volumes_slice_by_slice() {
    copy_in_slices::<Session>();
    copy_in_slices::<Iser>();
}

fn copy_in_slices<P: Peer>() {
    let mut world = World::<P>::new();
    world.peer.copy(LONG, LONG_BLOCKS, [0, 0]);
    for slice_end in [4 << 20, 6 << 20] {
        assert_eq!(world.leases(), [1, 1]);
        world.go_on(1);
        world.go_on(0);
        assert_eq!(world.leases(), [0, 1]);
        let contents = world.target.volume(1).contents();
        assert_eq!((contents[slice_end - 1], contents[slice_end]), (7, 0));
        assert_eq!(world.peer.answers(), [], "not yet safe");
        world.go_on(1);
    }
    assert_eq!(world.peer.answers(), [(LONG, GOOD)]);
    assert!(world.peer.is_idle() && world.leases() == [0, 0]);
}

#[test]
fn copies_are_answered_in_any_order() {
    copy_out_of_order::<Session>();
    copy_out_of_order::<Iser>();
}

fn copy_out_of_order<P: Peer>() {
    let mut world = World::<P>::new();
    for itt in [1, 2] {
        world.peer.copy(itt, 8, [0, 0]);
    }
    let tickets = world.waiting();
    for (volume, at) in [(1, 0), (0, 1), (0, 0), (1, 1)] {
        world.complete(volume, tickets[volume][at], Ok(()));
    }
    let settling = world.volumes[1].waiting();
    assert_eq!(settling, tickets[1]);
    for at in [1, 0] {
        world.complete(1, settling[at], Ok(()));
    }
    assert_eq!(world.peer.answers(), [(2, GOOD), (1, GOOD)]);
    assert!(world.peer.is_idle() && world.leases() == [0, 0]);
}

#[test]
fn a_copy_inside_one_volume_holds_two_leases() {
    copy_inside_one::<Session>();
    copy_inside_one::<Iser>();
}

fn copy_inside_one<P: Peer>() {
    let mut world = World::<P>::new();
    world.volumes[0].set_lateness(Lateness::Filling);
    let list = scsi::testing::copy_list([0, 0], 8, [0, 16]);
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x83, list.len() as u8);
    world.peer.command(LONG, WRITE, &cdb, &list);
    let tickets = world.volumes[0].waiting();
    assert_eq!(tickets.len(), 2);
    for ticket in tickets {
        world.complete(0, ticket, Ok(()));
    }
    assert_eq!(world.peer.answers(), [(LONG, GOOD)]);
    assert!(world.peer.is_idle() && world.leases() == [0, 0]);
}

#[test]
fn a_copy_fails_where_a_volume_fails() {
    fail_copies::<Session>();
    fail_copies::<Iser>();
}

fn fail_copies<P: Peer>() {
    for (steps, volume) in [(0, 0), (0, 1), (1, 1), (2, 1)] {
        let mut world = copying::<P>(steps);
        let ticket = world.volumes[volume].waiting()[0];
        world.complete(volume, ticket, Err(Status::WriteError));
        assert_eq!(world.peer.answers(), [(LONG, CHECK_CONDITION)], "{steps}");
        assert_eq!(world.leases(), [0, 0], "{steps}");
        world.answer_all_late();
        assert!(world.peer.is_idle() && world.peer.answers().is_empty());
    }
    let mut world = World::<P>::new();
    world.volumes[1].set_leases_max(0);
    world.peer.copy(LONG, 8, [0, 0]);
    assert_eq!(world.peer.answers(), [(LONG, CHECK_CONDITION)]);
    assert!(world.peer.is_idle() && world.leases() == [0, 0]);
}

#[test]
fn a_copy_that_is_aborted_holds_nothing() {
    abort_copies::<Session>();
    abort_copies::<Iser>();
}

fn abort_copies<P: Peer>() {
    for steps in 0..COPY_STEPS {
        let mut world = copying::<P>(steps);
        world.peer.manage(1, function::ABORT_TASK, LONG);
        assert_eq!(world.peer.answers(), [(1, function_response::COMPLETE)]);
        assert_eq!(world.leases(), [0, 0], "{steps}");
        world.answer_all_late();
        assert!(world.peer.is_idle() && world.peer.answers().is_empty());

        let mut world = copying::<P>(steps);
        let mut other = P::connect(&world.target, "iqn.2026-11.com.example:other");
        other.manage(1, function::CLEAR_TASK_SET, 0);
        world.answer_all_late();
        world.peer.wake();
        assert_eq!(world.peer.answers(), [(LONG, TASK_ABORTED)]);
        assert!(world.peer.is_idle() && world.leases() == [0, 0]);
    }
}

#[test]
fn the_end_of_a_connection_ends_the_leases_of_its_copies() {
    close_while_copying::<Session>();
    close_while_copying::<Iser>();
}

fn close_while_copying<P: Peer>() {
    for steps in 0..COPY_STEPS {
        let mut world = copying::<P>(steps);
        world.peer.close();
        assert_eq!(world.leases(), [0, 0], "{steps}");
        world.answer_all_late();
    }
}

#[test]
fn a_copy_fails_when_one_of_its_units_is_removed() {
    remove_while_copying::<Session>();
    remove_while_copying::<Iser>();
}

fn remove_while_copying<P: Peer>() {
    for lun in [0, 1] {
        for steps in 0..COPY_STEPS {
            let mut world = copying::<P>(steps);
            world.target.device().remove_unit(lun);
            world.peer.wake();
            assert_eq!(world.peer.answers(), [(LONG, CHECK_CONDITION)]);
            assert_eq!(world.leases(), [0, 0], "{steps}");
            world.answer_all_late();
            assert!(world.peer.is_idle() && world.peer.answers().is_empty());
        }
    }
}

#[test]
fn a_sanitize_is_answered_at_once_or_when_it_is_safe() {
    sanitize_all::<Session>();
    sanitize_all::<Iser>();
}

fn sanitize_all<P: Peer>() {
    for flags in [0, IMMED] {
        let mut world = World::<P>::new();
        world.peer.sanitize(LONG, flags);
        let is_immediate = flags == IMMED;
        let at_once = world.peer.answers();
        assert_eq!(at_once, [(LONG, GOOD)][..usize::from(is_immediate)]);
        for step in ["filled", "settled"] {
            assert_eq!((world.peer.is_idle(), world.leases()), (false, [1, 0]));
            world.peer.command(1, FINAL, &TEST_UNIT_READY, &[]);
            assert_eq!(world.peer.answers(), [(1, CHECK_CONDITION)], "{step}");
            world.go_on(0);
        }
        let when_safe = world.peer.answers();
        assert_eq!(when_safe, [(LONG, GOOD)][usize::from(is_immediate)..]);
        assert!(world.peer.is_idle() && world.leases() == [0, 0]);
        assert_eq!(world.target.volume(0).contents()[..4], [0; 4]);
        world.peer.command(1, FINAL, &TEST_UNIT_READY, &[]);
        assert_eq!(world.peer.answers(), [(1, GOOD)]);
    }
}

#[test]
fn a_sanitize_fails_where_its_volume_fails() {
    fail_sanitizing::<Session>();
    fail_sanitizing::<Iser>();
}

fn fail_sanitizing<P: Peer>() {
    for steps in [0, 1] {
        let mut world = World::<P>::new();
        world.peer.sanitize(LONG, 0);
        for _ in 0..steps {
            world.go_on(0);
        }
        let ticket = world.volumes[0].waiting()[0];
        world.complete(0, ticket, Err(Status::WriteError));
        assert_eq!(world.peer.answers(), [(LONG, CHECK_CONDITION)]);
        world.peer.command(1, FINAL, &TEST_UNIT_READY, &[]);
        assert_eq!(
            world.peer.answers(),
            [(1, CHECK_CONDITION)],
            "it has failed"
        );
        assert!(world.peer.is_idle() && world.leases() == [0, 0]);
    }
    let mut world = World::<P>::new();
    world.volumes[0].set_leases_max(0);
    world.peer.sanitize(LONG, IMMED);
    world.peer.command(1, FINAL, &TEST_UNIT_READY, &[]);
    let answers = [(LONG, CHECK_CONDITION), (1, GOOD)];
    assert_eq!(world.peer.answers(), answers, "it has never begun");
}

#[test]
fn a_sanitize_goes_on_without_its_command_and_connection() {
    close_while_sanitizing::<Session>();
    close_while_sanitizing::<Iser>();
}

fn close_while_sanitizing<P: Peer>() {
    for steps in [0, 1] {
        let mut world = World::<P>::new();
        world.peer.sanitize(LONG, 0);
        world.peer.manage(1, function::ABORT_TASK, LONG);
        assert_eq!(world.peer.answers(), [(1, function_response::COMPLETE)]);
        for _ in 0..steps {
            world.go_on(0);
        }
        assert_eq!((world.peer.is_idle(), world.leases()), (false, [1, 0]));
        world.peer.close();
        assert_eq!(world.leases(), [0, 0]);
        world.answer_all_late();
        let mut adopted = world.target.take_adopted();
        assert_eq!(adopted.len(), 1);
        world.volumes[0].set_lateness(Lateness::Never);
        let response = scsi::testing::sanitize(&mut adopted[0]);
        assert_eq!(response, scsi::Response::good());
        assert_eq!(world.target.volume(0).contents()[..4], [0; 4]);
    }
}

#[test]
fn a_sanitize_ends_when_its_unit_is_removed() {
    remove_while_sanitizing::<Session>();
    remove_while_sanitizing::<Iser>();
}

fn remove_while_sanitizing<P: Peer>() {
    for steps in [0, 1] {
        for is_replaced in [false, true] {
            let mut world = World::<P>::new();
            world.peer.sanitize(LONG, 0);
            for _ in 0..steps {
                world.go_on(0);
            }
            world.target.device().remove_unit(0);
            if is_replaced {
                // Another operation may begin before the connection learns that the first is over.
                let unit = Arc::new(VecVolume::new(BlockSize::B512, 8));
                let identity = scsi::UnitIdentity::derived(9, "another".into());
                world.target.device().insert_unit(0, unit, identity);
                world.peer.parts().1.clear_attention();
                world.peer.sanitize(1, 0);
                assert_eq!(world.peer.answers(), [(1, GOOD)]);
            }
            world.peer.wake();
            assert_eq!(world.peer.answers(), [(LONG, CHECK_CONDITION)]);
            assert!(world.peer.is_idle() && world.leases() == [0, 0]);
            world.answer_all_late();
            world.peer.close();
            assert!(world.target.take_adopted().is_empty());
        }
    }
}

/// A command that a script has begun, by its tag.
struct Begun {
    itt: u32,
    /// What it copies: bytes of LUN 1. Empty for a SANITIZE of LUN 0.
    copied: std::ops::Range<usize>,
}

/// Takes the answers out of what is pending: each command is answered once, and what was copied is
/// there.
fn take_answers<P: Peer>(world: &mut World<P>, pending: &mut Vec<Begun>, is_sanitized: bool) {
    for (itt, status) in world.peer.answers() {
        if itt == ABORT {
            continue;
        }
        let at = pending.iter().position(|begun| begun.itt == itt);
        let begun = pending.swap_remove(at.expect("answered once"));
        if status == GOOD && !is_sanitized {
            let contents = world.target.volume(1).contents();
            assert!(contents[begun.copied].iter().all(|byte| *byte == 7));
        }
    }
}

/// The tag of task management.
const ABORT: u32 = 0xFFFF;

/// Runs a script; every command that is not aborted is answered once, and no lease is held at the
/// end.
fn run_script<P: Peer>(script: &[(u8, u8)]) {
    let mut world = World::<P>::new();
    let (mut next, mut pending, mut is_sanitized) = (1_u32, Vec::new(), false);
    for (what, which) in script {
        let (at, rest) = (usize::from(which & 1), usize::from(which >> 1));
        match what % 8 {
            0 | 1 => {
                let (blocks, lba) = (u16::from(*which) * 64, *which);
                let start = usize::from(lba) << 9;
                world.peer.copy(next, blocks, [0, lba]);
                let copied = start..start + (usize::from(blocks) << 9);
                pending.push(Begun { itt: next, copied });
                next += 1;
            }
            2 if *which < 64 => {
                world.peer.sanitize(next, (which & 1) << 7);
                let copied = 0..0;
                pending.push(Begun { itt: next, copied });
                (next, is_sanitized) = (next + 1, true);
            }
            3 if !pending.is_empty() => {
                let begun = pending.swap_remove(usize::from(*which) % pending.len());
                world.peer.manage(ABORT, function::ABORT_TASK, begun.itt);
            }
            4 => {
                let all = [Lateness::Settling, Lateness::Filling, Lateness::Both];
                world.volumes[at].set_lateness(all[rest % all.len()]);
            }
            kind => {
                let waiting = world.volumes[at].waiting();
                if !waiting.is_empty() {
                    let fails = kind == 5 && *which < 16;
                    let result = if fails {
                        Err(Status::WriteError)
                    } else {
                        Ok(())
                    };
                    world.complete(at, waiting[rest % waiting.len()], result);
                }
            }
        }
        take_answers(&mut world, &mut pending, is_sanitized);
    }
    world.peer.take_turns();
    while world.waiting() != [vec![], vec![]] {
        world.answer_all_late();
    }
    take_answers(&mut world, &mut pending, is_sanitized);
    assert_eq!((pending.len(), world.leases()), (0, [0, 0]));
    assert!(world.peer.is_idle());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(64)))]

    #[test]
    fn nothing_is_left_of_any_mixture(script in prop::collection::vec(any::<(u8, u8)>(), 0..80)) {
        run_script::<Session>(&script);
        run_script::<Iser>(&script);
    }
}
