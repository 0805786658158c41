//! Negotiated parameters: the values in force, and how the target answers each key.
//!
//! Read first: RFC 7143 §6.2, "Text Mode Negotiation", and §13, "Login/Text Operational Text Keys".

pub(crate) mod rdma;

use self::rdma::RdmaKeys;
use crate::text::{TextBuilder, Unacceptable, parse_number};

/// Whether a digest is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Digest {
    /// None.
    #[default]
    None,
    /// CRC32C.
    Crc32c,
}

/// The longest data segment that the target receives in one PDU. Whole commands of usual size fit.
pub const RECV_SEGMENT_LEN_MAX: u32 = 256 << 10;
/// The most data-out that one sequence (R2T, or unsolicited) carries.
pub const BURST_LEN_MAX: u32 = 1 << 20;
/// The most unsolicited data of one command; kept small, since they arrive unasked.
pub const FIRST_BURST_LEN_MAX: u32 = 256 << 10;
/// The most R2Ts that one command has outstanding.
pub const OUTSTANDING_R2T_MAX: u32 = 8;
/// The most connections of one session.
pub const CONNECTIONS_MAX: u32 = 8;
/// The longest data segment that the target sends, even if the initiator accepts longer ones.
pub const SEND_SEGMENT_LEN_MAX: u32 = 256 << 10;

/// The values in force. The initial ones are the defaults of RFC 7143.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// HeaderDigest.
    pub header_digest: Digest,
    /// DataDigest.
    pub data_digest: Digest,
    /// MaxConnections.
    pub connections_max: u32,
    /// InitialR2T: data-out wait for an R2T.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// MaxRecvDataSegmentLength that the initiator declared: the longest segment to send to it.
    pub send_segment_len_max: u32,
    /// MaxBurstLength, bytes.
    pub burst_len_max: u32,
    /// FirstBurstLength, bytes.
    pub first_burst_len_max: u32,
    /// DefaultTime2Wait, seconds.
    pub time2wait_s: u32,
    /// DefaultTime2Retain, seconds.
    pub time2retain_s: u32,
    /// MaxOutstandingR2T.
    pub outstanding_r2t_max: u32,
    /// DataPDUInOrder.
    pub data_pdu_in_order: bool,
    /// DataSequenceInOrder.
    pub data_sequence_in_order: bool,
    /// ErrorRecoveryLevel.
    pub error_recovery_level: u32,
    /// Further parameters of sessions over RDMA; `None` over TCP.
    pub rdma: Option<RdmaKeys>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            header_digest: Digest::None,
            data_digest: Digest::None,
            connections_max: 1,
            initial_r2t: true,
            immediate_data: true,
            send_segment_len_max: 8192,
            burst_len_max: 262_144,
            first_burst_len_max: 65_536,
            time2wait_s: 2,
            time2retain_s: 20,
            outstanding_r2t_max: 1,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            rdma: None,
        }
    }
}

/// Whether a negotiation is the session's first (leading) login, or one that may change less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Login of a session's first connection.
    LeadingLogin,
    /// Login of a further connection: only connection-wide keys.
    FurtherLogin,
    /// Full feature phase: keys that may be renegotiated.
    FullFeature,
}

impl Parameters {
    /// Takes one offered pair and appends the answer, if the key has one. Keys that are not
    /// operational parameters get `NotUnderstood`.
    pub fn negotiate(
        &mut self,
        phase: Phase,
        key: &str,
        value: &str,
        answer: &mut TextBuilder,
    ) -> Result<(), Unacceptable> {
        if phase == Phase::FullFeature && key != "MaxRecvDataSegmentLength" {
            answer.push(key, "Reject");
            return Ok(());
        }
        if let Some(keys) = &mut self.rdma
            && keys.negotiate(key, value, &mut self.send_segment_len_max, answer)?
        {
            return Ok(());
        }
        match key {
            "HeaderDigest" => choose_digest(&mut self.header_digest, key, value, answer),
            "DataDigest" => choose_digest(&mut self.data_digest, key, value, answer),
            "MaxRecvDataSegmentLength" => {
                let len = in_range(value, 512, (1 << 24) - 1).ok_or(Unacceptable::Declared)?;
                self.send_segment_len_max = len.min(SEND_SEGMENT_LEN_MAX);
            }
            _ if phase == Phase::FurtherLogin && is_session_wide(key) => {
                answer.push(key, "Irrelevant");
            }
            _ => self.negotiate_session_wide(key, value, answer),
        }
        Ok(())
    }

    fn negotiate_session_wide(&mut self, key: &str, value: &str, answer: &mut TextBuilder) {
        let pair = (key, value);
        if let Some((number, limits)) = self.least_number(key) {
            least(number, limits, pair, answer);
            return;
        }
        match key {
            // The larger of both sides; ours is the default.
            "DefaultTime2Wait" => match in_range(value, 0, 3600) {
                Some(theirs) => {
                    self.time2wait_s = theirs.max(2);
                    answer.push(key, &self.time2wait_s.to_string());
                }
                None => answer.push(key, "Reject"),
            },
            // "Or": the result is Yes if either side says so. Ours: R2T is not needed; any order is
            // fine.
            "InitialR2T" => either(&mut self.initial_r2t, Ours::No, pair, answer),
            "DataPDUInOrder" => either(&mut self.data_pdu_in_order, Ours::Yes, pair, answer),
            "DataSequenceInOrder" => {
                either(&mut self.data_sequence_in_order, Ours::Yes, pair, answer);
            }
            // "And": immediate data are welcome.
            "ImmediateData" => match yes_no(value) {
                Some(theirs) => {
                    self.immediate_data = theirs;
                    answer.push(key, value);
                }
                None => answer.push(key, "Reject"),
            },
            // Markers and their like are no longer used (RFC 7143 §13.25); task reporting: only RFC
            // 3720's. RDMA's keys mean nothing over TCP (RFC 7145 §6.3 to §6.5).
            "OFMarker" | "IFMarker" | "RDMAExtensions" => answer.push(key, "No"),
            "OFMarkInt"
            | "IFMarkInt"
            | "TargetRecvDataSegmentLength"
            | "InitiatorRecvDataSegmentLength" => answer.push(key, "Irrelevant"),
            "TaskReporting" => answer.push(key, "RFC3720"),
            "iSCSIProtocolLevel" => answer.push(key, "1"),
            _ => answer.push(key, "NotUnderstood"),
        }
    }

    /// The parameter of a key whose result is the lesser of both sides' numbers; with the least and
    /// the largest valid number, and ours.
    fn least_number(&mut self, key: &str) -> Option<(&mut u32, (u32, u32, u32))> {
        const LENGTH_MAX: u32 = (1 << 24) - 1;
        Some(match key {
            "MaxConnections" => (&mut self.connections_max, (1, 65535, CONNECTIONS_MAX)),
            "MaxBurstLength" => (&mut self.burst_len_max, (512, LENGTH_MAX, BURST_LEN_MAX)),
            "FirstBurstLength" => {
                let ours = self.recv_segment_len_max().min(FIRST_BURST_LEN_MAX);
                (&mut self.first_burst_len_max, (512, LENGTH_MAX, ours))
            }
            "MaxOutstandingR2T" => (
                &mut self.outstanding_r2t_max,
                (1, 65535, OUTSTANDING_R2T_MAX),
            ),
            "DefaultTime2Retain" => (&mut self.time2retain_s, (0, 3600, 0)),
            "ErrorRecoveryLevel" => (&mut self.error_recovery_level, (0, 2, 0)),
            _ => return None,
        })
    }

    /// The keys with their values in force, for people. Of the two declared lengths,
    /// `MaxXmitDataSegmentLength` is the initiator's.
    pub fn in_force(&self) -> Vec<(&'static str, String)> {
        let digest = |digest| match digest {
            Digest::None => "None".to_owned(),
            Digest::Crc32c => "CRC32C".to_owned(),
        };
        let yes_no = |yes| if yes { "Yes" } else { "No" }.to_owned();
        let mut keys = vec![
            ("HeaderDigest", digest(self.header_digest)),
            ("DataDigest", digest(self.data_digest)),
            ("MaxConnections", self.connections_max.to_string()),
            ("InitialR2T", yes_no(self.initial_r2t)),
            ("ImmediateData", yes_no(self.immediate_data)),
            (
                "MaxRecvDataSegmentLength",
                self.recv_segment_len_max().to_string(),
            ),
            (
                "MaxXmitDataSegmentLength",
                self.send_segment_len_max.to_string(),
            ),
            ("MaxBurstLength", self.burst_len_max.to_string()),
            ("FirstBurstLength", self.first_burst_len_max.to_string()),
            ("MaxOutstandingR2T", self.outstanding_r2t_max.to_string()),
            ("DataPDUInOrder", yes_no(self.data_pdu_in_order)),
            ("DataSequenceInOrder", yes_no(self.data_sequence_in_order)),
            ("DefaultTime2Wait", self.time2wait_s.to_string()),
            ("DefaultTime2Retain", self.time2retain_s.to_string()),
            ("ErrorRecoveryLevel", self.error_recovery_level.to_string()),
        ];
        if let Some(rdma) = &self.rdma {
            keys.extend(rdma.in_force());
        }
        keys
    }

    /// Takes the values that the session's leading login negotiated. Values of the connection alone
    /// are kept.
    pub(crate) fn join(&mut self, session: &Self) {
        *self = Self {
            header_digest: self.header_digest,
            data_digest: self.data_digest,
            send_segment_len_max: self.send_segment_len_max,
            ..session.clone()
        };
    }

    /// Settles what depends on several keys, once all are negotiated. FirstBurstLength never
    /// exceeds MaxBurstLength (RFC 7143 §13.14).
    pub fn settle(&mut self) {
        self.first_burst_len_max = self.first_burst_len_max.min(self.burst_len_max);
        let keys = self.rdma.as_ref();
        if let Some(len) = keys.and_then(|keys| keys.initiator_recv_segment_len_max) {
            self.send_segment_len_max = len;
        }
    }

    /// Whether the initiator requests plain iSCSI over a transport that supports only iSER.
    pub(crate) fn refuses_rdma(&self) -> bool {
        let keys = self.rdma.as_ref();
        keys.is_some_and(|keys| keys.extensions == Some(false))
    }

    /// The longest data segment that the target receives.
    pub fn recv_segment_len_max(&self) -> u32 {
        match &self.rdma {
            Some(_) => rdma::SEGMENT_LEN_MAX_BYTES,
            None => RECV_SEGMENT_LEN_MAX,
        }
    }
}

/// A number whose result is the smaller of both sides.
fn least(slot: &mut u32, limits: (u32, u32, u32), pair: (&str, &str), answer: &mut TextBuilder) {
    let (low, high, ours) = limits;
    match in_range(pair.1, low, high) {
        Some(theirs) => {
            *slot = theirs.min(ours);
            answer.push(pair.0, &slot.to_string());
        }
        None => answer.push(pair.0, "Reject"),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ours {
    Yes,
    No,
}

fn either(slot: &mut bool, ours: Ours, pair: (&str, &str), answer: &mut TextBuilder) {
    match yes_no(pair.1) {
        Some(theirs) => {
            *slot = theirs || ours == Ours::Yes;
            answer.push(pair.0, if *slot { "Yes" } else { "No" });
        }
        None => answer.push(pair.0, "Reject"),
    }
}

/// A list of digests, in the initiator's order of preference: the first that is known wins.
fn choose_digest(slot: &mut Digest, key: &str, value: &str, answer: &mut TextBuilder) {
    for offered in value.split(',') {
        match offered {
            "CRC32C" => *slot = Digest::Crc32c,
            "None" => *slot = Digest::None,
            _ => continue,
        }
        answer.push(key, offered);
        return;
    }
    answer.push(key, "Reject");
}

fn is_session_wide(key: &str) -> bool {
    matches!(
        key,
        "MaxConnections"
            | "InitialR2T"
            | "ImmediateData"
            | "MaxBurstLength"
            | "FirstBurstLength"
            | "DefaultTime2Wait"
            | "DefaultTime2Retain"
            | "MaxOutstandingR2T"
            | "DataPDUInOrder"
            | "DataSequenceInOrder"
            | "ErrorRecoveryLevel"
            | "TaskReporting"
    )
}

fn in_range(value: &str, low: u32, high: u32) -> Option<u32> {
    parse_number(value).filter(|number| (low..=high).contains(number))
}

fn yes_no(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(key: &str, value: &str) -> (Parameters, String) {
        let mut parameters = Parameters::default();
        let mut text = TextBuilder::default();
        parameters
            .negotiate(Phase::LeadingLogin, key, value, &mut text)
            .expect("the value is acceptable");
        let text = String::from_utf8(text.into_bytes()).expect("we answer in ASCII");
        (parameters, text.trim_end_matches('\0').to_owned())
    }

    #[test]
    fn each_key_is_answered_by_its_rule() {
        let table = [
            ("HeaderDigest", "CRC32C,None", "HeaderDigest=CRC32C"),
            ("HeaderDigest", "None,CRC32C", "HeaderDigest=None"),
            ("DataDigest", "X-other,CRC32C", "DataDigest=CRC32C"),
            ("DataDigest", "X-other", "DataDigest=Reject"),
            ("MaxConnections", "64", "MaxConnections=8"),
            ("InitialR2T", "No", "InitialR2T=No"),
            ("InitialR2T", "Yes", "InitialR2T=Yes"),
            ("ImmediateData", "Yes", "ImmediateData=Yes"),
            ("ImmediateData", "Maybe", "ImmediateData=Reject"),
            ("MaxBurstLength", "16776192", "MaxBurstLength=1048576"),
            ("MaxBurstLength", "100", "MaxBurstLength=Reject"),
            ("DefaultTime2Wait", "0", "DefaultTime2Wait=2"),
            ("DefaultTime2Retain", "20", "DefaultTime2Retain=0"),
            ("ErrorRecoveryLevel", "2", "ErrorRecoveryLevel=0"),
            ("DataPDUInOrder", "No", "DataPDUInOrder=Yes"),
            ("IFMarker", "Yes", "IFMarker=No"),
            ("TaskReporting", "FastAbort", "TaskReporting=RFC3720"),
            ("X-com.example.key", "1", "X-com.example.key=NotUnderstood"),
        ];
        for (key, value, want) in table {
            assert_eq!(answer(key, value).1, want, "{key}={value}");
        }
    }

    #[test]
    fn a_declaration_has_no_answer_and_bounds_what_is_sent() {
        let (parameters, text) = answer("MaxRecvDataSegmentLength", "65536");
        assert_eq!(
            (parameters.send_segment_len_max, text.as_str()),
            (65536, "")
        );
        let mut text = TextBuilder::default();
        let refused = Parameters::default().negotiate(
            Phase::LeadingLogin,
            "MaxRecvDataSegmentLength",
            "511",
            &mut text,
        );
        assert_eq!(refused, Err(Unacceptable::Declared));
    }

    #[test]
    fn a_further_connection_leaves_the_session_as_it_is() {
        let mut parameters = Parameters::default();
        let mut text = TextBuilder::default();
        parameters
            .negotiate(Phase::FurtherLogin, "MaxBurstLength", "512", &mut text)
            .expect("answered");
        assert_eq!(parameters, Parameters::default());
        assert_eq!(text.into_bytes(), b"MaxBurstLength=Irrelevant\0");
    }

    #[test]
    fn the_first_burst_never_exceeds_a_burst() {
        let mut parameters = answer("MaxBurstLength", "4096").0;
        parameters.settle();
        assert_eq!(parameters.first_burst_len_max, 4096);
    }
}
