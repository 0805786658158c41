//! Tests of the whole tree through its operations.

mod attributes;
mod content;
mod names;
mod space;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use file_tree::{
    AttributeChanges, Caller, Cookie, FileError, FileId, FileTree, Listing, Mode, Name, NewFile,
    Timestamp,
};
use memory::Budget;

use crate::{Clock, Quota, RamTree};

pub(crate) const ROOT: &Caller<'_> = &Caller::ROOT;
pub(crate) const ALICE: &Caller<'_> = &Caller {
    uid: 1000,
    gid: 100,
    groups: &[101],
};
pub(crate) const BOB: &Caller<'_> = &Caller {
    uid: 2000,
    gid: 200,
    groups: &[100],
};
pub(crate) const CAROL: &Caller<'_> = &Caller {
    uid: 3000,
    gid: 300,
    groups: &[],
};

/// Each look at the clock is a second later.
pub(crate) fn clock() -> Clock {
    let seconds = AtomicI64::new(1);
    Arc::new(move || Timestamp {
        seconds: seconds.fetch_add(1, Ordering::Relaxed),
        nanoseconds: 0,
    })
}

pub(crate) fn tree_in(budget_bytes: u64) -> (Arc<Budget>, RamTree) {
    let budget = Arc::new(Budget::new(budget_bytes));
    let tree = RamTree::new(Arc::clone(&budget), Quota::UNLIMITED, clock()).expect("it fits");
    (budget, tree)
}

/// A tree whose root directory everyone may change.
pub(crate) fn tree() -> RamTree {
    let (_, tree) = tree_in(64 << 20);
    let open = mode(0o777);
    let root = tree.root();
    tree.set_attributes(ROOT, root, &open, None)
        .expect("root may");
    tree
}

pub(crate) fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a name")
}

pub(crate) fn mode(bits: u32) -> AttributeChanges {
    AttributeChanges {
        mode: Some(Mode::new(bits)),
        ..AttributeChanges::default()
    }
}

pub(crate) fn size(size_bytes: u64) -> AttributeChanges {
    AttributeChanges {
        size_bytes: Some(size_bytes),
        ..AttributeChanges::default()
    }
}

/// Short forms of operations for tests.
pub(crate) trait Short: FileTree {
    fn make(
        &self,
        caller: &Caller<'_>,
        directory: FileId,
        text: &str,
        new: NewFile<'_>,
        bits: u32,
    ) -> Result<FileId, FileError> {
        self.create(caller, directory, name(text), new, &mode(bits))
            .map(|changed| changed.value.attributes.id)
    }

    fn file(&self, caller: &Caller<'_>, directory: FileId, text: &str) -> FileId {
        self.make(caller, directory, text, NewFile::Guarded, 0o644)
            .expect("a file is created")
    }

    fn dir(&self, caller: &Caller<'_>, directory: FileId, text: &str) -> FileId {
        self.make(caller, directory, text, NewFile::Directory, 0o755)
            .expect("a directory is created")
    }

    fn put(&self, file: FileId, offset: u64, data: &[u8]) {
        let written = self
            .write(ROOT, file, offset, data, false)
            .expect("it is written");
        assert_eq!(written.value.len_bytes, data.len());
    }

    fn contents(&self, file: FileId) -> Vec<u8> {
        let size = self.attributes(file).expect("the file exists").size_bytes;
        let mut bytes = vec![0xee; size as usize];
        let read = self.read(ROOT, file, 0, &mut bytes).expect("it is read");
        assert!(read.is_end && read.len_bytes == bytes.len());
        bytes
    }

    fn names(&self, directory: FileId) -> Vec<String> {
        let mut names = Vec::new();
        let mut take = |entry: &file_tree::DirectoryEntry<'_>| {
            names.push(String::from_utf8_lossy(entry.name.as_bytes()).into_owned());
            Listing::More
        };
        let page = self
            .list(ROOT, directory, Cookie::START, &mut take)
            .expect("it is listed");
        assert!(page.is_end);
        names.sort();
        names
    }
}

impl<T: FileTree> Short for T {}
