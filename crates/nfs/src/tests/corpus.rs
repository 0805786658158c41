//! The corpora of the fuzz targets.

use super::tree;
use crate::testing::fuzz::{compounds, compounds_0, locks, rdma, session};

#[test]
fn the_corpus_passes() {
    assert!(block::testing::replay("nfs_session", |input| session(tree(), input)) > 0);
}

#[test]
fn the_corpus_of_rdma_passes() {
    assert!(block::testing::replay("nfs_rdma", |input| rdma(tree(), input)) > 0);
}

#[test]
fn the_corpus_of_compounds_passes() {
    assert!(block::testing::replay("nfs_compounds", |input| compounds(tree(), input)) > 0);
}

#[test]
fn the_corpus_of_compounds_of_version_0_passes() {
    assert!(block::testing::replay("nfs_compounds_0", |input| compounds_0(tree(), input)) > 0);
}

#[test]
fn the_corpus_of_locks_passes() {
    assert!(block::testing::replay("nfs_locks", |input| locks(tree(), input)) > 0);
}
