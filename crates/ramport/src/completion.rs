//! Completion of commands, options and the daemon's objects: for shells, whose scripts ask the
//! hidden verb `complete`, and for `ramport shell`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use clap_complete::Shell;
use clap_complete::engine::{self, ArgValueCandidates, CompletionCandidate};
use control::{
    Client, ClientError, HostView, PortalView, ReferralView, SessionView, ShareView, TargetView,
    TokenView, VolumeView,
};

use crate::cli::{Cli, Connection};
use crate::failure::Failure;
use crate::units::bytes;
use crate::{output, verbs};

/// How long completion waits for the daemon: a person waits too.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);

/// What the daemon has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noun {
    Volume,
    Target,
    Share,
    Host,
    Portal,
    Referral,
    Token,
    Session,
}

impl Noun {
    pub(crate) const ALL: [Self; 8] = [
        Self::Volume,
        Self::Target,
        Self::Share,
        Self::Host,
        Self::Portal,
        Self::Referral,
        Self::Token,
        Self::Session,
    ];

    /// The command that handles it.
    pub(crate) const fn verb(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Target => "target",
            Self::Share => "share",
            Self::Host => "host",
            Self::Portal => "portal",
            Self::Referral => "referral",
            Self::Token => "token",
            Self::Session => "session",
        }
    }
}

/// An object of the daemon's.
pub(crate) struct Object {
    pub(crate) name: String,
    /// What tells it from others, in a few words.
    about: String,
}

/// The objects that the daemon has.
pub(crate) fn objects(client: &Client, noun: Noun) -> Result<Vec<Object>, ClientError> {
    let object = |name, about| Object { name, about };
    Ok(match noun {
        Noun::Volume => (client.get::<Vec<VolumeView>>("/v1/volumes")?.into_iter())
            .map(|view| object(view.name, bytes(view.size_bytes)))
            .collect(),
        Noun::Target => (client.get::<Vec<TargetView>>("/v1/targets")?.into_iter())
            .map(|view| object(view.name, view.protocol))
            .collect(),
        Noun::Share => (client.get::<Vec<ShareView>>("/v1/shares")?.into_iter())
            .map(|view| object(view.name, format!("{} files", view.files)))
            .collect(),
        Noun::Host => (client.get::<Vec<HostView>>("/v1/hosts")?.into_iter())
            .map(|view| object(view.name, view.addresses.join(" ")))
            .collect(),
        Noun::Portal => (client.get::<Vec<PortalView>>("/v1/portals")?.into_iter())
            .map(|view| object(view.url, format!("{} connections", view.connections)))
            .collect(),
        Noun::Referral => (client
            .get::<Vec<ReferralView>>("/v1/referrals")?
            .into_iter())
        .map(|view| object(view.url, String::new()))
        .collect(),
        Noun::Token => (client.get::<Vec<TokenView>>("/v1/tokens")?.into_iter())
            .map(|view| object(view.name, view.role.to_string()))
            .collect(),
        Noun::Session => (client.get::<Vec<SessionView>>("/v1/sessions")?.into_iter())
            .map(|view| object(view.id.to_string(), view.host))
            .collect(),
    })
}

/// Candidates for the last of `words`, which begin with the program's name. If no daemon answers,
/// there are none of its objects among them.
pub(crate) fn candidates(words: Vec<OsString>) -> Vec<CompletionCandidate> {
    let Some((last, before)) = words.split_last() else {
        return Vec::new();
    };
    let is_empty = last.is_empty();
    let client = client(before).map(Arc::new);
    let mut command = command(client.as_ref());
    let (at, folder) = (before.len(), std::env::current_dir().ok());
    let found = engine::complete(&mut command, words, at, folder.as_deref());
    let mut found = found.unwrap_or_default();
    found.retain(|candidate| !has_control_characters(candidate.get_value()));
    let is_option = |candidate: &CompletionCandidate| {
        candidate.get_value().as_encoded_bytes().starts_with(b"-")
    };
    if is_empty && !found.iter().all(is_option) {
        found.retain(|candidate| !is_option(candidate));
    }
    found
}

/// What the hidden verb `complete` prints: a candidate a line, with a tab and an explanation if
/// there is one.
pub(crate) fn print_candidates(words: Vec<OsString>) -> Result<(), Failure> {
    for candidate in candidates(words) {
        let value = candidate.get_value().to_string_lossy();
        let help = candidate.get_help().map(ToString::to_string);
        let help = help.as_deref().and_then(|help| help.lines().next());
        match help {
            Some(help) if !help.is_empty() => {
                output::line(format_args!(
                    "{value}\t{}",
                    help.replace(char::is_control, " ")
                ))?;
            }
            _ => output::line(value)?,
        }
    }
    Ok(())
}

/// Prints the script that makes a shell complete.
pub(crate) fn print_script(shell: Shell) -> Result<(), Failure> {
    let script = match shell {
        Shell::Bash => include_str!("completion/ramport.bash"),
        Shell::Zsh => include_str!("completion/ramport.zsh"),
        Shell::Fish => include_str!("completion/ramport.fish"),
        // Commands and options only.
        other => {
            clap_complete::generate(other, &mut Cli::command(), "ramport", &mut io::stdout());
            return Ok(());
        }
    };
    output::line(script.trim_end())
}

/// The command line, with the daemon's objects as candidates.
fn command(client: Option<&Arc<Client>>) -> clap::Command {
    let command = Cli::command();
    match client {
        Some(client) => with_objects(command, &[], client),
        None => command,
    }
}

/// `path` are the names of the commands from the program to this one.
fn with_objects(command: clap::Command, path: &[String], client: &Arc<Client>) -> clap::Command {
    let command = command.mut_args(|arg| match noun_of(path, arg.get_id().as_str()) {
        Some(noun) => {
            let client = Arc::clone(client);
            arg.add(ArgValueCandidates::new(move || {
                object_candidates(&client, noun)
            }))
        }
        None => arg,
    });
    command.mut_subcommands(|inner| {
        let path = [path, &[inner.get_name().to_owned()]].concat();
        with_objects(inner, &path, client)
    })
}

fn object_candidates(client: &Client, noun: Noun) -> Vec<CompletionCandidate> {
    let objects = objects(client, noun).unwrap_or_default().into_iter();
    objects
        .map(|object| CompletionCandidate::new(object.name).help(Some(object.about.into())))
        .collect()
}

/// The objects that an argument of a command names.
pub(crate) fn noun_of(path: &[String], argument: &str) -> Option<Noun> {
    let (first, last) = (path.first()?.as_str(), path.last()?.as_str());
    Some(match (first, last, argument) {
        (_, "create" | "snapshot" | "clone", "name" | "url") => return None,
        ("volume", _, "name" | "volumes" | "snapshot" | "to")
        | ("target", _, "volume" | "what") => Noun::Volume,
        ("target", _, "name") | ("connect-line", _, "target") => Noun::Target,
        ("share", _, "name") => Noun::Share,
        ("host", _, "name")
        | ("target" | "connect-line", _, "host")
        | ("target", _, "read_only_host") => Noun::Host,
        ("portal", _, "url") | ("connect-line", _, "portal") => Noun::Portal,
        ("referral", _, "url") => Noun::Referral,
        ("token", _, "name") => Noun::Token,
        ("session", _, "id") => Noun::Session,
        _ => return None,
    })
}

/// A client of the daemon that the words before the last one name.
fn client(words: &[OsString]) -> Option<Client> {
    let endpoint = verbs::endpoint(&connection(words)?).ok()?;
    Some(Client::new(endpoint).ok()?.with_time_limit(ANSWER_LIMIT))
}

/// The options of a connection among words that need not be a whole command.
fn connection(words: &[OsString]) -> Option<Connection> {
    const OPTIONS: [&str; 6] = [
        "--socket",
        "--api",
        "--api-ca",
        "--api-token-file",
        "--api-client-cert",
        "--api-client-key",
    ];
    let mut line = vec![OsString::from("ramport")];
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if OPTIONS.contains(&text.as_ref()) {
            line.extend([word.clone(), words.next()?.clone()]);
        } else if OPTIONS.iter().any(|option| {
            let value = text.strip_prefix(option);
            value.is_some_and(|value| value.starts_with('='))
        }) {
            line.push(word.clone());
        }
    }
    line.push("ls".into());
    Some(Cli::try_parse_from(line).ok()?.connection)
}

fn has_control_characters(text: &OsStr) -> bool {
    text.to_string_lossy().contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn values(line: &str) -> Vec<String> {
        let found = candidates(words(line)).into_iter();
        found
            .map(|candidate| candidate.get_value().to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn commands_options_and_their_values_are_completed_without_a_daemon() {
        let socket = "ramport --socket /nonexistent/socket";
        assert_eq!(values(&format!("{socket} vol")), ["volume"]);
        assert_eq!(values(&format!("{socket} portal set x --rdma s")), ["soft"]);
        let options = values(&format!("{socket} volume create rd0 --b"));
        assert_eq!(options, ["--block-size"]);
        let unknown = values(&format!("{socket} volume show "));
        assert!(unknown.contains(&"--json".to_owned()), "{unknown:?}");
        assert!(
            unknown.iter().all(|value| value.starts_with('-')),
            "{unknown:?}"
        );
    }

    #[test]
    fn the_hidden_verb_is_not_a_candidate() {
        assert_eq!(values("ramport comp"), ["completions"]);
    }

    #[test]
    fn every_argument_that_names_an_object_is_known() {
        fn walk(command: &clap::Command, path: &[String], found: &mut Vec<String>) {
            for argument in command.get_arguments() {
                if let Some(noun) = noun_of(path, argument.get_id().as_str()) {
                    let path = path.join(" ");
                    found.push(format!("{path} {}: {}", argument.get_id(), noun.verb()));
                }
            }
            for inner in command.get_subcommands() {
                let path = [path, &[inner.get_name().to_owned()]].concat();
                walk(inner, &path, found);
            }
        }
        let mut found = Vec::new();
        walk(&Cli::command(), &[], &mut found);
        insta::assert_snapshot!(found.join("\n"));
    }

    #[test]
    fn the_daemon_is_the_one_that_the_line_names() {
        let socket = |line: &str| connection(&words(line)).expect("a line").socket;
        let named = Some(PathBuf::from("/tmp/a"));
        assert_eq!(socket("ramport --socket /tmp/a volume show"), named);
        assert_eq!(socket("ramport volume show --socket=/tmp/a --force"), named);
        assert!(connection(&words("ramport ls --socket")).is_none());
    }
}
