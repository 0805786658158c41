//! The operations of a compound.
//!
//! Read first: RFC 8881 section 16.2, RFC 7862 section 12, and RFC 7530 section 16 for minor
//! version 0.

use super::place::MinorVersion;
use crate::Procedure;

/// nfs_opnum4, as far as this server has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Access,
    Close,
    Commit,
    Create,
    ReturnDelegation,
    GetAttr,
    GetFh,
    Link,
    Lock,
    LockTest,
    Unlock,
    Lookup,
    LookupParent,
    NotVerify,
    Open,
    OpenDowngrade,
    PutFh,
    PutPublicFh,
    PutRootFh,
    Read,
    ReadDir,
    ReadLink,
    Remove,
    Rename,
    RestoreFh,
    SaveFh,
    SecurityInfo,
    SetAttr,
    Verify,
    Write,
    BackChannelControl,
    BindConnection,
    ExchangeId,
    CreateSession,
    DestroySession,
    FreeStateId,
    SecurityInfoNoName,
    Sequence,
    TestStateId,
    DestroyClientId,
    ReclaimComplete,
    Copy,
    Allocate,
    Clone,
    Deallocate,
    ReadPlus,
    Seek,
    GetXattr,
    SetXattr,
    ListXattrs,
    RemoveXattr,
    /// One that only minor version 0 has.
    Owned(OwnedOperation),
    /// One that the minor version has and this server has not.
    NotSupported,
    /// One that the minor version has not.
    Illegal,
}

/// The operations of minor version 0 alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnedOperation {
    ConfirmOpen,
    Renew,
    SetClientId,
    ConfirmClientId,
    ReleaseLockOwner,
}

/// The last operation of minor version 0, of 1, and of 2 (RFC 7862, and RFC 8276).
const LAST_OF_0: u32 = 39;
const LAST_OF_1: u32 = 58;
const LAST_OF_2: u32 = 75;
/// OP_ILLEGAL, which replaces the number of an unknown operation in its result.
pub(super) const ILLEGAL: u32 = 10_044;

impl Operation {
    /// The operation with this number.
    pub(super) const fn new(number: u32, minor: MinorVersion) -> Self {
        let last = match minor {
            MinorVersion::Zero => LAST_OF_0,
            MinorVersion::One => LAST_OF_1,
            MinorVersion::Two => LAST_OF_2,
        };
        if number < 3 || number > last {
            return Self::Illegal;
        }
        if matches!(minor, MinorVersion::Zero)
            && let Some(operation) = Self::of_0(number)
        {
            return operation;
        }
        match number {
            3 => Self::Access,
            4 => Self::Close,
            5 => Self::Commit,
            6 => Self::Create,
            8 => Self::ReturnDelegation,
            9 => Self::GetAttr,
            10 => Self::GetFh,
            11 => Self::Link,
            12 => Self::Lock,
            13 => Self::LockTest,
            14 => Self::Unlock,
            15 => Self::Lookup,
            16 => Self::LookupParent,
            17 => Self::NotVerify,
            18 => Self::Open,
            21 => Self::OpenDowngrade,
            22 => Self::PutFh,
            23 => Self::PutPublicFh,
            24 => Self::PutRootFh,
            25 => Self::Read,
            26 => Self::ReadDir,
            27 => Self::ReadLink,
            28 => Self::Remove,
            29 => Self::Rename,
            31 => Self::RestoreFh,
            32 => Self::SaveFh,
            33 => Self::SecurityInfo,
            34 => Self::SetAttr,
            37 => Self::Verify,
            38 => Self::Write,
            40 => Self::BackChannelControl,
            41 => Self::BindConnection,
            42 => Self::ExchangeId,
            43 => Self::CreateSession,
            44 => Self::DestroySession,
            45 => Self::FreeStateId,
            52 => Self::SecurityInfoNoName,
            53 => Self::Sequence,
            55 => Self::TestStateId,
            57 => Self::DestroyClientId,
            58 => Self::ReclaimComplete,
            number => Self::of_2(number),
        }
    }

    /// The operation of minor version 2 alone.
    const fn of_2(number: u32) -> Self {
        match number {
            59 => Self::Allocate,
            60 => Self::Copy,
            62 => Self::Deallocate,
            68 => Self::ReadPlus,
            69 => Self::Seek,
            71 => Self::Clone,
            72 => Self::GetXattr,
            73 => Self::SetXattr,
            74 => Self::ListXattrs,
            75 => Self::RemoveXattr,
            _ => Self::NotSupported,
        }
    }

    /// The operation with this number that minor version 0 has and later ones have no more.
    const fn of_0(number: u32) -> Option<Self> {
        match number {
            20 => Some(Self::Owned(OwnedOperation::ConfirmOpen)),
            30 => Some(Self::Owned(OwnedOperation::Renew)),
            35 => Some(Self::Owned(OwnedOperation::SetClientId)),
            36 => Some(Self::Owned(OwnedOperation::ConfirmClientId)),
            39 => Some(Self::Owned(OwnedOperation::ReleaseLockOwner)),
            _ => None,
        }
    }

    /// Whether a repetition has another effect or other results, so that minor version 0 keeps the
    /// reply.
    pub(super) const fn is_executed_once(self) -> bool {
        matches!(
            self,
            Self::Close
                | Self::Create
                | Self::Link
                | Self::Lock
                | Self::Unlock
                | Self::Open
                | Self::OpenDowngrade
                | Self::Remove
                | Self::Rename
                | Self::ReturnDelegation
                | Self::SetAttr
                | Self::Owned(_)
        )
    }

    /// Whether it is a request of an owner in minor version 0, which has a number.
    pub(super) const fn is_of_owner(self) -> bool {
        matches!(
            self,
            Self::Close
                | Self::Lock
                | Self::Unlock
                | Self::Open
                | Self::OpenDowngrade
                | Self::Owned(OwnedOperation::ConfirmOpen)
        )
    }

    /// Whether it may be the only operation of a compound without SEQUENCE.
    pub(super) const fn needs_no_session(self) -> bool {
        matches!(
            self,
            Self::ExchangeId
                | Self::CreateSession
                | Self::DestroySession
                | Self::BindConnection
                | Self::DestroyClientId
        )
    }

    /// As what a compound is counted whose main operation this is: a procedure of version 3 that
    /// does the same, if there is one. `None` for operations that others follow.
    pub(super) const fn procedure(self) -> Option<Procedure> {
        Some(match self {
            Self::Access => Procedure::Access,
            Self::Close => Procedure::Close,
            Self::Commit => Procedure::Commit,
            Self::Create => Procedure::MkNod,
            Self::Link => Procedure::Link,
            Self::Lock | Self::LockTest | Self::Unlock => Procedure::Lock,
            Self::Lookup | Self::LookupParent => Procedure::Lookup,
            Self::Open | Self::OpenDowngrade => Procedure::Open,
            Self::Read | Self::ReadPlus => Procedure::Read,
            Self::ReadDir => Procedure::ReadDir,
            Self::ReadLink => Procedure::ReadLink,
            Self::Remove => Procedure::Remove,
            Self::Rename => Procedure::Rename,
            Self::SetAttr
            | Self::Allocate
            | Self::Deallocate
            | Self::SetXattr
            | Self::RemoveXattr => Procedure::SetAttr,
            Self::GetXattr | Self::ListXattrs => Procedure::GetAttr,
            Self::Write | Self::Copy | Self::Clone => Procedure::Write,
            _ => return None,
        })
    }
}
