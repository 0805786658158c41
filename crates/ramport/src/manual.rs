//! Manual pages: one for the program and for each verb, from the source of `--help`, and
//! ramport.toml(5), from the types of definitions.

mod definitions;

use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::cli::Cli;
use crate::failure::Failure;
use crate::mistake::Mistake;

/// A page: its file name, such as `ramport-serve.1`, and its text in roff.
type Page = (String, String);

/// Writes all pages to `folder`, which is created if it does not exist.
pub(crate) fn write(folder: &Path) -> Result<(), Failure> {
    let written = std::fs::create_dir_all(folder).and_then(|()| {
        for (name, text) in pages() {
            std::fs::write(folder.join(name), text)?;
        }
        Ok(())
    });
    written.map_err(|source| {
        let folder = folder.to_owned();
        Mistake::WriteManual { folder, source }.into()
    })
}

fn pages() -> Vec<Page> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let mut pages = vec![(definitions::FILE.to_owned(), definitions::page())];
    add_pages(&program, None, &mut pages);
    pages
}

/// The pages of a command and of its verbs. `parent` is the name of the page of the command that it
/// belongs to.
fn add_pages(command: &Command, parent: Option<&str>, pages: &mut Vec<Page>) {
    let name = name_of(command);
    pages.push((format!("{name}.1"), page(command, parent)));
    for verb in verbs(command) {
        add_pages(verb, Some(&name), pages);
    }
}

/// The name of a command's page, such as `ramport-volume-create`.
fn name_of(command: &Command) -> String {
    let name = command.get_display_name();
    name.unwrap_or_else(|| command.get_name()).to_owned()
}

fn verbs(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set())
}

/// The page of a command. `parent` is the name of the page of the command that it belongs to.
pub(crate) fn page(command: &Command, parent: Option<&str>) -> String {
    let name = name_of(command);
    let man = Man::new(command.clone());
    let mut page = title(&name, 1).into_bytes();
    let from_help = man.render_name_section(&mut page).and_then(|()| {
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        if verbs(command).next().is_some() {
            man.render_subcommands_section(&mut page)?;
        }
        Ok(())
    });
    from_help.expect("writing to a vector does not fail");
    let mut roff = Roff::new();
    if let Some(examples) = command.get_after_help() {
        add_examples(&mut roff, &examples.to_string());
    }
    add_list(&mut roff, "EXIT STATUS", exit_statuses(&name));
    add_environment(&mut roff, command, &name);
    add_list(&mut roff, "FILES", files(&name));
    add_see_also(&mut roff, command, parent);
    roff.to_writer(&mut page)
        .expect("writing to a vector does not fail");
    String::from_utf8(page).expect("help is text")
}

/// The first line of a page. Without a date, pages are the same whenever they are generated; crate
/// `roff` would leave the empty field out.
fn title(name: &str, section: u8) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(".TH {name} {section} \"\" \"ramport {version}\" \"ramport manual\"\n")
}

/// Lines of help as a section: captions end with a colon, all others are printed as they are.
fn add_examples(roff: &mut Roff, text: &str) {
    roff.control("SH", ["EXAMPLES"]);
    let lines = text.lines().skip_while(|line| *line == "Examples:");
    let is_caption = |line: &str| line.ends_with(':') && !line.starts_with("    ");
    let lines: Vec<&str> = lines.collect();
    let blocks = lines.chunk_by(|a, b| is_caption(a) == is_caption(b));
    for (at, block) in blocks.enumerate() {
        if !is_caption(block[0]) {
            add_verbatim(roff, block);
            continue;
        }
        // A section begins a paragraph by itself.
        if at > 0 {
            roff.control("PP", []);
        }
        for line in block {
            roff.text([roman(line.trim())]);
        }
    }
}

/// Lines that are not filled, indented.
fn add_verbatim(roff: &mut Roff, lines: &[&str]) {
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let least = lines.iter().map(indent).min().unwrap_or(0);
    roff.control("RS", ["4"]);
    roff.control("nf", []);
    for line in lines {
        roff.text([roman(&line[least..])]);
    }
    roff.control("fi", []);
    roff.control("RE", []);
}

/// A section with a paragraph for each term.
fn add_list<T: AsRef<str>>(roff: &mut Roff, heading: &str, terms: Vec<(T, &str)>) {
    if terms.is_empty() {
        return;
    }
    roff.control("SH", [heading]);
    for (term, meaning) in terms {
        roff.control("TP", []);
        roff.text([bold(term.as_ref())]);
        roff.text([roman(meaning)]);
    }
}

/// What a command exits with; docs/operations.md has the same list.
fn exit_statuses(name: &str) -> Vec<(&'static str, &'static str)> {
    let failed = match name {
        "ramport-apply" => "The file was refused and nothing was changed, or the daemon failed.",
        "ramport-bench" => {
            "An I/O failed, verification found a wrong block, an outage exceeded --max-outage, or the connection was lost."
        }
        _ => {
            "The command failed for a reason that another command line does not fix: the daemon, the system or the network failed."
        }
    };
    let mut statuses = vec![
        ("0", "The command did what was asked."),
        ("1", failed),
        (
            "2",
            "The command line, a file or a name is wrong, or the daemon rejected the request. The message says how to fix it.",
        ),
    ];
    match name {
        "ramport-apply" => {
            statuses[0].1 = "The definitions were applied, or nothing would change.";
            statuses.push(("3", "With --diff: something would change."));
        }
        "ramport-bench" => statuses.push((
            "130",
            "SIGINT ended the run; the figures up to then were printed.",
        )),
        _ => {}
    }
    statuses
}

/// Variables that options name, and those that libraries of the program read.
fn add_environment(roff: &mut Roff, command: &Command, name: &str) {
    let of_options = command.get_arguments().filter_map(|argument| {
        let variable = argument.get_env()?.to_str()?.to_owned();
        let option = argument.get_long()?;
        Some((
            variable,
            format!("The value of --{option} if the option is not given."),
        ))
    });
    let mut variables: Vec<(String, String)> = of_options.collect();
    let mut add = |variable: &str, meaning: &str| {
        variables.push((variable.to_owned(), meaning.to_owned()));
    };
    add("NO_COLOR", "If set, output to a terminal has no colours.");
    if matches!(name, "ramport-bench" | "ramport-discover") {
        add(
            "LIBISCSI_CHAP_USERNAME, LIBISCSI_CHAP_PASSWORD",
            "CHAP user and secret for iSCSI URLs that have none.",
        );
        add(
            "LIBISCSI_CHAP_TARGET_USERNAME, LIBISCSI_CHAP_TARGET_PASSWORD",
            "User and secret with which the iSCSI target has to prove its identity.",
        );
    }
    let variables = variables.iter();
    let variables = variables.map(|(variable, meaning)| (variable, meaning.as_str()));
    add_list(roff, "ENVIRONMENT", variables.collect());
}

fn files(name: &str) -> Vec<(&'static str, &'static str)> {
    match name {
        "ramport-bench" | "ramport-discover" => vec![
            (
                "/etc/iscsi/initiatorname.iscsi",
                "The iSCSI initiator name, unless the URL has initiator=.",
            ),
            (
                "/etc/machine-id",
                "What names of hosts are derived from if nothing else gives one.",
            ),
        ],
        "ramport-completions" | "ramport-man" => Vec::new(),
        "ramport" | "ramport-serve" => vec![
            (
                "/run/ramport/ramport.sock",
                "The daemon's socket if root runs it; for others $XDG_RUNTIME_DIR/ramport/ramport.sock.",
            ),
            (
                "/var/lib/ramport/state",
                "All definitions, if root runs the daemon; for others $XDG_STATE_HOME/ramport/state, or ~/.local/state/ramport/state. It contains CHAP secrets, so only its owner can read it.",
            ),
        ],
        _ => vec![(
            "/run/ramport/ramport.sock",
            "The daemon's socket if root runs it; for others $XDG_RUNTIME_DIR/ramport/ramport.sock.",
        )],
    }
}

fn add_see_also(roff: &mut Roff, command: &Command, parent: Option<&str>) {
    let parent = parent.map(|parent| format!("{parent}(1)"));
    let verbs = verbs(command).map(|verb| format!("{}(1)", name_of(verb)));
    let pages = parent.into_iter().chain(verbs);
    let pages: Vec<String> = pages.chain(["ramport.toml(5)".to_owned()]).collect();
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(pages.join(", "))]);
}

#[cfg(test)]
mod tests;
