//! The procedures of MOUNT.

use super::status::*;
use super::{Setup, args, procedure};

impl Setup {
    fn mount(&mut self, path: &[u8]) -> (u32, Option<Vec<u8>>) {
        let arguments = args().opaque(path);
        let mut reply = self.peer.mount_call(&mut self.server, 1, arguments);
        let status = reply.u32();
        let handle = (status == OK).then(|| reply.opaque());
        if status == OK {
            assert_eq!((reply.u32(), reply.u32()), (1, 1), "AUTH_SYS alone");
        }
        reply.end();
        (status, handle)
    }
}

#[test]
fn mnt_gives_handles_of_directories() {
    let mut setup = Setup::new();
    setup.create(b"file", 0o644);
    let arguments = setup.entry(b"directory").mode(0o755);
    let directory = setup.created(procedure::MKDIR, arguments);
    let root = Some(setup.root.clone());
    assert_eq!(setup.mount(b"/db"), (OK, root.clone()));
    assert_eq!(setup.mount(b"/db/"), (OK, root.clone()));
    assert_eq!(setup.mount(b"/db/directory/"), (OK, Some(directory)));
    assert_eq!(setup.mount(b"/db/directory/../.."), (OK, root));
    assert_eq!(setup.mount(b"/db/file").0, NOTDIR);
    assert_eq!(setup.mount(b"/db/none").0, NOENT);
    assert_eq!(setup.mount(b"/none").0, NOENT);
    assert_eq!(setup.mount(b"").0, NOENT);
    assert_eq!(
        setup.mount(&[b"/db/", &[b'x'; 300][..]].concat()).0,
        NAMETOOLONG
    );
    setup.server.denied = Some("/db".into());
    assert_eq!(setup.mount(b"/db").0, ACCES);
}

#[test]
fn dump_and_export_list_mounts_and_exports() {
    let mut setup = Setup::new();
    setup.peer.mount_call(&mut setup.server, 0, args()).end();
    let mut reply = setup.peer.mount_call(&mut setup.server, 2, args());
    assert!(reply.bool());
    assert_eq!(
        (reply.opaque(), reply.opaque()),
        (b"127.0.0.1".to_vec(), b"/db".to_vec())
    );
    assert!(!reply.bool());
    reply.end();
    let mut reply = setup.peer.mount_call(&mut setup.server, 5, args());
    assert!(reply.bool());
    assert_eq!(reply.opaque(), b"/db");
    for client in ["192.0.2.0/24", "198.51.100.1"] {
        assert!(reply.bool());
        assert_eq!(reply.opaque(), client.as_bytes());
    }
    assert!(!reply.bool() && !reply.bool());
    reply.end();
    setup
        .peer
        .mount_call(&mut setup.server, 3, args().opaque(b"/db"))
        .end();
    assert!(setup.server.mounts.is_empty());
    setup.mount(b"/db");
    setup.peer.mount_call(&mut setup.server, 4, args()).end();
    assert!(setup.server.mounts.is_empty());
}

#[test]
fn lists_are_bounded() {
    let mut setup = Setup::new();
    setup.server.mounts = vec![vec![b'm'; 1000]; 1000];
    setup.server.exports[0].path = "/".repeat(2000);
    setup.server.exports = vec![setup.server.exports[0].clone(); 100];
    for procedure in [2, 5] {
        let reply = setup.peer.mount_call(&mut setup.server, procedure, args());
        assert!((40_000..50_000).contains(&reply.bytes().len()));
    }
}
