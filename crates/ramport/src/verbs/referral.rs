//! `ramport referral`.

use control::{Portal, ReferralView, path_part};

use super::Daemon;
use crate::cli::ReferralVerb;
use crate::failure::Failure;
use crate::output::{self, TextRole, paint};

pub(super) fn run(daemon: &Daemon, verb: &ReferralVerb) -> Result<(), Failure> {
    match verb {
        ReferralVerb::Create(args) => show(daemon, &daemon.client.post(&path(args.url), &())?),
        ReferralVerb::List => list(daemon),
        ReferralVerb::Show(args) => show(daemon, &daemon.client.get(&path(args.url))?),
        ReferralVerb::Remove(args) => {
            daemon.client.delete(&path(args.url))?;
            daemon.say(format_args!("referral {} is removed", args.url))
        }
    }
}

fn path(referral: Portal) -> String {
    format!("/v1/referrals/{}", path_part(&referral.to_string()))
}

fn list(daemon: &Daemon) -> Result<(), Failure> {
    let referrals: Vec<ReferralView> = daemon.client.get("/v1/referrals")?;
    if daemon.is_json() {
        return output::json(&referrals);
    }
    if referrals.is_empty() {
        return output::line(
            "no referrals; refer hosts to another discovery service with `ramport referral create nvme+tcp://ADDRESS`",
        );
    }
    let rows = referrals.iter().map(|referral| vec![referral.url.clone()]);
    output::table(&["URL"], &[], rows)
}

fn show(daemon: &Daemon, referral: &ReferralView) -> Result<(), Failure> {
    if daemon.is_json() {
        return output::json(referral);
    }
    output::fields(&[("referral", paint(TextRole::Name, &referral.url))])
}
