//! Words that several verbs have for the same things.

use control::{KindView, path_part};
use server::{Protocol, TargetName};

use crate::units::bytes;

/// Where REST has a target.
pub(super) fn target_path(name: &str) -> String {
    format!("/v1/targets/{}", path_part(name))
}

/// What a volume is called in a target of this name.
pub(super) fn noun(target: &str) -> &'static str {
    match protocol_of(target) {
        Protocol::Nvme => "namespace",
        Protocol::Iscsi => "LUN",
    }
}

/// The protocol of a target. The daemon rejects names that are invalid.
pub(super) fn protocol_of(target: &str) -> Protocol {
    let name = target.parse::<TargetName>();
    name.map_or(Protocol::Nvme, |name| name.protocol())
}

/// The counters of reads or writes, in words.
pub(super) fn statistics(kind: &KindView) -> String {
    if kind.operations == 0 {
        return "none".to_owned();
    }
    format!(
        "{} ({}), {} failed, {:.1} us mean, {:.1} us deviation",
        kind.operations,
        bytes(kind.bytes),
        kind.errors,
        kind.latency_mean_us,
        kind.latency_stddev_us
    )
}
