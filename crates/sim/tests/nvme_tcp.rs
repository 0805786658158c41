//! NVMe/TCP, both ends, over a network that cuts connections: every read is checked against the
//! model.

use nvme::tcp::wire::Dgst;
use sim::{Plan, World};

/// How many seeds each plan is run with; a failing seed is printed by the panic of its run.
const SEEDS: u64 = 6;

fn run(plan: Plan) {
    for seed in 0..SEEDS {
        println!("seed {seed}, {plan:?}");
        let report = World::new(seed, plan).run();
        assert!(
            report.reads_checked > 300,
            "seed {seed}: too little happened: {report:?}"
        );
        assert!(
            report.writes_done > 300,
            "seed {seed}: too little happened: {report:?}"
        );
        assert!(
            report.cuts > 0,
            "seed {seed}: no connection was cut: {report:?}"
        );
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_no_block_is_torn_while_connections_are_cut() {
    run(Plan::default());
}

#[test]
fn the_same_with_digests() {
    run(Plan {
        dgst: Dgst::HEADER | Dgst::DATA,
        ..Plan::default()
    });
}

#[test]
fn the_same_with_cuts_so_frequent_that_many_fall_into_the_set_up() {
    run(Plan {
        cut_every: 600,
        steps: 40_000,
        ..Plan::default()
    });
}
