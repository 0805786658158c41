//! Golden vectors of calls and replies, and each way in which a call is refused.

use super::*;

/// A call of NULL with AUTH_NONE, and of GETATTR with AUTH_SYS: stamp 1, machine "host", user 1000,
/// group 100, groups 100 and 27.
const NULL_CALL: [u8; 40] = [
    0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0, 0, 0, 0, 2, 0x00, 0x01, 0x86, 0xa3, 0, 0, 0, 3, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];
const GETATTR_CALL: [u8; 76] = [
    0x12, 0x34, 0x56, 0x79, 0, 0, 0, 0, 0, 0, 0, 2, 0x00, 0x01, 0x86, 0xa3, 0, 0, 0, 3, 0, 0, 0, 1,
    0, 0, 0, 1, 0, 0, 0, 32, 0, 0, 0, 1, 0, 0, 0, 4, b'h', b'o', b's', b't', 0, 0, 0x03, 0xe8, 0,
    0, 0, 100, 0, 0, 0, 2, 0, 0, 0, 100, 0, 0, 0, 27, 0, 0, 0, 0, 0, 0, 0, 0, 0xaa, 0xbb, 0xcc,
    0xdd,
];

fn parse(record: &[u8]) -> Result<Procedure, (u32, Reject)> {
    Call::parse(record).map(|call| call.procedure)
}

fn changed<const N: usize>(mut call: [u8; N], at: usize, value: u8) -> [u8; N] {
    call[at] = value;
    call
}

#[test]
fn calls_are_read_up_to_their_arguments() {
    assert_eq!(parse(&NULL_CALL), Ok(Procedure::Null));
    let call = Call::parse(&GETATTR_CALL).expect("a call");
    assert_eq!(
        (call.xid, call.procedure),
        (0x1234_5679, Procedure::GetAttr)
    );
    assert_eq!(call.arguments.rest(), [0xaa, 0xbb, 0xcc, 0xdd]);
    let Credential::Sys(user) = call.credential else {
        panic!("AUTH_SYS is a user");
    };
    let caller = user.caller();
    assert_eq!(
        (caller.uid, caller.gid, caller.groups),
        (1000, 100, &[100, 27][..])
    );
    assert_eq!(
        parse(&changed(NULL_CALL, 15, 0xa5)),
        Ok(Procedure::MountNull)
    );
}

#[test]
fn calls_that_cannot_be_executed_are_refused_for_the_reason_that_rfc_5531_names() {
    const XID: u32 = 0x1234_5678;
    let reject = |record: &[u8]| match parse(record) {
        Err((XID, reject)) => reject,
        other => panic!("{other:?}"),
    };
    assert_eq!(parse(&[]), Err((0, Reject::NoCall)));
    assert_eq!(parse(&NULL_CALL[..7]), Err((0, Reject::NoCall)));
    assert_eq!(parse(&changed(NULL_CALL, 7, 1)), Err((0, Reject::NoCall)));
    assert_eq!(reject(&NULL_CALL[..23]), Reject::GarbageArguments);
    assert_eq!(reject(&changed(NULL_CALL, 11, 3)), Reject::RpcMismatch);
    assert_eq!(
        reject(&changed(NULL_CALL, 15, 0xa4)),
        Reject::ProgramUnavailable
    );
    assert_eq!(
        reject(&changed(NULL_CALL, 19, 5)),
        Reject::ProgramMismatch(3, 4)
    );
    let mount_4 = changed(changed(NULL_CALL, 15, 0xa5), 19, 4);
    assert_eq!(reject(&mount_4), Reject::ProgramMismatch(3, 3));
    assert_eq!(
        reject(&changed(NULL_CALL, 23, 22)),
        Reject::ProcedureUnavailable
    );
    assert_eq!(
        reject(&changed(NULL_CALL, 23, 1)),
        Reject::Auth(AuthError::TooWeak)
    );
    // An unknown flavor, a body where none belongs, and no verifier.
    assert_eq!(
        reject(&changed(NULL_CALL, 27, 6)),
        Reject::Auth(AuthError::BadCredential)
    );
    assert_eq!(
        reject(&changed(NULL_CALL, 31, 4)),
        Reject::Auth(AuthError::BadCredential)
    );
    assert_eq!(
        reject(&NULL_CALL[..36]),
        Reject::Auth(AuthError::BadVerifier)
    );
    assert_eq!(
        reject(&changed(NULL_CALL, 35, 1)),
        Reject::Auth(AuthError::BadVerifier)
    );
}

#[test]
fn a_malformed_auth_sys_is_a_bad_credential() {
    let bad = Err((0x1234_5679, Reject::Auth(AuthError::BadCredential)));
    // Lengths of the body, of the machine's name and of the groups.
    for (at, value) in [
        (31, 28),
        (31, 36),
        (30, 2),
        (39, 5),
        (38, 1),
        (55, 3),
        (55, 17),
        (52, 0xff),
    ] {
        assert_eq!(
            parse(&changed(GETATTR_CALL, at, value)),
            bad,
            "byte {at} is {value}"
        );
    }
}

#[test]
fn replies_are_those_of_rfc_5531() {
    let reply = |reject| {
        let mut bytes = Vec::new();
        write_reject(7, reject, &mut Writer::new(&mut bytes));
        bytes.chunks(4).map(|word| word[3]).collect::<Vec<_>>()
    };
    assert_eq!(reply(Reject::NoCall), []);
    assert_eq!(reply(Reject::ProgramUnavailable), [7, 1, 0, 0, 0, 1]);
    assert_eq!(
        reply(Reject::ProgramMismatch(3, 4)),
        [7, 1, 0, 0, 0, 2, 3, 4]
    );
    assert_eq!(reply(Reject::ProcedureUnavailable), [7, 1, 0, 0, 0, 3]);
    assert_eq!(reply(Reject::GarbageArguments), [7, 1, 0, 0, 0, 4]);
    assert_eq!(reply(Reject::RpcMismatch), [7, 1, 1, 0, 2, 2]);
    assert_eq!(
        reply(Reject::Auth(AuthError::BadCredential)),
        [7, 1, 1, 1, 1]
    );
    assert_eq!(reply(Reject::Auth(AuthError::BadVerifier)), [7, 1, 1, 1, 3]);
    assert_eq!(reply(Reject::Auth(AuthError::TooWeak)), [7, 1, 1, 1, 5]);
    let mut bytes = Vec::new();
    write_success(0x0102_0304, &mut Writer::new(&mut bytes));
    let mut golden = [0; 24];
    golden[..8].copy_from_slice(&[1, 2, 3, 4, 0, 0, 0, 1]);
    assert_eq!(bytes, golden);
}
