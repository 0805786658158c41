//! `ramport host`.

mod keygen;

use std::io;
use std::path::{Path, PathBuf};

use control::{
    Chap, ChapView, DhChap, DhChapView, Host, HostView, MutualChap, Secret, SecretFileError, Text,
    Tls, TlsView, ToldBy, path_part,
};

use super::Daemon;
use crate::cli::{ChapArgs, DhChapArgs, HostArgs, HostVerb, TlsArgs};
use crate::failure::Failure;
use crate::mistake::Mistake;
use crate::output::{self, TextRole, paint};

pub(super) fn run(daemon: &Daemon, verb: HostVerb) -> Result<(), Failure> {
    match verb {
        HostVerb::Create(args) => {
            let definition = definition(&args, None)?;
            show(daemon, &daemon.client.post(&path(&args.name), &definition)?)
        }
        HostVerb::Set(args) => {
            let before: HostView = daemon.client.get(&path(&args.name))?;
            let definition = definition(&args, Some(before))?;
            show(daemon, &daemon.client.put(&path(&args.name), &definition)?)
        }
        HostVerb::List => list(daemon),
        HostVerb::Show(args) => show(daemon, &daemon.client.get(&path(&args.name))?),
        HostVerb::Keygen(args) => keygen::run(daemon, &args),
        HostVerb::Remove(args) => {
            daemon.client.delete(&path(&args.name))?;
            daemon.say(format_args!("host {} is removed", args.name))
        }
    }
}

fn path(name: &str) -> String {
    format!("/v1/hosts/{}", path_part(name))
}

/// The host that the arguments describe. Without arguments for CHAP or DH-HMAC-CHAP, it keeps the
/// settings `before`.
fn definition(args: &HostArgs, before: Option<HostView>) -> Result<Host, Failure> {
    let (chap_before, dhchap_before, tls_before) = match before {
        Some(view) => (view.chap, view.dhchap, view.tls),
        None => (None, None, None),
    };
    Ok(Host {
        told_by: if args.told_by_address {
            ToldBy::Address
        } else {
            ToldBy::Name
        },
        addresses: args.address.iter().copied().map(Text).collect(),
        chap: chap(&args.chap, &args.name, chap_before)?,
        dhchap: dhchap(&args.dhchap, dhchap_before)?,
        tls: tls(&args.tls, tls_before)?,
    })
}

/// The DH-HMAC-CHAP settings that the arguments describe. What is not given stays as `before`.
fn dhchap(given: &DhChapArgs, before: Option<DhChapView>) -> Result<Option<DhChap>, Failure> {
    let read = |file: &Option<PathBuf>| file.as_deref().map(read_secret).transpose();
    let before = before.filter(|_| !given.no_dhchap);
    let kept = |is_kept: Option<bool>| is_kept.unwrap_or(false).then(Secret::hidden);
    let secret = read(&given.dhchap_secret_file)?.or(kept(before.as_ref().map(|_| true)));
    let other = read(&given.dhchap_other_secret_file)?;
    // A new secret takes the place of the two that were valid while it was being changed.
    let keeps_other = given.dhchap_secret_file.is_none();
    let other_before = before
        .as_ref()
        .map(|view| view.has_other_secret && keeps_other);
    let ctrl = read(&given.dhchap_ctrl_secret_file)?;
    let ctrl = ctrl.or(kept(before.as_ref().map(|view| view.has_ctrl_secret)));
    let hash = given.dhchap_hash.map(Text);
    let Some(secret) = secret else {
        let is_plain =
            other.is_none() && ctrl.is_none() && hash.is_none() && given.dhchap_dhgroup.is_none();
        return if is_plain {
            Ok(None)
        } else {
            Err(Failure::mistake(Mistake::NoDhChapSecret))
        };
    };
    let group_before = before.as_ref().map(|view| view.dhgroup);
    Ok(Some(DhChap {
        secret,
        other_secret: other.or(kept(other_before)),
        ctrl_secret: ctrl,
        hash: hash.or(before.as_ref().and_then(|view| view.hash)),
        dhgroup: given
            .dhchap_dhgroup
            .map(Text)
            .or(group_before)
            .unwrap_or_default(),
    }))
}

/// The keys for TLS that the arguments describe. What is not given stays as `before`.
fn tls(given: &TlsArgs, before: Option<TlsView>) -> Result<Option<Tls>, Failure> {
    let read = |file: &Option<PathBuf>| file.as_deref().map(read_secret).transpose();
    let before = before.filter(|_| !given.no_tls_psk);
    let (psk, other) = (read(&given.tls_psk_file)?, read(&given.tls_other_psk_file)?);
    // A new key takes the place of the two that were valid while it was being changed.
    let keeps_other = psk.is_none() && before.as_ref().is_some_and(|view| view.has_other_psk);
    let other_psk = other.or_else(|| keeps_other.then(Secret::hidden));
    match psk.or_else(|| before.is_some().then(Secret::hidden)) {
        Some(psk) => Ok(Some(Tls { psk, other_psk })),
        None if other_psk.is_none() => Ok(None),
        None => Err(Failure::mistake(Mistake::NoTlsKey)),
    }
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
        ("host", paint(TextRole::Name, &host.name)),
        ("told by", told_by(host).to_owned()),
        ("addresses", addresses(host)),
        ("chap", chap_of(host.chap.as_ref())),
        ("dhchap", dhchap_of(host.dhchap.as_ref())),
        ("tls", tls_of(host.tls.as_ref()).to_owned()),
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

/// What DH-HMAC-CHAP requires, in words.
fn dhchap_of(dhchap: Option<&DhChapView>) -> String {
    let Some(view) = dhchap else {
        return "none".to_owned();
    };
    let mut words = vec!["secret set".to_owned()];
    if view.has_other_secret {
        words.push("other secret set".to_owned());
    }
    if view.has_ctrl_secret {
        words.push("mutual".to_owned());
    }
    if let Some(hash) = view.hash {
        words.push(format!("{hash} only"));
    }
    if view.dhgroup != Text::default() {
        words.push(format!("group {}", view.dhgroup));
    }
    words.join(", ")
}

/// The keys for TLS, in words.
const fn tls_of(tls: Option<&TlsView>) -> &'static str {
    match tls {
        None => "no key",
        Some(view) if view.has_other_psk => "key set, other key set",
        Some(_) => "key set",
    }
}

fn addresses(host: &HostView) -> String {
    if host.addresses.is_empty() {
        "any".to_owned()
    } else {
        host.addresses.join(" ")
    }
}
