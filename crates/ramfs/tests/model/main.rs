//! Random operations on the tree and on a model of it: both answer the same, and look the same
//! afterwards. Space that is used up is the only thing that the model does not know.

mod harness;
mod state;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use file_tree::{FileTree, Timestamp};
use memory::Budget;
use proptest::prelude::*;
use ramfs::{Quota, RamTree};

use harness::{Both, CALLERS, Op, history};
use state::{Changes, Model};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_tree_does_what_the_model_does(ops in history()) {
        play(&ops, Quota::UNLIMITED, 64 << 20);
    }

    #[test]
    fn what_fails_for_space_changes_nothing(
        ops in history(),
        quota_pages in 0_u64..20,
        files in 2_u64..30,
    ) {
        let quota = Quota { bytes: Some(12_000 + quota_pages * 4096), files };
        play(&ops, quota, 64 << 20);
    }

    #[test]
    fn a_budget_that_ends_is_never_exceeded(ops in history(), budget_pages in 7_u64..200) {
        play(&ops, Quota::UNLIMITED, budget_pages * 4096);
    }
}

fn play(ops: &[(usize, Op)], quota: Quota, budget_bytes: u64) {
    let budget = Arc::new(Budget::new(budget_bytes));
    let seconds = AtomicI64::new(1);
    let clock = Arc::new(move || Timestamp {
        seconds: seconds.fetch_add(1, Ordering::Relaxed),
        nanoseconds: 0,
    });
    let tree = RamTree::new(Arc::clone(&budget), quota, clock).expect("an empty tree fits");
    let start = (budget.used_bytes(), tree.used_bytes(), tree.files());
    let mut both = Both {
        ids: vec![tree.root()],
        tree,
        model: Model::new(),
        is_of_host: false,
        is_tight: quota != Quota::UNLIMITED || budget_bytes < 1 << 20,
    };
    let open = Changes {
        mode: Some(0o777),
        ..Changes::default()
    };
    both.run(&CALLERS[0], &Op::Set(0, open));
    for (caller, op) in ops {
        both.run(&CALLERS[caller % CALLERS.len()], op);
        assert!(budget.used_bytes() <= budget_bytes);
    }
    assert_eq!(both.compare(), both.tree.files());
    both.remove_all(0);
    let tree = both.tree;
    assert_eq!(
        (budget.used_bytes(), tree.used_bytes(), tree.files()),
        start
    );
    drop(tree);
    assert_eq!(budget.used_bytes(), 0);
}
