//! The `ramport` program: the daemon and every verb that speaks to it.

#![forbid(unsafe_code)]

mod attached;
mod cli;
mod completion;
mod connect_line;
mod core_dumps;
mod demo;
mod fabric;
mod failure;
mod form;
mod live;
mod local_address;
mod manual;
mod mistake;
mod notify;
mod output;
mod paths;
mod serve;
mod shell;
mod top;
mod units;
mod verbs;
mod watch;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Verb};
use failure::Failure;
use form::Form;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // What follows `--` is never an option.
            let mut options = std::env::args_os().take_while(|arg| arg != "--");
            let form = Form::when(options.any(|arg| arg == "--json"));
            return failure::tell_usage(&error, form);
        }
    };
    let form =
        Form::when(cli.connection.json || matches!(&cli.verb, Verb::Bench(args) if args.json));
    match run(cli) {
        Ok(code) => code,
        Err(failure) => failure.tell(form),
    }
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    core_dumps::limit_to_none()?;
    let Cli { connection, verb } = cli;
    match verb {
        Verb::Serve(args) => serve::run(&connection, args).map(|()| ExitCode::SUCCESS),
        Verb::Demo(args) => demo::run(&connection, &args).map(|()| ExitCode::SUCCESS),
        Verb::Bench(args) => verbs::bench(&connection, *args),
        Verb::Discover(args) => verbs::discover(&connection, &args).map(|()| ExitCode::SUCCESS),
        Verb::Attach(args) => attached::attach(&connection, &args),
        Verb::Detach(args) => attached::detach(&connection, &args).map(|()| ExitCode::SUCCESS),
        Verb::Fabric(verb) => fabric::run(&connection, &verb).map(|()| ExitCode::SUCCESS),
        Verb::Shell(args) => shell::run(&connection, &args, run),
        Verb::Completions(args) => completion::print_script(args.shell).map(|()| ExitCode::SUCCESS),
        Verb::Complete(args) => {
            completion::print_candidates(args.words).map(|()| ExitCode::SUCCESS)
        }
        Verb::Man(args) => manual::write(&args.folder).map(|()| ExitCode::SUCCESS),
        Verb::Daemon(verb) => verbs::run(&connection, verb),
    }
}
