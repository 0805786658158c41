//! Random operations on a directory of the host and on a model of it: both answer the same, and
//! look the same afterwards, also to a tree that is opened anew.

#[path = "../../../ramfs/tests/model/harness.rs"]
mod harness;
#[path = "../../../ramfs/tests/model/state.rs"]
mod state;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dir_tree::DirTree;
use file_tree::FileTree as _;
use memory::Budget;
use proptest::prelude::*;

use harness::{Both, CALLERS, Op, history};
use state::{Changes, Kind, Model, New};

/// A directory that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("dir_tree-model-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a new directory");
        Self(path)
    }

    fn tree(&self) -> DirTree {
        let budget = Arc::new(Budget::new(64 << 20));
        let tree = DirTree::open(&self.0, &budget).expect("the directory opens");
        tree.set_durable(false);
        tree
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn the_directory_does_what_the_model_does(ops in history()) {
        play(ops);
    }
}

fn play(ops: Vec<(usize, Op)>) {
    if !rustix::process::geteuid().is_root() {
        // Files of several users can be made only by root.
        assert!(std::env::var_os("CI").is_none(), "this test needs root");
        return;
    }
    let folder = Folder::new();
    let tree = folder.tree();
    let mut both = Both {
        ids: vec![tree.root()],
        tree,
        model: Model::new(),
        is_of_host: true,
        is_tight: false,
    };
    let open = Changes {
        mode: Some(0o777),
        ..Changes::default()
    };
    both.run(&CALLERS[0], &Op::Set(0, open));
    for (caller, op) in ops {
        both.run(&CALLERS[caller % CALLERS.len()], &of_host(op));
        for node in &mut both.model.nodes {
            if node.kind == Kind::Link {
                // Linux has no modes of symbolic links.
                node.mode = 0o777;
            }
        }
    }
    both.compare();
    // Handles outlast the tree.
    both.tree = folder.tree();
    both.compare();
    both.remove_all(0);
}

/// The operation as far as a directory of the host is like the model: times of a file hold the
/// verifier of its creation only until they are set, and devices need a privilege.
fn of_host(op: Op) -> Op {
    match op {
        Op::Create(at, name, New::Exclusive(_), changes) => {
            Op::Create(at, name, New::Guarded, changes)
        }
        Op::Create(at, name, New::Device, changes) => Op::Create(at, name, New::Fifo, changes),
        // Few file systems clone, and those only whole blocks of their own size.
        Op::Clone(at, ..) => Op::Commit(at),
        op => op,
    }
}
