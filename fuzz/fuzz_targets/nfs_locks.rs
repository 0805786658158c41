//! Calls of the lock protocol beside NFS version 3, with callbacks.

#![no_main]

use std::sync::Arc;

use file_tree::Timestamp;
use memory::Budget;
use ramfs::{Quota, RamTree};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let budget = Arc::new(Budget::new(64 << 20));
    let tree = RamTree::new(budget, Quota::UNLIMITED, Arc::new(Timestamp::default))
        .expect("an empty tree fits");
    nfs::testing::fuzz::locks(Arc::new(tree), input);
});
