//! RDMA of a portal, as values for requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use server::RdmaStatistics;
use utoipa::ToSchema;

/// What carries RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RdmaProvider {
    /// An adapter.
    Hw,
    /// Software: RoCEv2 by a UDP socket.
    Soft,
}

/// Whether the system cuts runs of packets into datagrams (GSO).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RdmaSegmentation {
    /// It does.
    On,
    /// Each packet is sent by a call of its own: that was requested, or the system was seen to
    /// damage runs.
    Off,
}

/// What RDMA in software has counted at a portal's address since its first portal was opened.
/// Portals at one address have the same counts, since packets come to the address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RdmaStatisticsView {
    /// Packets that came, those among them that were dropped.
    pub packets_received: u64,
    /// Packets, and messages of communication management, that were dropped, by cause.
    pub packets_dropped: BTreeMap<String, u64>,
    /// Requests that were answered with a refusal, by cause.
    pub requests_refused: BTreeMap<String, u64>,
    /// Datagrams that were sent.
    pub datagrams_sent: u64,
    /// Runs of datagrams that the system refused to send.
    pub runs_unsent: u64,
    /// Messages of communication management that were not sent since too many waited.
    pub messages_unsent: u64,
    /// Runs that arrived at one thread and were forwarded to another.
    pub runs_handed_over: u64,
    /// System calls that received something.
    pub receive_calls: u64,
    /// System calls that sent something.
    pub send_calls: u64,
}

/// One of several counts: its cause, and where it stands.
type Cause = (&'static str, fn(&RdmaStatistics) -> u64);

/// Why packets are dropped.
const DROPPED: [Cause; 9] = [
    ("malformed", |of| of.endpoint.malformed),
    ("bad_icrc", |of| of.endpoint.bad_icrc),
    ("bad_pkey", |of| of.endpoint.bad_pkey),
    ("no_such_qp", |of| of.endpoint.no_such_qp),
    ("stranger", |of| of.endpoint.stranger),
    ("unexpected", |of| of.endpoint.unexpected),
    ("out_of_sequence", |of| of.endpoint.out_of_sequence),
    ("bad_mad", |of| of.endpoint.bad_mad),
    ("unmatched_mad", |of| of.endpoint.cm.unmatched),
];

/// Why requests are refused.
const REFUSED: [Cause; 4] = [
    ("access", |of| of.endpoint.refused_access),
    ("invalid", |of| of.endpoint.refused_invalid),
    ("operational", |of| of.endpoint.refused_operational),
    ("connection_limit", |of| of.endpoint.cm.refused_by_limit),
];

impl From<&RdmaStatistics> for RdmaStatisticsView {
    fn from(counted: &RdmaStatistics) -> Self {
        let by_cause = |causes: &[Cause]| {
            let causes = causes.iter();
            causes
                .map(|(cause, count)| ((*cause).to_owned(), count(counted)))
                .collect()
        };
        Self {
            packets_received: counted.endpoint.packets,
            packets_dropped: by_cause(&DROPPED),
            requests_refused: by_cause(&REFUSED),
            datagrams_sent: counted.datagrams_sent,
            runs_unsent: counted.sends_refused,
            messages_unsent: counted.endpoint.cm.outbox_full,
            runs_handed_over: counted.runs_handed_over,
            receive_calls: counted.receive_calls,
            send_calls: counted.send_calls,
        }
    }
}

impl From<server::RdmaProvider> for RdmaProvider {
    fn from(provider: server::RdmaProvider) -> Self {
        match provider {
            server::RdmaProvider::Hw => Self::Hw,
            server::RdmaProvider::Soft => Self::Soft,
        }
    }
}

impl From<server::RdmaSegmentation> for RdmaSegmentation {
    fn from(segmentation: server::RdmaSegmentation) -> Self {
        match segmentation {
            server::RdmaSegmentation::On => Self::On,
            server::RdmaSegmentation::Off => Self::Off,
        }
    }
}
