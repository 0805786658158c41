//! Queues whose hosts have to prove a secret.

use std::sync::Mutex;

use super::*;
use crate::auth::{
    AuthOutcome, AuthStep, Concatenation, Credentials, DhGroup, GroupPolicy, Hash, HostAuth,
    HostAuthError, HostCredentials, Names, Secret, Seed,
};
use crate::controller::Subsystem;
use crate::tcp::wire::{Dgst, Pda};
use crate::testing::{Computes, subsystem};
use crate::wire::auth::{
    AuthenticationSqe, CONNECT_AUTHENTICATION_REQUIRED, FailureReason, MESSAGE_MAX_BYTES,
};
use crate::wire::fabrics::{Configuration, ConnectData, Property, PropertySqe, fctype};

fn secret(byte: u8) -> Secret {
    Secret::new(&[byte; 32], Some(Hash::Sha256)).expect("32 bytes")
}

fn credentials(group: GroupPolicy) -> Arc<Credentials> {
    Arc::new(Credentials {
        secret: secret(1),
        other_secret: None,
        controller_secret: Some(secret(2)),
        hash: None,
        group,
    })
}

fn host(byte: u8) -> HostAuth {
    let credentials = HostCredentials {
        secret: secret(byte),
        controller_secret: Some(secret(2)),
        hash: None,
        group: GroupPolicy::Any,
    };
    let names = Names {
        host_nqn: "nqn.2014-08.org.example:host".to_owned(),
        subsystem_nqn: "nqn.2014-08.org.example:test".to_owned(),
    };
    HostAuth::new(credentials, names, 7, Seed::new([9; Seed::BYTES]))
}

/// A connection that has been initialized, whose host must prove a secret.
fn connection(subsystem: &Arc<Mutex<Subsystem>>, wake: u64, group: GroupPolicy) -> Peer {
    let mut peer = Peer::new(ControllerConfig::default(), Arc::clone(subsystem), wake);
    peer.backend.credentials = Some(credentials(group));
    peer.initialize(Pda(0), Dgst::NONE, 16);
    peer
}

/// An admin queue that has connected, and the identifier of its controller.
fn admin(subsystem: &Arc<Mutex<Subsystem>>, wake: u64, group: GroupPolicy) -> (Peer, u16) {
    let mut peer = connection(subsystem, wake, group);
    let cqe = peer.connect(0, ConnectData::CONTROLLER_ANY, 32);
    assert!(cqe.status().is_success());
    assert_ne!(cqe.dw0() & CONNECT_AUTHENTICATION_REQUIRED, 0);
    (peer, cqe.dw0() as u16)
}

fn send(message: &[u8]) -> Sqe {
    let sqe = AuthenticationSqe::new(fctype::AUTHENTICATION_SEND, message.len() as u32);
    zerocopy::transmute!(sqe)
}

fn receive(len_bytes: u32) -> Sqe {
    let sqe = AuthenticationSqe::new(fctype::AUTHENTICATION_RECEIVE, len_bytes);
    let mut sqe: Sqe = zerocopy::transmute!(sqe);
    sqe.sgl1 = Sgl::transport(len_bytes);
    sqe
}

/// Authenticates the queue as far as that goes.
fn authenticate(peer: &mut Peer, host: &mut HostAuth) -> AuthStep {
    loop {
        match host.poll() {
            AuthStep::Send(message) => {
                let (_, status) = peer.command(&send(&message), &message);
                assert!(status.is_success(), "{status:?}");
            }
            AuthStep::Receive => {
                let (message, status) = peer.command(&receive(MESSAGE_MAX_BYTES as u32), &[]);
                assert!(status.is_success(), "{status:?}");
                assert_eq!(message.len(), MESSAGE_MAX_BYTES);
                host.handle_message(&message);
            }
            end => return end,
        }
    }
}

fn enable() -> Sqe {
    let enable = u64::from(Configuration::ENABLE_NVM.0);
    zerocopy::transmute!(PropertySqe::set(Cid(1), Property::Configuration, enable))
}

/// An I/O queue of a controller whose admin queue is authenticated and enabled.
fn io(group: GroupPolicy) -> (Peer, Peer) {
    let subsystem = subsystem(Limits::default(), &[volume()]);
    let (mut admin, controller) = admin(&subsystem, 1, group);
    assert_eq!(authenticate(&mut admin, &mut host(1)), AuthStep::Done);
    assert!(admin.command(&enable(), &[]).1.is_success());
    let mut io = connection(&subsystem, 2, group);
    io.backend.concatenation = Concatenation::Offered;
    let cqe = io.connect(1, controller, 128);
    assert!(cqe.status().is_success());
    assert_ne!(cqe.dw0() & CONNECT_AUTHENTICATION_REQUIRED, 0);
    (io, admin)
}

#[test]
fn an_admin_queue_executes_nothing_before_its_host_is_authenticated() {
    let subsystem = subsystem(Limits::default(), &[volume()]);
    let (mut peer, controller) = admin(&subsystem, 1, GroupPolicy::NoGroup);
    let get = PropertySqe::get(Cid(1), Property::Capabilities);
    for sqe in [
        zerocopy::transmute!(get),
        enable(),
        Sqe::new(opcode::IDENTIFY, Cid(1), Nsid::NONE),
        Sqe::new(opcode::KEEP_ALIVE, Cid(1), Nsid::NONE),
        Sqe::new(opcode::ASYNC_EVENT_REQUEST, Cid(1), Nsid::NONE),
    ] {
        assert_code(
            peer.command(&sqe, &[]).1,
            StatusCode::AuthenticationRequired,
        );
    }
    let mut io = connection(&subsystem, 2, GroupPolicy::NoGroup);
    assert!(!io.connect(1, controller, 32).status().is_success());
    assert_eq!(authenticate(&mut peer, &mut host(1)), AuthStep::Done);
    assert!(peer.command(&enable(), &[]).1.is_success());
    let expected = AuthOutcome::Authenticated {
        hash: Hash::Sha256,
        group: None,
        is_mutual: true,
    };
    assert_eq!(peer.backend.authentications, [expected]);
}

#[test]
fn an_io_queue_executes_nothing_before_its_host_is_authenticated() {
    let (mut io, _admin) = io(GroupPolicy::NoGroup);
    let data = vec![5; 512];
    for (sqe, data) in [
        (read(1, 0, 1), &[][..]),
        (write_in_capsule(2, 0, 1), &data),
        (
            transfer(opcode::WRITE_ZEROES, 3, 0, 1, Sgl::transport(0)),
            &[],
        ),
        (Sqe::new(opcode::RESERVATION_REPORT, Cid(4), Nsid(1)), &[]),
    ] {
        assert_code(io.command(&sqe, data).1, StatusCode::AuthenticationRequired);
    }
    assert_eq!(authenticate(&mut io, &mut host(1)), AuthStep::Done);
    let (data, status) = io.command(&read(1, 0, 1), &[]);
    assert!(status.is_success() && data == volume().contents()[..512]);
}

#[test]
fn a_wrong_secret_is_told_and_ends_the_connection() {
    let subsystem = subsystem(Limits::default(), &[volume()]);
    let (mut peer, _) = admin(&subsystem, 1, GroupPolicy::NoGroup);
    let error = HostAuthError::Rejected(FailureReason::Failed);
    assert_eq!(
        authenticate(&mut peer, &mut host(3)),
        AuthStep::Failed(error)
    );
    assert!(peer.session.is_closing());
    let expected = AuthOutcome::Rejected(FailureReason::Failed);
    assert_eq!(peer.backend.authentications, [expected]);
}

#[test]
fn an_admin_queue_authenticates_again_and_goes_on_meanwhile() {
    let subsystem = subsystem(Limits::default(), &[volume()]);
    let (mut peer, _) = admin(&subsystem, 1, GroupPolicy::NoGroup);
    authenticate(&mut peer, &mut host(1));
    let mut again = host(1);
    let AuthStep::Send(negotiate) = again.poll() else {
        panic!("a message");
    };
    peer.command(&send(&negotiate), &negotiate);
    assert!(peer.command(&enable(), &[]).1.is_success());
    let (challenge, _) = peer.command(&receive(MESSAGE_MAX_BYTES as u32), &[]);
    again.handle_message(&challenge);
    assert_eq!(authenticate(&mut peer, &mut again), AuthStep::Done);
    assert_eq!(peer.backend.authentications.len(), 2);
    assert!(!peer.session.is_closing());
    // A changed secret counts from the next time on.
    let mut changed = Credentials::clone(&credentials(GroupPolicy::NoGroup));
    changed.secret = secret(8);
    peer.backend.credentials = Some(Arc::new(changed));
    let end = authenticate(&mut peer, &mut host(1));
    assert!(matches!(end, AuthStep::Failed(_)));
    assert!(peer.session.is_closing());
}

/// As Linux's host does on all queues when a secret is written to its sysfs file.
#[test]
fn an_io_queue_authenticates_again_and_executes_commands_meanwhile() {
    let (mut io, _admin) = io(GroupPolicy::NoGroup);
    assert_eq!(authenticate(&mut io, &mut host(1)), AuthStep::Done);
    let mut again = host(1);
    let AuthStep::Send(negotiate) = again.poll() else {
        panic!("a message");
    };
    io.command(&send(&negotiate), &negotiate);
    let reads = |io: &mut Peer| {
        let (data, status) = io.command(&read(1, 0, 1), &[]);
        status.is_success() && data == volume().contents()[..512]
    };
    assert!(reads(&mut io));
    let (challenge, _) = io.command(&receive(MESSAGE_MAX_BYTES as u32), &[]);
    again.handle_message(&challenge);
    assert_eq!(authenticate(&mut io, &mut again), AuthStep::Done);
    assert_eq!(io.backend.authentications.len(), 2);
    assert!(reads(&mut io));
    // A secret that was changed since then ends the queue.
    let mut changed = Credentials::clone(&credentials(GroupPolicy::NoGroup));
    changed.secret = secret(8);
    io.backend.credentials = Some(Arc::new(changed));
    let end = authenticate(&mut io, &mut host(1));
    assert!(matches!(end, AuthStep::Failed(_)));
    assert!(io.session.is_closing());
}

#[test]
fn an_admin_queue_generates_a_key_for_tls_each_time_and_an_io_queue_none() {
    let group = GroupPolicy::Only(DhGroup::Ffdhe2048);
    let (mut io, mut admin) = io(group);
    let mut other = connection(
        &subsystem(Limits::default(), &[volume()]),
        1,
        GroupPolicy::Any,
    );
    other.backend.concatenation = Concatenation::Offered;
    assert!(
        other
            .connect(0, ConnectData::CONTROLLER_ANY, 32)
            .status()
            .is_success()
    );
    for count in 1..3 {
        let mut host = host(1).concatenating(Concatenation::Offered);
        assert_eq!(authenticate(&mut other, &mut host), AuthStep::Done);
        assert_eq!(other.backend.generated.len(), count);
        assert_eq!(host.generated_key(), other.backend.generated.last());
    }
    // Not where the backend offers none, and not at I/O queues whatever the backend offers.
    let error = HostAuthError::Rejected(FailureReason::SecureChannelMismatch);
    for peer in [&mut admin, &mut io] {
        let mut host = host(1).concatenating(Concatenation::Offered);
        assert_eq!(authenticate(peer, &mut host), AuthStep::Failed(error));
        assert!(peer.backend.generated.is_empty());
    }
}

#[test]
fn a_message_is_kept_until_its_power_is_computed() {
    let subsystem = subsystem(Limits::default(), &[volume()]);
    let group = GroupPolicy::Only(DhGroup::Ffdhe2048);
    let (mut peer, _) = admin(&subsystem, 1, group);
    peer.backend.computes = Computes::Later;
    let mut host = host(1);
    let AuthStep::Send(negotiate) = host.poll() else {
        panic!("a message");
    };
    peer.command(&send(&negotiate), &negotiate);
    let mut sqe = receive(MESSAGE_MAX_BYTES as u32);
    sqe.cid = zerocopy::little_endian::U16::new(9);
    let capsule = peer.capsule(&sqe, &[]);
    peer.send(&capsule).expect("a good capsule");
    assert_eq!(peer.pdus(), []);
    // Only one is kept.
    let (_, status) = peer.command(&receive(MESSAGE_MAX_BYTES as u32), &[]);
    assert_code(status, StatusCode::CommandSequenceError);
    peer.backend.computes = Computes::AtOnce;
    peer.wake().expect("goes on");
    let pdus = peer.pdus();
    assert_eq!(types(&pdus)[0], PduType::C2hData);
    host.poll();
    host.handle_message(&pdus[0].data);
    assert_eq!(authenticate(&mut peer, &mut host), AuthStep::Done);
}

#[test]
fn a_power_that_is_not_computed_fails_the_authentication() {
    let subsystem = subsystem(Limits::default(), &[volume()]);
    let (mut peer, _) = admin(&subsystem, 1, GroupPolicy::Any);
    peer.backend.computes = Computes::Never;
    let end = authenticate(&mut peer, &mut host(1));
    let error = HostAuthError::Rejected(FailureReason::Failed);
    assert_eq!(end, AuthStep::Failed(error));
}

#[test]
fn a_host_that_is_late_is_disconnected() {
    const MOMENT: Duration = Duration::from_millis(1);
    let late = Limits::AUTHENTICATION_TIMEOUT;
    let subsystem = subsystem(Limits::default(), &[volume()]);
    let (mut peer, _) = admin(&subsystem, 1, GroupPolicy::NoGroup);
    peer.advance(late.saturating_sub(MOMENT)).expect("in time");
    assert!(!peer.session.is_closing());
    peer.advance(MOMENT).expect("too late");
    assert!(peer.session.is_closing());
    assert_eq!(peer.backend.authentications, [AuthOutcome::TimedOut]);
    // One that has been authenticated in time stays.
    let (mut peer, _) = admin(&subsystem, 2, GroupPolicy::NoGroup);
    authenticate(&mut peer, &mut host(1));
    peer.advance(2 * late).expect("authenticated");
    assert!(!peer.session.is_closing());
    // Unless it begins anew and does not finish.
    let AuthStep::Send(negotiate) = host(1).poll() else {
        panic!("a message");
    };
    peer.command(&send(&negotiate), &negotiate);
    peer.advance(late).expect("too late");
    assert!(peer.session.is_closing());
}

#[test]
fn hosts_that_are_not_authenticated_are_bounded_and_others_go_on() {
    let subsystem = subsystem(Limits::default(), &[volume()]);
    let (mut proven, _) = admin(&subsystem, 1, GroupPolicy::NoGroup);
    authenticate(&mut proven, &mut host(1));
    let max = Limits::UNPROVEN_CONTROLLERS_OF_ADDRESS_MAX as u64;
    let mut open: Vec<_> = (0..max)
        .map(|at| admin(&subsystem, 10 + at, GroupPolicy::NoGroup))
        .collect();
    for wake in 0..1000 {
        let mut peer = connection(&subsystem, 100 + wake, GroupPolicy::NoGroup);
        let cqe = peer.connect(0, ConnectData::CONTROLLER_ANY, 32);
        assert_code(cqe.status(), StatusCode::ConnectControllerBusy);
    }
    assert!(proven.command(&enable(), &[]).1.is_success());
    // Room appears when one of them is authenticated.
    authenticate(&mut open[0].0, &mut host(1));
    admin(&subsystem, 2000, GroupPolicy::NoGroup);
}

#[test]
fn authentication_commands_with_wrong_fields_are_rejected() {
    let subsystem = subsystem(Limits::default(), &[volume()]);
    let (mut peer, _) = admin(&subsystem, 1, GroupPolicy::NoGroup);
    let with = |change: fn(&mut AuthenticationSqe)| {
        let mut sqe = AuthenticationSqe::new(fctype::AUTHENTICATION_SEND, 72);
        change(&mut sqe);
        zerocopy::transmute!(sqe)
    };
    let message = [0; 72];
    for sqe in [
        with(|sqe| sqe.security_protocol = 0),
        with(|sqe| sqe.specific0 = 0),
        with(|sqe| sqe.specific1 = 2),
    ] {
        assert_code(peer.command(&sqe, &message).1, StatusCode::InvalidField);
    }
    let empty = with(|sqe| sqe.len_bytes = U32::ZERO);
    assert_code(peer.command(&empty, &message).1, StatusCode::InvalidField);
    let short = with(|sqe| sqe.len_bytes = U32::new(71));
    assert_code(
        peer.command(&short, &message).1,
        StatusCode::DataSglLengthInvalid,
    );
    let oversized = vec![0; MESSAGE_MAX_BYTES + 1];
    let (_, status) = peer.command(&send(&oversized), &oversized);
    assert_code(status, StatusCode::DataSglLengthInvalid);
    assert_code(peer.command(&receive(0), &[]).1, StatusCode::InvalidField);
    assert_code(peer.command(&receive(4), &[]).1, StatusCode::InvalidField);
    assert_eq!(authenticate(&mut peer, &mut host(1)), AuthStep::Done);
}

#[test]
fn hosts_without_a_secret_have_no_authentication_commands() {
    let (mut io, mut admin) = peer(&volume());
    for peer in [&mut io, &mut admin] {
        let (_, status) = peer.command(&send(&[0; 72]), &[0; 72]);
        assert_code(status, StatusCode::InvalidOpcode);
    }
}
