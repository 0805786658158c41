//! A client of one session.

use std::time::Instant;

use ::session::{Segment, SendList, Session, StreamSession};

use super::TestServer;
use crate::NfsSession;
use crate::xdr::{Malformed, Reader};

/// A client on one connection. Its calls have AUTH_SYS, of root at first.
pub struct Peer {
    session: NfsSession<TestServer>,
    list: SendList,
    /// What the session has sent and [`Peer::next_reply`] has not taken.
    received: Vec<u8>,
    /// What the session has not taken yet.
    unsent: Vec<u8>,
    xid: u32,
    /// The user and group of further calls.
    pub user: (u32, u32),
    /// The present instant.
    pub now: Instant,
    /// The number of its connection, if it can be called over that.
    pub back_channel: Option<u64>,
}

/// Arguments of a call, or bytes of any XDR.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments(pub Vec<u8>);

/// The results of a call, from which they are read in their order. Panics if they are not as
/// expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    bytes: Vec<u8>,
    at: usize,
}

/// fattr3, as far as tests look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct WireAttributes {
    pub kind: u32,
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size_bytes: u64,
    pub device: (u32, u32),
    pub fsid: u64,
    pub fileid: u64,
    pub accessed: (u32, u32),
    pub modified: (u32, u32),
    pub changed: (u32, u32),
}

impl Arguments {
    /// Appends an unsigned integer, enumeration or boolean.
    #[must_use]
    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Appends an unsigned hyper integer.
    #[must_use]
    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Appends bytes as they are.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends variable-length data, with padding.
    #[must_use]
    pub fn opaque(self, bytes: &[u8]) -> Self {
        let mut this = self.u32(bytes.len() as u32).raw(bytes);
        this.0.resize(this.0.len().next_multiple_of(4), 0);
        this
    }

    /// Appends sattr3 that sets nothing but the mode.
    #[must_use]
    pub fn mode(self, mode: u32) -> Self {
        self.u32(1).u32(mode).u32(0).u32(0).u32(0).u32(0).u32(0)
    }

    /// The call with these arguments: program, version and procedure, of a user and a group.
    pub fn call(&self, xid: u32, what: (u32, u32, u32), (uid, gid): (u32, u32)) -> Vec<u8> {
        let (program, version, procedure) = what;
        let head = Self::default().u32(xid).u32(0).u32(2);
        let head = head.u32(program).u32(version).u32(procedure);
        let credential = Self::default().u32(0).opaque(b"client");
        let credential = credential.u32(uid).u32(gid).u32(0);
        let head = head.u32(1).opaque(&credential.0).u32(0).u32(0);
        head.raw(&self.0).0
    }
}

/// A record of one fragment.
pub(crate) fn record(call: &[u8]) -> Vec<u8> {
    let mark = (call.len() as u32 | 1 << 31).to_be_bytes();
    [&mark, call].concat()
}

impl Default for Peer {
    fn default() -> Self {
        Self::new(256 << 10)
    }
}

impl Peer {
    /// A client whose session has send lists of this capacity.
    pub fn new(list_bytes: usize) -> Self {
        Self {
            session: NfsSession::new(),
            list: SendList::with_capacity(list_bytes),
            received: Vec::new(),
            unsent: Vec::new(),
            xid: 0,
            user: (0, 0),
            now: Instant::now(),
            back_channel: None,
        }
    }

    /// Calls a procedure of NFS and returns the results.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "tests build arguments where they call"
    )]
    pub fn call(&mut self, server: &mut TestServer, procedure: u32, arguments: Arguments) -> Reply {
        self.call_program(server, (100_003, 3, procedure), &arguments)
    }

    /// Calls a procedure of MOUNT and returns the results.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "tests build arguments where they call"
    )]
    pub fn mount_call(
        &mut self,
        server: &mut TestServer,
        procedure: u32,
        arguments: Arguments,
    ) -> Reply {
        self.call_program(server, (100_005, 3, procedure), &arguments)
    }

    /// Calls a procedure of NLM version 4 and returns the results.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "tests build arguments where they call"
    )]
    pub fn lock_call(
        &mut self,
        server: &mut TestServer,
        procedure: u32,
        arguments: Arguments,
    ) -> Reply {
        self.call_program(server, (100_021, 4, procedure), &arguments)
    }

    /// Calls COMPOUND of NFS version 4 and returns the results.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "tests build arguments where they call"
    )]
    pub fn compound(&mut self, server: &mut TestServer, arguments: Arguments) -> Reply {
        self.call_program(server, (100_003, 4, 1), &arguments)
    }

    fn call_program(
        &mut self,
        server: &mut TestServer,
        what: (u32, u32, u32),
        arguments: &Arguments,
    ) -> Reply {
        self.xid += 1;
        let call = arguments.call(self.xid, what, self.user);
        self.send(server, &record(&call));
        self.finish_waiting(server);
        let reply = self.next_reply().expect("each call has a reply");
        let reply = Reply::accepted(reply.bytes, self.xid);
        assert_eq!(self.next_reply(), None, "one reply");
        reply
    }

    /// Sends bytes in pieces as large as the session takes, and receives everything that it sends.
    pub fn send(&mut self, server: &mut TestServer, bytes: &[u8]) {
        assert!(
            self.try_send(server, bytes, usize::MAX),
            "no invalid record"
        );
    }

    /// Sends bytes in pieces of at most this length. Returns whether the session goes on.
    pub fn try_send(&mut self, server: &mut TestServer, bytes: &[u8], piece_max: usize) -> bool {
        server.back_channel = self.back_channel;
        self.unsent.extend_from_slice(bytes);
        let unsent = std::mem::take(&mut self.unsent);
        let mut rest = &unsent[..];
        loop {
            let turn = self.session.turn_bytes();
            if turn == 0 && !server.waiting.is_empty() {
                self.finish_waiting(server);
                continue;
            }
            assert!(
                turn > 0 || self.session.wants_transmit(),
                "the session is stuck"
            );
            let (piece, behind) = rest.split_at(rest.len().min(piece_max).min(turn));
            rest = behind;
            if !piece.is_empty() && self.session.handle_bytes(self.now, piece, server).is_err() {
                self.receive(server);
                return false;
            }
            self.receive(server);
            if self.session.is_closing() {
                return false;
            }
            if rest.is_empty() {
                self.unsent = unsent;
                self.unsent.clear();
                return true;
            }
        }
    }

    /// Passes bytes to the session without receiving anything. Returns how many it took.
    pub fn send_only(&mut self, server: &mut TestServer, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && self.session.turn_bytes() > 0 {
            let end = bytes
                .len()
                .min(taken.saturating_add(self.session.turn_bytes()));
            let piece = &bytes[taken..end];
            self.session
                .handle_bytes(self.now, piece, server)
                .expect("valid records");
            taken = end;
        }
        taken
    }

    /// Lets the session fill one send list, and receives it. Returns its length.
    pub fn receive_list(&mut self, server: &mut TestServer) -> usize {
        self.session.poll_transmit(self.now, server, &mut self.list);
        let len = self.list.len_bytes();
        for segment in self.list.segments() {
            match segment {
                Segment::Bytes(bytes) => self.received.extend_from_slice(bytes),
                Segment::Place(_) => panic!("a session of files places nothing"),
            }
        }
        self.list.consume(len);
        len as usize
    }

    /// Receives everything that the session sends.
    pub fn receive(&mut self, server: &mut TestServer) {
        while self.session.wants_transmit() {
            self.receive_list(server);
        }
    }

    /// Executes the calls that wait, in their order, and receives their replies.
    pub fn finish_waiting(&mut self, server: &mut TestServer) {
        while !server.waiting.is_empty() {
            server.finish(0);
        }
        self.wake(server);
    }

    /// Wakes the session, and receives everything that it sends.
    pub fn wake(&mut self, server: &mut TestServer) {
        server.back_channel = self.back_channel;
        let woken = self.session.handle_wake(self.now, server);
        woken.expect("a wake has no error");
        self.receive(server);
    }

    /// Lets time pass up to what the session waits for.
    pub fn time_out(&mut self, server: &mut TestServer) {
        server.back_channel = self.back_channel;
        let due = self.session.poll_timeout();
        assert!(due.is_some_and(|due| due <= self.now), "it waits for that");
        let result = self.session.handle_timeout(self.now, server);
        result.expect("time has no error");
        self.receive(server);
    }

    /// The connection ends.
    pub fn close(&mut self, server: &mut TestServer) {
        server.back_channel = self.back_channel;
        self.session.handle_close(self.now, server);
    }

    /// Whether no call is in progress.
    pub fn is_idle(&self) -> bool {
        self.session.is_idle()
    }

    /// Whether the session wants to send.
    pub fn wants_transmit(&self) -> bool {
        self.session.wants_transmit()
    }

    /// Forgets what was received.
    pub fn discard(&mut self) {
        self.received.clear();
    }

    /// The next reply that was received as a whole. Panics if a record has several fragments.
    pub fn next_reply(&mut self) -> Option<Reply> {
        let (mark, rest) = self.received.split_first_chunk()?;
        let mark = u32::from_be_bytes(*mark);
        assert!(mark >> 31 == 1, "replies have one fragment");
        let bytes = rest.get(..(mark & !(1 << 31)) as usize)?.to_vec();
        self.received.drain(..4 + bytes.len());
        Some(Reply { bytes, at: 0 })
    }

    /// The handle of the root of `/db`.
    pub fn root(&mut self, server: &mut TestServer) -> Vec<u8> {
        let mut reply = self.mount_call(server, 1, Arguments::default().opaque(b"/db"));
        assert_eq!(reply.u32(), 0);
        reply.opaque()
    }
}

impl Reply {
    /// The results in the reply to a call, which is without the header of its record.
    pub fn accepted(bytes: Vec<u8>, xid: u32) -> Self {
        let mut reply = Self { bytes, at: 0 };
        let head: [u32; 5] = reply.words();
        assert_eq!(head, [xid, 1, 0, 0, 0], "an accepted reply");
        assert_eq!(reply.u32(), 0, "accept_stat");
        reply
    }

    fn take<'a, T>(&'a mut self, read: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>) -> T {
        let Self { bytes, at } = self;
        let bytes: &'a [u8] = bytes;
        let mut reader = Reader::new(&bytes[*at..]);
        let value = read(&mut reader).expect("the reply is well-formed");
        *at = bytes.len() - reader.rest().len();
        value
    }

    /// The whole reply.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// An unsigned integer.
    pub fn u32(&mut self) -> u32 {
        self.take(Reader::u32)
    }

    /// Unsigned integers.
    pub fn words<const N: usize>(&mut self) -> [u32; N] {
        std::array::from_fn(|_| self.u32())
    }

    /// An unsigned hyper integer.
    pub fn u64(&mut self) -> u64 {
        self.take(Reader::u64)
    }

    /// A boolean.
    pub fn bool(&mut self) -> bool {
        self.take(Reader::bool)
    }

    /// Variable-length data.
    pub fn opaque(&mut self) -> Vec<u8> {
        self.take(|reader| Ok(reader.opaque(usize::MAX)?.to_vec()))
    }

    /// fattr3.
    pub fn attributes(&mut self) -> WireAttributes {
        let pair = |reply: &mut Self| (reply.u32(), reply.u32());
        let (kind, mode, links) = (self.u32(), self.u32(), self.u32());
        let (uid, gid, size_bytes, _used) = (self.u32(), self.u32(), self.u64(), self.u64());
        let (device, fsid, fileid) = (pair(self), self.u64(), self.u64());
        let (accessed, modified, changed) = (pair(self), pair(self), pair(self));
        WireAttributes {
            kind,
            mode,
            links,
            uid,
            gid,
            size_bytes,
            device,
            fsid,
            fileid,
            accessed,
            modified,
            changed,
        }
    }

    /// post_op_attr.
    pub fn after(&mut self) -> Option<WireAttributes> {
        self.bool().then(|| self.attributes())
    }

    /// wcc_data: the size and the change time before, and the attributes after.
    pub fn change(&mut self) -> (Option<(u64, u32)>, Option<WireAttributes>) {
        let before = self.bool().then(|| {
            let size_bytes = self.u64();
            let _modified = (self.u32(), self.u32());
            let changed = (self.u32(), self.u32());
            (size_bytes, changed.0)
        });
        (before, self.after())
    }

    /// Panics if anything is left.
    pub fn end(&self) {
        assert_eq!(self.at, self.bytes.len(), "the reply has nothing more");
    }
}
