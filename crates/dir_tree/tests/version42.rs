//! Space, clones and extended attributes on the file system of the host.

use std::path::PathBuf;
use std::sync::Arc;

use dir_tree::DirTree;
use file_tree::{
    AttributeChanges, Caller, FileError, FileId, FileTree, Name, NewFile, XattrMode, XattrName,
};
use memory::Budget;

const ROOT: &Caller<'_> = &Caller::ROOT;

/// A directory that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("dir_tree-version42-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a new directory");
        Self(path)
    }

    fn tree(&self) -> DirTree {
        let budget = Arc::new(Budget::new(64 << 20));
        DirTree::open(&self.0, &budget).expect("the directory opens")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn file(tree: &DirTree, text: &str) -> FileId {
    let name = Name::new(text.as_bytes()).expect("a name");
    let changes = AttributeChanges::default();
    let created = tree.create(ROOT, tree.root(), name, NewFile::Unchecked, &changes);
    created.expect("it is created").value.attributes.id
}

fn attribute(text: &str) -> XattrName<'_> {
    XattrName::new(text.as_bytes()).expect("a name")
}

#[test]
fn space_that_does_not_exist_is_not_taken() {
    let folder = Folder::new("space");
    let tree = folder.tree();
    let file = file(&tree, "file");
    let allocated = tree.allocate(ROOT, file, 0, 1 << 20).expect("allocated");
    assert_eq!(allocated.after.size_bytes, 1 << 20);
    assert!(allocated.after.used_bytes >= 1 << 20);
    let refused = tree.allocate(ROOT, file, 0, 1 << 50).map(drop);
    assert_eq!(refused, Err(FileError::NoSpace));
    let refused = tree.allocate(ROOT, file, 1 << 62, 1 << 62).map(drop);
    assert_eq!(refused, Err(FileError::TooLarge));
    let after = tree.attributes(file).expect("it exists");
    assert_eq!(after, allocated.after);
}

#[test]
fn files_share_blocks_if_the_file_system_can_and_are_left_alone_otherwise() {
    let folder = Folder::new("clone");
    let tree = folder.tree();
    let [source, target] = ["source", "target"].map(|text| file(&tree, text));
    let data = vec![7; 70_000];
    tree.write(ROOT, source, 0, &data, false).expect("written");
    let cloned = tree.clone_range(ROOT, (source, 0), (target, 0), 70_000);
    let contents = std::fs::read(folder.0.join("target")).expect("it is read");
    match cloned {
        Ok(_) => assert_eq!(contents, data),
        Err(error) => {
            assert_eq!(error, FileError::NotSupported);
            assert!(contents.is_empty());
        }
    }
    let beyond = tree.clone_range(ROOT, (source, 0), (target, 0), 70_001);
    assert_eq!(beyond.map(drop), Err(FileError::Invalid));
}

#[test]
fn attributes_are_those_of_users_on_the_host_and_outlast_the_tree() {
    let folder = Folder::new("attributes");
    let tree = folder.tree();
    if !tree.limits().has_xattrs {
        assert!(
            std::env::var_os("CI").is_none(),
            "it needs a file system that has them"
        );
        return;
    }
    let file = file(&tree, "file");
    let path = folder.0.join("file");
    let set = tree.set_xattr(ROOT, file, attribute("a"), b"1", XattrMode::Create);
    assert_eq!(set.expect("set").after.id, file);
    let mut value = [0; 10];
    let read = rustix::fs::getxattr(&path, "user.a", &mut value[..]);
    assert_eq!((read, &value[..1]), (Ok(1), &b"1"[..]));
    // What is not of users is neither listed nor reached.
    let flags = rustix::fs::XattrFlags::empty();
    let hidden = rustix::fs::setxattr(&path, "trusted.b", b"2", flags);
    println!("an attribute of another namespace: {hidden:?}");
    drop(tree);
    let tree = folder.tree();
    let mut names = Vec::new();
    let take = &mut |name: XattrName<'_>| names.push(name.as_bytes().to_vec());
    tree.list_xattrs(ROOT, file, take).expect("listed");
    assert_eq!(names, [b"a"]);
    let missing = tree.read_xattr(ROOT, file, attribute("b"), &mut |_| {});
    assert_eq!(missing, Err(FileError::NoXattr));
    let mut values = Vec::new();
    let take = &mut |value: &[u8]| values.push(value.to_vec());
    tree.read_xattr(ROOT, file, attribute("a"), take)
        .expect("read");
    assert_eq!(values, [b"1"]);
    let long = vec![1; file_tree::XATTR_BYTES_MAX + 1];
    let refused = tree.set_xattr(ROOT, file, attribute("a"), &long, XattrMode::Either);
    assert_eq!(refused.map(drop), Err(FileError::XattrTooLong));
}
