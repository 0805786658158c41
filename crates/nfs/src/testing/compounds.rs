//! Compounds of NFS version 4, as a client encodes them.

use super::{Arguments, Reply};

/// NFS version 4: the program, the version and the procedure COMPOUND.
pub const COMPOUND: (u32, u32, u32) = (100_003, 4, 1);

/// The numbers of operations.
#[expect(missing_docs, reason = "the names are the specification's")]
pub mod operation {
    pub const CLOSE: u32 = 4;
    pub const COMMIT: u32 = 5;
    pub const CREATE: u32 = 6;
    pub const DELEGRETURN: u32 = 8;
    pub const GETATTR: u32 = 9;
    pub const GETFH: u32 = 10;
    pub const LOCK: u32 = 12;
    pub const LOCKU: u32 = 14;
    pub const LOOKUP: u32 = 15;
    pub const OPEN: u32 = 18;
    pub const PUTFH: u32 = 22;
    pub const PUTROOTFH: u32 = 24;
    pub const READ: u32 = 25;
    pub const READDIR: u32 = 26;
    pub const READLINK: u32 = 27;
    pub const WRITE: u32 = 38;
    pub const EXCHANGE_ID: u32 = 42;
    pub const CREATE_SESSION: u32 = 43;
    pub const SEQUENCE: u32 = 53;
    pub const RECLAIM_COMPLETE: u32 = 58;
}
use operation::{CREATE_SESSION, EXCHANGE_ID, LOOKUP, OPEN, PUTROOTFH, SEQUENCE};

fn args() -> Arguments {
    Arguments::default()
}

/// A compound of minor version 1: an empty tag, and operations that were encoded before.
pub fn compound(count: u32, operations: &Arguments) -> Arguments {
    args().opaque(b"").u32(1).u32(count).raw(&operations.0)
}

/// A compound of EXCHANGE_ID.
pub fn exchange(owner: &[u8], verifier: u64, flags: u32) -> Arguments {
    let operation = args().u32(EXCHANGE_ID).u64(verifier).opaque(owner);
    compound(1, &operation.u32(flags).u32(0).u32(0))
}

/// A compound of CREATE_SESSION, with 16 operations per compound and 64 slots.
pub fn create_session(client: u64, sequence: u32) -> Arguments {
    create_session_for(client, sequence, 0)
}

/// The same with flags. The client is called as user 7 and group 8.
pub fn create_session_for(client: u64, sequence: u32, flags: u32) -> Arguments {
    let channel = args().u32(0).u32(1 << 20).u32(1 << 20).u32(4096);
    let channel = channel.u32(16).u32(64).u32(0);
    let head = args()
        .u32(CREATE_SESSION)
        .u64(client)
        .u32(sequence)
        .u32(flags);
    let operation = head.raw(&channel.0).raw(&channel.0);
    let operation = operation.u32(0x4000_0000).u32(2).u32(0);
    let credential = operation.u32(1).u32(9).opaque(b"client");
    compound(1, &credential.u32(7).u32(8).u32(0))
}

/// SEQUENCE with a slot, its number and whether the reply is kept; and operations behind it.
pub fn sequenced(
    session: &[u8],
    (slot, sequence, kept): (u32, u32, u32),
    operations: &Arguments,
) -> Arguments {
    let head = args().u32(SEQUENCE).raw(session).u32(sequence);
    head.u32(slot).u32(0).u32(kept).raw(&operations.0)
}

/// PUTROOTFH and LOOKUP of `/db`.
pub fn root() -> Arguments {
    args().u32(PUTROOTFH).u32(LOOKUP).opaque(b"db")
}

/// OPEN of an entry, which is created with mode 0644 unless it exists.
pub fn open((client, owner): (u64, &[u8]), (access, deny): (u32, u32), name: &[u8]) -> Arguments {
    let open = args().u32(OPEN).u32(0).u32(access).u32(deny);
    let owner = open.u64(client).opaque(owner);
    // UNCHECKED4 with a mode, CLAIM_NULL.
    let how = owner.u32(1).u32(0).u32(2).u32(0).u32(2).u32(4).u32(0o644);
    how.u32(0).opaque(name)
}

/// OPEN of an entry that exists.
pub fn open_existing(
    (client, owner): (u64, &[u8]),
    (access, deny): (u32, u32),
    name: &[u8],
) -> Arguments {
    let open = args().u32(OPEN).u32(0).u32(access).u32(deny);
    let owner = open.u64(client).opaque(owner);
    // OPEN4_NOCREATE, CLAIM_NULL.
    owner.u32(0).u32(0).opaque(name)
}

/// The status of a compound and the number of its results.
pub fn head(reply: &mut Reply) -> (u32, u32) {
    let status = reply.u32();
    assert_eq!(reply.opaque(), b"");
    (status, reply.u32())
}

/// The number and the status of a result.
pub fn result(reply: &mut Reply) -> (u32, u32) {
    (reply.u32(), reply.u32())
}

/// The result of a SEQUENCE that succeeded.
pub fn skip_sequence(reply: &mut Reply) {
    assert_eq!(result(reply), (SEQUENCE, 0));
    let _slot: [u32; 9] = reply.words();
}

/// A state ID or a session ID.
pub fn state_id(reply: &mut Reply) -> Vec<u8> {
    let words: [u32; 4] = reply.words();
    words.into_iter().flat_map(u32::to_be_bytes).collect()
}
