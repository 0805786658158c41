//! Arguments of `ramport shell`.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// Commands to carry out instead of asking for some, with ; between them. Without this and
    /// without a terminal, they are read from standard input
    #[arg(value_name = "COMMANDS", trailing_var_arg = true)]
    pub(crate) commands: Vec<String>,
}
