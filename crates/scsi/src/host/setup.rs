//! Setting a LUN up: whether it is a disk and ready, its size, and its limits per command.
//!
//! Read first: SPC-5, "INQUIRY command", "Vital product data parameters", "MODE SENSE (6) command";
//! SBC-4, "READ CAPACITY (16) command", "Caching mode page".
//!
//! ```text
//!  Ready ─► Inquiry ─► Serial ─► Identification ─► BlockLimits ─► Provisioning ─► Caching ─► Capacity16 ─► Done
//!    └─ no such LUN ─► Luns ─► error                                             not supported └─► Capacity10 ─┘
//! ```

use std::fmt;

use block::{BlockSize, Blocks, Geometry, WriteCache};
use session::BufferRange;

use super::{Command, CommandFailure, CommandKey, Outcome, io};
use crate::{Asc, Lun, ScsiStatus};

/// The set-up of one logical unit.
#[derive(Debug)]
pub struct Setup {
    phase: Phase,
    lun: Lun,
    in_flight: bool,
    /// How often the present command was sent again after a unit attention.
    attentions: u32,
    waited_ms: u32,
    pause: bool,
    facts: UnitFacts,
}

/// What the host does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetupStep {
    /// Submit this with key [`Setup::KEY`].
    Submit(Command),
    /// Wait, then ask again.
    Wait {
        /// How long, in milliseconds.
        for_ms: u32,
    },
    /// The facts are complete.
    Done,
}

/// What is known of a logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitFacts {
    /// T10 VENDOR IDENTIFICATION.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION.
    pub product: String,
    /// PRODUCT REVISION LEVEL.
    pub revision: String,
    /// The unit serial number page, if any.
    pub serial: String,
    /// The unit's worldwide designator: NAA, else EUI-64, else vendor identification; empty if it
    /// has none.
    pub designator: Vec<u8>,
    /// Block size and capacity; always there after [`SetupStep::Done`].
    pub geometry: Option<Geometry>,
    /// What fits into one command.
    pub limits: Limits,
    /// Whether it has a volatile write cache (WCE). A unit that does not say may have one.
    pub write_cache: WriteCache,
    /// Whether WRITE takes FUA (DPOFUA).
    pub has_forced_writes: bool,
    /// Whether it is write protected at present (WP).
    pub is_write_protected: bool,
}

impl Default for UnitFacts {
    fn default() -> Self {
        Self {
            vendor: String::new(),
            product: String::new(),
            revision: String::new(),
            serial: String::new(),
            designator: Vec::new(),
            geometry: None,
            limits: Limits::default(),
            write_cache: WriteCache::Volatile,
            has_forced_writes: false,
            is_write_protected: false,
        }
    }
}

/// The most blocks of one command, by command; 0 if the command is not supported, `u64::MAX` if no
/// limit is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// READ, WRITE, VERIFY.
    pub transfer_blocks: u64,
    /// UNMAP.
    pub unmap_blocks: u64,
    /// WRITE SAME.
    pub write_same_blocks: u64,
    /// COMPARE AND WRITE.
    pub compare_and_write_blocks: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            transfer_blocks: u64::MAX,
            unmap_blocks: 0,
            write_same_blocks: u64::MAX,
            compare_and_write_blocks: 0,
        }
    }
}

/// The step of a set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Waiting until the unit is ready.
    Ready,
    /// Reading the standard INQUIRY data.
    Inquiry,
    /// Reading the unit serial number.
    Serial,
    /// Reading the device identification.
    Identification,
    /// Reading the block limits.
    BlockLimits,
    /// Reading the logical block provisioning.
    Provisioning,
    /// Reading the caching mode page.
    Caching,
    /// Reading the capacity by READ CAPACITY (16).
    Capacity16,
    /// Reading the capacity by READ CAPACITY (10).
    Capacity10,
    /// Listing LUNs, since the one that was requested is not there.
    Luns,
    /// The facts are complete.
    Done,
}

/// Why a set-up failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// There is nothing behind the LUN.
    #[error("the target has no LUN {lun} for this host{}", list(present))]
    NoUnit {
        /// Which.
        lun: Lun,
        /// Those that there are.
        present: Vec<Lun>,
    },
    /// The unit is no disk.
    #[error("LUN {lun} is a device of type {device_type:#04x}, not a disk; choose another LUN")]
    NotADisk {
        /// Which.
        lun: Lun,
        /// PERIPHERAL DEVICE TYPE.
        device_type: u8,
    },
    /// A command of the set-up failed.
    #[error("{phase} failed: {failure}")]
    Refused {
        /// Where the set-up was.
        phase: Phase,
        /// What the target answered.
        failure: CommandFailure,
    },
    /// The unit did not become ready.
    #[error("the logical unit did not become ready within {waited_ms} ms")]
    NotReady {
        /// How long was waited.
        waited_ms: u32,
    },
    /// An answer is shorter than what it has to hold.
    #[error("{phase} failed: the response has only {len_bytes} bytes")]
    TooShort {
        /// Where the set-up was.
        phase: Phase,
        /// Its length.
        len_bytes: usize,
    },
    /// Only blocks of 512 and 4096 bytes are supported.
    #[error(
        "LUN {lun} has {blocks} blocks of {block_bytes} bytes; only blocks of 512 and 4096 are supported"
    )]
    Format {
        /// Which.
        lun: Lun,
        /// How many blocks.
        blocks: u64,
        /// LOGICAL BLOCK LENGTH IN BYTES.
        block_bytes: u32,
    },
}

fn list(luns: &[Lun]) -> String {
    match luns {
        // Not every target answers this to a LUN that it does not have.
        [] => String::new(),
        [lun] => format!("; it has only LUN {lun}"),
        luns => {
            let luns: Vec<String> = luns.iter().map(Lun::to_string).collect();
            format!("; it has LUNs {}", luns.join(", "))
        }
    }
}

/// VPD page codes.
const PAGE_SERIAL: u8 = 0x80;
const PAGE_IDENTIFICATION: u8 = 0x83;
const PAGE_BLOCK_LIMITS: u8 = 0xB0;
const PAGE_PROVISIONING: u8 = 0xB2;

/// The code of the caching mode page.
const MODE_PAGE_CACHING: u8 = 0x08;

/// Unit attentions in a row that are taken; a target has a handful of causes for them.
const ATTENTIONS_MAX: u32 = 32;
/// The interval between two attempts while the unit is not ready.
const READY_POLL_MS: u32 = 100;
/// How long a unit may take to become ready.
const READY_TIMEOUT_MS: u32 = 20_000;

impl Setup {
    /// The key of every command.
    pub const KEY: CommandKey = CommandKey(0);
    /// The buffer that every command uses.
    pub const SLOT: u16 = 0;
    /// What that buffer has to hold.
    pub const BUFFER_BYTES: usize = 4096;

    /// At the first step. The transport sends every command to `lun`.
    pub fn new(lun: Lun) -> Self {
        Self {
            phase: Phase::Ready,
            lun,
            in_flight: false,
            attentions: 0,
            waited_ms: 0,
            pause: false,
            facts: UnitFacts::default(),
        }
    }

    /// What was learned so far; all of it after [`SetupStep::Done`].
    pub fn facts(&self) -> &UnitFacts {
        &self.facts
    }

    /// The next step. Not to be called while a command is in flight.
    pub fn poll(&mut self) -> SetupStep {
        const DATA: BufferRange = BufferRange::first(Setup::SLOT, Setup::BUFFER_BYTES as u32);
        /// Older targets take one byte of ALLOCATION LENGTH only.
        const SHORT: BufferRange = BufferRange::first(Setup::SLOT, 252);
        assert!(!self.in_flight, "one command at a time");
        if std::mem::take(&mut self.pause) {
            self.waited_ms += READY_POLL_MS;
            return SetupStep::Wait {
                for_ms: READY_POLL_MS,
            };
        }
        let command = match self.phase {
            Phase::Ready => io::test_unit_ready(),
            Phase::Inquiry => io::inquiry(None, SHORT),
            Phase::Serial => io::inquiry(Some(PAGE_SERIAL), SHORT),
            Phase::Identification => io::inquiry(Some(PAGE_IDENTIFICATION), DATA),
            Phase::BlockLimits => io::inquiry(Some(PAGE_BLOCK_LIMITS), SHORT),
            Phase::Provisioning => io::inquiry(Some(PAGE_PROVISIONING), SHORT),
            Phase::Caching => io::mode_sense_6(MODE_PAGE_CACHING, SHORT),
            Phase::Capacity16 => io::read_capacity_16(BufferRange::first(Self::SLOT, 32)),
            Phase::Capacity10 => io::read_capacity_10(BufferRange::first(Self::SLOT, 8)),
            Phase::Luns => io::report_luns(DATA),
            Phase::Done => return SetupStep::Done,
        };
        self.in_flight = true;
        SetupStep::Submit(command)
    }

    /// The command has ended; `buffer` is that of [`Self::SLOT`].
    pub fn handle_outcome(&mut self, outcome: &Outcome, buffer: &[u8]) -> Result<(), SetupError> {
        self.in_flight = false;
        let moved_bytes = match outcome.result {
            Ok(moved_bytes) => moved_bytes as usize,
            Err(failure) => return self.on_failure(failure),
        };
        let data = &buffer[..moved_bytes.min(buffer.len())];
        self.attentions = 0;
        self.phase = match self.phase {
            Phase::Ready => Phase::Inquiry,
            Phase::Inquiry => self.on_inquiry(data)?,
            Phase::Serial => {
                self.facts.serial = page(PAGE_SERIAL, data).map(text).unwrap_or_default();
                Phase::Identification
            }
            Phase::Identification => {
                let page = page(PAGE_IDENTIFICATION, data).unwrap_or_default();
                self.facts.designator = designator(page);
                Phase::BlockLimits
            }
            Phase::BlockLimits => {
                self.on_block_limits(page(PAGE_BLOCK_LIMITS, data).unwrap_or_default());
                Phase::Provisioning
            }
            Phase::Provisioning => {
                self.on_provisioning(page(PAGE_PROVISIONING, data).unwrap_or_default());
                Phase::Caching
            }
            Phase::Caching => {
                self.on_caching(data);
                Phase::Capacity16
            }
            Phase::Capacity16 => {
                self.facts.geometry = Some(capacity_16(self.lun, data)?);
                Phase::Done
            }
            Phase::Capacity10 => {
                self.facts.geometry = Some(capacity_10(self.lun, data)?);
                Phase::Done
            }
            Phase::Luns => {
                return Err(SetupError::NoUnit {
                    lun: self.lun,
                    present: luns(data),
                });
            }
            Phase::Done => Phase::Done,
        };
        Ok(())
    }

    /// What READ CAPACITY (16) answered when it was asked again.
    pub fn capacity(lun: Lun, data: &[u8]) -> Result<Geometry, SetupError> {
        capacity_16(lun, data)
    }

    fn on_failure(&mut self, failure: CommandFailure) -> Result<(), SetupError> {
        let refused = Err(SetupError::Refused {
            phase: self.phase,
            failure,
        });
        if let CommandFailure::Status { status, .. } = failure
            && (status == ScsiStatus::Busy as u8 || status == ScsiStatus::TaskSetFull as u8)
        {
            return self.wait_for_ready();
        }
        let Some(sense) = failure.sense() else {
            return refused;
        };
        if sense.attention().is_some() {
            self.attentions += 1;
            return if self.attentions > ATTENTIONS_MAX {
                refused
            } else {
                Ok(())
            };
        }
        if sense.is_becoming_ready() {
            return self.wait_for_ready();
        }
        self.phase = match self.phase {
            Phase::Ready | Phase::Inquiry if sense.asc == Asc::LUN_NOT_SUPPORTED => Phase::Luns,
            // Pages are optional, and old targets know only the shorter READ CAPACITY.
            Phase::Serial => Phase::Identification,
            Phase::Identification => Phase::BlockLimits,
            Phase::BlockLimits => Phase::Provisioning,
            Phase::Provisioning => Phase::Caching,
            Phase::Caching => Phase::Capacity16,
            Phase::Capacity16 if sense.asc == Asc::INVALID_OPCODE => Phase::Capacity10,
            Phase::Luns => {
                return Err(SetupError::NoUnit {
                    lun: self.lun,
                    present: Vec::new(),
                });
            }
            _ => return refused,
        };
        Ok(())
    }

    fn wait_for_ready(&mut self) -> Result<(), SetupError> {
        if self.waited_ms >= READY_TIMEOUT_MS {
            return Err(SetupError::NotReady {
                waited_ms: self.waited_ms,
            });
        }
        self.pause = true;
        Ok(())
    }

    fn on_inquiry(&mut self, data: &[u8]) -> Result<Phase, SetupError> {
        const LEN_MIN: usize = 36;
        const QUALIFIER_ABSENT: u8 = 0b011;
        let Some(data) = data.get(..LEN_MIN) else {
            return Err(SetupError::TooShort {
                phase: self.phase,
                len_bytes: data.len(),
            });
        };
        if data[0] >> 5 == QUALIFIER_ABSENT {
            return Ok(Phase::Luns);
        }
        if data[0] & 0x1F != 0 {
            return Err(SetupError::NotADisk {
                lun: self.lun,
                device_type: data[0] & 0x1F,
            });
        }
        self.facts.vendor = text(&data[8..16]);
        self.facts.product = text(&data[16..32]);
        self.facts.revision = text(&data[32..36]);
        Ok(Phase::Serial)
    }

    fn on_block_limits(&mut self, page: &[u8]) {
        let limits = &mut self.facts.limits;
        limits.compare_and_write_blocks = page.get(1).copied().unwrap_or(0).into();
        // 0 stands for a limit that is not reported.
        if let Some(blocks @ 1..) = number::<4>(page, 4) {
            limits.transfer_blocks = blocks;
        }
        if let (Some(blocks @ 1..), Some(1..)) = (number::<4>(page, 16), number::<4>(page, 20)) {
            limits.unmap_blocks = blocks;
        }
        if let Some(blocks @ 1..) = number::<8>(page, 32) {
            limits.write_same_blocks = blocks;
        }
    }

    fn on_provisioning(&mut self, page: &[u8]) {
        const LBPU: u8 = 0x80;
        if page.get(1).is_none_or(|flags| flags & LBPU == 0) {
            self.facts.limits.unmap_blocks = 0;
        }
    }

    /// Reads the mode parameter header of MODE SENSE (6) and the caching page behind it.
    fn on_caching(&mut self, data: &[u8]) {
        const HEADER_BYTES: usize = 4;
        const WP: u8 = 0x80;
        const DPOFUA: u8 = 0x10;
        const WCE: u8 = 0x04;
        let Some(&[_, _, device_specific, descriptor_bytes]) = data.first_chunk::<HEADER_BYTES>()
        else {
            return;
        };
        self.facts.is_write_protected = device_specific & WP != 0;
        self.facts.has_forced_writes = device_specific & DPOFUA != 0;
        // DBD asks for no block descriptors, but some targets send them nevertheless.
        let page = data.get(HEADER_BYTES + usize::from(descriptor_bytes)..);
        if let Some(&[code, _, flags, ..]) = page
            && code & 0x3F == MODE_PAGE_CACHING
            && flags & WCE == 0
        {
            self.facts.write_cache = WriteCache::Absent;
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "waiting for the logical unit",
            Self::Inquiry => "asking what the logical unit is",
            Self::Serial => "reading the serial number",
            Self::Identification => "reading the unit's identification",
            Self::BlockLimits => "reading the block limits",
            Self::Provisioning => "reading the provisioning",
            Self::Caching => "reading the caching mode page",
            Self::Capacity16 | Self::Capacity10 => "reading the capacity",
            Self::Luns => "listing LUNs",
            Self::Done => "using the logical unit",
        })
    }
}

/// The data after the header of a vital product data page, if it is the requested page.
fn page(code: u8, data: &[u8]) -> Option<&[u8]> {
    let &[_, came, high, low] = data.first_chunk::<4>()?;
    let len = usize::from(u16::from_be_bytes([high, low])).min(data.len() - 4);
    (came == code).then(|| &data[4..4 + len])
}

/// The best of the logical unit's own designators.
fn designator(mut page: &[u8]) -> Vec<u8> {
    const TYPES_BY_PREFERENCE: [u8; 3] = [3, 2, 1];
    let mut found: Option<(usize, &[u8])> = None;
    while let &[_, flags, _, len, ..] = page {
        let Some((descriptor, rest)) = page.split_at_checked(4 + usize::from(len)) else {
            break;
        };
        let (association, kind) = (flags >> 4 & 3, flags & 0x0F);
        let rank = TYPES_BY_PREFERENCE.iter().position(|&known| known == kind);
        if let Some(rank) = rank.filter(|_| association == 0)
            && found.is_none_or(|(other, _)| rank < other)
        {
            found = Some((rank, &descriptor[4..]));
        }
        page = rest;
    }
    found.map(|(_, value)| value.to_vec()).unwrap_or_default()
}

fn capacity_16(lun: Lun, data: &[u8]) -> Result<Geometry, SetupError> {
    let (Some(last), Some(block_bytes)) = (number::<8>(data, 0), number::<4>(data, 8)) else {
        return Err(SetupError::TooShort {
            phase: Phase::Capacity16,
            len_bytes: data.len(),
        });
    };
    geometry(lun, last, block_bytes)
}

fn capacity_10(lun: Lun, data: &[u8]) -> Result<Geometry, SetupError> {
    let (Some(last), Some(block_bytes)) = (number::<4>(data, 0), number::<4>(data, 4)) else {
        return Err(SetupError::TooShort {
            phase: Phase::Capacity10,
            len_bytes: data.len(),
        });
    };
    geometry(lun, last, block_bytes)
}

fn geometry(lun: Lun, last: u64, block_bytes: u64) -> Result<Geometry, SetupError> {
    let blocks = last.saturating_add(1);
    BlockSize::from_bytes(block_bytes)
        .filter(|size| blocks <= u64::MAX >> size.shift())
        .map(|size| Geometry::new(size, Blocks(blocks)))
        .ok_or(SetupError::Format {
            lun,
            blocks,
            block_bytes: block_bytes as u32,
        })
}

/// The LUNs of a REPORT LUNS parameter list that have the single-level form.
fn luns(data: &[u8]) -> Vec<Lun> {
    let len = number::<4>(data, 0).unwrap_or(0) as usize;
    let entries = data.get(8..).unwrap_or_default();
    let entries = &entries[..entries.len().min(len)];
    entries
        .chunks_exact(8)
        .filter_map(|entry| entry.try_into().ok().and_then(crate::report::parse_lun))
        .collect()
}

/// The big-endian number of `N` bytes at `offset`, if the data contain it.
fn number<const N: usize>(data: &[u8], offset: usize) -> Option<u64> {
    let field = data.get(offset..offset + N)?;
    Some(field.iter().fold(0, |n, &byte| n << 8 | u64::from(byte)))
}

/// ASCII padded with blanks, or with zeros as some do.
fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field)
        .trim_matches(['\0', ' '])
        .to_owned()
}

#[cfg(test)]
mod tests;
