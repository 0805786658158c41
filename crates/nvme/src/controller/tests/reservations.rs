use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use super::*;
use crate::wire::feature;
use crate::wire::log::{ReservationLog, lid};
use crate::wire::reservation::{
    IGNORE_EXISTING_KEY, RegisteredController, ReservationKeys, ReservationStatus,
};

const RESERVATION_LOG: u64 = 0x0080_0006;
const REGISTER: u32 = 0;
const UNREGISTER: u32 = 1;
const REPLACE: u32 = 2;
const PREEMPT: u32 = 1;
const PREEMPT_AND_ABORT: u32 = 2;
const WRITE_EXCLUSIVE: u32 = 1 << 8;
const EXCLUSIVE_ACCESS: u32 = 2 << 8;

/// Two hosts with an I/O queue each.
struct Pair {
    fixture: Fixture,
    admin: [Connection; 2],
    io: [Connection; 2],
    /// Who was woken by [`Self::ok`].
    woken: Vec<u64>,
}

impl Pair {
    fn new() -> Self {
        let mut fixture = Fixture::new();
        let admin = [1, 2].map(|id| fixture.host_with(|request| request.host.id = [id; 16]));
        let io = [0, 1].map(|at: usize| fixture.io_queue(&admin[at], 1));
        fixture.wakes();
        let woken = Vec::new();
        Self {
            fixture,
            admin,
            io,
            woken,
        }
    }

    /// Both are registered with namespace 1, with keys 100 and 101.
    fn registered() -> Self {
        let mut pair = Self::new();
        for (at, key) in [(0, 100), (1, 101)] {
            pair.ok(at, opcode::RESERVATION_REGISTER, REGISTER, 0, key);
        }
        pair
    }

    fn command(&mut self, host: usize, opcode: u8, cdw10: u32, keys: [u64; 2]) -> Reply {
        let keys = ReservationKeys {
            current: U64::new(keys[0]),
            other: U64::new(keys[1]),
        };
        let sqe = sqe(opcode, 1, cdw10);
        self.fixture
            .subsystem
            .io_control(&self.io[host], &sqe, keys.as_bytes())
    }

    /// A command that must succeed, at once or after the other host's connection has acknowledged
    /// it.
    fn ok(&mut self, host: usize, opcode: u8, cdw10: u32, current: u64, other: u64) {
        let done = Completion::SUCCESS;
        let reply = self.command(host, opcode, cdw10, [current, other]);
        self.woken = self.fixture.wakes();
        let subsystem = &mut self.fixture.subsystem;
        if reply == Reply::Hold {
            assert_eq!(subsystem.poll_kept(&self.io[host]), None);
            assert!(subsystem.acknowledge(&self.io[1 - host]));
            assert_eq!(subsystem.poll_kept(&self.io[host]), Some((CID, done)));
            assert_eq!(self.fixture.wakes(), [self.io[host].wake.0]);
        } else {
            assert_eq!(reply, Reply::Done(done));
        }
    }

    fn error(&mut self, host: usize, opcode: u8, cdw10: u32, keys: [u64; 2]) -> StatusCode {
        code(&self.command(host, opcode, cdw10, keys))
    }

    fn may(&self, host: usize, class: CommandClass) -> bool {
        let controller = self.admin[host].controller;
        let permit = self.fixture.subsystem.permit(controller, Nsid(1));
        permit.check(class).is_ok()
    }

    fn report(&mut self, len_bytes: u32) -> Reply {
        let mut sqe = sqe(opcode::RESERVATION_REPORT, 1, len_bytes / 4 - 1);
        sqe.cdw11 = U32::new(1);
        self.fixture.subsystem.io_control(&self.io[0], &sqe, &[])
    }
}

#[test]
fn a_reservation_excludes_the_other_host_and_the_generation_moves() {
    let mut pair = Pair::registered();
    let generation = pair.fixture.subsystem.generation();
    let before = generation.get();
    pair.ok(0, opcode::RESERVATION_ACQUIRE, WRITE_EXCLUSIVE, 100, 0);
    assert_ne!(generation.get(), before);
    assert!(pair.may(0, CommandClass::Write));
    assert!(pair.may(1, CommandClass::Read));
    assert!(!pair.may(1, CommandClass::Write));
    let other = pair.admin[1].controller;
    let permit = pair.fixture.subsystem.permit(other, Nsid(2));
    assert_eq!(permit, Permit::ALL, "another namespace");
    pair.ok(0, opcode::RESERVATION_RELEASE, WRITE_EXCLUSIVE, 100, 0);
    assert!(pair.may(1, CommandClass::Write));
}

#[test]
fn a_preempted_host_gets_the_reason() {
    for action in [PREEMPT, PREEMPT_AND_ABORT] {
        let mut pair = Pair::registered();
        let victim = pair.admin[0].clone();
        pair.fixture.request_events(&victim, 3);
        pair.ok(0, opcode::RESERVATION_ACQUIRE, EXCLUSIVE_ACCESS, 100, 0);
        pair.ok(
            1,
            opcode::RESERVATION_ACQUIRE,
            action | EXCLUSIVE_ACCESS,
            101,
            100,
        );
        assert!(!pair.may(0, CommandClass::Read) && pair.may(1, CommandClass::Write));
        assert_eq!(pair.woken, [victim.wake.0, pair.io[0].wake.0]);
        assert_eq!(pair.fixture.events(&victim), [RESERVATION_LOG]);
        let log = |pair: &mut Pair| {
            let bytes = pair.fixture.log(&victim, lid::RESERVATION, 64);
            let log = ReservationLog::read_from_bytes(&bytes).expect("64 bytes");
            (log.count.get(), log.kind, log.available, log.nsid.get())
        };
        assert_eq!(log(&mut pair), (1, 3, 1, 1), "reservation preempted");
        assert_eq!(
            pair.fixture.events(&victim),
            [RESERVATION_LOG],
            "there is another"
        );
        assert_eq!(log(&mut pair), (2, 1, 0, 1), "registration preempted");
        assert_eq!(log(&mut pair), (0, 0, 0, 0), "nothing more");
        assert_eq!(pair.fixture.events(&victim), []);
    }
}

#[test]
fn masked_notices_are_not_given() {
    let mut pair = Pair::registered();
    let victim = pair.admin[0].clone();
    pair.fixture.request_events(&victim, 3);
    let mut mask = sqe(
        opcode::SET_FEATURES,
        1,
        u32::from(feature::RESERVATION_NOTIFICATION_MASK),
    );
    mask.cdw11 = U32::new(0b1110);
    pair.fixture.ok(&victim, &mask);
    pair.ok(
        1,
        opcode::RESERVATION_ACQUIRE,
        PREEMPT | WRITE_EXCLUSIVE,
        101,
        100,
    );
    assert_eq!(pair.fixture.events(&victim), []);
    assert_eq!(pair.fixture.log(&victim, lid::RESERVATION, 64), [0; 64]);
}

#[test]
fn controllers_of_one_host_share_its_registration() {
    let mut pair = Pair::registered();
    pair.ok(0, opcode::RESERVATION_ACQUIRE, EXCLUSIVE_ACCESS, 100, 0);
    let again = pair.fixture.host_with(|request| request.host.id = [1; 16]);
    let permit = pair.fixture.subsystem.permit(again.controller, Nsid(1));
    assert_eq!(permit, Permit::ALL);
}

#[test]
fn registrations_outlive_the_connection() {
    let mut pair = Pair::registered();
    pair.ok(0, opcode::RESERVATION_ACQUIRE, EXCLUSIVE_ACCESS, 100, 0);
    let gone = pair.admin[0].clone();
    pair.fixture.subsystem.connection_closed(&gone);
    assert!(!pair.may(1, CommandClass::Read));
    let back = pair.fixture.host_with(|request| request.host.id = [1; 16]);
    let permit = pair.fixture.subsystem.permit(back.controller, Nsid(1));
    assert_eq!(permit, Permit::ALL);
}

#[test]
fn the_report_lists_registered_hosts_without_their_dynamic_controllers() {
    let mut pair = Pair::registered();
    pair.ok(1, opcode::RESERVATION_ACQUIRE, WRITE_EXCLUSIVE, 101, 0);
    let gone = pair.admin[1].clone();
    pair.fixture.subsystem.connection_closed(&gone);
    let Reply::Data(bytes) = pair.report(64 * 4) else {
        panic!("data are expected");
    };
    assert_eq!(bytes.len(), 256);
    let (head, rest) = ReservationStatus::read_from_prefix(&bytes).expect("64 bytes");
    assert_eq!(
        (head.generation.get(), head.kind, head.controllers.get()),
        (2, 1, 2)
    );
    let (first, rest) = RegisteredController::read_from_prefix(rest).expect("64 bytes");
    let (second, rest) = RegisteredController::read_from_prefix(rest).expect("64 bytes");
    assert_eq!(first.controller.get(), 0xFFFF, "although it has one");
    assert_eq!(first, RegisteredController::new(0, 100, [1; 16]));
    assert_eq!(second, RegisteredController::new(1, 101, [2; 16]));
    assert_eq!(rest, [0; 64]);
    let Reply::Data(bytes) = pair.report(64) else {
        panic!("data are expected");
    };
    assert_eq!(
        (bytes.len(), bytes[5]),
        (64, 2),
        "cut, but the number is true"
    );
}

#[test]
fn a_report_needs_the_extended_structure_and_room() {
    let mut pair = Pair::new();
    let short = sqe(opcode::RESERVATION_REPORT, 1, 15);
    let reply = pair.fixture.subsystem.io_control(&pair.io[0], &short, &[]);
    assert_eq!(code(&reply), StatusCode::HostIdInconsistentFormat);
    let reply = pair.report(8192);
    assert_eq!(code(&reply), StatusCode::DataSglLengthInvalid);
    let reply = pair.report(0xFFFF_FFFC);
    assert_eq!(code(&reply), StatusCode::InvalidField);
    assert!(matches!(pair.report(64), Reply::Data(_)));
}

#[test]
fn malformed_reservation_commands_are_invalid() {
    const IGNORE: u32 = 1 << 3;
    let mut pair = Pair::registered();
    for (opcode, cdw10) in [
        (opcode::RESERVATION_REGISTER, 3),
        (opcode::RESERVATION_ACQUIRE, 3 | WRITE_EXCLUSIVE),
        (opcode::RESERVATION_ACQUIRE, 0),
        (opcode::RESERVATION_ACQUIRE, 7 << 8),
        (opcode::RESERVATION_ACQUIRE, IGNORE | WRITE_EXCLUSIVE),
        (opcode::RESERVATION_RELEASE, 2),
        (opcode::RESERVATION_RELEASE, IGNORE | WRITE_EXCLUSIVE),
    ] {
        let status = pair.error(0, opcode, cdw10, [100, 0]);
        assert_eq!(status, StatusCode::InvalidField, "{opcode:#x} {cdw10:#x}");
    }
    for opcode in [
        opcode::RESERVATION_REGISTER,
        opcode::RESERVATION_ACQUIRE,
        opcode::RESERVATION_RELEASE,
    ] {
        let sqe = sqe(opcode, 1, WRITE_EXCLUSIVE);
        let reply = pair
            .fixture
            .subsystem
            .io_control(&pair.io[0], &sqe, &[0; 7]);
        assert_eq!(code(&reply), StatusCode::DataSglLengthInvalid);
        for nsid in [0, 3, 0xFFFF_FFFF] {
            let sqe = super::sqe(opcode, nsid, WRITE_EXCLUSIVE);
            let reply = pair
                .fixture
                .subsystem
                .io_control(&pair.io[0], &sqe, &[0; 16]);
            assert_eq!(code(&reply), StatusCode::InvalidNamespaceOrFormat);
        }
    }
}

#[test]
fn hosts_without_identifier_or_write_access_do_not_reserve() {
    let mut fixture = Fixture::new();
    let nameless = fixture.host_with(|request| request.host.id = [0; 16]);
    let reader = fixture.host_with(|request| request.access = Access::ReadOnly);
    for (admin, expected) in [
        (nameless, StatusCode::OperationDenied),
        (reader, StatusCode::AccessDenied),
    ] {
        let io = fixture.io_queue(&admin, 1);
        let sqe = sqe(opcode::RESERVATION_REGISTER, 1, REGISTER);
        let reply = fixture.subsystem.io_control(&io, &sqe, &[1; 16]);
        assert_eq!(code(&reply), expected);
    }
}

#[test]
fn a_new_namespace_of_the_same_number_has_no_reservations() {
    let mut pair = Pair::registered();
    pair.ok(0, opcode::RESERVATION_ACQUIRE, EXCLUSIVE_ACCESS, 100, 0);
    pair.fixture
        .subsystem
        .remove_namespace(Nsid(1))
        .expect("it was there");
    pair.fixture.add_namespace(1);
    assert!(pair.may(1, CommandClass::Write));
    let status = pair.error(0, opcode::RESERVATION_REGISTER, UNREGISTER, [100, 0]);
    assert_eq!(status, StatusCode::ReservationConflict);
}

#[test]
fn a_command_that_takes_rights_waits_until_every_connection_has_noticed() {
    let mut pair = Pair::registered();
    let second = pair.fixture.io_queue(&pair.admin[1], 2);
    let acquire =
        |pair: &mut Pair| pair.command(0, opcode::RESERVATION_ACQUIRE, WRITE_EXCLUSIVE, [100, 0]);
    assert_eq!(acquire(&mut pair), Reply::Hold);
    assert!(
        !pair.may(1, CommandClass::Write),
        "it holds from now on all the same"
    );
    assert_eq!(pair.fixture.wakes(), [pair.io[1].wake.0, second.wake.0]);
    let [issuer, other] = pair.io.clone();
    let subsystem = &mut pair.fixture.subsystem;
    assert!(subsystem.acknowledge(&other));
    assert_eq!(subsystem.poll_kept(&issuer), None);
    subsystem.connection_closed(&second);
    assert_eq!(subsystem.poll_wake(), Some(issuer.wake));
    assert_eq!(subsystem.poll_kept(&other), None, "another connection's");
    assert_eq!(
        subsystem.poll_kept(&issuer),
        Some((CID, Completion::SUCCESS))
    );
    assert_eq!(subsystem.poll_kept(&issuer), None);
    assert_eq!(
        acquire(&mut pair),
        Reply::Done(Completion::SUCCESS),
        "nobody loses anything"
    );
}

#[test]
fn a_foreign_connection_is_excluded_like_a_host_that_has_not_registered_and_is_waited_for() {
    let mut pair = Pair::registered();
    let (first, second) = (WakeToken(901), WakeToken(902));
    let subsystem = &mut pair.fixture.subsystem;
    subsystem.add_foreign(first);
    subsystem.add_foreign(second);
    let may = |subsystem: &Subsystem, access, class| {
        let permit = subsystem.foreign_permit(access, Nsid(1));
        permit.check(class).is_ok()
    };
    assert!(may(subsystem, Access::ReadWrite, CommandClass::Write));
    assert!(!may(subsystem, Access::ReadOnly, CommandClass::Write));
    assert!(!may(subsystem, Access::Denied, CommandClass::Read));
    let reply = pair.command(0, opcode::RESERVATION_ACQUIRE, EXCLUSIVE_ACCESS, [100, 0]);
    assert_eq!(reply, Reply::Hold);
    assert_eq!(pair.fixture.wakes(), [pair.io[1].wake.0, 901, 902]);
    let [issuer, other] = pair.io.clone();
    let subsystem = &mut pair.fixture.subsystem;
    assert!(!may(subsystem, Access::ReadWrite, CommandClass::Read));
    assert!(subsystem.acknowledge(&other));
    subsystem.acknowledge_foreign(first);
    assert_eq!(subsystem.poll_kept(&issuer), None);
    subsystem.remove_foreign(second);
    assert_eq!(subsystem.poll_wake(), Some(issuer.wake));
    let done = Completion::SUCCESS;
    assert_eq!(subsystem.poll_kept(&issuer), Some((CID, done)));
    subsystem.namespace_changed(Nsid(1));
    let woken = pair.fixture.wakes();
    assert!(woken.contains(&901) && !woken.contains(&902), "{woken:?}");
}

#[test]
fn a_connection_that_was_cut_off_but_may_still_write_is_waited_for() {
    let mut pair = Pair::registered();
    let (issuer, victim) = (pair.io[0].clone(), pair.io[1].clone());
    pair.fixture
        .subsystem
        .delete_controller(pair.admin[1].controller);
    let reply = pair.command(0, opcode::RESERVATION_ACQUIRE, WRITE_EXCLUSIVE, [100, 0]);
    assert_eq!(reply, Reply::Hold);
    let subsystem = &mut pair.fixture.subsystem;
    assert!(!subsystem.acknowledge(&victim), "it must be closed");
    assert_eq!(
        subsystem.poll_kept(&issuer),
        Some((CID, Completion::SUCCESS))
    );
}

#[test]
fn a_command_whose_connection_ends_is_not_waited_for() {
    let mut pair = Pair::registered();
    let (issuer, victim) = (pair.io[0].clone(), pair.io[1].clone());
    let reply = pair.command(0, opcode::RESERVATION_ACQUIRE, WRITE_EXCLUSIVE, [100, 0]);
    assert_eq!(reply, Reply::Hold);
    let subsystem = &mut pair.fixture.subsystem;
    subsystem.connection_closed(&issuer);
    assert!(subsystem.acknowledge(&victim));
    assert_eq!(subsystem.poll_kept(&issuer), None);
}

#[test]
fn a_register_that_asks_for_persistence_succeeds_without_it() {
    const PERSIST: u32 = 0b11 << 30;
    const RESERVED: u32 = 0b01 << 30;
    let mut pair = Pair::new();
    let refused = pair.error(0, opcode::RESERVATION_REGISTER, RESERVED, [0, 100]);
    assert_eq!(refused, StatusCode::InvalidField);
    // Linux's IOC_PR_REGISTER: without an old key, with one, and with PR_FL_IGNORE_KEY.
    for (flags, current, new) in [
        (REGISTER, 0, 100),
        (REPLACE, 100, 102),
        (REGISTER | IGNORE_EXISTING_KEY, 0, 102),
    ] {
        let cdw10 = PERSIST | flags;
        pair.ok(0, opcode::RESERVATION_REGISTER, cdw10, current, new);
        let Reply::Data(bytes) = pair.report(4096) else {
            panic!("data are expected");
        };
        let (head, rest) = ReservationStatus::read_from_prefix(&bytes).expect("64 bytes");
        assert_eq!((head.controllers.get(), head.persists), (1, 0));
        let (entry, _) = RegisteredController::read_from_prefix(rest).expect("64 bytes");
        assert_eq!(entry.key.get(), new);
    }
}
