//! The Status Field of a completion.

use std::fmt;

/// The Status Field: Status Code in bits 7:0, Status Code Type in 10:8, Command Retry Delay in
/// 12:11, More in 13, Do Not Retry in 14. Any value that a peer sends is kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

impl Status {
    /// Successful completion.
    pub const SUCCESS: Self = Self(0);
    const CODE: u16 = 0x07FF;
    const MORE: u16 = 1 << 13;
    const DNR: u16 = 1 << 14;

    /// The status of 15 bits, as it is encoded above the phase tag.
    pub const fn from_field(field: u16) -> Self {
        Self(field & 0x7FFF)
    }

    /// The 15 bits, to be placed above the phase tag.
    pub const fn field(self) -> u16 {
        self.0
    }

    /// The same with Do Not Retry (DNR) clear: the command may succeed later.
    #[must_use]
    pub const fn retryable(self) -> Self {
        Self(self.0 & !Self::DNR)
    }

    /// The same with More (M) set: the error log has details.
    #[must_use]
    pub const fn with_more(self) -> Self {
        Self(self.0 | Self::MORE)
    }

    /// Whether the command succeeded.
    pub const fn is_success(self) -> bool {
        self.0 & Self::CODE == 0
    }

    /// Do Not Retry (DNR): the same command would fail again.
    pub const fn is_do_not_retry(self) -> bool {
        self.0 & Self::DNR != 0
    }

    /// Status Code Type and Status Code as one number (SCT in bits 10:8).
    pub const fn raw_code(self) -> u16 {
        self.0 & Self::CODE
    }

    /// The code, if it is known.
    pub fn code(self) -> Option<StatusCode> {
        StatusCode::from_raw(self.raw_code())
    }
}

impl From<StatusCode> for Status {
    /// The code, with Do Not Retry set except where a retry may succeed.
    fn from(code: StatusCode) -> Self {
        if code.may_pass_later() {
            Self(code as u16)
        } else {
            Self(code as u16 | Self::DNR)
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = self.raw_code();
        match self.code() {
            Some(code) => write!(f, "{code} (SCT {:#x}, SC {:#04x})", raw >> 8, raw & 0xFF),
            None => write!(f, "status SCT {:#x}, SC {:#04x}", raw >> 8, raw & 0xFF),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retry = if self.is_do_not_retry() { ", DNR" } else { "" };
        write!(f, "{self}{retry}")
    }
}

/// Status Code Type (bits 10:8) and Status Code (bits 7:0) as one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum StatusCode {
    // Generic command status.
    /// Success.
    Success = 0x000,
    /// Invalid command opcode.
    InvalidOpcode = 0x001,
    /// Invalid field in command.
    InvalidField = 0x002,
    /// Command ID conflict.
    CommandIdConflict = 0x003,
    /// Data transfer error.
    DataTransferError = 0x004,
    /// Aborted for power loss.
    AbortedPowerLoss = 0x005,
    /// Internal error.
    InternalError = 0x006,
    /// Command abort requested.
    AbortRequested = 0x007,
    /// Aborted for deletion of its submission queue.
    AbortedSqDeletion = 0x008,
    /// Aborted since the fused neighbour failed.
    AbortedFailedFused = 0x009,
    /// Aborted since the fused neighbour is missing.
    AbortedMissingFused = 0x00a,
    /// Invalid namespace or format.
    InvalidNamespaceOrFormat = 0x00b,
    /// Command sequence error.
    CommandSequenceError = 0x00c,
    /// Invalid SGL segment descriptor.
    InvalidSglSegmentDescriptor = 0x00d,
    /// Invalid number of SGL descriptors.
    InvalidNumberOfSglDescriptors = 0x00e,
    /// Data SGL length invalid.
    DataSglLengthInvalid = 0x00f,
    /// Metadata SGL length invalid.
    MetadataSglLengthInvalid = 0x010,
    /// SGL descriptor type invalid.
    SglDescriptorTypeInvalid = 0x011,
    /// PRP offset invalid.
    PrpOffsetInvalid = 0x013,
    /// Atomic write unit exceeded.
    AtomicWriteUnitExceeded = 0x014,
    /// Operation denied.
    OperationDenied = 0x015,
    /// SGL offset invalid.
    SglOffsetInvalid = 0x016,
    /// Host identifier of inconsistent format.
    HostIdInconsistentFormat = 0x018,
    /// Keep alive timer expired.
    KeepAliveTimerExpired = 0x019,
    /// Keep alive timeout invalid.
    KeepAliveTimeoutInvalid = 0x01a,
    /// Aborted by preempt and abort.
    AbortedPreempt = 0x01b,
    /// Namespace is write protected.
    NamespaceWriteProtected = 0x020,
    /// Command interrupted.
    CommandInterrupted = 0x021,
    /// Transient transport error.
    TransientTransportError = 0x022,
    /// LBA out of range.
    LbaOutOfRange = 0x080,
    /// Capacity exceeded.
    CapacityExceeded = 0x081,
    /// Namespace not ready.
    NamespaceNotReady = 0x082,
    /// Reservation conflict.
    ReservationConflict = 0x083,
    // Command specific status.
    /// Invalid queue identifier.
    InvalidQueueIdentifier = 0x101,
    /// Invalid queue size.
    InvalidQueueSize = 0x102,
    /// Abort command limit exceeded.
    AbortLimitExceeded = 0x103,
    /// Asynchronous event request limit exceeded.
    AsyncEventLimitExceeded = 0x105,
    /// Invalid firmware slot.
    InvalidFirmwareSlot = 0x106,
    /// Invalid interrupt vector.
    InvalidInterruptVector = 0x108,
    /// Invalid log page.
    InvalidLogPage = 0x109,
    /// Invalid format.
    InvalidFormat = 0x10a,
    /// Feature identifier not saveable.
    FeatureNotSaveable = 0x10d,
    /// Feature not changeable.
    FeatureNotChangeable = 0x10e,
    /// Feature not namespace specific.
    FeatureNotNamespaceSpecific = 0x10f,
    /// Overlapping range.
    OverlappingRange = 0x114,
    /// Invalid controller identifier.
    InvalidControllerIdentifier = 0x11f,
    /// I/O command set not supported.
    CommandSetNotSupported = 0x129,
    /// Invalid I/O command set.
    InvalidCommandSet = 0x12c,
    // NVM and Fabrics command specific status; the two share numbers, and the command determines
    // the meaning.
    /// Connect: incompatible format; or conflicting attributes.
    ConnectIncompatibleFormat = 0x180,
    /// Connect: controller busy; or invalid protection information.
    ConnectControllerBusy = 0x181,
    /// Connect: invalid parameters; or attempted write to a read-only range.
    ConnectInvalidParameters = 0x182,
    /// Connect: restart discovery; or command size limit exceeded.
    ConnectRestartDiscovery = 0x183,
    /// Connect: invalid host.
    ConnectInvalidHost = 0x184,
    /// Disconnect: invalid queue type.
    InvalidQueueType = 0x185,
    /// Discover restart.
    DiscoverRestart = 0x190,
    /// Authentication required.
    AuthenticationRequired = 0x191,
    // Media and data integrity errors.
    /// Write fault.
    WriteFault = 0x280,
    /// Unrecovered read error.
    UnrecoveredReadError = 0x281,
    /// Compare failure.
    CompareFailure = 0x285,
    /// Access denied.
    AccessDenied = 0x286,
    // Path related status.
    /// Internal path error.
    InternalPathError = 0x300,
    /// Asymmetric access persistent loss.
    AsymmetricAccessPersistentLoss = 0x301,
    /// Asymmetric access inaccessible.
    AsymmetricAccessInaccessible = 0x302,
    /// Asymmetric access transition.
    AsymmetricAccessTransition = 0x303,
    /// Controller pathing error.
    ControllerPathingError = 0x360,
    /// Host pathing error.
    HostPathingError = 0x370,
    /// Command aborted by host.
    CommandAbortedByHost = 0x371,
}

impl StatusCode {
    /// Every code known here, with its words.
    const TABLE: [(Self, &'static str); 67] = [
        (Self::Success, "success"),
        (Self::InvalidOpcode, "invalid command opcode"),
        (Self::InvalidField, "invalid field in command"),
        (Self::CommandIdConflict, "command ID conflict"),
        (Self::DataTransferError, "data transfer error"),
        (Self::AbortedPowerLoss, "aborted for power loss"),
        (Self::InternalError, "internal error"),
        (Self::AbortRequested, "command abort requested"),
        (
            Self::AbortedSqDeletion,
            "aborted for deletion of its submission queue",
        ),
        (
            Self::AbortedFailedFused,
            "aborted since the fused neighbour failed",
        ),
        (
            Self::AbortedMissingFused,
            "aborted since the fused neighbour is missing",
        ),
        (
            Self::InvalidNamespaceOrFormat,
            "invalid namespace or format",
        ),
        (Self::CommandSequenceError, "command sequence error"),
        (
            Self::InvalidSglSegmentDescriptor,
            "invalid SGL segment descriptor",
        ),
        (
            Self::InvalidNumberOfSglDescriptors,
            "invalid number of SGL descriptors",
        ),
        (Self::DataSglLengthInvalid, "data SGL length invalid"),
        (
            Self::MetadataSglLengthInvalid,
            "metadata SGL length invalid",
        ),
        (
            Self::SglDescriptorTypeInvalid,
            "SGL descriptor type invalid",
        ),
        (Self::PrpOffsetInvalid, "PRP offset invalid"),
        (Self::AtomicWriteUnitExceeded, "atomic write unit exceeded"),
        (Self::OperationDenied, "operation denied"),
        (Self::SglOffsetInvalid, "SGL offset invalid"),
        (
            Self::HostIdInconsistentFormat,
            "host identifier of inconsistent format",
        ),
        (Self::KeepAliveTimerExpired, "keep alive timer expired"),
        (Self::KeepAliveTimeoutInvalid, "keep alive timeout invalid"),
        (Self::AbortedPreempt, "aborted by preempt and abort"),
        (
            Self::NamespaceWriteProtected,
            "namespace is write protected",
        ),
        (Self::CommandInterrupted, "command interrupted"),
        (Self::TransientTransportError, "transient transport error"),
        (Self::LbaOutOfRange, "LBA out of range"),
        (Self::CapacityExceeded, "capacity exceeded"),
        (Self::NamespaceNotReady, "namespace not ready"),
        (Self::ReservationConflict, "reservation conflict"),
        (Self::InvalidQueueIdentifier, "invalid queue identifier"),
        (Self::InvalidQueueSize, "invalid queue size"),
        (Self::AbortLimitExceeded, "abort command limit exceeded"),
        (
            Self::AsyncEventLimitExceeded,
            "asynchronous event request limit exceeded",
        ),
        (Self::InvalidFirmwareSlot, "invalid firmware slot"),
        (Self::InvalidInterruptVector, "invalid interrupt vector"),
        (Self::InvalidLogPage, "invalid log page"),
        (Self::InvalidFormat, "invalid format"),
        (Self::FeatureNotSaveable, "feature identifier not saveable"),
        (Self::FeatureNotChangeable, "feature not changeable"),
        (
            Self::FeatureNotNamespaceSpecific,
            "feature not namespace specific",
        ),
        (Self::OverlappingRange, "overlapping range"),
        (
            Self::InvalidControllerIdentifier,
            "invalid controller identifier",
        ),
        (
            Self::CommandSetNotSupported,
            "I/O command set not supported",
        ),
        (Self::InvalidCommandSet, "invalid I/O command set"),
        (
            Self::ConnectIncompatibleFormat,
            "connect: incompatible format; or conflicting attributes",
        ),
        (
            Self::ConnectControllerBusy,
            "connect: controller busy; or invalid protection information",
        ),
        (
            Self::ConnectInvalidParameters,
            "connect: invalid parameters; or attempted write to a read-only range",
        ),
        (
            Self::ConnectRestartDiscovery,
            "connect: restart discovery; or command size limit exceeded",
        ),
        (Self::ConnectInvalidHost, "connect: invalid host"),
        (Self::InvalidQueueType, "disconnect: invalid queue type"),
        (Self::DiscoverRestart, "discover restart"),
        (Self::AuthenticationRequired, "authentication required"),
        (Self::WriteFault, "write fault"),
        (Self::UnrecoveredReadError, "unrecovered read error"),
        (Self::CompareFailure, "compare failure"),
        (Self::AccessDenied, "access denied"),
        (Self::InternalPathError, "internal path error"),
        (
            Self::AsymmetricAccessPersistentLoss,
            "asymmetric access persistent loss",
        ),
        (
            Self::AsymmetricAccessInaccessible,
            "asymmetric access inaccessible",
        ),
        (
            Self::AsymmetricAccessTransition,
            "asymmetric access transition",
        ),
        (Self::ControllerPathingError, "controller pathing error"),
        (Self::HostPathingError, "host pathing error"),
        (Self::CommandAbortedByHost, "command aborted by host"),
    ];

    /// The code of a number, if it is known.
    pub fn from_raw(raw: u16) -> Option<Self> {
        Self::TABLE
            .iter()
            .map(|&(code, _)| code)
            .find(|&code| code as u16 == raw)
    }

    /// Whether the same command may succeed when it is tried again later.
    const fn may_pass_later(self) -> bool {
        matches!(
            self,
            Self::Success
                | Self::AbortedPowerLoss
                | Self::AbortRequested
                | Self::AbortedSqDeletion
                | Self::AbortedFailedFused
                | Self::CommandInterrupted
                | Self::TransientTransportError
                | Self::NamespaceNotReady
                | Self::ConnectControllerBusy
                | Self::ConnectRestartDiscovery
                | Self::DiscoverRestart
                | Self::InternalPathError
                | Self::AsymmetricAccessTransition
                | Self::AsymmetricAccessInaccessible
                | Self::ControllerPathingError
                | Self::HostPathingError
                | Self::CommandAbortedByHost
        )
    }
}

impl fmt::Display for StatusCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = Self::TABLE
            .iter()
            .find(|(code, _)| code == self)
            .map_or("", |&(_, words)| words);
        f.write_str(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_by_its_number_once() {
        for (code, words) in StatusCode::TABLE {
            assert_eq!(StatusCode::from_raw(code as u16), Some(code));
            assert!(!words.is_empty());
        }
        assert_eq!(StatusCode::from_raw(0x7FF), None);
    }

    #[test]
    fn do_not_retry_is_bit_14_and_absent_where_a_retry_may_pass() {
        assert_eq!(Status::from(StatusCode::InvalidField).field(), 0x4002);
        assert_eq!(Status::from(StatusCode::CompareFailure).field(), 0x4285);
        assert_eq!(Status::from(StatusCode::NamespaceNotReady).field(), 0x0082);
        assert_eq!(
            Status::from(StatusCode::CapacityExceeded)
                .retryable()
                .field(),
            0x0081
        );
    }

    #[test]
    fn an_unknown_status_of_a_peer_is_kept() {
        let status = Status::from_field(0x07C1);
        assert_eq!(status.code(), None);
        assert_eq!(status.raw_code(), 0x7C1);
        assert_eq!(status.to_string(), "status SCT 0x7, SC 0xc1");
    }
}
