//! Options of `ramport referral` and `ramport session`.

use clap::{Args, Subcommand};
use control::Portal;

use super::{examples, parse_portal};

#[derive(Debug, Subcommand)]
pub(crate) enum ReferralVerb {
    /// Add another discovery service to the discovery log
    #[command(after_help = examples::REFERRAL_CREATE)]
    Create(ReferralArgs),
    /// List referrals
    #[command(visible_alias = "ls", after_help = examples::REFERRAL_LIST)]
    List,
    /// Show a referral
    #[command(after_help = examples::REFERRAL_SHOW)]
    Show(ReferralArgs),
    /// Remove a referral
    #[command(visible_alias = "rm", after_help = examples::REFERRAL_REMOVE)]
    Remove(ReferralArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ReferralArgs {
    /// The discovery service: nvme+tcp://192.0.2.7:8009
    #[arg(value_parser = parse_portal)]
    pub(crate) url: Portal,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionVerb {
    /// List sessions
    #[command(visible_alias = "ls", after_help = examples::SESSION_LIST)]
    List,
    /// Show a session
    #[command(after_help = examples::SESSION_SHOW)]
    Show(SessionArgs),
    /// End a session
    #[command(visible_aliases = ["rm", "end"], after_help = examples::SESSION_REMOVE)]
    Remove(SessionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// Its number
    pub(crate) id: u64,
}
