//! A client of NFS version 4.0: it has no session, and numbers the requests of its owners.

use super::compounds::{COMPOUND, head, operation, result, root, state_id};
use super::peer::record;
use super::{Arguments, Peer, Reply, TestServer};

fn args() -> Arguments {
    Arguments::default()
}

/// A compound of minor version 0: an empty tag, and operations that were encoded before.
pub fn compound_0(count: u32, operations: &Arguments) -> Arguments {
    args().opaque(b"").u32(0).u32(count).raw(&operations.0)
}

/// SETCLIENTID with a callback program that nobody calls.
pub fn set_client(owner: &[u8], verifier: u64) -> Arguments {
    let operation = args().u32(35).u64(verifier).opaque(owner);
    let operation = operation.u32(0x4000_0000).opaque(b"tcp");
    operation.opaque(b"127.0.0.1.8.1").u32(1)
}

/// A client. One open-owner and one lock-owner have its name.
pub struct OldClient {
    /// Its connection.
    pub peer: Peer,
    /// Its client ID.
    pub id: u64,
    /// Its name.
    pub owner: &'static [u8],
    /// The number of the open-owner's next request.
    pub open_number: u32,
    /// The number of the lock-owner's next request.
    pub lock_number: u32,
}

impl OldClient {
    /// A client whose ID is confirmed.
    pub fn new(server: &mut TestServer, owner: &'static [u8], verifier: u64) -> Self {
        let mut this = Self {
            peer: Peer::default(),
            id: 0,
            owner,
            open_number: 7,
            lock_number: 0,
        };
        this.identify(server, verifier);
        this
    }

    /// SETCLIENTID and SETCLIENTID_CONFIRM.
    pub fn identify(&mut self, server: &mut TestServer, verifier: u64) {
        let mut reply = self.call(server, 1, &set_client(self.owner, verifier));
        assert_eq!(result(&mut reply), (35, 0));
        self.id = reply.u64();
        let confirm = args().u32(36).u64(self.id).u64(reply.u64());
        let mut reply = self.call(server, 1, &confirm);
        assert_eq!(result(&mut reply), (36, 0));
    }

    /// A compound. Returns its results.
    pub fn call(&mut self, server: &mut TestServer, count: u32, operations: &Arguments) -> Reply {
        let compound = compound_0(count, operations);
        let mut reply = self.peer.compound(server, compound);
        let _status = head(&mut reply).0;
        reply
    }

    /// A compound with this xid on a new connection. Returns what follows the header of the reply,
    /// if there is one.
    pub fn call_anew(
        &self,
        server: &mut TestServer,
        xid: u32,
        compound: &Arguments,
    ) -> Option<Vec<u8>> {
        let mut peer = Peer::default();
        peer.now = self.peer.now;
        let call = compound.call(xid, COMPOUND, (0, 0));
        peer.send(server, &record(&call));
        peer.next_reply().map(|reply| reply.bytes()[24..].to_vec())
    }

    /// One operation on the root of `/db`. Returns its reply behind its number.
    pub fn in_root(&mut self, server: &mut TestServer, operation: &Arguments) -> Reply {
        let mut reply = self.call(server, 3, &root().raw(&operation.0));
        assert_eq!(result(&mut reply), (operation::PUTROOTFH, 0));
        assert_eq!(result(&mut reply), (operation::LOOKUP, 0));
        let _number = reply.u32();
        reply
    }

    /// One operation on a file in the root of `/db`. Returns the reply behind its number.
    pub fn on_file(&mut self, server: &mut TestServer, name: &[u8], last: &Arguments) -> Reply {
        let operations = root().u32(operation::LOOKUP).opaque(name).raw(&last.0);
        let mut reply = self.call(server, 4, &operations);
        for number in [operation::PUTROOTFH, operation::LOOKUP, operation::LOOKUP] {
            assert_eq!(result(&mut reply), (number, 0));
        }
        let _number = reply.u32();
        reply
    }

    /// OPEN with the present number.
    pub fn open_call(&self, name: &[u8], modes: (u32, u32)) -> Arguments {
        let open = args().u32(operation::OPEN).u32(self.open_number);
        let open = open.u32(modes.0).u32(modes.1).u64(self.id);
        // UNCHECKED4 with a mode, CLAIM_NULL.
        let how = open.opaque(self.owner).u32(1).u32(0).u32(2).u32(0);
        how.u32(2).u32(4).u32(0o644).u32(0).opaque(name)
    }

    /// OPEN. Returns the status, the state ID and whether it has to be confirmed.
    pub fn try_open(
        &mut self,
        server: &mut TestServer,
        name: &[u8],
        modes: (u32, u32),
    ) -> (u32, Vec<u8>, bool) {
        let open = self.open_call(name, modes);
        self.open_number += 1;
        let mut reply = self.in_root(server, &open);
        let status = reply.u32();
        if status != 0 {
            return (status, Vec::new(), false);
        }
        let id = state_id(&mut reply);
        let _change: [u32; 5] = reply.words();
        (status, id, reply.u32() & 2 != 0)
    }

    /// OPEN_CONFIRM.
    pub fn confirm(&mut self, server: &mut TestServer, name: &[u8], open: &[u8]) -> (u32, Vec<u8>) {
        let confirm = args().u32(20).raw(open).u32(self.open_number);
        self.open_number += 1;
        let mut reply = self.on_file(server, name, &confirm);
        match reply.u32() {
            0 => (0, state_id(&mut reply)),
            status => (status, Vec::new()),
        }
    }

    /// OPEN, confirmed if that is asked for. Returns the state ID.
    pub fn open(&mut self, server: &mut TestServer, name: &[u8], modes: (u32, u32)) -> Vec<u8> {
        let (status, open, needs_confirmation) = self.try_open(server, name, modes);
        assert_eq!(status, 0, "OPEN");
        if !needs_confirmation {
            return open;
        }
        let (status, open) = self.confirm(server, name, &open);
        assert_eq!(status, 0, "OPEN_CONFIRM");
        open
    }

    /// A lock-owner's first LOCK, for writing, with an open.
    pub fn first_lock(
        &mut self,
        server: &mut TestServer,
        open: &[u8],
        reclaim: u32,
        range: (u64, u64),
    ) -> Reply {
        let lock = args().u32(operation::LOCK).u32(2).u32(reclaim);
        let lock = lock.u64(range.0).u64(range.1).u32(1);
        let lock = lock.u32(self.open_number).raw(open).u32(self.lock_number);
        self.open_number += 1;
        self.lock_number += 1;
        self.on_file(server, b"file", &lock.u64(self.id).opaque(self.owner))
    }

    /// A further LOCK for writing.
    pub fn next_lock(&mut self, server: &mut TestServer, locks: &[u8], range: (u64, u64)) -> Reply {
        let lock = args().u32(operation::LOCK).u32(2).u32(0);
        let lock = lock.u64(range.0).u64(range.1).u32(0).raw(locks);
        let lock = lock.u32(self.lock_number);
        self.lock_number += 1;
        self.on_file(server, b"file", &lock)
    }

    /// CLOSE of `file`.
    pub fn close(&mut self, server: &mut TestServer, open: &[u8]) -> u32 {
        let close = args().u32(operation::CLOSE).u32(self.open_number).raw(open);
        self.open_number += 1;
        self.on_file(server, b"file", &close).u32()
    }
}
