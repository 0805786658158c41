//! Opens and locks over loopback: NLM beside version 3, and version 4 over a restart of the server.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use nfs::testing::compounds::{
    COMPOUND, compound, create_session, exchange, head, open, result, root, sequenced,
    skip_sequence, state_id,
};
use nfs::testing::{Arguments, Reply, locks};

use super::directory::Folder;
use super::*;

// Procedures of NLM.
const LOCK: u32 = 2;
const CANCEL: u32 = 3;
const UNLOCK: u32 = 4;
const FREE_ALL: u32 = 23;
// nlm4_stats.
const GRANTED: u32 = 0;
const NLM_DENIED: u32 = 1;
const BLOCKED: u32 = 3;
const NLM_GRACE: u32 = 4;
// Status codes of version 4.
const DENIED: u32 = 10_010;
const GRACE: u32 = 10_013;
const NO_GRACE: u32 = 10_033;

/// A connection of a client, which calls any program.
struct Caller {
    stream: TcpStream,
    xid: u32,
}

/// A client of version 4.
struct Holder {
    caller: Caller,
    id: u64,
    session: Vec<u8>,
    sequence: u32,
    owner: &'static [u8],
}

fn args() -> Arguments {
    Arguments::default()
}

impl Caller {
    fn new(it: &Fixture) -> Self {
        let stream = TcpStream::connect(it.portal.address).expect("the portal listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Self { stream, xid: 0 }
    }

    fn call(&mut self, what: (u32, u32, u32), arguments: &Arguments) -> Reply {
        self.xid += 1;
        let call = arguments.call(self.xid, what, (0, 0));
        let mark = (call.len() as u32 | 1 << 31).to_be_bytes();
        let sent = self.stream.write_all(&[&mark, &call[..]].concat());
        sent.expect("the connection is there");
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).expect("a reply");
        let mut bytes = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
        self.stream.read_exact(&mut bytes).expect("a reply");
        Reply::accepted(bytes, self.xid)
    }

    /// Calls a procedure of NLM whose result is a status.
    fn nlm(&mut self, procedure: u32, arguments: &Arguments) -> u32 {
        let mut reply = self.call((100_021, 4, procedure), arguments);
        assert_eq!(reply.opaque(), b"cook", "the cookie");
        reply.u32()
    }

    /// LOCK, exclusive.
    fn lock(&mut self, may_wait: u32, lock: &Arguments) -> u32 {
        self.nlm(LOCK, &locks::lock_call(may_wait, 1, lock))
    }

    fn unlock(&mut self, lock: &Arguments) -> u32 {
        self.nlm(UNLOCK, &args().opaque(b"cook").raw(&lock.0))
    }

    /// FREE_ALL of a machine: it has restarted.
    fn free_all(&mut self, name: &[u8]) {
        let arguments = args().opaque(name).u32(7);
        self.call((100_021, 4, FREE_ALL), &arguments).end();
    }
}

impl Holder {
    fn new(it: &Fixture, owner: &'static [u8]) -> Self {
        let mut caller = Caller::new(it);
        let mut reply = caller.call(COMPOUND, &exchange(owner, 1, 0));
        assert_eq!(head(&mut reply), (OK, 1));
        assert_eq!(result(&mut reply), (42, OK));
        let (id, sequence) = (reply.u64(), reply.u32());
        let mut reply = caller.call(COMPOUND, &create_session(id, sequence));
        assert_eq!(head(&mut reply), (OK, 1));
        assert_eq!(result(&mut reply), (43, OK));
        Self {
            caller,
            id,
            session: state_id(&mut reply),
            sequence: 0,
            owner,
        }
    }

    /// Calls operations behind a SEQUENCE. Returns the status of the last one that was executed,
    /// and the state ID in its result if it is `number` and has succeeded.
    fn call(&mut self, count: u32, operations: &Arguments, number: u32) -> (u32, Vec<u8>) {
        self.sequence += 1;
        let arguments = sequenced(&self.session, (0, self.sequence, 0), operations);
        let mut reply = self.caller.call(COMPOUND, &compound(count + 1, &arguments));
        let (status, results) = head(&mut reply);
        assert_eq!(results, count + 1, "all operations but the last succeed");
        skip_sequence(&mut reply);
        for _ in 1..count {
            assert_eq!(result(&mut reply).1, OK);
        }
        assert_eq!(result(&mut reply), (number, status));
        let id = (status == OK && number != 58).then(|| state_id(&mut reply));
        (status, id.unwrap_or_default())
    }

    fn complete(&mut self) {
        assert_eq!(self.call(1, &args().u32(58).u32(0), 58).0, OK);
    }

    /// Opens `file` in the root of a share.
    fn open(&mut self, share: &[u8]) -> (u32, Vec<u8>) {
        let open = open((self.id, self.owner), (3, 0), b"file");
        let to_root = match share {
            b"db" => root(),
            _ => args().u32(24).u32(15).opaque(share),
        };
        self.call(3, &to_root.raw(&open.0), 18)
    }

    fn reclaim(&mut self, handle: &[u8]) -> (u32, Vec<u8>) {
        let open = args().u32(18).u32(0).u32(3).u32(0).u64(self.id);
        let open = open.opaque(self.owner).u32(0).u32(1).u32(0);
        self.call(2, &args().u32(22).opaque(handle).raw(&open.0), 18)
    }

    /// Locks ten bytes.
    fn lock(&mut self, handle: &[u8], open: &[u8], is_reclaim: bool) -> u32 {
        let lock = args().u32(12).u32(2).u32(u32::from(is_reclaim));
        let lock = lock.u64(0).u64(10).u32(1).u32(0).raw(open).u32(0);
        let lock = lock.u64(self.id).opaque(self.owner);
        self.call(2, &args().u32(22).opaque(handle).raw(&lock.0), 12)
            .0
    }
}

#[test]
fn locks_of_version_3_exclude_wait_and_end() {
    let it = Fixture::new(256 * MIB);
    let (mut client, root) = it.mounted("/db");
    let file = client.create(&root, "file").expect("a new file");
    let (mut first, mut second) = (Caller::new(&it), Caller::new(&it));
    let (own, other) = (
        locks::lock(&file, 1, (0, 10)),
        locks::lock(&file, 2, (5, 0)),
    );
    assert_eq!(first.lock(0, &own), GRANTED);
    assert_eq!(second.lock(0, &other), NLM_DENIED);
    // One that waits gets the lock when it is free; asking again tells it so.
    assert_eq!(second.lock(1, &other), BLOCKED);
    assert_eq!(first.unlock(&own), GRANTED);
    assert_eq!(first.lock(0, &own), NLM_DENIED);
    assert_eq!(second.lock(1, &other), GRANTED);
    // One that has cancelled its wait does not get it.
    assert_eq!(first.lock(1, &own), BLOCKED);
    let cancel = args().opaque(b"cook").u32(1).u32(1).raw(&own.0);
    assert_eq!(first.nlm(CANCEL, &cancel), GRANTED);
    assert_eq!(first.nlm(CANCEL, &cancel), NLM_DENIED);
    assert_eq!(second.unlock(&other), GRANTED);
    let third = locks::lock(&file, 3, (0, 0));
    assert_eq!(second.lock(0, &third), GRANTED);
    // Locks outlast connections, and end when their machine says that it has restarted.
    drop(second);
    assert_eq!(first.lock(0, &own), NLM_DENIED);
    first.free_all(b"another");
    assert_eq!(first.lock(0, &own), NLM_DENIED);
    first.free_all(b"client");
    assert_eq!(first.lock(0, &own), GRANTED);
}

#[test]
fn opens_and_locks_in_a_directory_are_reclaimed_after_a_restart() {
    let (folder, notes) = (Folder::new("reclaimed"), Folder::new("notes"));
    let records: PathBuf = notes.0.join("clients");
    let start = || {
        let it = Fixture::noting(&records);
        it.server.create_share(folder.share()).expect("a new share");
        it
    };
    let handle = {
        let it = start();
        let mut one = Holder::new(&it, b"one");
        one.complete();
        let (status, open) = one.open(b"pub");
        assert_eq!(status, OK);
        let (mut client, root) = it.mounted("/pub");
        let handle = client.lookup(&root, "file").expect("it was created");
        assert_eq!(one.lock(&handle, &open, false), OK);
        let noted = fs::read_to_string(&records).expect("clients are noted");
        assert_eq!(noted.lines().count(), 3, "head, state and client: {noted}");
        handle
    };
    let it = start();
    let (mut two, mut three) = (Holder::new(&it, b"two"), Caller::new(&it));
    two.complete();
    let lock = locks::lock(&handle, 1, (0, 10));
    assert_eq!(two.open(b"pub").0, GRACE);
    assert_eq!(three.lock(0, &lock), NLM_GRACE);
    // Files in memory are others, so nobody is waited for.
    assert_eq!(two.open(b"db").0, OK);
    let mut one = Holder::new(&it, b"one");
    let (status, open) = one.reclaim(&handle);
    assert_eq!(status, OK);
    assert_eq!(one.lock(&handle, &open, true), OK);
    assert_eq!(two.open(b"pub").0, GRACE);
    one.complete();
    let (status, open) = two.open(b"pub");
    assert_eq!(status, OK);
    assert_eq!(two.lock(&handle, &open, false), DENIED);
    assert_eq!(three.lock(0, &lock), NLM_DENIED);
    assert_eq!(two.reclaim(&handle).0, NO_GRACE);
}

/// The state number of NSM in the file of clients.
fn state_of(noted: &str) -> u32 {
    let line = noted.lines().nth(1).expect("the state");
    let number = line.strip_prefix("state ").expect("the state");
    number.parse().expect("a number")
}

#[test]
fn locks_of_version_3_in_a_directory_are_reclaimed_after_a_restart() {
    let (folder, notes) = (Folder::new("reclaimed-3"), Folder::new("notes-3"));
    let records: PathBuf = notes.0.join("clients");
    let start = || {
        let it = Fixture::noting(&records);
        it.server.create_share(folder.share()).expect("a new share");
        it
    };
    let reclaim = |lock: &Arguments| {
        args()
            .opaque(b"cook")
            .u32(0)
            .u32(1)
            .raw(&lock.0)
            .u32(1)
            .u32(7)
    };
    let (lock, handle, first_state) = {
        let it = start();
        let (mut client, root) = it.mounted("/pub");
        let handle = client.create(&root, "file").expect("a new file");
        let lock = locks::lock(&handle, 1, (0, 10));
        assert_eq!(Caller::new(&it).lock(0, &lock), GRANTED);
        let noted = fs::read_to_string(&records).expect("clients are noted");
        assert!(
            noted.contains("\nnlm 127.0.0.1 127.0.0.1 636c69656e74\n"),
            "{noted}"
        );
        (lock, handle, state_of(&noted))
    };
    let it = start();
    let mut caller = Caller::new(&it);
    assert_eq!(caller.lock(0, &lock), NLM_GRACE, "it is to be reclaimed");
    assert_eq!(caller.nlm(LOCK, &reclaim(&lock)), GRANTED);
    // Each start notifies the client with a new state number.
    let state = || {
        let noted = fs::read_to_string(&records).expect("clients are noted");
        (state_of(&noted), noted.lines().count())
    };
    wait_until(|| state().0 == first_state + 2);
    assert_eq!(state().1, 3, "head, state and client");
    let mut two = Holder::new(&it, b"two");
    two.complete();
    assert_eq!(two.open(b"pub").0, GRACE, "version 4 waits, too");
    let other = locks::lock(&handle, 2, (50, 1));
    assert_eq!(
        caller.nlm(LOCK, &reclaim(&other)),
        GRANTED,
        "of the same machine"
    );
    caller.free_all(b"client");
    assert_eq!(
        caller.nlm(LOCK, &reclaim(&lock)),
        NLM_DENIED,
        "it has restarted"
    );
    assert_eq!(caller.lock(0, &lock), GRANTED, "nobody is waited for");
}
