//! Messages of in-band authentication, to both sides.

use std::sync::Arc;

use crate::auth::{
    AuthStep, ControllerAuth, Credentials, GroupPolicy, HostAuth, HostCredentials, Names, Secret,
    Seed,
};
use crate::wire::auth::MESSAGE_MAX_BYTES;

/// To whom a message goes, bit 0: to the host.
const TO_HOST: u8 = 1;
/// The message is that of the other side, not the input's; bit 1.
const GENUINE: u8 = 1 << 1;

/// A series of messages, each after a byte of flags and its length in two bytes. A host that has no
/// secret proves nothing.
pub fn auth_messages(input: &[u8]) {
    let secret = |byte| Secret::new(&[byte; 32], None).expect("32 bytes");
    let names = Names {
        host_nqn: "host".to_owned(),
        subsystem_nqn: "subsystem".to_owned(),
    };
    let mut controller = ControllerAuth::new(
        Arc::new(Credentials {
            secret: secret(1),
            other_secret: Some(secret(2)),
            controller_secret: Some(secret(3)),
            hash: None,
            group: GroupPolicy::Any,
        }),
        names.clone(),
    );
    let of_host = HostCredentials {
        secret: secret(1),
        controller_secret: Some(secret(3)),
        hash: None,
        group: GroupPolicy::NoGroup,
    };
    let mut host = HostAuth::new(of_host, names, 7, Seed::new([9; Seed::BYTES]));
    let mut is_all_forged = true;
    let mut rest = input;
    while let Some((&[flags, low, high], bytes)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(bytes.len());
        let (message, after) = bytes.split_at(len);
        rest = after;
        let genuine = flags & GENUINE != 0;
        is_all_forged &= !genuine;
        if flags & TO_HOST != 0 {
            tell_host(&mut host, &mut controller, message, genuine);
        } else {
            tell_controller(&mut controller, &mut host, message, genuine);
        }
    }
    if is_all_forged {
        assert!(!controller.is_proven(), "a secret is proven without it");
        assert_ne!(host.poll(), AuthStep::Done);
    }
}

fn tell_host(host: &mut HostAuth, controller: &mut ControllerAuth, forged: &[u8], genuine: bool) {
    host.poll();
    if genuine && !controller.is_computing() {
        let message = controller.poll_message(MESSAGE_MAX_BYTES);
        host.handle_message(&message.expect("room for every message"));
    } else {
        host.handle_message(forged);
    }
}

fn tell_controller(
    controller: &mut ControllerAuth,
    host: &mut HostAuth,
    forged: &[u8],
    genuine: bool,
) {
    let sent = match host.poll() {
        AuthStep::Send(message) if genuine => message,
        _ => forged.to_vec(),
    };
    let power = controller.handle_message(&sent, &Seed::new([5; Seed::BYTES]));
    if let Some(power) = power {
        controller.handle_power(power.compute());
    }
    if !genuine {
        let message = controller.poll_message(MESSAGE_MAX_BYTES);
        assert!(message.is_ok_and(|message| message.len() <= MESSAGE_MAX_BYTES));
    }
}
