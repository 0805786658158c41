//! `ramport host`.

use control::{Host, HostView, Text, ToldBy, path_part};

use super::Daemon;
use crate::cli::{HostArgs, HostVerb};
use crate::failure::Failure;
use crate::output::{self, Tone, paint};

pub(super) fn run(daemon: &Daemon, verb: HostVerb) -> Result<(), Failure> {
    match verb {
        HostVerb::Create(args) => {
            let view = daemon.client.post(&path(&args.name), &definition(&args))?;
            show(daemon, &view)
        }
        HostVerb::Set(args) => {
            let view = daemon.client.put(&path(&args.name), &definition(&args))?;
            show(daemon, &view)
        }
        HostVerb::List => list(daemon),
        HostVerb::Show(args) => show(daemon, &daemon.client.get(&path(&args.name))?),
        HostVerb::Remove(args) => {
            daemon.client.delete(&path(&args.name))?;
            daemon.say(format_args!("host {} is removed", args.name))
        }
    }
}

fn path(name: &str) -> String {
    format!("/v1/hosts/{}", path_part(name))
}

fn definition(args: &HostArgs) -> Host {
    Host {
        told_by: if args.told_by_address {
            ToldBy::Address
        } else {
            ToldBy::Name
        },
        addresses: args.address.iter().copied().map(Text).collect(),
    }
}

fn list(daemon: &Daemon) -> Result<(), Failure> {
    let hosts: Vec<HostView> = daemon.client.get("/v1/hosts")?;
    if daemon.is_json() {
        return output::json(&hosts);
    }
    if hosts.is_empty() {
        return output::line("no hosts; define one with `ramport host create NQN`");
    }
    let rows = hosts.iter().map(|host| {
        vec![
            host.name.clone(),
            told_by(host).to_owned(),
            addresses(host),
            host.targets.join(" "),
        ]
    });
    output::table(&["NAME", "TOLD BY", "ADDRESSES", "TARGETS"], &[], rows)
}

fn show(daemon: &Daemon, host: &HostView) -> Result<(), Failure> {
    if daemon.is_json() {
        return output::json(host);
    }
    output::fields(&[
        ("host", paint(Tone::Name, &host.name)),
        ("told by", told_by(host).to_owned()),
        ("addresses", addresses(host)),
        ("targets", host.targets.join(", ")),
    ])
}

fn told_by(host: &HostView) -> &'static str {
    match host.told_by {
        ToldBy::Name => "name",
        ToldBy::Address => "address",
    }
}

fn addresses(host: &HostView) -> String {
    if host.addresses.is_empty() {
        "any".to_owned()
    } else {
        host.addresses.join(" ")
    }
}
