//! Filters as they are written in definitions.

use std::num::NonZeroU64;

use block::OpKind;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use volume::filters as spec;

use crate::text::{Period, Size, Text};

/// Filters of a volume. They slow its commands down or make them fail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Filters {
    /// Delays commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<DelayFilter>,
    /// Limits commands and bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimitFilter>,
    /// Makes commands fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultFilter>,
}

/// A delay, per kind of command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DelayFilter {
    /// Time added to each read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "250us")]
    pub read: Option<Text<Period>>,
    /// Time added to each write.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub write: Option<Text<Period>>,
    /// Time added to each discard.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub discard: Option<Text<Period>>,
    /// Time added to each flush.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub flush: Option<Text<Period>>,
    /// Bytes per second of a link that data pass through, one command after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "100M")]
    pub bandwidth: Option<Size>,
}

/// Limits per second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimitFilter {
    /// Commands per second, reads and writes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Reads per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_iops: Option<u64>,
    /// Writes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_iops: Option<u64>,
    /// Bytes per second, reads and writes together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub bandwidth: Option<Size>,
    /// Bytes read per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub read_bandwidth: Option<Size>,
    /// Bytes written per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub write_bandwidth: Option<Size>,
}

/// Faults: which commands fail, and how. The same seed and commands give the same failures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultFilter {
    /// The seed of the random numbers.
    #[serde(default)]
    #[schema(default = 0)]
    pub seed: u64,
    /// The rules. The first one that applies to a command decides.
    pub rules: Vec<FaultRule>,
}

/// A rule for commands that fail. Without `every` and `per_million`, all of them fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// The kind of commands that the rule applies to.
    #[serde(default)]
    #[schema(default = "any")]
    pub on: FaultedKind,
    /// The error that hosts receive.
    pub status: FaultStatus,
    /// Every `every`-th command fails; excludes `per_million`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub every: Option<NonZeroU64>,
    /// Commands of a million that fail at random; excludes `every`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_million: Option<u32>,
}

/// The kind of commands that fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FaultedKind {
    /// Every kind.
    #[default]
    Any,
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Discards.
    Discard,
    /// Flushes.
    Flush,
}

/// How a command fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FaultStatus {
    /// As an unrecovered read error.
    ReadError,
    /// As a write fault.
    WriteError,
    /// As if memory were used up.
    CapacityExceeded,
    /// As if the volume were locked.
    WriteProtected,
    /// As not possible at present.
    Busy,
}

impl Filters {
    /// Whether there is no filter.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn has_two_fault_rates(&self) -> bool {
        let rules = self.fault.iter().flat_map(|fault| &fault.rules);
        rules
            .into_iter()
            .any(|rule| rule.every.is_some() && rule.per_million.is_some())
    }

    /// The volume's own form.
    pub(crate) fn to_spec(&self) -> Result<spec::FilterSpec, spec::FaultError> {
        let fault = match &self.fault {
            Some(fault) => Some(fault.to_spec()?),
            None => None,
        };
        Ok(spec::FilterSpec {
            delay: self.delay.as_ref().map(DelayFilter::to_spec),
            fault,
            rate_limit: self.rate_limit.as_ref().map(RateLimitFilter::to_spec),
        })
    }
}

impl DelayFilter {
    fn to_spec(&self) -> spec::Delay {
        let period = |text: Option<Text<Period>>| text.map_or_else(Default::default, |t| t.0.0);
        spec::Delay {
            latency: spec::Latency {
                read: period(self.read),
                write: period(self.write),
                discard: period(self.discard),
                flush: period(self.flush),
            },
            bytes_per_second: bytes(self.bandwidth),
        }
    }
}

impl RateLimitFilter {
    fn to_spec(&self) -> spec::RateLimit {
        let rate = |iops: Option<u64>, bandwidth| spec::Rate {
            commands_per_second: iops.and_then(NonZeroU64::new),
            bytes_per_second: bytes(bandwidth),
        };
        spec::RateLimit {
            reads: rate(self.read_iops, self.read_bandwidth),
            writes: rate(self.write_iops, self.write_bandwidth),
            all: rate(self.iops, self.bandwidth),
        }
    }
}

impl FaultFilter {
    fn to_spec(&self) -> Result<spec::Fault, spec::FaultError> {
        let rules: Result<_, _> = self.rules.iter().map(FaultRule::to_spec).collect();
        spec::Fault::new(self.seed, rules?)
    }
}

impl FaultRule {
    /// A rule without `every` and `per_million` makes each command fail.
    fn to_spec(&self) -> Result<spec::FaultRule, spec::FaultError> {
        let when = match (self.every, self.per_million) {
            (_, Some(per_million)) => {
                spec::FaultWhen::ByChance(spec::Chance::per_million(per_million)?)
            }
            (every, None) => spec::FaultWhen::EveryNth(every.unwrap_or(NonZeroU64::MIN)),
        };
        Ok(spec::FaultRule {
            kind: match self.on {
                FaultedKind::Any => None,
                FaultedKind::Read => Some(OpKind::Read),
                FaultedKind::Write => Some(OpKind::Write),
                FaultedKind::Discard => Some(OpKind::Discard),
                FaultedKind::Flush => Some(OpKind::Flush),
            },
            status: match self.status {
                FaultStatus::ReadError => spec::FaultStatus::ReadError,
                FaultStatus::WriteError => spec::FaultStatus::WriteError,
                FaultStatus::CapacityExceeded => spec::FaultStatus::CapacityExceeded,
                FaultStatus::WriteProtected => spec::FaultStatus::WriteProtected,
                FaultStatus::Busy => spec::FaultStatus::Busy,
            },
            when,
        })
    }
}

/// A bandwidth of 0 means none.
fn bytes(bandwidth: Option<Size>) -> Option<NonZeroU64> {
    bandwidth.and_then(|size| NonZeroU64::new(size.0))
}
