//! Data of regular files.

use file_tree::{FileError, FileTree, NewFile, SeekTarget};

use super::{ALICE, CAROL, ROOT, Short, mode, size, tree};
use crate::limits::FILE_BYTES_MAX;

#[test]
fn a_hole_reads_as_zeros_and_takes_nothing() {
    let tree = tree();
    let file = tree.file(ROOT, tree.root(), "f");
    tree.put(file, 1 << 40, b"end");
    let attributes = tree.attributes(file).expect("exists");
    assert_eq!(attributes.size_bytes, (1 << 40) + 3);
    assert_eq!(attributes.used_bytes, 4096);
    let mut bytes = [1; 8];
    let read = tree
        .read(ROOT, file, (1 << 40) - 5, &mut bytes)
        .expect("read");
    assert_eq!((&bytes, read.is_end), (b"\0\0\0\0\0end", true));
    let read = tree.read(ROOT, file, 77, &mut bytes).expect("read");
    assert_eq!((bytes, read.is_end), ([0; 8], false));
}

#[test]
fn a_read_ends_at_the_end_of_the_file() {
    let tree = tree();
    let file = tree.file(ROOT, tree.root(), "f");
    tree.put(file, 0, b"hello");
    let mut bytes = [9; 8];
    let read = tree.read(ROOT, file, 2, &mut bytes).expect("read");
    assert_eq!((read.len_bytes, read.is_end), (3, true));
    assert_eq!(&bytes, b"llo\x09\x09\x09\x09\x09");
    let read = tree.read(ROOT, file, 2, &mut bytes[..2]).expect("read");
    assert_eq!((read.len_bytes, read.is_end), (2, false));
    let read = tree.read(ROOT, file, u64::MAX, &mut bytes).expect("read");
    assert_eq!((read.len_bytes, read.is_end), (0, true));
}

#[test]
fn what_was_cut_off_reads_as_zeros_when_the_file_grows_again() {
    let tree = tree();
    let file = tree.file(ROOT, tree.root(), "f");
    tree.put(file, 0, &vec![7; 10_000]);
    tree.set_attributes(ROOT, file, &size(5000), None)
        .expect("cut");
    tree.set_attributes(ROOT, file, &size(10_000), None)
        .expect("grown");
    let mut expected = vec![7; 5000];
    expected.resize(10_000, 0);
    assert_eq!(tree.contents(file), expected);
    assert_eq!(tree.attributes(file).expect("exists").used_bytes, 8192);
}

#[test]
fn a_page_shows_nothing_of_the_file_that_had_it_before() {
    let tree = tree();
    let keep = tree.file(ROOT, tree.root(), "keep");
    tree.put(keep, 0, b"k");
    let old = tree.file(ROOT, tree.root(), "old");
    tree.put(old, 0, &vec![0xaa; 8 * 4096]);
    tree.remove(ROOT, tree.root(), super::name("old"))
        .expect("removed");
    let new = tree.file(ROOT, tree.root(), "new");
    tree.put(new, 100, b"x");
    tree.put(new, 3 * 4096 - 1, b"yz");
    tree.set_attributes(ROOT, new, &size(8 * 4096), None)
        .expect("grown");
    let mut expected = vec![0; 8 * 4096];
    expected[100] = b'x';
    expected[3 * 4096 - 1..=3 * 4096].copy_from_slice(b"yz");
    assert_eq!(tree.contents(new), expected);
}

#[test]
fn a_hole_frees_whole_pages_and_keeps_the_length() {
    let tree = tree();
    let file = tree.file(ROOT, tree.root(), "f");
    tree.put(file, 0, &vec![7; 5 * 4096 + 100]);
    tree.punch_hole(ROOT, file, 4000, 3 * 4096)
        .expect("punched");
    let mut expected = vec![7; 5 * 4096 + 100];
    expected[4000..4000 + 3 * 4096].fill(0);
    assert_eq!(tree.contents(file), expected);
    assert_eq!(tree.attributes(file).expect("exists").used_bytes, 4 * 4096);
    tree.punch_hole(ROOT, file, 5 * 4096, u64::MAX)
        .expect("cut off at the end");
    expected[5 * 4096..].fill(0);
    assert_eq!(tree.contents(file), expected);
    assert_eq!(tree.attributes(file).expect("exists").used_bytes, 3 * 4096);
    tree.punch_hole(ROOT, file, u64::MAX, 1)
        .expect("nothing is there");
}

#[test]
fn a_file_has_a_longest_length() {
    let tree = tree();
    let file = tree.file(ROOT, tree.root(), "f");
    tree.put(file, FILE_BYTES_MAX - 1, b"x");
    let too_large = Err(FileError::TooLarge);
    let write = |offset, data: &[u8]| tree.write(ROOT, file, offset, data, false).map(|_| ());
    assert_eq!(write(FILE_BYTES_MAX - 1, b"xy"), too_large);
    assert_eq!(write(FILE_BYTES_MAX, b"x"), too_large);
    assert_eq!(write(u64::MAX, b"x"), too_large);
    let grow = size(FILE_BYTES_MAX + 1);
    assert_eq!(
        tree.set_attributes(ROOT, file, &grow, None).map(|_| ()),
        too_large
    );
    let created = tree.create(ROOT, tree.root(), super::name("g"), NewFile::Guarded, &grow);
    assert_eq!(created.map(|_| ()), too_large);
    assert_eq!(
        tree.attributes(file).expect("exists").size_bytes,
        FILE_BYTES_MAX
    );
}

#[test]
fn only_regular_files_have_data() {
    let tree = tree();
    let root = tree.root();
    let directory = tree.dir(ROOT, root, "d");
    let link = tree
        .make(ROOT, root, "l", NewFile::SymbolicLink(b"x"), 0o777)
        .expect("made");
    for (file, error) in [
        (directory, FileError::IsDirectory),
        (link, FileError::Invalid),
    ] {
        assert_eq!(tree.read(ROOT, file, 0, &mut [0]).map(|_| ()), Err(error));
        assert_eq!(
            tree.write(ROOT, file, 0, b"x", true).map(|_| ()),
            Err(error)
        );
        assert_eq!(tree.punch_hole(ROOT, file, 0, 1).map(|_| ()), Err(error));
        assert_eq!(tree.commit(ROOT, file).map(|_| ()), Err(error));
        assert_eq!(
            tree.set_attributes(ROOT, file, &size(0), None).map(|_| ()),
            Err(error)
        );
    }
}

#[test]
fn the_owner_reads_and_writes_whatever_the_mode() {
    let tree = tree();
    let file = tree
        .make(ALICE, tree.root(), "f", NewFile::Guarded, 0)
        .expect("made");
    tree.write(ALICE, file, 0, b"mine", false)
        .expect("the owner writes");
    tree.read(ALICE, file, 0, &mut [0; 4])
        .expect("the owner reads");
    assert_eq!(tree.access(ALICE, file), Ok(file_tree::Access::default()));
    let denied = Err(FileError::AccessDenied);
    assert_eq!(tree.read(CAROL, file, 0, &mut [0]).map(|_| ()), denied);
    assert_eq!(tree.write(CAROL, file, 0, b"x", false).map(|_| ()), denied);
    tree.set_attributes(ALICE, file, &mode(0o001), None)
        .expect("the owner may");
    tree.read(CAROL, file, 0, &mut [0])
        .expect("a program is read to be executed");
    assert_eq!(tree.write(CAROL, file, 0, b"x", false).map(|_| ()), denied);
}

#[test]
fn writing_and_cutting_clear_set_id_unless_root_does_it() {
    let tree = tree();
    let bits = |file| tree.attributes(file).expect("exists").mode.bits();
    let file = tree
        .make(ALICE, tree.root(), "f", NewFile::Guarded, 0o6777)
        .expect("made");
    tree.put(file, 0, b"root");
    assert_eq!(bits(file), 0o6777);
    tree.write(CAROL, file, 0, b"x", false).expect("others may");
    assert_eq!(bits(file), 0o777);
    tree.set_attributes(ALICE, file, &mode(0o6767), None)
        .expect("owner");
    tree.set_attributes(ALICE, file, &size(1), None)
        .expect("owner");
    assert_eq!(
        bits(file),
        0o2767,
        "without the group's execute bit it stays"
    );
}

#[test]
fn each_change_has_a_new_time_and_a_new_number() {
    let tree = tree();
    let file = tree.file(ROOT, tree.root(), "f");
    let mut last = tree.attributes(file).expect("exists");
    for offset in [0, 0, 9000] {
        let changed = tree
            .write(ROOT, file, offset, b"x", false)
            .expect("written");
        assert_eq!(changed.before, last.before_change());
        assert!(changed.after.changed > last.changed && changed.after.change > last.change);
        assert_eq!(changed.after.modified, changed.after.changed);
        last = changed.after;
    }
    let read = tree.read(ROOT, file, 0, &mut [0]).expect("read");
    assert!(read.attributes.accessed > last.accessed);
    assert_eq!(read.attributes.before_change(), last.before_change());
    let nothing = tree.write(ROOT, file, 1, b"", false).expect("nothing");
    assert_eq!(nothing.after.before_change(), last.before_change());
}

#[test]
fn data_and_holes_are_found() {
    let tree = tree();
    let file = tree.file(ROOT, tree.root(), "f");
    let seek = |offset, target| {
        tree.seek(ROOT, file, offset, target)
            .map(|done| done.offset)
    };
    let (data, hole) = (SeekTarget::Data, SeekTarget::Hole);
    assert_eq!((seek(0, data), seek(0, hole)), (Ok(None), Ok(None)));
    tree.put(file, 8192, b"data");
    tree.set_attributes(ROOT, file, &size(1 << 30), None)
        .expect("a hole");
    assert_eq!(seek(0, data), Ok(Some(8192)));
    assert_eq!(seek(9000, hole), Ok(Some(12_288)));
    assert_eq!(seek(12_288, data), Ok(None));
    assert_eq!(seek(1 << 30, hole), Ok(None));
    // Many pieces of data that follow each other are passed up to a bound.
    for page in (0..4096).rev() {
        tree.put(file, page * 4096, b"x");
    }
    let found = seek(0, hole).expect("a hole").expect("there is one");
    assert!(found == 4096 * 4096 || found == 1 << 30);
    let other = tree.file(ROOT, tree.root(), "other");
    tree.set_attributes(ROOT, other, &mode(0o600), None)
        .expect("changed");
    let denied = tree.seek(CAROL, other, 0, data);
    assert_eq!(denied, Err(FileError::AccessDenied));
}
