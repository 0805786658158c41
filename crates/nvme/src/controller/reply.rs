//! The result of a command of the control path.

use crate::wire::{Sqe, Status, StatusCode};

/// A command's status and result (DW0 and DW1 of its completion).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The status.
    pub status: Status,
    /// The command specific result.
    pub result: u64,
}

impl Completion {
    /// Success with result 0.
    pub const SUCCESS: Self = Self {
        status: Status::SUCCESS,
        result: 0,
    };

    /// Success with this result.
    pub const fn success(result: u64) -> Self {
        Self {
            status: Status::SUCCESS,
            result,
        }
    }
}

impl From<StatusCode> for Completion {
    fn from(code: StatusCode) -> Self {
        Self {
            status: code.into(),
            result: 0,
        }
    }
}

/// What is to be done about a command of the control path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Complete it.
    Done(Completion),
    /// Send these bytes to the host, then complete it with success and result 0. There are never
    /// more than the command's SGL has room for.
    Data(Vec<u8>),
    /// Nothing now: [`Subsystem::poll_kept`](super::Subsystem::poll_kept) completes it later.
    Hold,
}

impl Reply {
    /// Success with this result in DW0.
    pub(super) fn success(dw0: u32) -> Self {
        Self::Done(Completion::success(u64::from(dw0)))
    }
}

/// Why a command of the control path failed, and the invalid field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) completion: Completion,
    pub(super) location: Location,
}

/// Parameter Error Location of the error log: the byte (bits 7:0) and bit (10:8) of the command
/// that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// The fault is in no single field.
    Unspecified,
    /// At this byte of the command.
    Byte(u8),
}

impl Location {
    pub(super) const OPCODE: Self = Self::Byte(0);
    pub(super) const NSID: Self = Self::Byte(4);
    pub(super) const SGL1: Self = Self::Byte(24);
    pub(super) const CDW10: Self = Self::Byte(40);
    pub(super) const CDW11: Self = Self::Byte(44);
    pub(super) const CDW12: Self = Self::Byte(48);
    pub(super) const CDW14: Self = Self::Byte(56);

    /// The entry in the error log.
    pub(super) const fn field(self) -> u16 {
        match self {
            Self::Unspecified => 0xFFFF,
            Self::Byte(byte) => byte as u16,
        }
    }
}

impl From<StatusCode> for Failure {
    fn from(code: StatusCode) -> Self {
        Self {
            completion: code.into(),
            location: Location::Unspecified,
        }
    }
}

impl StatusCode {
    /// The failure with this status for the field at `location`.
    pub(super) fn at(self, location: Location) -> Failure {
        Failure {
            completion: self.into(),
            location,
        }
    }
}

pub(super) type Answer = Result<Reply, Failure>;

/// Success without data.
pub(super) const DONE: Answer = Ok(Reply::Done(Completion::SUCCESS));

/// A data structure for the host, whose SGL must have room for all of it.
pub(super) fn data(sqe: &Sqe, bytes: Vec<u8>) -> Answer {
    if (sqe.sgl1.len_bytes.get() as usize) < bytes.len() {
        return Err(StatusCode::DataSglLengthInvalid.at(Location::SGL1));
    }
    Ok(Reply::Data(bytes))
}
