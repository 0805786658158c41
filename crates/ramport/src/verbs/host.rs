//! `ramport host`.

use std::io;
use std::path::Path;

use control::{
    Chap, ChapView, Host, HostView, MutualChap, Secret, SecretFileError, Text, ToldBy, path_part,
};

use super::Daemon;
use crate::cli::{ChapArgs, HostArgs, HostVerb};
use crate::failure::Failure;
use crate::output::{self, Tone, paint};

pub(super) fn run(daemon: &Daemon, verb: HostVerb) -> Result<(), Failure> {
    match verb {
        HostVerb::Create(args) => {
            let definition = definition(&args, None)?;
            show(daemon, &daemon.client.post(&path(&args.name), &definition)?)
        }
        HostVerb::Set(args) => {
            let before: HostView = daemon.client.get(&path(&args.name))?;
            let definition = definition(&args, before.chap)?;
            show(daemon, &daemon.client.put(&path(&args.name), &definition)?)
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

/// The host that the arguments describe. Without CHAP arguments, it keeps the CHAP settings
/// `before`.
fn definition(args: &HostArgs, before: Option<ChapView>) -> Result<Host, Failure> {
    Ok(Host {
        told_by: if args.told_by_address {
            ToldBy::Address
        } else {
            ToldBy::Name
        },
        addresses: args.address.iter().copied().map(Text).collect(),
        chap: chap(&args.chap, &args.name, before)?,
    })
}

/// The CHAP settings that the arguments describe, or the settings `before` without CHAP arguments.
/// The default user is `own`.
pub(super) fn chap(
    given: &ChapArgs,
    own: &str,
    before: Option<ChapView>,
) -> Result<Option<Chap>, Failure> {
    let Some(file) = &given.chap_secret_file else {
        let kept = before.filter(|_| !given.no_chap).map(|view| Chap {
            user: view.user,
            secret: Secret::hidden(),
            mutual: view.mutual_user.map(|user| MutualChap {
                user,
                secret: Secret::hidden(),
            }),
        });
        return Ok(kept);
    };
    let mutual = given.mutual_secret_file.as_deref().map(|file| {
        let user = given.mutual_user.clone();
        Ok::<_, Failure>(MutualChap {
            user: user.unwrap_or_else(|| "ramport".to_owned()),
            secret: read_secret(file)?,
        })
    });
    Ok(Some(Chap {
        user: given.chap_user.clone().unwrap_or_else(|| own.to_owned()),
        secret: read_secret(file)?,
        mutual: mutual.transpose()?,
    }))
}

/// Reads a secret: the first line of a file that its owner alone may read, or of standard input.
fn read_secret(path: &Path) -> Result<Secret, Failure> {
    if path != Path::new("-") {
        return Secret::read(path).map_err(Failure::mistake);
    }
    Secret::read_from(io::stdin()).map_err(|source| {
        let path = "standard input".into();
        Failure::mistake(SecretFileError::Read { path, source })
    })
}

fn list(daemon: &Daemon) -> Result<(), Failure> {
    let hosts: Vec<HostView> = daemon.client.get("/v1/hosts")?;
    if daemon.is_json() {
        return output::json(&hosts);
    }
    if hosts.is_empty() {
        return output::line("no hosts; define one with `ramport host create NAME`");
    }
    let rows = hosts.iter().map(|host| {
        vec![
            host.name.clone(),
            told_by(host).to_owned(),
            addresses(host),
            chap_of(host.chap.as_ref()),
            host.targets.join(" "),
        ]
    });
    let head = ["NAME", "TOLD BY", "ADDRESSES", "CHAP", "TARGETS"];
    output::table(&head, &[], rows)
}

fn show(daemon: &Daemon, host: &HostView) -> Result<(), Failure> {
    if daemon.is_json() {
        return output::json(host);
    }
    output::fields(&[
        ("host", paint(Tone::Name, &host.name)),
        ("told by", told_by(host).to_owned()),
        ("addresses", addresses(host)),
        ("chap", chap_of(host.chap.as_ref())),
        ("targets", host.targets.join(", ")),
    ])
}

fn told_by(host: &HostView) -> &'static str {
    match host.told_by {
        ToldBy::Name => "name",
        ToldBy::Address => "address",
    }
}

/// The names that CHAP goes by, in words.
pub(super) fn chap_of(chap: Option<&ChapView>) -> String {
    match chap {
        None => "none".to_owned(),
        Some(ChapView {
            user,
            mutual_user: None,
        }) => format!("as {user}"),
        Some(ChapView {
            user,
            mutual_user: Some(ours),
        }) => format!("as {user}, mutual as {ours}"),
    }
}

fn addresses(host: &HostView) -> String {
    if host.addresses.is_empty() {
        "any".to_owned()
    } else {
        host.addresses.join(" ")
    }
}
