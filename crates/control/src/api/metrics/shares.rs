//! What shares hold.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use crate::engine::{Contents, ShareView};

/// A gauge of a share: name, help, value.
type Gauge = (&'static str, &'static str, fn(&ShareView) -> u64);

const GAUGES: [Gauge; 6] = [
    (
        "ramport_share_used_bytes",
        "Memory that the files of the share take",
        |share| share.used_bytes,
    ),
    (
        "ramport_share_files",
        "Number of files, directories and links in the share",
        |share| share.files,
    ),
    (
        "ramport_share_files_max",
        "Number of files, directories and links that the share may hold",
        |share| share.files_max,
    ),
    (
        "ramport_share_sessions",
        "Number of sessions that use the share",
        |share| share.sessions as u64,
    ),
    (
        "ramport_share_contents_lost",
        "1 if a restart lost the files and none was created since, else 0",
        |share| u64::from(share.contents == Contents::Lost),
    ),
    (
        "ramport_share_available",
        "1 if the share is served, 0 if its directory cannot be",
        |share| u64::from(share.problem.is_none()),
    ),
];

pub(super) fn encode(shares: &[ShareView], encoder: &mut DescriptorEncoder) -> fmt::Result {
    if shares.is_empty() {
        return Ok(());
    }
    for (name, help, value) in GAUGES {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for share in shares {
            let labels = [("share", share.name.as_str())];
            metric.encode_family(&labels)?.encode_gauge(&value(share))?;
        }
    }
    let (name, help) = (
        "ramport_share_quota_bytes",
        "Memory that the files of the share may take; none without a quota",
    );
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for share in shares {
        if let Some(quota_bytes) = share.quota_bytes {
            let labels = [("share", share.name.as_str())];
            metric.encode_family(&labels)?.encode_gauge(&quota_bytes)?;
        }
    }
    Ok(())
}
