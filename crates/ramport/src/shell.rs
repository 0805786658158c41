//! `ramport shell`: the commands of the command line in a tree of the daemon's objects, in the
//! manner of targetcli. The tree's current place fills in the verb and the object; everything else
//! is the command line itself.

mod editor;
mod place;
mod statement;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use control::Client;

use crate::cli::{Cli, Connection, ShellArgs, Verb};
use crate::completion::{self, Noun};
use crate::failure::{self, Failure};
use crate::form::Form;
use crate::mistake::Mistake;
use crate::output;
use crate::verbs;

use editor::Editor;
use place::Place;

/// Executes a command line.
pub(crate) type Execute = fn(Cli) -> Result<ExitCode, Failure>;

/// Commands of the program that the shell's help does not list: they do not run here, or the shell
/// has its own.
const UNLISTED: [&str; 4] = ["serve", "demo", "shell", "ls"];

/// Builtin commands, with their help.
const BUILTINS: [(&str, &str); 5] = [
    (
        "ls",
        "List what is here, or at a place: ls, ls /volumes, ls rd0",
    ),
    ("cd", "Go to a place: cd /volumes/rd0, cd rd0, cd .., cd"),
    ("pwd", "Print the place"),
    ("help", "List the commands, or explain one: help, help grow"),
    ("exit", "End the shell"),
];

/// Runs the shell.
pub(crate) fn run(
    connection: &Connection,
    args: &ShellArgs,
    execute: Execute,
) -> Result<ExitCode, Failure> {
    let mut shell = Shell {
        context: Context::new(connection)?,
        client: Client::new(verbs::endpoint(connection)?)?,
        form: Form::when(connection.json),
        execute,
    };
    if !args.commands.is_empty() {
        return shell.run_line(&args.commands.join(" ")).map(Flow::code);
    }
    if io::stdin().is_terminal() {
        return shell.converse();
    }
    for line in io::stdin().lines() {
        let flow = shell.run_line(&line?)?;
        if flow != Flow::Continue {
            return Ok(flow.code());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How the shell continues after a statement.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flow {
    /// With the next statement.
    Continue,
    /// The shell ends.
    End,
    /// A script ends: the statement failed, and its error was printed.
    Failed(ExitCode),
}

impl Flow {
    fn code(self) -> ExitCode {
        match self {
            Self::Continue | Self::End => ExitCode::SUCCESS,
            Self::Failed(code) => code,
        }
    }
}

struct Shell {
    context: Context,
    client: Client,
    form: Form,
    execute: Execute,
}

impl Shell {
    /// Reads lines from the terminal until the user ends the shell. A failure is printed and does
    /// not end the shell.
    fn converse(&mut self) -> Result<ExitCode, Failure> {
        let mut editor = Editor::new(self.context.clone())?;
        while let Some(line) = editor.read(&self.context)? {
            match self.run_line(&line) {
                Ok(Flow::End) => break,
                Ok(Flow::Continue | Flow::Failed(_)) => {}
                Err(Failure::ReaderGone) => return Err(Failure::ReaderGone),
                Err(failure) => {
                    failure.tell(self.form);
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Carries out the statements of a line, up to the first that fails.
    fn run_line(&mut self, line: &str) -> Result<Flow, Failure> {
        for words in statement::statements(line).map_err(Failure::mistake)? {
            let flow = self.run_statement(&words)?;
            if flow != Flow::Continue {
                return Ok(flow);
            }
        }
        Ok(Flow::Continue)
    }

    fn run_statement(&mut self, words: &[String]) -> Result<Flow, Failure> {
        let (first, rest) = match words {
            [] => return Ok(Flow::Continue),
            [first, rest @ ..] => (first.as_str(), rest),
        };
        match (first, rest) {
            ("exit" | "quit", []) => return Ok(Flow::End),
            ("pwd", []) => output::line(&self.context.place)?,
            ("cd", []) => self.context.place = Place::Root,
            ("cd", [to]) => self.go(to)?,
            ("help", []) => self.help()?,
            ("help", command) => {
                let help = [command, &["--help".to_owned()]].concat();
                return self.run_command(&help);
            }
            ("ls", []) => return self.list(&self.context.place.clone()),
            ("ls", [at]) if !at.starts_with('-') => {
                let place = self.context.place.at(at).map_err(Failure::mistake)?;
                return self.list(&place);
            }
            ("cd" | "pwd" | "exit" | "quit", _) => {
                let command = first.to_owned();
                return Err(Mistake::TooManyWords { command }.into());
            }
            _ => return self.run_command(words),
        }
        Ok(Flow::Continue)
    }

    /// Goes to a place that exists.
    fn go(&mut self, to: &str) -> Result<(), Failure> {
        let place = self.context.place.at(to).map_err(Failure::mistake)?;
        if let Place::Object(noun, name) = &place {
            let objects = completion::objects(&self.client, *noun)?;
            if !objects.iter().any(|object| object.name == *name) {
                return Err(Mistake::NoSuchObject {
                    kind: noun.verb(),
                    name: name.clone(),
                    place: Place::Kind(*noun).to_string(),
                }
                .into());
            }
        }
        self.context.place = place;
        Ok(())
    }

    /// Lists what is at a place, as the command line does.
    fn list(&mut self, place: &Place) -> Result<Flow, Failure> {
        let words = match place {
            Place::Root => vec!["ls".to_owned()],
            Place::Kind(noun) => vec![noun.verb().to_owned(), "list".to_owned()],
            Place::Object(Noun::Referral, name) => {
                return output::line(name).map(|()| Flow::Continue);
            }
            Place::Object(noun, name) => {
                vec![noun.verb().to_owned(), "show".to_owned(), name.clone()]
            }
        };
        self.execute_line(&words)
    }

    fn run_command(&mut self, words: &[String]) -> Result<Flow, Failure> {
        let line = self.context.filled_in(words);
        let flow = self.execute_line(&line)?;
        // The command may have removed the object of the current place.
        if flow == Flow::Continue && self.context.removes_place(&line) {
            self.context.place = self.context.place.parent();
        }
        Ok(flow)
    }

    /// Carries out a command line, given without the program's name.
    fn execute_line(&mut self, words: &[String]) -> Result<Flow, Failure> {
        let line = self.context.program_line(words);
        let cli = match Cli::try_parse_from(line) {
            Ok(cli) => cli,
            Err(error) => {
                let is_mistake = error.use_stderr();
                let code = failure::tell_usage(&error, self.form);
                return Ok(if is_mistake {
                    Flow::Failed(code)
                } else {
                    Flow::Continue
                });
            }
        };
        if let Verb::Serve(_) | Verb::Demo(_) | Verb::Shell(_) = cli.verb {
            return Err(Mistake::NotInShell.into());
        }
        let code = (self.execute)(cli)?;
        Ok(if code == ExitCode::SUCCESS {
            Flow::Continue
        } else {
            Flow::Failed(code)
        })
    }

    fn help(&self) -> Result<(), Failure> {
        let mut rows: Vec<_> = BUILTINS
            .iter()
            .map(|(name, about)| vec![(*name).to_owned(), (*about).to_owned()])
            .collect();
        let command = Cli::command();
        if let Some(noun) = self.context.place.noun() {
            let own = command.find_subcommand(noun.verb());
            rows.extend(own.into_iter().flat_map(rows_of));
        }
        let general = rows_of(&command).into_iter();
        rows.extend(general.filter(|row| !UNLISTED.contains(&row[0].as_str())));
        output::table(&["COMMAND", ""], &[], rows)
    }
}

/// The commands below a command, with what they do.
fn rows_of(command: &clap::Command) -> Vec<Vec<String>> {
    let shown = command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set());
    let about = |inner: &clap::Command| inner.get_about().map(ToString::to_string);
    shown
        .map(|inner| {
            vec![
                inner.get_name().to_owned(),
                about(inner).unwrap_or_default(),
            ]
        })
        .collect()
}

/// What is filled into commands: the connection and the place.
#[derive(Clone)]
struct Context {
    /// The program's name and the options of the connection.
    program: Vec<String>,
    place: Place,
}

impl Context {
    fn new(connection: &Connection) -> Result<Self, Failure> {
        let mut program = vec!["ramport".to_owned()];
        let mut option = |name: &str, value: Option<&str>| {
            if let Some(value) = value {
                program.extend([name.to_owned(), value.to_owned()]);
            }
        };
        let text = |path: &Option<std::path::PathBuf>| match path {
            None => Ok(None),
            Some(path) => path
                .to_str()
                .map(|path| Some(path.to_owned()))
                .ok_or_else(|| Mistake::NotUtf8 { path: path.clone() }),
        };
        option("--socket", text(&connection.socket)?.as_deref());
        let api = connection.api.as_ref().map(ToString::to_string);
        option("--api", api.as_deref());
        option("--api-ca", text(&connection.api_ca)?.as_deref());
        option(
            "--api-token-file",
            text(&connection.api_token_file)?.as_deref(),
        );
        option(
            "--api-client-cert",
            text(&connection.api_client_cert)?.as_deref(),
        );
        option(
            "--api-client-key",
            text(&connection.api_client_key)?.as_deref(),
        );
        if connection.json {
            program.push("--json".to_owned());
        }
        Ok(Self {
            program,
            place: Place::Root,
        })
    }

    fn program_line(&self, words: &[String]) -> Vec<String> {
        [&self.program, words].concat()
    }

    /// A command with the verb and the object of the place: `grow 1G` in /volumes/rd0 is
    /// `volume grow rd0 1G`. The commands of the place come before those of the program.
    fn filled_in(&self, words: &[String]) -> Vec<String> {
        let program = Cli::command();
        let (Some(noun), Some(first)) = (self.place.noun(), words.first()) else {
            return words.to_vec();
        };
        let own = program.find_subcommand(noun.verb());
        let is_own = own.is_some_and(|own| own.find_subcommand(first).is_some());
        let mut line = words.to_vec();
        if is_own {
            line.insert(0, noun.verb().to_owned());
        } else if program
            .find_subcommand(first)
            .is_none_or(clap::Command::has_subcommands)
        {
            return line;
        }
        let Place::Object(_, name) = &self.place else {
            return line;
        };
        let (depth, path, leaf) = leaf_of(&program, &line);
        let positional = leaf.get_positionals().next();
        let names_it =
            positional.and_then(|argument| completion::noun_of(&path, argument.get_id().as_str()));
        if names_it == Some(noun) {
            line.insert(depth, name.clone());
        }
        line
    }

    /// Whether a command that succeeded has removed the object of the place.
    fn removes_place(&self, line: &[String]) -> bool {
        let (Place::Object(noun, name), [verb, action, rest @ ..]) = (&self.place, line) else {
            return false;
        };
        let program = Cli::command();
        let command = program.find_subcommand(verb);
        let action = command.and_then(|command| command.find_subcommand(action));
        verb == noun.verb()
            && action.is_some_and(|action| action.get_name() == "remove")
            && rest.contains(name)
    }

    /// Candidates for the last of `words`, which is being typed.
    fn candidates(&self, words: &[String]) -> Vec<String> {
        let (Some(typed), Some(first)) = (words.last(), words.first()) else {
            return Vec::new();
        };
        let ask = |line: Vec<String>| {
            let line = self.program_line(&line).into_iter().map(OsString::from);
            let found = completion::candidates(line.collect()).into_iter();
            found.map(|candidate| candidate.get_value().to_string_lossy().into_owned())
        };
        if words.len() > 1 {
            return match first.as_str() {
                "cd" | "ls" => self.places(typed),
                "help" => self.candidates(&words[1..]),
                _ => ask(self.filled_in(words)).collect(),
            };
        }
        let names = BUILTINS.iter().map(|(name, _)| (*name).to_owned());
        let mut found: Vec<_> = names.filter(|name| name.starts_with(typed)).collect();
        if let Some(noun) = self.place.noun() {
            found.extend(ask(vec![noun.verb().to_owned(), typed.clone()]));
        }
        found.extend(ask(vec![typed.clone()]));
        found.sort();
        found.dedup();
        found
    }

    /// Places that begin with what is typed.
    fn places(&self, typed: &str) -> Vec<String> {
        let objects = |noun: Noun, prefix: &str| -> Vec<String> {
            let name = prefix.to_owned();
            let line = [noun.verb(), "show", ""].map(str::to_owned);
            let line = self.program_line(&line).into_iter().map(OsString::from);
            let found = completion::candidates(line.collect()).into_iter();
            let found = found
                .filter(|candidate| !candidate.get_value().as_encoded_bytes().starts_with(b"-"));
            found
                .map(|candidate| format!("{name}{}", candidate.get_value().to_string_lossy()))
                .collect()
        };
        let mut found = Vec::new();
        for noun in Noun::ALL {
            let kind = Place::Kind(noun).to_string();
            let folder = format!("{kind}/");
            if typed.starts_with(&folder) {
                found.extend(objects(noun, &folder));
            } else if typed.starts_with('/') {
                found.push(folder);
            } else if self.place == Place::Root {
                found.push(folder[1..].to_owned());
            }
        }
        if let Some(noun) = self.place.noun().filter(|_| !typed.starts_with('/')) {
            found.extend(objects(noun, ""));
        }
        found.retain(|place| place.starts_with(typed));
        found
    }
}

/// The command that a line reaches, its path, and how many words that path takes.
fn leaf_of<'a>(
    program: &'a clap::Command,
    line: &[String],
) -> (usize, Vec<String>, &'a clap::Command) {
    let (mut leaf, mut path) = (program, Vec::new());
    for word in line {
        match leaf.find_subcommand(word) {
            Some(inner) => leaf = inner,
            None => break,
        }
        path.push(leaf.get_name().to_owned());
    }
    (path.len(), path, leaf)
}

#[cfg(test)]
mod tests;
