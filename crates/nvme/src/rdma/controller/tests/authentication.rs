//! Queues whose hosts have to prove a secret: messages move by RDMA.

use super::*;
use crate::auth::{
    AuthStep, Credentials, DhGroup, GroupPolicy, HostAuth, HostCredentials, Names, Secret, Seed,
};
use crate::wire::auth::{AuthenticationSqe, MESSAGE_MAX_BYTES};
use crate::wire::fabrics::{Property, PropertySqe, fctype};

#[test]
fn a_host_is_authenticated_by_messages_in_its_memory() {
    let secret = Secret::new(&[1; 64], None).expect("64 bytes");
    let subsystem = subsystem(Limits::default(), &[volume()]);
    let mut peer = RdmaHost::new(subsystem, 1, 0, 32);
    peer.backend.credentials = Some(Arc::new(Credentials {
        secret: secret.clone(),
        other_secret: None,
        controller_secret: None,
        hash: None,
        group: GroupPolicy::Only(DhGroup::Ffdhe2048),
    }));
    let cqe = peer
        .connect(0, ConnectData::CONTROLLER_ANY, 32)
        .expect("good");
    assert!(cqe.status().is_success());
    let get: Sqe = zerocopy::transmute!(PropertySqe::get(Cid(1), Property::Capabilities));
    let status = peer.status(&get, &[]);
    assert_eq!(status.code(), Some(StatusCode::AuthenticationRequired));
    let credentials = HostCredentials {
        secret,
        controller_secret: None,
        hash: None,
        group: GroupPolicy::Any,
    };
    let names = Names {
        host_nqn: "nqn.2014-08.org.example:host".to_owned(),
        subsystem_nqn: "nqn.2014-08.org.example:test".to_owned(),
    };
    let mut host = HostAuth::new(credentials, names, 7, Seed::new([9; Seed::BYTES]));
    let command = |fctype, len_bytes: usize| {
        let sqe = AuthenticationSqe::new(fctype, len_bytes as u32);
        let mut sqe: Sqe = zerocopy::transmute!(sqe);
        sqe.sgl1 = RdmaHost::keyed(0, len_bytes);
        sqe
    };
    loop {
        match host.poll() {
            AuthStep::Send(message) => {
                peer.memory[..message.len()].copy_from_slice(&message);
                let sqe = command(fctype::AUTHENTICATION_SEND, message.len());
                assert!(peer.status(&sqe, &[]).is_success());
            }
            AuthStep::Receive => {
                let sqe = command(fctype::AUTHENTICATION_RECEIVE, MESSAGE_MAX_BYTES);
                assert!(peer.status(&sqe, &[]).is_success());
                host.handle_message(&peer.memory[..MESSAGE_MAX_BYTES]);
            }
            end => {
                assert_eq!(end, AuthStep::Done);
                break;
            }
        }
    }
    assert!(peer.status(&get, &[]).is_success());
}
