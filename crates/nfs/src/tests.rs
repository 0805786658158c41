//! Tests of sessions against a tree in memory.

mod corpus;
mod data;
mod datagrams;
mod directories;
mod duplicates;
mod files;
mod hostile;
mod listings;
mod mounts;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use file_tree::{AttributeChanges, Caller, FileTree, Mode, Timestamp};
use memory::Budget;
use ramfs::{Quota, RamTree};

use crate::testing::{Arguments, Peer, Reply, TestServer};

/// An empty tree whose root directory everyone may change. Each look at its clock is a second
/// later.
pub(crate) fn tree() -> Arc<RamTree> {
    let seconds = AtomicI64::new(1);
    let clock = Arc::new(move || Timestamp {
        seconds: seconds.fetch_add(1, Ordering::Relaxed),
        nanoseconds: 5,
    });
    let budget = Arc::new(Budget::new(256 << 20));
    let tree = RamTree::new(budget, Quota::UNLIMITED, clock).expect("it fits");
    let open = AttributeChanges {
        mode: Some(Mode::new(0o777)),
        ..AttributeChanges::default()
    };
    tree.set_attributes(&Caller::ROOT, tree.root(), &open, None)
        .expect("root may");
    Arc::new(tree)
}

/// A server, a client of it, and the handle of the root directory.
pub(crate) struct Setup {
    pub(crate) server: TestServer,
    pub(crate) peer: Peer,
    pub(crate) root: Vec<u8>,
}

/// Statuses, by their names in RFC 1813.
pub(crate) mod status {
    pub(crate) const OK: u32 = 0;
    pub(crate) const PERM: u32 = 1;
    pub(crate) const NOENT: u32 = 2;
    pub(crate) const ACCES: u32 = 13;
    pub(crate) const EXIST: u32 = 17;
    pub(crate) const XDEV: u32 = 18;
    pub(crate) const NOTDIR: u32 = 20;
    pub(crate) const INVAL: u32 = 22;
    pub(crate) const FBIG: u32 = 27;
    pub(crate) const ROFS: u32 = 30;
    pub(crate) const NAMETOOLONG: u32 = 63;
    pub(crate) const NOTEMPTY: u32 = 66;
    pub(crate) const STALE: u32 = 70;
    pub(crate) const BADHANDLE: u32 = 10_001;
    pub(crate) const NOT_SYNC: u32 = 10_002;
    pub(crate) const BAD_COOKIE: u32 = 10_003;
    pub(crate) const TOOSMALL: u32 = 10_005;
    pub(crate) const BADTYPE: u32 = 10_007;
}

/// Procedures, by their numbers in RFC 1813.
pub(crate) mod procedure {
    pub(crate) const NULL: u32 = 0;
    pub(crate) const GETATTR: u32 = 1;
    pub(crate) const SETATTR: u32 = 2;
    pub(crate) const LOOKUP: u32 = 3;
    pub(crate) const ACCESS: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const READ: u32 = 6;
    pub(crate) const WRITE: u32 = 7;
    pub(crate) const CREATE: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const SYMLINK: u32 = 10;
    pub(crate) const MKNOD: u32 = 11;
    pub(crate) const REMOVE: u32 = 12;
    pub(crate) const RMDIR: u32 = 13;
    pub(crate) const RENAME: u32 = 14;
    pub(crate) const LINK: u32 = 15;
    pub(crate) const READDIR: u32 = 16;
    pub(crate) const READDIRPLUS: u32 = 17;
    pub(crate) const FSSTAT: u32 = 18;
    pub(crate) const FSINFO: u32 = 19;
    pub(crate) const PATHCONF: u32 = 20;
    pub(crate) const COMMIT: u32 = 21;
}

/// Starts arguments.
pub(crate) fn args() -> Arguments {
    Arguments::default()
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self::with_lists_of(256 << 10)
    }

    pub(crate) fn with_lists_of(list_bytes: usize) -> Self {
        let mut server = TestServer::new(tree());
        let mut peer = Peer::new(list_bytes);
        let root = peer.root(&mut server);
        Self { server, peer, root }
    }

    pub(crate) fn call(&mut self, procedure: u32, arguments: Arguments) -> Reply {
        self.peer.call(&mut self.server, procedure, arguments)
    }

    /// Calls a procedure that fails without results besides optional attributes, and returns its
    /// status.
    pub(crate) fn status(&mut self, procedure: u32, arguments: Arguments) -> u32 {
        self.call(procedure, arguments).u32()
    }

    /// A directory and a name.
    pub(crate) fn entry(&self, name: &[u8]) -> Arguments {
        args().opaque(&self.root).opaque(name)
    }

    /// Creates a file in the root directory and returns its handle.
    pub(crate) fn create(&mut self, name: &[u8], mode: u32) -> Vec<u8> {
        let arguments = self.entry(name).u32(1).mode(mode);
        self.created(procedure::CREATE, arguments)
    }

    /// Calls a procedure that creates an entry, and returns the handle.
    pub(crate) fn created(&mut self, procedure: u32, arguments: Arguments) -> Vec<u8> {
        let mut reply = self.call(procedure, arguments);
        assert_eq!(reply.u32(), status::OK);
        assert!(reply.bool(), "a handle");
        let handle = reply.opaque();
        let attributes = reply.after().expect("attributes");
        let (before, after) = reply.change();
        assert!(before.is_some() && after.is_some_and(|after| after.kind == 2));
        assert!(attributes.kind > 0);
        reply.end();
        handle
    }

    /// Adds a share of its own with this path.
    pub(crate) fn add_export(&mut self, path: &str) -> Vec<u8> {
        let mut export = self.server.exports[0].clone();
        export.id = crate::ExportId(*b"another  export ");
        export.path = path.into();
        export.tree = tree();
        self.server.exports.push(export);
        let arguments = args().opaque(path.as_bytes());
        let mut reply = self.peer.mount_call(&mut self.server, 1, arguments);
        assert_eq!(reply.u32(), 0);
        reply.opaque()
    }
}
