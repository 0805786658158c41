//! Calls of NLM, and clients that wait for locks.

use std::net::{IpAddr, Ipv4Addr};

use super::Arguments;
use crate::Clients;
use crate::clients::{FileKey, LockKind, LockRange, Locked, NlmCaller};

/// nlm4_lock of the machine `client`: the handle of a file, svid, offset and length.
pub fn lock(handle: &[u8], svid: u32, (offset, len): (u64, u64)) -> Arguments {
    let owner = format!("{svid}@client");
    let arguments = Arguments::default().opaque(b"client").opaque(handle);
    let arguments = arguments.opaque(owner.as_bytes()).u32(svid);
    arguments.u64(offset).u64(len)
}

/// The arguments of LOCK with the cookie `cook`: whether the owner waits, and whether the lock is
/// exclusive.
pub fn lock_call(may_wait: u32, exclusive: u32, lock: &Arguments) -> Arguments {
    let arguments = Arguments::default().opaque(b"cook").u32(may_wait);
    arguments.u32(exclusive).raw(&lock.0).u32(0).u32(7)
}

/// A client of `client` that waits for the lock of another one, which then releases it.
pub fn grant(clients: &mut Clients, client: IpAddr) {
    let caller = |name| NlmCaller {
        address: client,
        name,
        owner: b"\0\0\0\x07owner",
    };
    let key = FileKey([7; 32]);
    let range = LockRange::new(0, 10).expect("valid");
    let local = Ipv4Addr::LOCALHOST.into();
    let held = clients.nlm_lock(caller(b"holder"), &key, LockKind::Write, range, None);
    assert_eq!(held, Locked::Granted);
    let waits = clients.nlm_lock(caller(b"waiter"), &key, LockKind::Write, range, Some(local));
    assert_eq!(waits, Locked::Blocked);
    assert!(clients.nlm_unlock(caller(b"holder"), &key, range));
}
