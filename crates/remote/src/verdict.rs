//! What the error of a command means for the request that it belongs to.
//!
//! Read first: NVM Express Base Specification, "Status Code"; SPC-5, "Sense key and additional
//! sense code definitions".

use brp::wire::Status as BrpStatus;
use initiator::CommandError;
use nvme::wire::{Status, StatusCode};
use scsi::host::CommandFailure;
use scsi::{Asc, ScsiStatus, SenseKey};
use window::BackingError;

/// What is done about the error of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its connection was lost: repeat it on another.
    Repeat,
    /// The other side could not execute it at present: repeat it after a pause.
    Later,
    /// The other side does not know the command.
    Unsupported,
    /// The request fails.
    Fail(BackingError),
}

impl Verdict {
    pub(crate) fn of(error: &CommandError) -> Self {
        match error {
            CommandError::ConnectionLost | CommandError::NotSubmitted => Self::Repeat,
            CommandError::Status(status) => Self::of_nvme(*status),
            CommandError::Scsi(failure) => Self::of_scsi(failure),
            CommandError::Brp(status) => Self::of_brp(*status),
        }
    }

    fn of_brp(status: BrpStatus) -> Self {
        match status {
            BrpStatus::Busy | BrpStatus::Aborted => Self::Later,
            BrpStatus::Invalid | BrpStatus::Unsupported => Self::Unsupported,
            BrpStatus::CapacityExceeded => Self::Fail(BackingError::NoSpace),
            BrpStatus::NotReady | BrpStatus::Gone => Self::Fail(BackingError::Gone),
            BrpStatus::ReadError | BrpStatus::WriteError => Self::Fail(BackingError::Medium),
            BrpStatus::Success
            | BrpStatus::LbaOutOfRange
            | BrpStatus::WriteProtected
            | BrpStatus::Miscompare
            | BrpStatus::Conflict
            | BrpStatus::Denied => Self::Fail(BackingError::Other),
        }
    }

    fn of_nvme(status: Status) -> Self {
        /// Status Code Type 3: Path Related Status.
        const PATH_RELATED: u16 = 3;
        match status.code() {
            Some(StatusCode::InvalidOpcode | StatusCode::InvalidField) => Self::Unsupported,
            Some(StatusCode::CapacityExceeded) => Self::Fail(BackingError::NoSpace),
            Some(StatusCode::NamespaceNotReady | StatusCode::InvalidNamespaceOrFormat) => {
                Self::Fail(BackingError::Gone)
            }
            Some(StatusCode::UnrecoveredReadError | StatusCode::WriteFault) => {
                Self::Fail(BackingError::Medium)
            }
            _ if status.raw_code() >> 8 == PATH_RELATED || !status.is_do_not_retry() => Self::Later,
            _ => Self::Fail(BackingError::Other),
        }
    }

    fn of_scsi(failure: &CommandFailure) -> Self {
        const BUSY: u8 = ScsiStatus::Busy as u8;
        const TASK_SET_FULL: u8 = ScsiStatus::TaskSetFull as u8;
        const TASK_ABORTED: u8 = ScsiStatus::TaskAborted as u8;
        if let CommandFailure::Status {
            status: BUSY | TASK_SET_FULL | TASK_ABORTED,
            ..
        } = failure
        {
            return Self::Later;
        }
        let Some(sense) = failure.sense() else {
            return Self::Fail(BackingError::Other);
        };
        if sense.asc == Asc::SPACE_ALLOCATION_FAILED {
            return Self::Fail(BackingError::NoSpace);
        }
        let is = |key: SenseKey| sense.key == key as u8;
        if sense.asc == Asc::NOT_READY_PORT_UNAVAILABLE {
            Self::Later
        } else if is(SenseKey::NotReady) {
            Self::Fail(BackingError::Gone)
        } else if is(SenseKey::MediumError) || is(SenseKey::HardwareError) {
            Self::Fail(BackingError::Medium)
        } else if is(SenseKey::AbortedCommand) || is(SenseKey::UnitAttention) {
            Self::Later
        } else if matches!(sense.asc, Asc::INVALID_OPCODE | Asc::INVALID_FIELD_IN_CDB) {
            Self::Unsupported
        } else {
            Self::Fail(BackingError::Other)
        }
    }
}

#[cfg(test)]
mod tests {
    use scsi::host::ReceivedSense;

    use super::*;

    #[test]
    fn errors_of_nvme_are_what_they_mean() {
        let of = |status: Status| Verdict::of(&CommandError::Status(status));
        for (code, verdict) in [
            (StatusCode::InvalidOpcode, Verdict::Unsupported),
            (
                StatusCode::CapacityExceeded,
                Verdict::Fail(BackingError::NoSpace),
            ),
            (
                StatusCode::NamespaceNotReady,
                Verdict::Fail(BackingError::Gone),
            ),
            (
                StatusCode::UnrecoveredReadError,
                Verdict::Fail(BackingError::Medium),
            ),
            (StatusCode::WriteFault, Verdict::Fail(BackingError::Medium)),
            (StatusCode::CommandInterrupted, Verdict::Later),
            (
                StatusCode::NamespaceWriteProtected,
                Verdict::Fail(BackingError::Other),
            ),
            (
                StatusCode::LbaOutOfRange,
                Verdict::Fail(BackingError::Other),
            ),
        ] {
            assert_eq!(of(Status::from(code)), verdict, "{code:?}");
        }
        let inaccessible = Status::from_field(0x4302);
        assert_eq!(of(inaccessible), Verdict::Later, "ANA Inaccessible");
    }

    #[test]
    fn errors_of_scsi_are_what_they_mean() {
        let of = |status: u8, key: SenseKey, asc| {
            let sense = ReceivedSense {
                key: key as u8,
                asc,
                information: None,
            };
            Verdict::of(&CommandError::Scsi(CommandFailure::Status {
                status,
                sense: Some(sense),
            }))
        };
        let check = ScsiStatus::CheckCondition as u8;
        for (key, asc, verdict) in [
            (
                SenseKey::MediumError,
                Asc::NONE,
                Verdict::Fail(BackingError::Medium),
            ),
            (
                SenseKey::NotReady,
                Asc::NONE,
                Verdict::Fail(BackingError::Gone),
            ),
            (
                SenseKey::NotReady,
                Asc::NOT_READY_PORT_UNAVAILABLE,
                Verdict::Later,
            ),
            (
                SenseKey::DataProtect,
                Asc::SPACE_ALLOCATION_FAILED,
                Verdict::Fail(BackingError::NoSpace),
            ),
            (
                SenseKey::DataProtect,
                Asc::WRITE_PROTECTED,
                Verdict::Fail(BackingError::Other),
            ),
            (SenseKey::AbortedCommand, Asc::NONE, Verdict::Later),
            (
                SenseKey::IllegalRequest,
                Asc::INVALID_OPCODE,
                Verdict::Unsupported,
            ),
            (
                SenseKey::IllegalRequest,
                Asc::LBA_OUT_OF_RANGE,
                Verdict::Fail(BackingError::Other),
            ),
        ] {
            assert_eq!(of(check, key, asc), verdict, "{key:?} {asc:?}");
        }
        let busy = of(ScsiStatus::Busy as u8, SenseKey::NoSense, Asc::NONE);
        assert_eq!(busy, Verdict::Later);
        assert_eq!(Verdict::of(&CommandError::ConnectionLost), Verdict::Repeat);
    }
}
