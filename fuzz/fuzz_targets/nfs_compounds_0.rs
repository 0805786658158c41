//! Compounds of a client of NFS version 4.0 with a confirmed client ID and an open file.

#![no_main]

use std::sync::Arc;

use file_tree::Timestamp;
use memory::Budget;
use ramfs::{Quota, RamTree};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let budget = Arc::new(Budget::new(64 << 20));
    let tree = RamTree::new(budget, Quota::UNLIMITED, Arc::new(Timestamp::default))
        .expect("an empty tree fits");
    nfs::testing::fuzz::compounds_0(Arc::new(tree), input);
});
