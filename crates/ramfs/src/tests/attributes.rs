//! Changes of attributes.

use file_tree::{
    AttributeChanges, Caller, FileError, FileId, FileTree, NewFile, TimeChange, Timestamp,
};

use super::{ALICE, BOB, CAROL, ROOT, Short, mode, tree};
use crate::RamTree;

const NONE: AttributeChanges = AttributeChanges {
    mode: None,
    uid: None,
    gid: None,
    size_bytes: None,
    accessed: None,
    modified: None,
};

fn change(
    tree: &RamTree,
    caller: &Caller<'_>,
    file: FileId,
    changes: &AttributeChanges,
) -> Result<(), FileError> {
    tree.set_attributes(caller, file, changes, None).map(|_| ())
}

fn uid(uid: u32) -> AttributeChanges {
    AttributeChanges {
        uid: Some(uid),
        ..NONE
    }
}

fn gid(gid: u32) -> AttributeChanges {
    AttributeChanges {
        gid: Some(gid),
        ..NONE
    }
}

fn modified(change: TimeChange) -> AttributeChanges {
    AttributeChanges {
        modified: Some(change),
        ..NONE
    }
}

fn bits(tree: &RamTree, file: FileId) -> u16 {
    tree.attributes(file).expect("exists").mode.bits()
}

#[test]
fn only_the_owner_and_root_change_the_mode() {
    let tree = tree();
    let file = tree.file(ALICE, tree.root(), "f");
    let not_owner = Err(FileError::NotOwner);
    assert_eq!(change(&tree, CAROL, file, &mode(0o777)), not_owner);
    assert_eq!(change(&tree, ALICE, file, &mode(0o4711)), Ok(()));
    assert_eq!(bits(&tree, file), 0o4711);
    assert_eq!(change(&tree, ROOT, file, &mode(0)), Ok(()));
}

#[test]
fn only_root_gives_files_away() {
    let tree = tree();
    let file = tree.file(ALICE, tree.root(), "f");
    let not_owner = Err(FileError::NotOwner);
    assert_eq!(change(&tree, ALICE, file, &uid(BOB.uid)), not_owner);
    assert_eq!(change(&tree, CAROL, file, &uid(ALICE.uid)), not_owner);
    assert_eq!(change(&tree, ALICE, file, &uid(ALICE.uid)), Ok(()));
    assert_eq!(change(&tree, ALICE, file, &gid(CAROL.gid)), not_owner);
    assert_eq!(
        change(&tree, ALICE, file, &gid(101)),
        Ok(()),
        "a further group"
    );
    assert_eq!(change(&tree, CAROL, file, &gid(CAROL.gid)), not_owner);
    assert_eq!(change(&tree, ROOT, file, &uid(BOB.uid)), Ok(()));
    let attributes = tree.attributes(file).expect("exists");
    assert_eq!((attributes.uid, attributes.gid), (BOB.uid, 101));
}

#[test]
fn a_change_of_the_owner_by_others_than_root_clears_set_id() {
    let tree = tree();
    let root = tree.root();
    let file = tree
        .make(ALICE, root, "f", NewFile::Guarded, 0o6755)
        .expect("made");
    assert_eq!(change(&tree, ROOT, file, &uid(ALICE.uid)), Ok(()));
    assert_eq!(bits(&tree, file), 0o6755);
    assert_eq!(change(&tree, ALICE, file, &gid(101)), Ok(()));
    assert_eq!(bits(&tree, file), 0o755);
    let directory = tree
        .make(ALICE, root, "d", NewFile::Directory, 0o2755)
        .expect("made");
    assert_eq!(change(&tree, ALICE, directory, &gid(101)), Ok(()));
    assert_eq!(
        bits(&tree, directory),
        0o2755,
        "of directories it means something else"
    );
}

#[test]
fn set_gid_is_for_members_of_the_group() {
    let tree = tree();
    let file = tree.file(ROOT, tree.root(), "f");
    change(
        &tree,
        ROOT,
        file,
        &AttributeChanges {
            gid: Some(7),
            ..uid(ALICE.uid)
        },
    )
    .expect("root");
    assert_eq!(change(&tree, ALICE, file, &mode(0o2755)), Ok(()));
    assert_eq!(bits(&tree, file), 0o755);
}

#[test]
fn who_may_write_sets_times_to_now_and_owners_to_anything() {
    let tree = tree();
    let file = tree
        .make(ALICE, tree.root(), "f", NewFile::Guarded, 0o646)
        .expect("made");
    let past = Timestamp {
        seconds: -5,
        nanoseconds: 999_999_999,
    };
    let to_past = modified(TimeChange::To(past));
    let now = modified(TimeChange::Now);
    assert_eq!(change(&tree, CAROL, file, &now), Ok(()));
    assert_eq!(
        change(&tree, CAROL, file, &to_past),
        Err(FileError::NotOwner)
    );
    assert_eq!(change(&tree, BOB, file, &now), Err(FileError::AccessDenied));
    assert_eq!(change(&tree, ALICE, file, &to_past), Ok(()));
    assert_eq!(tree.attributes(file).expect("exists").modified, past);
    let accessed = AttributeChanges {
        accessed: Some(TimeChange::To(past)),
        ..NONE
    };
    tree.read(ALICE, file, 0, &mut [0]).expect("read");
    assert_eq!(change(&tree, ALICE, file, &accessed), Ok(()));
    assert_eq!(tree.attributes(file).expect("exists").accessed, past);
    let invalid = modified(TimeChange::To(Timestamp {
        seconds: 0,
        nanoseconds: 1_000_000_000,
    }));
    assert_eq!(
        change(&tree, ALICE, file, &invalid),
        Err(FileError::Invalid)
    );
}

#[test]
fn a_refused_change_changes_nothing() {
    let tree = tree();
    let file = tree.file(ALICE, tree.root(), "f");
    let before = tree.attributes(file);
    let both = AttributeChanges {
        uid: Some(BOB.uid),
        size_bytes: Some(100),
        ..mode(0o777)
    };
    assert_eq!(change(&tree, ALICE, file, &both), Err(FileError::NotOwner));
    assert_eq!(tree.attributes(file), before);
    assert_eq!(change(&tree, ALICE, file, &NONE), Ok(()));
    assert_eq!(tree.attributes(file), before, "nothing was asked for");
}

#[test]
fn a_guard_lets_only_the_first_of_two_changes_through() {
    let tree = tree();
    let file = tree.file(ALICE, tree.root(), "f");
    let guard = Some(tree.attributes(file).expect("exists").changed);
    let first = tree.set_attributes(ALICE, file, &mode(0o600), guard);
    assert!(first.is_ok());
    let second = tree.set_attributes(ALICE, file, &mode(0o666), guard);
    assert_eq!(second.map(|_| ()), Err(FileError::NotSynchronized));
    assert_eq!(bits(&tree, file), 0o600);
}

#[test]
fn the_first_matching_class_decides_as_posix_has_it() {
    let tree = tree();
    let root = tree.root();
    // The owner has least: neither the group's nor others' bits are its.
    let file = tree
        .make(ALICE, root, "f", NewFile::Guarded, 0o047)
        .expect("made");
    let may = |caller| {
        let access = tree.access(caller, file).expect("exists");
        (access.read, access.write, access.execute)
    };
    assert_eq!(may(ALICE), (false, false, false));
    assert_eq!(may(BOB), (true, false, false), "by a further group");
    assert_eq!(may(CAROL), (true, true, true));
    assert_eq!(may(ROOT), (true, true, true));
    change(&tree, ALICE, file, &mode(0o666)).expect("owner");
    assert_eq!(may(ROOT), (true, true, false), "nobody may execute it");
}
