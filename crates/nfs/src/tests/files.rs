//! Procedures on one file, and on the whole export.

use super::procedure::*;
use super::status::*;
use super::{Setup, args};
use crate::Squash;

#[test]
fn null_answers_nothing() {
    let mut setup = Setup::new();
    setup.call(NULL, args()).end();
}

#[test]
fn getattr_gives_what_setattr_has_set() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o640);
    let changes = args().u32(1).u32(0o4750).u32(1).u32(7).u32(1).u32(8);
    let changes = changes
        .u32(1)
        .u64(5000)
        .u32(2)
        .u32(11)
        .u32(12)
        .u32(2)
        .u32(21)
        .u32(22);
    let mut reply = setup.call(SETATTR, args().opaque(&file).raw(&changes.0).u32(0));
    assert_eq!(reply.u32(), OK);
    let (before, after) = reply.change();
    reply.end();
    assert_eq!(before.map(|(size_bytes, _)| size_bytes), Some(0));
    let mut reply = setup.call(GETATTR, args().opaque(&file));
    assert_eq!(reply.u32(), OK);
    let attributes = reply.attributes();
    reply.end();
    assert_eq!(after, Some(attributes));
    assert_eq!(
        (attributes.kind, attributes.mode, attributes.links),
        (1, 0o4750, 1)
    );
    assert_eq!(
        (attributes.uid, attributes.gid, attributes.size_bytes),
        (7, 8, 5000)
    );
    assert_eq!(
        (attributes.accessed, attributes.modified),
        ((11, 12), (21, 22))
    );
    let mut reply = setup.call(GETATTR, args().opaque(&setup.root.clone()));
    assert_eq!(reply.u32(), OK);
    assert_eq!(reply.attributes().fsid, attributes.fsid);
}

#[test]
fn setattr_obeys_its_guard_and_the_owner() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    let attributes = {
        let mut reply = setup.call(GETATTR, args().opaque(&file));
        reply.u32();
        reply.attributes()
    };
    let guarded = |time: (u32, u32)| {
        args()
            .opaque(&file)
            .mode(0o600)
            .u32(1)
            .u32(time.0)
            .u32(time.1)
    };
    let (seconds, nanoseconds) = attributes.changed;
    for wrong in [
        (seconds + 1, nanoseconds),
        (seconds, nanoseconds + 1),
        (seconds, 1_000_000_000),
    ] {
        let mut reply = setup.call(SETATTR, guarded(wrong));
        assert_eq!(reply.u32(), NOT_SYNC);
        assert_eq!(reply.change(), (None, Some(attributes)));
        reply.end();
    }
    assert_eq!(setup.status(SETATTR, guarded(attributes.changed)), OK);
    setup.peer.user = (1000, 100);
    assert_eq!(
        setup.status(SETATTR, args().opaque(&file).mode(0o777).u32(0)),
        PERM
    );
    // Nanoseconds beyond a second.
    let times = args()
        .u32(0)
        .u32(0)
        .u32(0)
        .u32(0)
        .u32(0)
        .u32(2)
        .u32(1)
        .u32(1_000_000_000);
    assert_eq!(
        setup.status(SETATTR, args().opaque(&file).raw(&times.0).u32(0)),
        INVAL
    );
}

#[test]
fn access_depends_on_user_kind_and_export() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o640);
    let root = setup.root.clone();
    let access = |setup: &mut Setup, user, handle: &[u8], asked| {
        setup.peer.user = user;
        let mut reply = setup.call(ACCESS, args().opaque(handle).u32(asked));
        assert_eq!(reply.u32(), OK);
        assert!(reply.after().is_some());
        let granted = reply.u32();
        reply.end();
        granted
    };
    assert_eq!(access(&mut setup, (0, 0), &file, 0x3f), 0x0d);
    assert_eq!(access(&mut setup, (0, 0), &file, 0x05), 0x05);
    assert_eq!(access(&mut setup, (5, 0), &file, 0x3f), 0x01);
    assert_eq!(access(&mut setup, (5, 5), &file, 0x3f), 0);
    assert_eq!(access(&mut setup, (5, 5), &root, 0x3f), 0x1f);
    setup.server.exports[0].options.read_only = true;
    assert_eq!(access(&mut setup, (0, 0), &file, 0x3f), 0x01);
    assert_eq!(access(&mut setup, (5, 5), &root, 0x3f), 0x03);
    setup.server.exports[0].options.read_only = false;
    setup.server.exports[0].options.squash = Squash::Root;
    assert_eq!(access(&mut setup, (0, 0), &file, 0x3f), 0);
    assert_eq!(
        setup.status(ACCESS, args().opaque(b"short").u32(1)),
        BADHANDLE
    );
}

#[test]
fn readlink_gives_the_path_of_links_alone() {
    let mut setup = Setup::new();
    let arguments = setup.entry(b"link").mode(0o777).opaque(b"../some/where");
    let link = setup.created(SYMLINK, arguments);
    let mut reply = setup.call(READLINK, args().opaque(&link));
    assert_eq!(reply.u32(), OK);
    assert_eq!(reply.after().expect("attributes").kind, 5);
    assert_eq!(reply.opaque(), b"../some/where");
    reply.end();
    let root = setup.root.clone();
    let mut reply = setup.call(READLINK, args().opaque(&root));
    assert_eq!(reply.u32(), INVAL);
    assert!(reply.after().is_some());
    reply.end();
}

#[test]
fn handles_are_checked() {
    let mut setup = Setup::new();
    let mut handle = setup.create(b"file", 0o644);
    assert_eq!(handle.len(), 32);
    let mut reply = setup.call(GETATTR, args().opaque(&handle[..31]));
    assert_eq!(reply.u32(), BADHANDLE);
    reply.end();
    assert_eq!(
        setup.status(
            GETATTR,
            args().opaque(&[handle.clone(), vec![0; 4]].concat())
        ),
        BADHANDLE
    );
    // Another generation, and another export.
    for at in [31, 0] {
        handle[at] ^= 1;
        for procedure in [GETATTR, ACCESS, READLINK, FSSTAT, FSINFO, PATHCONF] {
            let arguments = args().opaque(&handle);
            let arguments = if procedure == ACCESS {
                arguments.u32(1)
            } else {
                arguments
            };
            let mut reply = setup.call(procedure, arguments);
            assert_eq!(reply.u32(), STALE, "{procedure}");
            if procedure != GETATTR {
                assert_eq!(reply.after(), None);
            }
            reply.end();
        }
        handle[at] ^= 1;
    }
    assert_eq!(setup.status(REMOVE, setup.entry(b"file")), OK);
    assert_eq!(setup.status(GETATTR, args().opaque(&handle)), STALE);
    setup.server.denied = Some("/db".into());
    assert_eq!(setup.status(GETATTR, args().opaque(&handle)), ACCES);
}

#[test]
fn fsstat_fsinfo_and_pathconf_describe_the_export() {
    let mut setup = Setup::new();
    let root = setup.root.clone();
    let mut reply = setup.call(FSSTAT, args().opaque(&root));
    assert_eq!(reply.u32(), OK);
    assert!(reply.after().is_some());
    let (total, free, available) = (reply.u64(), reply.u64(), reply.u64());
    assert!(total >= free && free == available && free > 0);
    let (total, free, available) = (reply.u64(), reply.u64(), reply.u64());
    assert!(total >= free && free == available && free > 0);
    assert_eq!(reply.u32(), 0);
    reply.end();
    let mut reply = setup.call(FSINFO, args().opaque(&root));
    assert_eq!(reply.u32(), OK);
    assert!(reply.after().is_some());
    let transfers = reply.words::<6>();
    assert_eq!(transfers, [1 << 20, 1 << 20, 4096, 1 << 20, 1 << 20, 4096]);
    assert_eq!(reply.u32(), 64 << 10);
    assert!(reply.u64() >= 1 << 40);
    assert_eq!((reply.u32(), reply.u32(), reply.u32()), (0, 1, 0x1b));
    reply.end();
    let mut reply = setup.call(PATHCONF, args().opaque(&root));
    assert_eq!(reply.u32(), OK);
    assert!(reply.after().is_some());
    assert!(reply.u32() > 1);
    assert_eq!(reply.words::<5>(), [255, 1, 1, 0, 1]);
    reply.end();
}
