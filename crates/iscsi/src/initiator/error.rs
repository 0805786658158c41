//! Why a login or a session fails.

/// Why a login failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The target has moved (status class 1): at [`PortalAddress`](super::PortalAddress) `address`.
    #[error("the target has moved to {address}")]
    Moved {
        /// TargetAddress, as given.
        address: String,
    },
    /// The target rejected the login (status classes 2 and 3).
    #[error("the target rejected the login: {}", refusal(*class, *detail))]
    Refused {
        /// Status-Class.
        class: u8,
        /// Status-Detail.
        detail: u8,
    },
    /// The target requires CHAP and there is no secret for it.
    #[error(
        "the target requires CHAP; put USER%SECRET@ before the host, or set LIBISCSI_CHAP_USERNAME and _PASSWORD"
    )]
    NoSecret,
    /// The target did not prove that it knows its secret.
    #[error("the target's CHAP response is wrong; check the target's user and secret")]
    TargetNotProven,
    /// The same secret for both directions lets anyone reflect it (RFC 7143 §12.1.3).
    #[error("the initiator's and the target's CHAP secrets must differ")]
    SameSecrets,
    /// The target must prove itself, but the initiator has no secret of its own.
    #[error(
        "mutual CHAP also needs a user and secret of the initiator; put USER%SECRET@ before the host"
    )]
    OneSided,
    /// The target's answer to a key is not a valid value of the key.
    #[error("the target answered {key}={value}, which is invalid")]
    Answer {
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// The target does not use the requested digests.
    #[error("the target rejects {key}=CRC32C; turn {option} off")]
    NoDigest {
        /// The key.
        key: &'static str,
        /// The URL's option.
        option: &'static str,
    },
    /// A response does not fit the stage, or its text is malformed.
    #[error("the target's login response is invalid: {what}")]
    Unfit {
        /// What is wrong.
        what: &'static str,
    },
    /// The login does not end.
    #[error("the login takes more than {EXCHANGES_MAX} exchanges")]
    Endless,
}

impl LoginError {
    /// Whether the user can fix it with another name, secret or option. The target reports such an
    /// error by status class 2, initiator error.
    pub fn is_mistake(&self) -> bool {
        match self {
            Self::Refused { class, .. } => *class == CLASS_INITIATOR_ERROR,
            Self::NoSecret
            | Self::TargetNotProven
            | Self::SameSecrets
            | Self::OneSided
            | Self::NoDigest { .. } => true,
            Self::Moved { .. } | Self::Answer { .. } | Self::Unfit { .. } | Self::Endless => false,
        }
    }
}

/// Status-Class 2, initiator error (RFC 7143 §11.13.5).
const CLASS_INITIATOR_ERROR: u8 = 2;

/// Why a session has to end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The target broke the protocol.
    #[error("the target sent a PDU of opcode {opcode:#04x} that breaks the protocol: {violation}")]
    Violation {
        /// The opcode.
        opcode: u8,
        /// What is wrong.
        violation: Violation,
    },
    /// The login failed.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// The target rejected a PDU that is not a command.
    #[error("the target rejected a PDU of opcode {opcode:#04x} (reason {reason:#04x})")]
    Rejected {
        /// The opcode of the PDU that was rejected.
        opcode: u8,
        /// The reason's code.
        reason: u8,
    },
    /// The target drops the connection (AsyncEvent 2 or 3).
    #[error("the target drops the connection (asynchronous event {event})")]
    Dropped {
        /// AsyncEvent.
        event: u8,
        /// How long the initiator has to wait before it connects again (Time2Wait), seconds.
        wait_s: u16,
    },
    /// Bytes arrived after the end.
    #[error("the session has ended")]
    Closed,
}

/// How a PDU breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// An opcode that is not known, or not possible in this phase.
    #[error("it is not expected here")]
    Unexpected,
    /// No PDU to an initiator has additional header segments.
    #[error("it has additional header segments")]
    HasAhs,
    /// The header digest is wrong.
    #[error("its header digest is wrong")]
    HeaderDigest,
    /// The digest of data that belong to no command's buffer is wrong.
    #[error("its data digest is wrong")]
    DataDigest,
    /// The data segment is longer than was declared.
    #[error("its data segment has {len_bytes} bytes; the maximum is {max_bytes}")]
    SegmentLength {
        /// DataSegmentLength.
        len_bytes: u32,
        /// The maximum.
        max_bytes: u32,
    },
    /// The task tag names no command in flight, or one of another kind.
    #[error("its task tag {itt:#010x} names no outstanding task")]
    TaskTag {
        /// Initiator Task Tag.
        itt: u32,
    },
    /// DataSN or R2TSN is not the next one.
    #[error("its sequence number is {have}, but {want} is expected")]
    Number {
        /// The value received.
        have: u32,
        /// The value expected.
        want: u32,
    },
    /// Data or R2T are out of order or beyond the command's data.
    #[error("bytes {offset} to {end} are out of order or exceed the command's {len_bytes} bytes")]
    Range {
        /// Buffer Offset.
        offset: u64,
        /// The first byte beyond.
        end: u64,
        /// How many bytes the command has.
        len_bytes: u32,
    },
    /// It exceeds what was negotiated, or a limit of this end.
    #[error("it exceeds {limit}")]
    Limit {
        /// Which limit.
        limit: &'static str,
    },
    /// A text is malformed.
    #[error("its text is malformed")]
    Text,
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// The session has ended.
    #[error("the session has ended")]
    Closed,
}

/// The most requests of one login.
pub(super) const EXCHANGES_MAX: u32 = 32;

/// RFC 7143 §11.13.5, with how to fix it.
fn refusal(class: u8, detail: u8) -> String {
    let text = match (class, detail) {
        (2, 0) => "the initiator made a mistake",
        (2, 1) => "authentication failed; check user and secret",
        (2, 2) => "this initiator may not use the target; allow its name there, or set initiator=",
        (2, 3) => "there is no target of this name; `discover` lists those that there are",
        (2, 4) => "the target was removed",
        (2, 5) => "the protocol version is not supported",
        (2, 6) => "too many connections",
        (2, 7) => "a parameter is missing",
        (2, 8) => "the connection cannot join the session",
        (2, 9) => "the session type is not supported",
        (2, 10) => "the session does not exist",
        (3, 0) => "the target failed",
        (3, 1) => "the service is unavailable",
        (3, 2) => "the target is out of resources",
        _ => return format!("status {class:02x}{detail:02x}h"),
    };
    text.to_owned()
}
