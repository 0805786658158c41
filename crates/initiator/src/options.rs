//! Options of a device: sizes, timeouts, behaviour when a connection is lost.

use std::time::Duration;

use nvme::host::CommandKey;

/// Options of a [`crate::Device`]. What its URL sets (digests, the number of queues, the host's
/// name) stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// The number of I/O queues, if the URL does not set it (`queues=`).
    pub queues: u16,
    /// Slots in each queue: how many commands it can have in flight.
    pub depth: u16,
    /// Bytes of each slot's buffer: the longest transfer of one command.
    pub buffer_bytes: usize,
    /// What happens to commands in flight when the connection is lost.
    pub on_loss: OnLoss,
    /// How connections are made again.
    pub backoff: Backoff,
    /// How long connecting, and any one step of the set-up, may take.
    pub connect_timeout: Duration,
    /// The keep-alive timeout (KATO) asked of an NVMe controller, or how long an iSCSI target may
    /// leave a ping unanswered; either is sent at a third of it. Zero: none.
    pub keep_alive: Duration,
    /// How long a command may be in flight before its connection counts as lost.
    pub command_timeout: Duration,
    /// The part of an iSCSI session's identifier (ISID), or of an SRP initiator port, that
    /// distinguishes this device from others of the machine; random if absent. A later device with
    /// the same value and target replaces what is left of this one's sessions: the target ends
    /// their commands before it accepts the login (RFC 7143 §6.3.5), or before it executes commands
    /// of the new channel (SRP).
    pub session_qualifier: Option<[u8; 3]>,
}

impl DeviceOptions {
    /// The most slots of a queue.
    pub const DEPTH_MAX: u16 = CommandKey::COUNT_MAX / 2;
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            queues: 1,
            depth: 128,
            buffer_bytes: 128 * 1024,
            on_loss: OnLoss::Resubmit,
            backoff: Backoff::default(),
            connect_timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(15),
            command_timeout: Duration::from_secs(30),
            session_qualifier: None,
        }
    }
}

/// What happens to commands in flight when the connection is lost. Commands submitted while it is
/// down wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// They complete with [`crate::CommandError::ConnectionLost`]; whether they were executed is
    /// unknown.
    Fail,
    /// They are submitted again on the next connection (compare-and-write alone fails as above,
    /// unless the target can tell a replay from a new command: with BRP).
    Resubmit,
}

/// Exponential back-off with jitter between attempts to connect again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The mean wait before the second attempt; the first one is made at once.
    pub first: Duration,
    /// The longest wait; waits double up to it.
    pub max: Duration,
    /// How long to continue before giving up; commands that wait fail then. Zero: a connection that
    /// is lost is not made again.
    pub give_up_after: Duration,
    /// Seeds the jitter (each wait is drawn from half to one and a half times its mean).
    pub seed: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(50),
            max: Duration::from_secs(5),
            give_up_after: Duration::from_secs(600),
            seed: 0x7261_6d70_6f72_7400,
        }
    }
}

/// How [`crate::Queue::wait`] passes the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStrategy {
    /// Poll without pause: the shortest latency, at the price of a core.
    Spin,
    /// Sleep in the operating system until something arrives.
    Sleep,
    /// Poll for this long, then sleep.
    SpinThenSleep(Duration),
}
