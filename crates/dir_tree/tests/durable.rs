//! Stable writes and commits are on disk when they return: no page of the file is dirty then.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dir_tree::DirTree;
use file_tree::{AttributeChanges, Caller, FileId, FileTree as _, Name, NewFile};
use memory::Budget;

/// The number of the system call `cachestat`, on every architecture of Linux that is 64-bit.
const CACHESTAT: libc::c_long = 451;

/// `struct cachestat` of the kernel (Linux 6.5).
#[derive(Debug, Default)]
#[repr(C)]
struct CacheStatistics {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// A directory on a file system with a disk, which is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Pages of a file that are not on disk; `None` if the kernel cannot tell.
fn unwritten(path: &Path) -> Option<u64> {
    let file = File::open(path).expect("it exists");
    let range = [0u64; 2];
    let mut statistics = CacheStatistics::default();
    // SAFETY: the descriptor is open. The kernel reads two numbers and writes five, and keeps
    // neither pointer.
    let result = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            range.as_ptr(),
            &raw mut statistics,
            0,
        )
    };
    (result == 0).then_some(statistics.dirty + statistics.writeback)
}

fn write(tree: &DirTree, file: FileId, must_be_stable: bool) {
    let data = vec![7; 1 << 20];
    let done = tree.write(&Caller::ROOT, file, 0, &data, must_be_stable);
    let done = done.expect("written").value;
    assert_eq!((done.len_bytes, done.is_stable), (1 << 20, must_be_stable));
}

#[test]
fn stable_data_are_on_disk() {
    let name = format!("durable-{}", std::process::id());
    let folder = Folder(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
    std::fs::create_dir(&folder.0).expect("a new directory");
    let path = folder.0.join("file");
    std::fs::write(&path, vec![1; 4096]).expect("a file");
    let is_known = unwritten(&path).is_some_and(|pages| pages > 0);
    if !is_known {
        // Neither an older kernel nor a file system in memory can tell.
        assert!(
            std::env::var_os("CI").is_none(),
            "this test needs cachestat and a disk"
        );
        return;
    }
    std::fs::remove_file(&path).expect("removed");
    let budget = Arc::new(Budget::new(64 << 20));
    let tree = DirTree::open(&folder.0, &budget).expect("it opens");
    let name = Name::new(b"file").expect("a name");
    let new = (NewFile::Guarded, AttributeChanges::default());
    let made = tree.create(&Caller::ROOT, tree.root(), name, new.0, &new.1);
    let file = made.expect("created").value.attributes.id;
    write(&tree, file, false);
    assert!(
        unwritten(&path) > Some(0),
        "an unstable write waits for no disk"
    );
    tree.commit(&Caller::ROOT, file).expect("committed");
    assert_eq!(unwritten(&path), Some(0));
    write(&tree, file, true);
    assert_eq!(unwritten(&path), Some(0));
}
