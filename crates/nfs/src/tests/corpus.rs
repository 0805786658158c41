//! The corpus of the fuzz target.

use super::tree;
use crate::testing::fuzz::session;

#[test]
fn the_corpus_passes() {
    assert!(block::testing::replay("nfs_session", |input| session(tree(), input)) > 0);
}
