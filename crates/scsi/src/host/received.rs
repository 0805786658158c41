//! Sense data that a target sent.
//!
//! Read first: SPC-5, "Sense data".

use std::fmt;

use crate::Asc;

/// Sense data as received, in fixed or descriptor format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSense {
    /// SENSE KEY, 4 bits.
    pub key: u8,
    /// ADDITIONAL SENSE CODE and its qualifier.
    pub asc: Asc,
    /// INFORMATION, if it is valid.
    pub information: Option<u64>,
}

/// What a unit attention asks its host to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// The capacity may have changed: read it again.
    Capacity,
    /// Nothing but to send the command again.
    Other,
}

const UNIT_ATTENTION: u8 = 0x6;
const NOT_READY: u8 = 0x2;
/// LOGICAL UNIT IS IN PROCESS OF BECOMING READY.
const BECOMING_READY: Asc = Asc(0x0401);
/// INQUIRY DATA HAS CHANGED.
const INQUIRY_DATA_CHANGED: Asc = Asc(0x3F03);

impl ReceivedSense {
    /// Reads sense data; `None` if they are too short or of a format that SPC does not know.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? & 0x7F {
            0x70 | 0x71 => Self::parse_fixed(bytes),
            0x72 | 0x73 => Self::parse_descriptor(bytes),
            _ => None,
        }
    }

    fn parse_fixed(bytes: &[u8]) -> Option<Self> {
        let key = bytes.get(2)? & 0x0F;
        // Sense data may end early: what is not there counts as 0.
        let asc = match bytes.get(12..14) {
            Some(&[asc, ascq]) => u16::from_be_bytes([asc, ascq]),
            _ => 0,
        };
        let information = bytes
            .get(3..7)
            .filter(|_| bytes[0] & 0x80 != 0)
            .map(|field| field.iter().fold(0, |n, &byte| n << 8 | u64::from(byte)));
        Some(Self {
            key,
            asc: Asc(asc),
            information,
        })
    }

    fn parse_descriptor(bytes: &[u8]) -> Option<Self> {
        const INFORMATION: u8 = 0x00;
        let &[_, key, asc, ascq, _, _, _, additional_len] = bytes.first_chunk::<8>()?;
        let mut rest = &bytes[8..bytes.len().min(8 + usize::from(additional_len))];
        let mut information = None;
        while let &[kind, len, ..] = rest {
            let Some((descriptor, tail)) = rest.split_at_checked(2 + usize::from(len)) else {
                break;
            };
            if let (INFORMATION, [_, _, flags, _, value @ ..]) = (kind, descriptor)
                && flags & 0x80 != 0
                && value.len() == 8
            {
                information = Some(value.iter().fold(0, |n, &byte| n << 8 | u64::from(byte)));
            }
            rest = tail;
        }
        Some(Self {
            key: key & 0x0F,
            asc: Asc(u16::from_be_bytes([asc, ascq])),
            information,
        })
    }

    /// Whether this is a unit attention. It reports an event; the command was not executed.
    pub fn attention(&self) -> Option<Attention> {
        (self.key == UNIT_ATTENTION).then_some(match self.asc {
            Asc::CAPACITY_CHANGED | INQUIRY_DATA_CHANGED => Attention::Capacity,
            _ => Attention::Other,
        })
    }

    /// Whether the logical unit will be ready in a while.
    pub fn is_becoming_ready(&self) -> bool {
        self.key == NOT_READY && self.asc == BECOMING_READY
    }
}

impl fmt::Display for ReceivedSense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [code, qualifier] = self.asc.0.to_be_bytes();
        let key = KEYS[usize::from(self.key)];
        match reason(self.asc) {
            Some(reason) => write!(f, "{key}: {reason} ({code:02X}h/{qualifier:02X}h)"),
            None => write!(f, "{key} ({code:02X}h/{qualifier:02X}h)"),
        }
    }
}

/// SPC-5, "Sense key descriptions", by value.
const KEYS: [&str; 16] = [
    "no sense",
    "recovered error",
    "not ready",
    "medium error",
    "hardware error",
    "illegal request",
    "unit attention",
    "data protect",
    "blank check",
    "vendor specific",
    "copy aborted",
    "aborted command",
    "reserved sense key",
    "volume overflow",
    "miscompare",
    "completed",
];

/// The additional sense codes that a disk's host meets.
fn reason(asc: Asc) -> Option<&'static str> {
    Some(match asc {
        BECOMING_READY => "the logical unit is becoming ready",
        Asc::NOT_READY_START_REQUIRED => "the logical unit is stopped",
        Asc::NOT_READY_INTERVENTION => "the logical unit needs someone at the target to act",
        Asc::NOT_READY_SANITIZE => "a sanitize is in progress",
        Asc::SANITIZE_FAILED => "a sanitize has failed: another must be done whole",
        Asc::WRITE_ERROR => "write error",
        Asc::UNRECOVERED_READ_ERROR => "unrecovered read error",
        Asc::PARAMETER_LIST_LENGTH => "wrong length of a parameter list",
        Asc::MISCOMPARE => "compared data differ",
        Asc::INVALID_OPCODE => "the command is not supported",
        Asc::LBA_OUT_OF_RANGE => "beyond the end of the logical unit",
        Asc::INVALID_FIELD_IN_CDB => "invalid field in CDB",
        Asc::LUN_NOT_SUPPORTED => "the logical unit does not exist",
        Asc::INVALID_FIELD_IN_PARAMETERS => "invalid field in parameter list",
        Asc::WRITE_PROTECTED | Asc::SOFTWARE_WRITE_PROTECTED => "write protected",
        Asc::SPACE_ALLOCATION_FAILED => "the target has no free memory for new blocks",
        Asc::POWER_ON_OR_RESET => "power on or reset",
        Asc::DEVICE_RESET => "the logical unit was reset",
        Asc::NEXUS_LOSS => "the nexus was lost",
        Asc::CAPACITY_CHANGED => "the capacity has changed",
        Asc::COMMANDS_CLEARED => "commands were cleared by another host",
        Asc::LUNS_CHANGED => "the list of logical units has changed",
        Asc::INTERNAL_FAILURE => "internal target failure",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sense, SenseFormat, SenseKey};

    #[test]
    fn what_the_device_server_encodes_reads_back_in_both_formats() {
        let sense = Sense {
            information: Some(0x0102),
            ..Sense::new(SenseKey::Miscompare, Asc::MISCOMPARE)
        };
        let want = ReceivedSense {
            key: 0xE,
            asc: Asc::MISCOMPARE,
            information: Some(0x0102),
        };
        for format in [SenseFormat::Fixed, SenseFormat::Descriptor] {
            let bytes = sense.encode(format);
            assert_eq!(ReceivedSense::parse(bytes.as_slice()), Some(want));
        }
        assert_eq!(
            want.to_string(),
            "miscompare: compared data differ (1Dh/00h)"
        );
    }

    #[test]
    fn sense_data_may_end_early() {
        let short = ReceivedSense::parse(&[0x70, 0, 5]).expect("a key is there");
        assert_eq!((short.key, short.asc), (5, Asc::NONE));
        assert_eq!(ReceivedSense::parse(&[0x70, 0]), None);
        assert_eq!(ReceivedSense::parse(&[]), None);
        assert_eq!(ReceivedSense::parse(&[0x7F, 0, 0, 0]), None);
        // A descriptor that is cut off.
        let cut = [0x72, 6, 0x2A, 9, 0, 0, 0, 12, 0, 10, 0x80];
        let cut = ReceivedSense::parse(&cut).expect("the header is whole");
        assert_eq!(cut.attention(), Some(Attention::Capacity));
        assert_eq!(cut.information, None);
    }
}
