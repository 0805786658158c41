//! Arguments of `ramport connect-line`.

use std::net::IpAddr;

use clap::Args;
use control::Portal;

use super::parse_portal;

#[derive(Debug, Args)]
pub(crate) struct ConnectLineArgs {
    /// The target
    pub(crate) target: String,
    /// Only through this portal
    #[arg(long, value_name = "URL", value_parser = parse_portal)]
    pub(crate) portal: Option<Portal>,
    /// The host that is to connect [default: the only host that the target lists]
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// The address of this machine to write for portals on all addresses [default: that of the
    /// default route]
    #[arg(long, value_name = "IP")]
    pub(crate) address: Option<IpAddr>,
}
