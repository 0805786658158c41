//! What a target accepts from its peer: bounds, timeouts, and the errors that end a connection.

use std::time::Duration;

use crate::wire::Bhs;

/// The longest additional header segments that are accepted, bytes. The target needs none: CDBs
/// have 16 bytes, and bidirectional commands are not supported.
pub(crate) const AHS_LEN_MAX: usize = 64;
/// The command window of a session: the most commands that are outstanding.
pub const COMMANDS_MAX: usize = 256;
/// How long a connection may be in login.
pub const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Silence after which the target sends a NOP-In to learn whether the initiator is alive.
pub const PING_AFTER: Duration = Duration::from_secs(30);
/// How long the response to that NOP-In may take.
pub const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How long commands wait for a missing one with a lower CmdSN. The missing command was lost with
/// its connection. The session ends, as error recovery level 0 demands (RFC 7143 §7.1.4).
pub const GAP_TIMEOUT: Duration = Duration::from_secs(20);
/// How long an initiator may take to read the notice that its connection is dropped.
pub(crate) const DROP_TIMEOUT: Duration = Duration::from_secs(1);
/// The most replies that wait to be sent, beside those of tasks.
pub(crate) const REPLIES_MAX: usize = 64;

/// How a peer breaks the protocol so that the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The header digest is wrong.
    #[error("the header digest is wrong")]
    HeaderDigest,
    /// The additional header segments are longer than any that the target accepts.
    #[error("TotalAHSLength is {0} bytes; the maximum is {AHS_LEN_MAX}")]
    AhsLength(usize),
    /// The data segment is longer than was declared.
    #[error("DataSegmentLength is {have} bytes; the maximum is {max}")]
    SegmentLength {
        /// The value received.
        have: usize,
        /// The largest value allowed.
        max: usize,
    },
    /// A message ends before its PDU does.
    #[error("a message of {0} bytes ends before its PDU does")]
    Truncated(usize),
    /// The PDU is not allowed before the login is done.
    #[error("opcode {0:#04x} arrived during login")]
    BeforeLogin(u8),
    /// A PDU arrived although the login is not answered.
    #[error("opcode {0:#04x} arrived before the last Login Response was sent")]
    BeforeLoginResponse(u8),
    /// A Login Request arrived in full feature phase.
    #[error("a login request arrived after the login")]
    SecondLogin,
    /// The login took too long.
    #[error("the login took longer than {} s", LOGIN_TIMEOUT.as_secs())]
    LoginTimeout,
    /// The initiator does not answer.
    #[error("no response to a NOP-In within {} s", PING_TIMEOUT.as_secs())]
    PingTimeout,
    /// The initiator does not read the notice that its connection is dropped.
    #[error("the host did not read the notice that its connection is dropped within {} s", DROP_TIMEOUT.as_secs())]
    DropUnread,
    /// A command is missing.
    #[error("a command that others wait for has not arrived within {} s", GAP_TIMEOUT.as_secs())]
    Gap,
    /// The initiator sends more requests than it reads responses.
    #[error("more than {REPLIES_MAX} responses wait to be read")]
    Flood,
}

/// Checks the lengths in a BHS before anything is awaited or allocated. Returns the bytes of the
/// AHS.
pub(crate) fn check_lengths(bhs: &Bhs, segment_len_max: usize) -> Result<usize, PeerError> {
    let ahs = bhs.ahs_len();
    if ahs > AHS_LEN_MAX {
        return Err(PeerError::AhsLength(ahs));
    }
    let have = bhs.data_segment_len.get() as usize;
    if have > segment_len_max {
        let max = segment_len_max;
        return Err(PeerError::SegmentLength { have, max });
    }
    Ok(ahs)
}
