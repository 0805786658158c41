//! Names: creation, links, removal, renaming, listing.

use file_tree::{
    AttributeChanges, Cookie, DeviceNumber, DirectoryEntry, ExclusiveVerifier, FileError, FileId,
    FileKind, FileTree, Listing, NewFile,
};
use memory::Budget;
use std::sync::Arc;

use super::{ALICE, BOB, CAROL, ROOT, Short, clock, mode, name, size, tree};
use crate::{Quota, RamTree};

fn links(tree: &RamTree, file: FileId) -> u32 {
    tree.attributes(file).expect("the file exists").links
}

fn rename(tree: &RamTree, from: (FileId, &str), to: (FileId, &str)) -> Result<(), FileError> {
    let (from, to) = ((from.0, name(from.1)), (to.0, name(to.1)));
    tree.rename(ROOT, from, to).map(|_| ())
}

#[test]
fn guarded_creation_refuses_an_existing_name() {
    let tree = tree();
    let root = tree.root();
    tree.file(ALICE, root, "f");
    for new in [
        NewFile::Guarded,
        NewFile::Directory,
        NewFile::SymbolicLink(b"f"),
    ] {
        assert_eq!(
            tree.make(BOB, root, "f", new, 0o600),
            Err(FileError::Exists)
        );
    }
    let exclusive = NewFile::Exclusive(ExclusiveVerifier([1; 8]));
    assert_eq!(
        tree.make(BOB, root, "f", exclusive, 0o600),
        Err(FileError::Exists)
    );
    assert_eq!(tree.names(root), ["f"]);
}

#[test]
fn unchecked_creation_uses_a_regular_file_with_the_new_size_alone() {
    let tree = tree();
    let root = tree.root();
    let file = tree.file(ALICE, root, "f");
    tree.put(file, 0, b"hello");
    let changes = AttributeChanges {
        mode: mode(0o777).mode,
        ..size(2)
    };
    let before = tree.attributes(root).expect("exists");
    let used = tree
        .create(ALICE, root, name("f"), NewFile::Unchecked, &changes)
        .expect("used");
    assert_eq!(used.value.attributes.id, file);
    assert_eq!(used.value.attributes.mode.bits(), 0o644);
    assert_eq!(tree.contents(file), b"he");
    assert_eq!(
        (used.before, used.after.changed),
        (before.before_change(), before.changed)
    );
    // Without a size it is only found, by anyone.
    let used = tree
        .create(CAROL, root, name("f"), NewFile::Unchecked, &mode(0))
        .expect("used");
    assert_eq!(used.value.attributes.id, file);
    let cut = tree.create(CAROL, root, name("f"), NewFile::Unchecked, &size(0));
    assert_eq!(cut.map(|_| ()), Err(FileError::AccessDenied));
    tree.dir(ALICE, root, "d");
    let error = tree.make(ALICE, root, "d", NewFile::Unchecked, 0o600);
    assert_eq!(error, Err(FileError::Exists));
}

#[test]
fn a_repeated_exclusive_creation_finds_its_own_file() {
    let tree = tree();
    let root = tree.root();
    let exclusive = |byte| NewFile::Exclusive(ExclusiveVerifier([byte; 8]));
    let file = tree
        .make(ALICE, root, "f", exclusive(1), 0o600)
        .expect("new");
    assert_eq!(tree.make(ALICE, root, "f", exclusive(1), 0o600), Ok(file));
    assert_eq!(
        tree.make(ALICE, root, "f", exclusive(2), 0o600),
        Err(FileError::Exists)
    );
    assert_eq!(tree.files(), 2);
}

#[test]
fn a_set_gid_directory_passes_its_group_on() {
    let tree = tree();
    let shared = tree
        .make(ALICE, tree.root(), "shared", NewFile::Directory, 0o2777)
        .expect("made");
    let file = tree
        .make(CAROL, shared, "f", NewFile::Guarded, 0o2755)
        .expect("made");
    let file = tree.attributes(file).expect("exists");
    assert_eq!((file.uid, file.gid), (CAROL.uid, ALICE.gid));
    assert_eq!(file.mode.bits(), 0o755, "not a member of the group");
    let below = tree
        .make(CAROL, shared, "d", NewFile::Directory, 0o700)
        .expect("made");
    let below = tree.attributes(below).expect("exists");
    assert_eq!((below.gid, below.mode.bits()), (ALICE.gid, 0o2700));
}

#[test]
fn only_root_creates_for_others_and_devices() {
    let tree = tree();
    let root = tree.root();
    let owned = AttributeChanges {
        uid: Some(CAROL.uid),
        ..AttributeChanges::default()
    };
    let created = tree.create(ALICE, root, name("f"), NewFile::Guarded, &owned);
    assert_eq!(created.map(|_| ()), Err(FileError::NotOwner));
    let created = tree
        .create(ROOT, root, name("f"), NewFile::Guarded, &owned)
        .expect("root may");
    assert_eq!(created.value.attributes.uid, CAROL.uid);
    let device = FileKind::BlockDevice(DeviceNumber { major: 8, minor: 1 });
    let special = NewFile::Special(device);
    assert_eq!(
        tree.make(ALICE, root, "sda1", special, 0o600),
        Err(FileError::NotOwner)
    );
    let file = tree
        .make(ROOT, root, "sda1", special, 0o600)
        .expect("root may");
    assert_eq!(
        tree.attributes(file).map(|attributes| attributes.kind),
        Ok(device)
    );
    for kind in [FileKind::Fifo, FileKind::Socket] {
        let text = format!("{kind:?}");
        let file = tree
            .make(ALICE, root, &text, NewFile::Special(kind), 0o600)
            .expect("made");
        assert_eq!(
            tree.attributes(file).map(|attributes| attributes.kind),
            Ok(kind)
        );
    }
    let wrong = NewFile::Special(FileKind::Directory);
    assert_eq!(
        tree.make(ROOT, root, "x", wrong, 0o600),
        Err(FileError::Invalid)
    );
}

#[test]
fn a_symbolic_link_keeps_its_path() {
    let tree = tree();
    let root = tree.root();
    let path = [b'p'; 1024];
    let link = tree
        .make(ALICE, root, "l", NewFile::SymbolicLink(&path), 0o777)
        .expect("made");
    let mut read = Vec::new();
    let attributes = tree
        .read_link(BOB, link, &mut |path| read.extend(path))
        .expect("read");
    assert_eq!((&read[..], attributes.size_bytes), (&path[..], 1024));
    let create = |path| tree.make(ALICE, root, "m", NewFile::SymbolicLink(path), 0o777);
    assert_eq!(create(&[b'p'; 1025]), Err(FileError::NameTooLong));
    assert_eq!(create(b""), Err(FileError::Invalid));
    assert_eq!(create(b"a\0b"), Err(FileError::Invalid));
    let not_link = tree.read_link(BOB, root, &mut |_| {});
    assert_eq!(not_link.map(|_| ()), Err(FileError::Invalid));
}

#[test]
fn a_file_lives_as_long_as_it_has_a_name() {
    let tree = tree();
    let root = tree.root();
    let file = tree.file(ALICE, root, "a");
    tree.put(file, 0, b"data");
    let linked = tree.link(ALICE, file, root, name("b")).expect("linked");
    assert_eq!(linked.value.links, 2);
    assert_eq!(
        tree.link(ALICE, file, root, name("b")).map(|_| ()),
        Err(FileError::Exists)
    );
    tree.remove(ALICE, root, name("a")).expect("removed");
    assert_eq!(tree.contents(file), b"data");
    assert_eq!(links(&tree, file), 1);
    tree.remove(ALICE, root, name("b")).expect("removed");
    assert_eq!(tree.attributes(file), Err(FileError::Stale));
    assert_eq!(
        tree.read(ALICE, file, 0, &mut [0]).map(|_| ()),
        Err(FileError::Stale)
    );
    assert_eq!(
        tree.link(ALICE, file, root, name("c")).map(|_| ()),
        Err(FileError::Stale)
    );
}

#[test]
fn an_identifier_never_names_a_later_file() {
    let tree = tree();
    let root = tree.root();
    let old = tree.file(ALICE, root, "f");
    tree.remove(ALICE, root, name("f")).expect("removed");
    let new = tree.file(ALICE, root, "f");
    assert_eq!(old.number, new.number, "the number is used again");
    assert_eq!(tree.attributes(old), Err(FileError::Stale));
    for number in [0, 99, u64::MAX] {
        let id = FileId { number, ..new };
        assert_eq!(tree.attributes(id), Err(FileError::Stale));
    }
}

#[test]
fn links_are_bounded() {
    let budget = Arc::new(Budget::new(1 << 20));
    let tree = RamTree::with_links_max(budget, Quota::UNLIMITED, clock(), 3).expect("fits");
    let root = tree.root();
    let file = tree.file(ROOT, root, "f");
    for text in ["g", "h"] {
        tree.link(ROOT, file, root, name(text)).expect("linked");
    }
    let too_many = Err(FileError::TooManyLinks);
    assert_eq!(tree.link(ROOT, file, root, name("i")).map(|_| ()), too_many);
    let directory = tree.dir(ROOT, root, "d");
    assert_eq!(
        tree.make(ROOT, root, "e", NewFile::Directory, 0o755)
            .map(|_| ()),
        too_many
    );
    tree.dir(ROOT, directory, "x");
    assert_eq!(rename(&tree, (directory, "x"), (root, "x")), too_many);
    assert_eq!(
        tree.link(ROOT, directory, root, name("i")).map(|_| ()),
        Err(FileError::IsDirectory)
    );
}

#[test]
fn each_kind_is_removed_by_its_own_operation() {
    let tree = tree();
    let root = tree.root();
    tree.file(ROOT, root, "f");
    let directory = tree.dir(ROOT, root, "d");
    tree.file(ROOT, directory, "inside");
    let remove = |text| tree.remove(ROOT, root, name(text)).map(|_| ());
    let remove_directory = |text| tree.remove_directory(ROOT, root, name(text)).map(|_| ());
    assert_eq!(remove("d"), Err(FileError::IsDirectory));
    assert_eq!(remove_directory("f"), Err(FileError::NotDirectory));
    assert_eq!(remove_directory("d"), Err(FileError::NotEmpty));
    assert_eq!(remove("x"), Err(FileError::NotFound));
    assert_eq!(links(&tree, root), 3);
    tree.remove(ROOT, directory, name("inside"))
        .expect("removed");
    assert_eq!(remove_directory("d"), Ok(()));
    assert_eq!((remove("f"), links(&tree, root)), (Ok(()), 2));
    let late = tree.make(ROOT, directory, "late", NewFile::Guarded, 0o600);
    assert_eq!(late, Err(FileError::Stale));
}

#[test]
fn in_a_sticky_directory_only_owners_remove_and_rename() {
    let tree = tree();
    let sticky = tree
        .make(ALICE, tree.root(), "tmp", NewFile::Directory, 0o1777)
        .expect("made");
    for text in ["a", "b", "c"] {
        tree.file(BOB, sticky, text);
    }
    tree.file(CAROL, sticky, "d");
    let not_owner = Err(FileError::NotOwner);
    assert_eq!(tree.remove(CAROL, sticky, name("a")).map(|_| ()), not_owner);
    let take = tree.rename(CAROL, (sticky, name("a")), (sticky, name("z")));
    assert_eq!(take.map(|_| ()), not_owner);
    let replace = tree.rename(CAROL, (sticky, name("d")), (sticky, name("a")));
    assert_eq!(replace.map(|_| ()), not_owner);
    for (caller, text) in [(BOB, "a"), (ALICE, "b"), (ROOT, "c")] {
        tree.remove(caller, sticky, name(text))
            .expect("owner of either, or root");
    }
}

#[test]
fn rename_replaces_only_what_is_compatible() {
    let tree = tree();
    let root = tree.root();
    let file = tree.file(ROOT, root, "f");
    let directory = tree.dir(ROOT, root, "d");
    let full = tree.dir(ROOT, root, "full");
    tree.file(ROOT, full, "x");
    let old = tree.file(ROOT, root, "old");
    tree.put(old, 0, b"old");
    assert_eq!(
        rename(&tree, (root, "f"), (root, "d")),
        Err(FileError::IsDirectory)
    );
    assert_eq!(
        rename(&tree, (root, "d"), (root, "f")),
        Err(FileError::NotDirectory)
    );
    assert_eq!(
        rename(&tree, (root, "d"), (root, "full")),
        Err(FileError::NotEmpty)
    );
    assert_eq!(
        rename(&tree, (root, "none"), (root, "f")),
        Err(FileError::NotFound)
    );
    assert_eq!(rename(&tree, (root, "f"), (root, "old")), Ok(()));
    assert_eq!(tree.attributes(old), Err(FileError::Stale));
    let found = tree.lookup(ROOT, root, name("old")).expect("found");
    assert_eq!(found.id, file);
    let empty = tree.dir(ROOT, root, "empty");
    assert_eq!(rename(&tree, (root, "full"), (root, "empty")), Ok(()));
    assert_eq!(tree.attributes(empty), Err(FileError::Stale));
    assert_eq!(
        tree.lookup(ROOT, root, name("empty")).map(|found| found.id),
        Ok(full)
    );
    assert_eq!((links(&tree, root), links(&tree, directory)), (4, 2));
    assert_eq!(tree.names(root), ["d", "empty", "old"]);
}

#[test]
fn rename_keeps_a_directory_out_of_itself() {
    let tree = tree();
    let root = tree.root();
    let above = tree.dir(ROOT, root, "a");
    let below = tree.dir(ROOT, above, "b");
    let lowest = tree.dir(ROOT, below, "c");
    for target in [above, below, lowest] {
        assert_eq!(
            rename(&tree, (root, "a"), (target, "x")),
            Err(FileError::Invalid)
        );
    }
    assert_eq!(
        rename(&tree, (below, "c"), (root, "a")),
        Err(FileError::NotEmpty)
    );
    assert_eq!(rename(&tree, (above, "b"), (root, "b")), Ok(()));
    assert_eq!(tree.parent(ROOT, below).map(|parent| parent.id), Ok(root));
    assert_eq!(tree.parent(ROOT, root).map(|parent| parent.id), Ok(root));
    assert_eq!((links(&tree, root), links(&tree, above)), (4, 2));
    assert_eq!(
        rename(&tree, (root, "a"), (lowest, "x")),
        Ok(()),
        "it is not below any more"
    );
}

#[test]
fn rename_between_names_of_one_file_changes_nothing() {
    let tree = tree();
    let root = tree.root();
    let file = tree.file(ROOT, root, "a");
    tree.link(ROOT, file, root, name("b")).expect("linked");
    let before = tree.attributes(file);
    let changed = tree
        .rename(ROOT, (root, name("a")), (root, name("b")))
        .expect("nothing");
    assert_eq!(changed.before, changed.after.before_change());
    assert_eq!((tree.attributes(file), tree.names(root).len()), (before, 2));
    assert_eq!(rename(&tree, (root, "a"), (root, "a")), Ok(()));
    assert_eq!(links(&tree, file), 2);
}

#[test]
fn rename_of_a_directory_changes_it_and_so_needs_its_write_permission() {
    let tree = tree();
    let root = tree.root();
    let from = tree
        .make(ALICE, root, "from", NewFile::Directory, 0o777)
        .expect("made");
    let moved = tree
        .make(BOB, from, "d", NewFile::Directory, 0o755)
        .expect("made");
    let move_it = |caller, to| tree.rename(caller, (from, name("d")), to).map(|_| ());
    assert_eq!(
        move_it(CAROL, (root, name("d"))),
        Err(FileError::AccessDenied)
    );
    assert_eq!(move_it(CAROL, (from, name("d"))), Ok(()));
    assert_eq!(move_it(BOB, (root, name("d"))), Ok(()));
    assert_eq!(tree.parent(BOB, moved).map(|parent| parent.id), Ok(root));
}

#[test]
fn directories_are_searched_and_changed_only_with_permission() {
    let tree = tree();
    let root = tree.root();
    let directory = tree
        .make(ALICE, root, "d", NewFile::Directory, 0o744)
        .expect("made");
    let file = tree.file(ALICE, directory, "f");
    let denied = FileError::AccessDenied;
    assert_eq!(
        tree.lookup(CAROL, directory, name("f")).map(|_| ()),
        Err(denied)
    );
    assert_eq!(tree.parent(CAROL, directory).map(|_| ()), Err(denied));
    let mut all = |_: &DirectoryEntry<'_>| Listing::More;
    tree.list(CAROL, directory, Cookie::START, &mut all)
        .expect("it is readable");
    tree.set_attributes(ALICE, directory, &mode(0o711), None)
        .expect("owner");
    tree.lookup(CAROL, directory, name("f"))
        .expect("it is searchable");
    assert_eq!(
        tree.list(CAROL, directory, Cookie::START, &mut all)
            .map(|_| ()),
        Err(denied)
    );
    assert_eq!(
        tree.make(CAROL, directory, "g", NewFile::Guarded, 0o600),
        Err(denied)
    );
    assert_eq!(
        tree.link(CAROL, file, directory, name("g")).map(|_| ()),
        Err(denied)
    );
    assert_eq!(
        tree.remove(CAROL, directory, name("f")).map(|_| ()),
        Err(denied)
    );
    let out = tree.rename(CAROL, (directory, name("f")), (root, name("f")));
    assert_eq!(out.map(|_| ()), Err(denied));
    assert_eq!(
        tree.lookup(ALICE, file, name("x")).map(|_| ()),
        Err(FileError::NotDirectory)
    );
}

#[test]
fn a_listing_survives_changes_between_its_pages() {
    let tree = tree();
    let root = tree.root();
    for i in 0..500 {
        tree.file(ROOT, root, &format!("keep{i}"));
        tree.file(ROOT, root, &format!("drop{i}"));
    }
    let (mut after, mut seen, mut round) = (Cookie::START, Vec::new(), 0);
    loop {
        let mut taken = 0;
        let page = tree.list(ROOT, root, after, &mut |entry| {
            assert!(entry.cookie > after && entry.cookie.0 > 2);
            if taken == 7 {
                return Listing::Full;
            }
            taken += 1;
            after = entry.cookie;
            seen.push(String::from_utf8_lossy(entry.name.as_bytes()).into_owned());
            Listing::More
        });
        if page.expect("listed").is_end {
            break;
        }
        tree.remove(ROOT, root, name(&format!("drop{round}")))
            .expect("removed");
        tree.file(ROOT, root, &format!("new{round}"));
        round += 1;
    }
    let mut kept: Vec<_> = seen
        .iter()
        .filter(|text| text.starts_with("keep"))
        .collect();
    kept.sort();
    let count = kept.len();
    kept.dedup();
    assert_eq!((kept.len(), count), (500, 500));
    assert!(round > 100);
}
