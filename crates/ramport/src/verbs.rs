//! The verbs that send requests to a daemon, and those that need none.

mod apply;
mod cluster;
mod connect_line;
mod export;
mod fleet;
mod host;
mod portal;
mod referral;
mod session;
mod share;
mod study;
mod target;
mod token;
mod tree;
mod volume;
mod words;

use std::process::ExitCode;
use std::thread;

use bench::{BenchError, Stop, Verdict};
use control::{CapacityView, CertificateFiles, Client, ClientTls, Endpoint, PortalView, Token};
use initiator::{ConnectError, Scheme};
use serde_json::json;

use crate::cli::{Connection, DaemonVerb, DiscoverArgs};
use crate::failure::Failure;
use crate::form::Form;
use crate::mistake::{DiscoveryFailure, Mistake};
use crate::units::bytes;
use crate::{output, paths, top, watch};

pub(crate) use portal::{open_to_others, provider, state};

/// Carries out a verb of the daemon's.
pub(crate) fn run(connection: &Connection, verb: DaemonVerb) -> Result<ExitCode, Failure> {
    let daemon = Daemon::new(connection)?;
    let done = match verb {
        DaemonVerb::Volume(verb) => volume::run(&daemon, verb),
        DaemonVerb::Target(verb) => target::run(&daemon, verb),
        DaemonVerb::Share(verb) => share::run(&daemon, verb),
        DaemonVerb::Host(verb) => host::run(&daemon, verb),
        DaemonVerb::Portal(verb) => portal::run(&daemon, &verb),
        DaemonVerb::Referral(verb) => referral::run(&daemon, &verb),
        DaemonVerb::Token(verb) => token::run(&daemon, &verb),
        DaemonVerb::Session(verb) => session::run(&daemon, &verb),
        DaemonVerb::Cluster(verb) => cluster::run(&daemon, &verb),
        DaemonVerb::Node(verb) => cluster::run_node(&daemon, &verb),
        DaemonVerb::ConnectLine(args) => connect_line::run(&daemon, &args),
        DaemonVerb::Ls => tree::show(&daemon),
        DaemonVerb::Apply(args) => return apply::run(&daemon, &args),
        DaemonVerb::Export(args) => export::run(&daemon, &args),
        DaemonVerb::Capacity => capacity(&daemon),
        DaemonVerb::Top(args) => top::run(daemon.client, daemon.form, &args),
        DaemonVerb::Fleet(verb) => return fleet::run(&daemon, &verb),
        DaemonVerb::Study(verb) => return study::run(&daemon, &verb),
        DaemonVerb::Watch(args) => watch::run(daemon.client, daemon.form, &args),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// A daemon, and how to answer.
pub(crate) struct Daemon {
    client: Client,
    endpoint: Endpoint,
    form: Form,
}

impl Daemon {
    pub(crate) fn new(connection: &Connection) -> Result<Self, Failure> {
        let endpoint = endpoint(connection)?;
        Ok(Self {
            client: Client::new(endpoint.clone())?,
            endpoint,
            form: Form::when(connection.json),
        })
    }

    /// The portals, where a daemon answers.
    pub(crate) fn portals(&self) -> Option<Vec<PortalView>> {
        self.client.get("/v1/portals").ok()
    }

    /// Another connection to the same daemon, for another thread.
    fn another_client(&self) -> Result<Client, Failure> {
        Ok(Client::new(self.endpoint.clone())?)
    }

    fn is_json(&self) -> bool {
        self.form == Form::Json
    }

    /// Prints what was done.
    fn say(&self, text: impl std::fmt::Display) -> Result<(), Failure> {
        match self.form {
            Form::Json => output::json(&json!({ "done": text.to_string() })),
            Form::Text => output::line(text),
        }
    }
}

/// Where the daemon is.
pub(crate) fn endpoint(connection: &Connection) -> Result<Endpoint, Failure> {
    let Some(api) = &connection.api else {
        let socket = connection.socket.clone();
        return Ok(Endpoint::Unix(socket.unwrap_or_else(paths::socket)));
    };
    let token = connection.api_token_file.as_deref().map(Token::read);
    let files = connection.api_client_cert.clone();
    let own = files.zip(connection.api_client_key.clone());
    let own = own.map(|(certificate, key)| CertificateFiles { certificate, key });
    if own.is_some() && !api.is_tls {
        return Err(Mistake::CertificateWithoutTls { api: api.clone() }.into());
    }
    let ca = connection.api_ca.as_deref();
    let tls = (api.is_tls).then(|| ClientTls::new(ca, own.as_ref(), &api.host));
    Ok(Endpoint::Tcp {
        address: api.place(),
        token: token.transpose().map_err(Failure::mistake)?,
        tls: tls.transpose().map_err(Failure::mistake)?,
    })
}

/// A query's `force`.
fn query(force: bool) -> &'static str {
    if force { "?force=true" } else { "" }
}

fn capacity(daemon: &Daemon) -> Result<(), Failure> {
    let capacity: CapacityView = daemon.client.get("/v1/capacity")?;
    if daemon.is_json() {
        return output::json(&capacity);
    }
    output::fields(&[
        ("budget", bytes(capacity.budget_bytes)),
        ("used", bytes(capacity.used_bytes)),
        ("free", bytes(capacity.free_bytes)),
        ("all volumes, full", bytes(capacity.promised_bytes)),
        (
            "volumes larger than the budget",
            capacity.oversized_volumes.to_string(),
        ),
        (
            "writes failed for lack of memory",
            capacity.failed_writes.to_string(),
        ),
        (
            "connections rejected for lack of memory",
            capacity.rejected_connections.to_string(),
        ),
        ("an empty thin volume costs", bytes(capacity.volume_bytes)),
        (
            "an idle connection costs",
            bytes(capacity.connection_idle_bytes),
        ),
        (
            "a busy connection costs up to",
            bytes(capacity.connection_max_bytes),
        ),
        ("memory is taken in", bytes(capacity.slab_bytes)),
    ])
}

/// Measures; needs no daemon.
pub(crate) fn bench(connection: &Connection, mut args: bench::Args) -> Result<ExitCode, Failure> {
    args.json |= connection.json;
    match bench::command(&args, stop_on_interrupt) {
        Ok(Verdict::Good) => Ok(ExitCode::SUCCESS),
        Ok(Verdict::Bad) => Ok(ExitCode::FAILURE),
        Ok(Verdict::Interrupted) | Err(BenchError::Interrupted) => {
            Ok(ExitCode::from(INTERRUPTED_STATUS))
        }
        Err(error) if error.is_usage() => Err(Failure::mistake(error)),
        Err(error) => Err(Failure::Broken(error.into())),
    }
}

/// The exit status of a program that SIGINT ended, by the convention of shells.
const INTERRUPTED_STATUS: u8 = 130;

/// Makes the first SIGINT request `stop` and the second one end the process. If no thread can be
/// created for that, SIGINT keeps its meaning.
fn stop_on_interrupt(stop: &Stop) {
    let stop = stop.clone();
    let listen = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            if tokio::signal::ctrl_c().await.is_ok() {
                stop.request();
            }
            if tokio::signal::ctrl_c().await.is_ok() {
                std::process::exit(INTERRUPTED_STATUS.into());
            }
        });
    };
    let _ = thread::Builder::new()
        .name("signals".to_owned())
        .spawn(listen);
}

/// Asks a discovery service; needs no daemon.
pub(crate) fn discover(connection: &Connection, args: &DiscoverArgs) -> Result<(), Failure> {
    match args.url.scheme() {
        Scheme::NvmeTcp | Scheme::NvmeRdma | Scheme::Srp | Scheme::Brp | Scheme::BrpRdma => {
            discover_subsystems(connection, args)
        }
        Scheme::Iscsi => discover_targets(connection, args),
    }
}

/// iSCSI: SendTargets.
fn discover_targets(connection: &Connection, args: &DiscoverArgs) -> Result<(), Failure> {
    let asked = initiator::discover_targets(&args.url, args.timeout.0);
    let records = asked.map_err(|error| discovery_failure(args, error))?;
    if connection.json {
        let records: Vec<_> = records
            .iter()
            .map(|record| {
                json!({
                    "target": record.target,
                    "address": record.address,
                    "port": record.port,
                    "portal_group": record.portal_group,
                })
            })
            .collect();
        return output::json(&records);
    }
    if records.is_empty() {
        return output::line("it offers nothing to this initiator");
    }
    let rows = records.iter().map(|record| {
        let group = record.portal_group.map(|group| group.to_string());
        vec![
            record.target.clone(),
            record.address.clone(),
            record.port.to_string(),
            group.unwrap_or_default(),
        ]
    });
    output::table(
        &["TARGET", "ADDRESS", "PORT", "GROUP"],
        &["PORT", "GROUP"],
        rows,
    )
}

/// NVMe over Fabrics: the discovery log.
fn discover_subsystems(connection: &Connection, args: &DiscoverArgs) -> Result<(), Failure> {
    let asked = initiator::discover(&args.url, args.timeout.0);
    let records = asked.map_err(|error| discovery_failure(args, error))?;
    if connection.json {
        let records: Vec<_> = records
            .iter()
            .map(|record| {
                json!({
                    "subsystem": record.subsystem_nqn,
                    "kind": kind(record),
                    "transport": transport(record),
                    "address": record.address,
                    "service": record.service,
                    "port_id": record.port,
                })
            })
            .collect();
        return output::json(&records);
    }
    if records.is_empty() {
        return output::line("it offers nothing to this host");
    }
    let rows = records.iter().map(|record| {
        vec![
            record.subsystem_nqn.clone(),
            kind(record).to_owned(),
            transport(record),
            record.address.clone(),
            record.service.clone(),
        ]
    });
    let head = ["SUBSYSTEM", "KIND", "TRANSPORT", "ADDRESS", "PORT"];
    output::table(&head, &["PORT"], rows)
}

fn discovery_failure(args: &DiscoverArgs, source: ConnectError) -> Failure {
    let is_mistake = source.is_mistake();
    let url = args.url.clone();
    let error = DiscoveryFailure { url, source }.into();
    if is_mistake {
        Failure::Mistake(error)
    } else {
        Failure::Broken(error)
    }
}

fn kind(record: &initiator::DiscoveryRecord) -> &'static str {
    match record.kind {
        initiator::RecordKind::Referral => "referral",
        initiator::RecordKind::Nvm => "nvm",
        _ => "discovery",
    }
}

/// NVMe over Fabrics' transport types (TRTYPE).
fn transport(record: &initiator::DiscoveryRecord) -> String {
    match record.transport {
        1 => "rdma".to_owned(),
        3 => "tcp".to_owned(),
        other => other.to_string(),
    }
}
