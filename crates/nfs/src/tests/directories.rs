//! Procedures on entries.

use super::procedure::*;
use super::status::*;
use super::{Setup, args};

#[test]
fn lookup_finds_entries_and_the_directories_around() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    let arguments = setup.entry(b"directory").mode(0o755);
    let directory = setup.created(MKDIR, arguments);
    for (from, name, found) in [
        (setup.root.clone(), &b"file"[..], &file),
        (setup.root.clone(), b"directory", &directory),
        (setup.root.clone(), b".", &setup.root.clone()),
        (setup.root.clone(), b"..", &setup.root.clone()),
        (directory.clone(), b"..", &setup.root.clone()),
        (directory.clone(), b".", &directory),
    ] {
        let mut reply = setup.call(LOOKUP, args().opaque(&from).opaque(name));
        assert_eq!(reply.u32(), OK);
        assert_eq!(reply.opaque(), *found);
        assert!(reply.after().is_some() && reply.after().is_some());
        reply.end();
    }
    for (from, name, status) in [
        (&setup.root.clone(), &b"none"[..], NOENT),
        (&setup.root.clone(), b"", ACCES),
        (&setup.root.clone(), b"a/b", ACCES),
        (&setup.root.clone(), &[b'x'; 256], NAMETOOLONG),
        (&setup.root.clone(), &[b'x'; 5000], NAMETOOLONG),
        (&file, b"x", NOTDIR),
        (&file, b".", NOTDIR),
    ] {
        let mut reply = setup.call(LOOKUP, args().opaque(from).opaque(name));
        assert_eq!(reply.u32(), status, "{name:?}");
        assert!(reply.after().is_some());
        reply.end();
    }
}

#[test]
fn create_has_three_ways() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    assert_eq!(
        setup.status(CREATE, setup.entry(b"file").u32(1).mode(0o600)),
        EXIST
    );
    let arguments = setup.entry(b"file").u32(0).mode(0o600);
    assert_eq!(setup.created(CREATE, arguments), file);
    let exclusive = |setup: &Setup, verifier| setup.entry(b"once").u32(2).u64(verifier);
    let arguments = exclusive(&setup, 1);
    let once = setup.created(CREATE, arguments.clone());
    assert_eq!(setup.created(CREATE, arguments), once);
    let mut reply = setup.call(CREATE, exclusive(&setup, 2));
    assert_eq!(reply.u32(), EXIST);
    let (before, after) = reply.change();
    assert!(before.is_none() && after.is_some());
    reply.end();
}

#[test]
fn mknod_makes_devices_pipes_and_sockets() {
    let mut setup = Setup::new();
    for (kind, has_device) in [(3, true), (4, true), (6, false), (7, false)] {
        let name = [b'0' + kind as u8];
        let mut arguments = setup.entry(&name).u32(kind).mode(0o600);
        if has_device {
            arguments = arguments.u32(8).u32(9);
        }
        let node = setup.created(MKNOD, arguments);
        let mut reply = setup.call(GETATTR, args().opaque(&node));
        assert_eq!(reply.u32(), OK);
        let attributes = reply.attributes();
        let device = if has_device { (8, 9) } else { (0, 0) };
        assert_eq!((attributes.kind, attributes.device), (kind, device));
    }
    for kind in [1, 2, 5] {
        assert_eq!(setup.status(MKNOD, setup.entry(b"no").u32(kind)), BADTYPE);
    }
}

#[test]
fn names_that_no_entry_has_are_refused_in_each_procedure() {
    let mut setup = Setup::new();
    for (name, create, remove, remove_directory, rename) in [
        (&b"."[..], EXIST, INVAL, INVAL, INVAL),
        (b"..", EXIST, INVAL, EXIST, INVAL),
        (b"", ACCES, ACCES, ACCES, ACCES),
        (b"a\0", ACCES, ACCES, ACCES, ACCES),
        (
            &[b'n'; 256],
            NAMETOOLONG,
            NAMETOOLONG,
            NAMETOOLONG,
            NAMETOOLONG,
        ),
    ] {
        assert_eq!(
            setup.status(CREATE, setup.entry(name).u32(1).mode(0)),
            create
        );
        assert_eq!(setup.status(MKDIR, setup.entry(name).mode(0)), create);
        assert_eq!(
            setup.status(SYMLINK, setup.entry(name).mode(0).opaque(b"x")),
            create
        );
        assert_eq!(
            setup.status(MKNOD, setup.entry(name).u32(7).mode(0)),
            create
        );
        assert_eq!(setup.status(REMOVE, setup.entry(name)), remove);
        assert_eq!(setup.status(RMDIR, setup.entry(name)), remove_directory);
        let (plain, odd) = (setup.entry(b"x"), setup.entry(name));
        assert_eq!(setup.status(RENAME, plain.clone().raw(&odd.0)), rename);
        assert_eq!(setup.status(RENAME, odd.clone().raw(&plain.0)), rename);
        let root = setup.root.clone();
        assert_eq!(setup.status(LINK, args().opaque(&root).raw(&odd.0)), rename);
    }
    let long = setup.entry(b"long").mode(0).opaque(&[b'/'; 8000]);
    assert_eq!(setup.status(SYMLINK, long), NAMETOOLONG);
}

#[test]
fn remove_and_rmdir_remove_their_own_kind() {
    let mut setup = Setup::new();
    setup.create(b"file", 0o644);
    let arguments = setup.entry(b"directory").mode(0o755);
    let directory = setup.created(MKDIR, arguments);
    let inner = args().opaque(&directory).opaque(b"inner");
    setup.created(CREATE, inner.clone().u32(1).mode(0o644));
    assert_eq!(setup.status(RMDIR, setup.entry(b"directory")), NOTEMPTY);
    assert_eq!(setup.status(RMDIR, setup.entry(b"file")), NOTDIR);
    assert_eq!(setup.status(REMOVE, inner), OK);
    for (procedure, name) in [(RMDIR, &b"directory"[..]), (REMOVE, b"file")] {
        let mut reply = setup.call(procedure, setup.entry(name));
        assert_eq!(reply.u32(), OK);
        let (before, after) = reply.change();
        assert!(before.is_some() && after.is_some());
        reply.end();
        assert_eq!(setup.status(procedure, setup.entry(name)), NOENT);
    }
}

#[test]
fn rename_and_link_work_inside_of_an_export() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    let arguments = setup.entry(b"directory").mode(0o755);
    let directory = setup.created(MKDIR, arguments);
    let to = args().opaque(&directory).opaque(b"moved");
    let mut reply = setup.call(RENAME, setup.entry(b"file").raw(&to.0));
    assert_eq!(reply.u32(), OK);
    let ((from_before, from), (to_before, to)) = (reply.change(), reply.change());
    assert!(from_before.is_some() && to_before.is_some());
    assert_ne!(
        from.expect("attributes").fileid,
        to.expect("attributes").fileid
    );
    reply.end();
    let mut reply = setup.call(LINK, args().opaque(&file).raw(&setup.entry(b"again").0));
    assert_eq!(reply.u32(), OK);
    assert_eq!(reply.after().expect("attributes").links, 2);
    let (before, after) = reply.change();
    assert!(before.is_some() && after.is_some());
    reply.end();
    // The name exists, for LINK.
    let mut reply = setup.call(LINK, args().opaque(&file).raw(&setup.entry(b"again").0));
    assert_eq!(reply.u32(), EXIST);
    assert_eq!(reply.after().expect("attributes").links, 2);
    assert!(reply.change().1.is_some());
    reply.end();
    // Below itself.
    let below = args().opaque(&directory).opaque(b"below");
    let mut reply = setup.call(RENAME, setup.entry(b"directory").raw(&below.0));
    assert_eq!(reply.u32(), INVAL);
    assert!(reply.change().1.is_some() && reply.change().1.is_some());
    reply.end();
}

#[test]
fn nothing_moves_between_exports() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    let other = setup.add_export("/other");
    let there = args().opaque(&other).opaque(b"there");
    let mut reply = setup.call(RENAME, setup.entry(b"file").raw(&there.0));
    assert_eq!(reply.u32(), XDEV);
    assert!(reply.change().1.is_some());
    assert_eq!(reply.change(), (None, None));
    reply.end();
    let mut reply = setup.call(LINK, args().opaque(&file).raw(&there.0));
    assert_eq!(reply.u32(), XDEV);
    assert!(reply.after().is_some());
    assert_eq!(reply.change(), (None, None));
    reply.end();
    setup.server.denied = Some("/other".into());
    let mut reply = setup.call(RENAME, setup.entry(b"file").raw(&there.0));
    assert_eq!(reply.u32(), ACCES);
    assert_eq!(
        (reply.change(), reply.change()),
        ((None, None), (None, None))
    );
    reply.end();
    let mut reply = setup.call(LINK, args().opaque(b"bad").raw(&there.0));
    assert_eq!(reply.u32(), BADHANDLE);
    assert_eq!((reply.after(), reply.change()), (None, (None, None)));
    reply.end();
}

#[test]
fn a_read_only_export_refuses_each_change() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o666);
    setup.server.exports[0].options.read_only = true;
    let entry = |name: &[u8]| args().opaque(&setup.root).opaque(name);
    for (procedure, arguments) in [
        (SETATTR, args().opaque(&file).mode(0).u32(0)),
        (
            WRITE,
            args().opaque(&file).u64(0).u32(1).u32(0).opaque(b"x"),
        ),
        (CREATE, entry(b"new").u32(1).mode(0)),
        (MKDIR, entry(b"new").mode(0)),
        (SYMLINK, entry(b"new").mode(0).opaque(b"x")),
        (MKNOD, entry(b"new").u32(7).mode(0)),
        (REMOVE, entry(b"file")),
        (RMDIR, entry(b"file")),
        (RENAME, entry(b"file").raw(&entry(b"new").0)),
        (LINK, args().opaque(&file).raw(&entry(b"new").0)),
    ] {
        let mut reply = setup.peer.call(&mut setup.server, procedure, arguments);
        assert_eq!(reply.u32(), ROFS, "{procedure}");
        if procedure == LINK {
            assert!(reply.after().is_some());
        }
        assert!(reply.change().1.is_some());
        if procedure == RENAME {
            assert!(reply.change().1.is_some());
        }
        reply.end();
    }
    assert_eq!(setup.status(LOOKUP, setup.entry(b"file")), OK);
    assert_eq!(setup.status(READ, args().opaque(&file).u64(0).u32(1)), OK);
}
