//! Counts of the provider in software.

use std::ops::Add;

use roce::{CmCounters, Counters};

/// The counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoftStatistics {
    /// Calls that sent, and datagrams that they sent.
    pub send_calls: u64,
    /// See [`send_calls`](Self::send_calls).
    pub datagrams_sent: u64,
    /// Calls that received something.
    pub receive_calls: u64,
    /// Runs that this thread received and forwarded to another.
    pub runs_handed_over: u64,
    /// Runs that the system refused to send. Their packets are lost, and retransmitted if
    /// necessary.
    pub sends_refused: u64,
    /// The counts of the end.
    pub endpoint: Counters,
}

impl SoftStatistics {
    /// How many counts there are.
    pub(crate) const COUNTS: usize = 20;

    /// All counts, in an order of their own.
    pub(crate) const fn to_counts(self) -> [u64; Self::COUNTS] {
        let Counters {
            packets,
            malformed,
            bad_icrc,
            bad_pkey,
            no_such_qp,
            stranger,
            unexpected,
            out_of_sequence,
            bad_mad,
            refused_access,
            refused_invalid,
            refused_operational,
            cm,
        } = self.endpoint;
        let CmCounters {
            refused_by_limit,
            unmatched,
            outbox_full,
        } = cm;
        [
            self.send_calls,
            self.datagrams_sent,
            self.receive_calls,
            self.runs_handed_over,
            self.sends_refused,
            packets,
            malformed,
            bad_icrc,
            bad_pkey,
            no_such_qp,
            stranger,
            unexpected,
            out_of_sequence,
            bad_mad,
            refused_access,
            refused_invalid,
            refused_operational,
            refused_by_limit,
            unmatched,
            outbox_full,
        ]
    }

    /// The other way.
    pub(crate) const fn from_counts(counts: [u64; Self::COUNTS]) -> Self {
        let [
            send_calls,
            datagrams_sent,
            receive_calls,
            runs_handed_over,
            sends_refused,
            packets,
            malformed,
            bad_icrc,
            bad_pkey,
            no_such_qp,
            stranger,
            unexpected,
            out_of_sequence,
            bad_mad,
            refused_access,
            refused_invalid,
            refused_operational,
            refused_by_limit,
            unmatched,
            outbox_full,
        ] = counts;
        Self {
            send_calls,
            datagrams_sent,
            receive_calls,
            runs_handed_over,
            sends_refused,
            endpoint: Counters {
                packets,
                malformed,
                bad_icrc,
                bad_pkey,
                no_such_qp,
                stranger,
                unexpected,
                out_of_sequence,
                bad_mad,
                refused_access,
                refused_invalid,
                refused_operational,
                cm: CmCounters {
                    refused_by_limit,
                    unmatched,
                    outbox_full,
                },
            },
        }
    }
}

impl Add for SoftStatistics {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let (ours, theirs) = (self.to_counts(), other.to_counts());
        Self::from_counts(std::array::from_fn(|index| ours[index] + theirs[index]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_one_order_and_add_up_one_by_one() {
        let counts = std::array::from_fn(|index| index as u64 + 1);
        let statistics = SoftStatistics::from_counts(counts);
        assert_eq!(statistics.to_counts(), counts);
        assert_eq!((statistics.send_calls, statistics.endpoint.packets), (1, 6));
        let twice = statistics + statistics;
        assert_eq!(twice.to_counts(), counts.map(|count| 2 * count));
    }
}
