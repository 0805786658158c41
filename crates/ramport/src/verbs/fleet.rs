//! `ramport fleet`: volumes that are loaded at the same time, each by a client of its own.

mod clients;
mod figures;
mod route;

use std::process::ExitCode;

use bench::Stop;
use control::{BlockLen, ClusterView, Filters, Identity, KindFields, Target, TargetView};
use control::{Provision, Volume, VolumeKind, VolumeView};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::json;

use super::words::target_path;
use super::{Daemon, INTERRUPTED_STATUS, stop_on_interrupt, volume};
use crate::cli::{FleetCreateArgs, FleetRunArgs, FleetVerb, points};
use crate::failure::Failure;
use crate::mistake::Mistake;
use crate::output;
use crate::units::bytes;
use figures::{FleetReport, Measured};

pub(super) use clients::{Load, measure};
pub(super) use route::{Route, route};

/// What names of volumes and targets of fleets begin with.
const PREFIX: &str = "fleet";
/// What the names of targets have before those of their volumes.
const TARGET_PREFIX: &str = "nqn.2025-01.io.ramport";

pub(super) fn run(daemon: &Daemon, verb: &FleetVerb) -> Result<ExitCode, Failure> {
    match verb {
        FleetVerb::Create(args) => create(daemon, args)?,
        FleetVerb::List => list(daemon)?,
        FleetVerb::Remove => remove(daemon)?,
        FleetVerb::Run(args) => return load(daemon, args),
    }
    Ok(ExitCode::SUCCESS)
}

/// A volume of the fleet, which one client loads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Member {
    /// The volume's name.
    pub(super) volume: String,
    /// The target that offers it.
    pub(super) target: String,
    /// Its position in the fleet, from 1.
    number: u16,
    size_bytes: u64,
}

impl Member {
    /// The member that a volume is; none if it does not belong to the fleet of this machine.
    fn of(prefix: &str, volume: &VolumeView) -> Option<Self> {
        let number = volume.name.strip_prefix(prefix)?.parse().ok()?;
        Some(Self {
            target: format!("{TARGET_PREFIX}:{}", volume.name),
            volume: volume.name.clone(),
            number,
            size_bytes: volume.size_bytes,
        })
    }
}

/// What the names of this machine's fleet begin with. In a cluster, all nodes have all replicated
/// volumes, and each may have a fleet.
fn prefix(daemon: &Daemon) -> String {
    match daemon.client.get::<ClusterView>("/v1/cluster") {
        Ok(cluster) => format!("{PREFIX}-{}-", cluster.this_node),
        Err(_) => format!("{PREFIX}-"),
    }
}

/// The fleet of this machine, in order.
pub(super) fn members(daemon: &Daemon) -> Result<Vec<Member>, Failure> {
    let prefix = prefix(daemon);
    let volumes: Vec<VolumeView> = daemon.client.get("/v1/volumes")?;
    let members = volumes
        .iter()
        .filter_map(|volume| Member::of(&prefix, volume));
    let mut members: Vec<_> = members.collect();
    members.sort_by_key(|member| member.number);
    Ok(members)
}

/// As [`members`]; an error if there are none.
pub(super) fn some_members(daemon: &Daemon) -> Result<Vec<Member>, Failure> {
    let members = members(daemon)?;
    if members.is_empty() {
        return Err(Mistake::NoFleet.into());
    }
    Ok(members)
}

fn create(daemon: &Daemon, args: &FleetCreateArgs) -> Result<(), Failure> {
    if !members(daemon)?.is_empty() {
        return Err(Mistake::FleetExists.into());
    }
    let kind = match args.copies {
        Some(copies) => VolumeKind::Replicated {
            copies,
            placement: None,
        },
        // What was never written is read without memory, so it would be measured too fast.
        None => VolumeKind::Ram {
            provision: Provision::Thick,
        },
    };
    let definition = Volume {
        size: args.size,
        block_size: BlockLen::default(),
        kind: KindFields(kind),
        identity: Identity::default(),
        read_only: false,
        filters: Filters::default(),
        save: None,
    };
    let prefix = prefix(daemon);
    for number in 1..=args.clients {
        if let Err(failure) = create_member(daemon, &format!("{prefix}{number}"), &definition) {
            // The reason counts, not whether all of the others could be removed.
            let _ = remove_members(daemon);
            return Err(failure);
        }
    }
    list(daemon)
}

fn create_member(daemon: &Daemon, name: &str, definition: &Volume) -> Result<(), Failure> {
    let _: VolumeView = daemon.client.post(&volume::path(name), definition)?;
    let target: Target = serde_json::from_value(json!({ "namespaces": { "1": name } }))
        .map_err(anyhow::Error::from)?;
    let path = target_path(&format!("{TARGET_PREFIX}:{name}"));
    let _: TargetView = daemon.client.post(&path, &target)?;
    Ok(())
}

fn list(daemon: &Daemon) -> Result<(), Failure> {
    let members = members(daemon)?;
    if daemon.is_json() {
        return output::json(&members);
    }
    if members.is_empty() {
        return output::line("there is no fleet; create one with `ramport fleet create`");
    }
    let rows = members.iter().map(|member| {
        let size = bytes(member.size_bytes);
        vec![member.volume.clone(), size, member.target.clone()]
    });
    output::table(&["VOLUME", "SIZE", "TARGET"], &["SIZE"], rows)
}

fn remove(daemon: &Daemon) -> Result<(), Failure> {
    let removed = remove_members(daemon)?;
    daemon.say(format_args!("{removed} volumes of the fleet are removed"))
}

/// Removes all members with their targets; returns how many there were.
fn remove_members(daemon: &Daemon) -> Result<usize, Failure> {
    let targets: Vec<TargetView> = daemon.client.get("/v1/targets")?;
    let members = members(daemon)?;
    for member in &members {
        if targets.iter().any(|target| target.name == member.target) {
            let path = format!("{}?force=true", target_path(&member.target));
            daemon.client.delete(&path)?;
        }
        let path = format!("{}?force=true", volume::path(&member.volume));
        daemon.client.delete(&path)?;
    }
    Ok(members.len())
}

fn load(daemon: &Daemon, args: &FleetRunArgs) -> Result<ExitCode, Failure> {
    let points = points(&args.sweep).map_err(Failure::mistake)?;
    let members = some_members(daemon)?;
    let route = route(daemon, args.rdma)?;
    let stop = Stop::default();
    stop_on_interrupt(&stop);
    let bar = progress_bar(points.len());
    let mut report = FleetReport::default();
    for point in points {
        bar.set_message(point.to_string());
        let load = Load {
            point,
            warm_up: args.warm_up,
            cool_down: args.cool_down,
            route: &route,
            members: &members,
        };
        let Some(measured) = measure(&load, &stop)? else {
            bar.finish_and_clear();
            return Ok(ExitCode::from(INTERRUPTED_STATUS));
        };
        report.measured.push(measured);
        bar.inc(1);
    }
    bar.finish_and_clear();
    report.write_files(args.csv.as_deref(), args.svg.as_deref())?;
    if daemon.is_json() {
        output::json(&report.document())?;
    } else {
        output::line(report.text().trim_end())?;
    }
    Ok(ExitCode::from(u8::from(report.has_failed())))
}

/// A bar of combinations on the terminal; hidden where standard error is none.
pub(super) fn progress_bar(runs: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}, {eta} left: {msg}")
        .expect("the template is well-formed");
    let bar = ProgressBar::new(runs as u64).with_style(style);
    bar.enable_steady_tick(std::time::Duration::from_millis(250));
    bar
}
