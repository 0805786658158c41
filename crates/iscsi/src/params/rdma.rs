//! Keys of sessions over RDMA.
//!
//! Read first: RFC 7145 §6.

use crate::text::{TextBuilder, Unacceptable, parse_number};

/// The longest data segment of a message, either way, in bytes: what RFC 7143 §13.12 allows a login
/// at the most, and what initiators post their receives for.
pub const SEGMENT_LEN_MAX_BYTES: u32 = 8192;
/// How many unexpected PDUs (of immediate delivery) the target has receives for, beyond its command
/// window.
pub(crate) const UNEXPECTED_PDUS_MAX: u16 = 16;

/// The parameters that RFC 7145 §6 adds to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaKeys {
    /// RDMAExtensions; `None` if the initiator did not offer it.
    pub extensions: Option<bool>,
    /// TargetRecvDataSegmentLength: the longest data segment of a message from the initiator,
    /// bytes.
    pub target_recv_segment_len_max: u32,
    /// InitiatorRecvDataSegmentLength: the same of a message to it; `None` if not negotiated.
    pub initiator_recv_segment_len_max: Option<u32>,
    /// TaggedBufferForSolicitedDataOnly: Write Base Offset is the address of the first solicited
    /// byte, not of all data-out.
    pub solicited_only: bool,
    /// iSERHelloRequired: full feature phase begins with Hello and HelloReply.
    pub hello_required: bool,
    /// MaxOutstandingUnexpectedPDUs of the initiator; 0 for any number.
    pub unexpected_pdus_max: u32,
}

impl RdmaKeys {
    /// The defaults. RFC 7145 §6.9 has Write Base Offset count from the first byte of all data-out
    /// unless an initiator declares otherwise. Initiators on InfiniBand and RoCE (Linux's,
    /// libiscsi) declare nothing and count from the first solicited byte; their connection request
    /// tells them apart: it has no zero-based addresses.
    pub(crate) fn new(counts_all_data: bool) -> Self {
        Self {
            extensions: None,
            target_recv_segment_len_max: SEGMENT_LEN_MAX_BYTES,
            initiator_recv_segment_len_max: None,
            solicited_only: !counts_all_data,
            hello_required: false,
            unexpected_pdus_max: 0,
        }
    }

    /// The keys with their values in force, for people.
    pub(crate) fn in_force(&self) -> [(&'static str, String); 3] {
        let solicited_only = if self.solicited_only { "Yes" } else { "No" };
        [
            ("RDMAExtensions", "Yes".to_owned()),
            (
                "TargetRecvDataSegmentLength",
                self.target_recv_segment_len_max.to_string(),
            ),
            (
                "TaggedBufferForSolicitedDataOnly",
                solicited_only.to_owned(),
            ),
        ]
    }

    /// Takes a pair that has another meaning over RDMA than over TCP, or none there. Returns
    /// whether it was one. `send_segment_len_max` is the longest data segment to send.
    pub(super) fn negotiate(
        &mut self,
        key: &str,
        value: &str,
        send_segment_len_max: &mut u32,
        answer: &mut TextBuilder,
    ) -> Result<bool, Unacceptable> {
        match key {
            "RDMAExtensions" => match declared_bool(value) {
                Ok(yes) => {
                    self.extensions = Some(yes);
                    answer.push(key, value);
                }
                Err(_) => answer.push(key, "Reject"),
            },
            "TargetRecvDataSegmentLength" => {
                let slot = &mut self.target_recv_segment_len_max;
                least_segment(key, value, answer, |len| *slot = len);
            }
            "InitiatorRecvDataSegmentLength" => {
                let slot = &mut self.initiator_recv_segment_len_max;
                least_segment(key, value, answer, |len| *slot = Some(len));
            }
            // Ignored if the keys above are negotiated (RFC 7145 §6.6). Discovery sessions
            // negotiate none of those.
            "MaxRecvDataSegmentLength" => {
                let len = segment_len(value).ok_or(Unacceptable::Declared)?;
                *send_segment_len_max = len.min(SEGMENT_LEN_MAX_BYTES);
            }
            "MaxOutstandingUnexpectedPDUs" => {
                let count = parse_number(value).filter(|count| *count != 1);
                self.unexpected_pdus_max = count.ok_or(Unacceptable::Declared)?;
                // Ours is declared only to initiators that know the key: others treat it as an
                // error.
                answer.push(key, &UNEXPECTED_PDUS_MAX.to_string());
            }
            "MaxAHSLength" => {
                parse_number(value).ok_or(Unacceptable::Declared)?;
            }
            "TaggedBufferForSolicitedDataOnly" => self.solicited_only = declared_bool(value)?,
            "iSERHelloRequired" => self.hello_required = declared_bool(value)?,
            // The transport checks every packet (RFC 7145 §6.1).
            "HeaderDigest" | "DataDigest" => {
                let offers_none = value.split(',').any(|offered| offered == "None");
                answer.push(key, if offers_none { "None" } else { "Reject" });
            }
            // Sessions over RDMA have one connection.
            "MaxConnections" => match parse_number(value) {
                Some(1..=65535) => answer.push(key, "1"),
                _ => answer.push(key, "Reject"),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn segment_len(value: &str) -> Option<u32> {
    parse_number(value).filter(|len| (512..1 << 24).contains(len))
}

fn least_segment(key: &str, value: &str, answer: &mut TextBuilder, set: impl FnOnce(u32)) {
    let Some(theirs) = segment_len(value) else {
        answer.push(key, "Reject");
        return;
    };
    let len = theirs.min(SEGMENT_LEN_MAX_BYTES);
    set(len);
    answer.push(key, &len.to_string());
}

fn declared_bool(value: &str) -> Result<bool, Unacceptable> {
    match value {
        "Yes" => Ok(true),
        "No" => Ok(false),
        _ => Err(Unacceptable::Declared),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{Parameters, Phase};

    fn over_rdma(zero_based: bool) -> Parameters {
        Parameters {
            rdma: Some(RdmaKeys::new(zero_based)),
            ..Parameters::default()
        }
    }

    fn answer(parameters: &mut Parameters, key: &str, value: &str) -> Result<String, Unacceptable> {
        let mut text = TextBuilder::default();
        parameters.negotiate(Phase::LeadingLogin, key, value, &mut text)?;
        let text = String::from_utf8(text.into_bytes()).expect("we answer in ASCII");
        Ok(text.trim_end_matches('\0').to_owned())
    }

    #[test]
    fn each_key_is_answered_by_its_rule() {
        let table = [
            ("RDMAExtensions", "Yes", "RDMAExtensions=Yes"),
            ("RDMAExtensions", "Maybe", "RDMAExtensions=Reject"),
            (
                "TargetRecvDataSegmentLength",
                "262144",
                "TargetRecvDataSegmentLength=8192",
            ),
            (
                "TargetRecvDataSegmentLength",
                "511",
                "TargetRecvDataSegmentLength=Reject",
            ),
            (
                "InitiatorRecvDataSegmentLength",
                "512",
                "InitiatorRecvDataSegmentLength=512",
            ),
            ("MaxRecvDataSegmentLength", "262144", ""),
            (
                "MaxOutstandingUnexpectedPDUs",
                "0",
                "MaxOutstandingUnexpectedPDUs=16",
            ),
            ("MaxAHSLength", "256", ""),
            ("TaggedBufferForSolicitedDataOnly", "Yes", ""),
            ("iSERHelloRequired", "Yes", ""),
            ("HeaderDigest", "CRC32C,None", "HeaderDigest=None"),
            ("DataDigest", "CRC32C", "DataDigest=Reject"),
            ("MaxConnections", "4", "MaxConnections=1"),
            ("FirstBurstLength", "262144", "FirstBurstLength=8192"),
            ("ImmediateData", "Yes", "ImmediateData=Yes"),
        ];
        for (key, value, want) in table {
            let told = answer(&mut over_rdma(false), key, value);
            assert_eq!(told.as_deref(), Ok(want), "{key}={value}");
        }
    }

    #[test]
    fn declarations_out_of_range_end_the_login() {
        for (key, value) in [
            ("MaxOutstandingUnexpectedPDUs", "1"),
            ("MaxAHSLength", "long"),
            ("TaggedBufferForSolicitedDataOnly", "Maybe"),
            ("iSERHelloRequired", ""),
            ("MaxRecvDataSegmentLength", "511"),
        ] {
            let told = answer(&mut over_rdma(false), key, value);
            assert_eq!(told, Err(Unacceptable::Declared), "{key}={value}");
        }
    }

    #[test]
    fn the_base_of_writes_is_as_declared_else_as_the_addresses_say() {
        for zero_based in [false, true] {
            let mut parameters = over_rdma(zero_based);
            let solicited_only =
                |parameters: &Parameters| parameters.rdma.as_ref().map(|keys| keys.solicited_only);
            assert_eq!(solicited_only(&parameters), Some(!zero_based));
            for (value, want) in [("Yes", true), ("No", false)] {
                answer(&mut parameters, "TaggedBufferForSolicitedDataOnly", value).expect("right");
                assert_eq!(solicited_only(&parameters), Some(want));
            }
        }
    }

    #[test]
    fn the_negotiated_segment_overrides_the_declared_one() {
        let mut parameters = over_rdma(false);
        answer(&mut parameters, "MaxRecvDataSegmentLength", "4096").expect("right");
        parameters.settle();
        assert_eq!(parameters.send_segment_len_max, 4096);
        answer(&mut parameters, "InitiatorRecvDataSegmentLength", "1024").expect("right");
        parameters.settle();
        assert_eq!(parameters.send_segment_len_max, 1024);
        answer(&mut parameters, "RDMAExtensions", "No").expect("right");
        assert!(parameters.refuses_rdma());
    }

    #[test]
    fn over_tcp_the_keys_are_not_known() {
        let mut parameters = Parameters::default();
        let told = answer(&mut parameters, "RDMAExtensions", "Yes");
        assert_eq!(told.as_deref(), Ok("RDMAExtensions=No"));
        let told = answer(&mut parameters, "TargetRecvDataSegmentLength", "8192");
        assert_eq!(
            told.as_deref(),
            Ok("TargetRecvDataSegmentLength=Irrelevant")
        );
    }
}
