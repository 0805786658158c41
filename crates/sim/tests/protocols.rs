//! Every protocol, both ends, over a network that cuts connections: every read is checked against
//! the model.

use sim::{Plan, Protocol, World};

/// How many seeds each plan is run with.
const SEEDS: u64 = 3;
/// The environment variable with another number of seeds.
const SEEDS_VARIABLE: &str = "RAMPORT_SIM_SEEDS";
/// Names the only seed to run.
const SEED_VARIABLE: &str = "RAMPORT_SIM_SEED";

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("the variable holds a number"))
}

/// Runs each protocol with `plan`, with several seeds or that of the environment. The test harness
/// shows the seed where a run fails.
fn run(plan: impl Fn(Protocol) -> Plan) {
    let seeds = number(SEEDS_VARIABLE).unwrap_or(SEEDS);
    let seeds = number(SEED_VARIABLE).map_or(0..seeds, |seed| seed..seed + 1);
    for protocol in Protocol::ALL {
        for seed in seeds.clone() {
            let plan = plan(protocol);
            println!("run again with {SEED_VARIABLE}={seed}: {plan:?}");
            let report = World::new(seed, plan).run();
            let is_enough = report.reads_checked > 200 && report.writes_done > 200;
            assert!(is_enough, "too little happened: {report:?}");
            let has_all =
                report.swaps_done > 0 && report.miscompares > 0 && report.flushes_done > 0;
            assert!(has_all, "a kind of command is missing: {report:?}");
            assert!(report.cuts > 0, "no connection was cut: {report:?}");
            if plan.is_late {
                assert!(report.failures > 0, "nothing failed: {report:?}");
            }
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_no_block_is_torn_while_connections_are_cut() {
    run(Plan::new);
}

#[test]
fn the_same_with_digests() {
    run(|protocol| Plan {
        has_digests: true,
        ..Plan::new(protocol)
    });
}

#[test]
fn the_same_with_cuts_so_frequent_that_many_fall_into_the_set_up() {
    run(|protocol| Plan {
        cut_every: 600,
        steps: 30_000,
        ..Plan::new(protocol)
    });
}

#[test]
fn the_same_with_hosts_that_share_blocks() {
    run(|protocol| Plan {
        shares_blocks: true,
        ..Plan::new(protocol)
    });
}

#[test]
fn the_same_on_a_volume_that_answers_late_in_any_order_and_with_failures() {
    for shares_blocks in [false, true] {
        run(|protocol| Plan {
            is_late: true,
            shares_blocks,
            ..Plan::new(protocol)
        });
    }
}
