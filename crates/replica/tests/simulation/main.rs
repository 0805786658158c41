//! Members under one seed: nodes crash, restart empty and pause; messages are lost, delayed and
//! repeated; clocks drift; the store of configurations is slow or away. Each read is checked.

mod disk;
mod faults;
mod history;
mod hosts;
mod node;
mod world;

use world::{Plan, World};

/// How many seeds each plan is run with.
const SEEDS: u64 = 20;
/// The environment variable with another number of seeds.
const SEEDS_VARIABLE: &str = "RAMPORT_SIM_SEEDS";
/// Names the only seed to run.
const SEED_VARIABLE: &str = "RAMPORT_SIM_SEED";

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("the variable holds a number"))
}

/// Runs `plan` with several seeds or that of the environment. The test harness shows the seed where
/// a run fails.
fn run(plan: Plan) {
    let seeds = number(SEEDS_VARIABLE).unwrap_or(SEEDS);
    let seeds = number(SEED_VARIABLE).map_or(0..seeds, |seed| seed..seed + 1);
    for seed in seeds {
        println!("run again with {SEED_VARIABLE}={seed}: {plan:?}");
        let report = World::new(seed, plan).run();
        println!("{report:?}");
        assert!(
            !plan.is_calm || (report.moves > 5 && report.deposed == 0),
            "a planned move ends no write: {report:?}"
        );
        let is_enough = report.reads > 100 && report.writes > 100 && report.configs > 0;
        assert!(
            is_enough || plan.may_lose_all,
            "too little happened: {report:?}"
        );
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_no_read_is_stale_whatever_fails() {
    run(Plan::default());
}

#[test]
fn the_same_with_two_nodes() {
    run(Plan {
        nodes: 2,
        ..Plan::default()
    });
}

#[test]
fn the_same_with_five_nodes() {
    run(Plan {
        nodes: 5,
        ..Plan::default()
    });
}

#[test]
fn the_same_with_members_that_are_removed_before_their_leases_end() {
    run(Plan {
        answer_timeout_ms: 15,
        ..Plan::default()
    });
}

#[test]
fn the_same_while_copies_are_made_elsewhere() {
    for (nodes, copies) in [(3, 1), (4, 2), (5, 3)] {
        run(Plan {
            nodes,
            copies: Some(copies),
            ..Plan::default()
        });
    }
}

#[test]
fn planned_moves_end_no_write_of_a_host() {
    for nodes in [2, 3] {
        run(Plan {
            nodes,
            is_calm: true,
            ..Plan::default()
        });
    }
}

#[test]
fn a_volume_whose_last_copy_is_lost_stays_offline() {
    run(Plan {
        may_lose_all: true,
        ..Plan::default()
    });
}
