//! What a channel needs from the program around it.

use std::time::{Duration, Instant};

use block::OpKind;
use scsi::{Device, Lun, NexusId, SanitizeWork, View};

/// The accounting of a finished command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The LUN that the nexus sees.
    pub lun: Lun,
    /// What it did.
    pub kind: OpKind,
    /// Bytes moved.
    pub len_bytes: u64,
    /// Whether it ended with GOOD.
    pub ok: bool,
    /// When its message was received.
    pub started: Instant,
}

/// How far reservations that are to outlive a restart have been saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// Not yet. The channel is woken when that changes.
    Pending,
    /// They are saved.
    Yes,
    /// They cannot be saved.
    Failed,
}

/// Commands that are to be aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// Commands of a LUN, by another nexus: each is answered with TASK ABORTED.
    ByAnother(Lun),
    /// Commands of a LUN, by another channel of the nexus: they are not answered.
    ByOwn(Lun),
}

/// The state of a nexus, and of a channel in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Commands are served.
    #[default]
    Active,
    /// No further command is served. Those in progress may end within this time; then the channel
    /// is logged out.
    Draining(Duration),
    /// The target has ended the nexus or this channel: nothing is executed any more, and the
    /// channel is logged out.
    Dropped,
    /// The initiator has ended the nexus by another login.
    Ended,
}

/// The program around a channel. It has admitted the channel's initiator, so the channel belongs to
/// a nexus from the beginning.
pub trait Backend {
    /// The channel's number, by which volumes name it when they complete its commands.
    fn connection(&self) -> u64;

    /// Runs `call` with the device of the target and the channel's nexus.
    fn with_device<R>(&mut self, call: impl FnOnce(&mut Device, NexusId) -> R) -> R;

    /// The nexus's view of `lun`, renewed if the device's generation has changed, and what tells
    /// the volume from one that was behind this LUN before.
    fn view(&mut self, lun: Lun) -> Option<(&View, session::SourceId)>;

    /// From now on, the channel's commands hold at most `len_bytes` of data and tables. Returns
    /// false, and changes nothing, if the program has no room for that.
    fn charge(&mut self, len_bytes: u64) -> bool;

    /// Aborts the commands of `lun` on the other channels of the nexus.
    fn abort_on_others(&mut self, lun: Lun);

    /// The commands of this channel that are to be aborted, since the last call. The caller ends
    /// them before it does anything else.
    fn take_aborts(&mut self) -> Vec<Abort>;

    /// A number for everything that was ended or aborted so far on other channels of the target.
    fn fence(&mut self) -> u64;

    /// Whether no thread executes any more what was ended or aborted before [`fence`](Self::fence)
    /// returned this number: only then may it be answered. If not, this channel is woken when that
    /// changes.
    fn is_past(&mut self, fence: u64) -> bool;

    /// A number for the present reservations, if they have to be saved and are not yet.
    fn unsaved(&mut self) -> Option<u64>;

    /// Whether the reservations with a number of [`unsaved`](Self::unsaved) have been saved.
    fn saved(&mut self, number: u64) -> Saved;

    /// The state of the nexus and of the channel in it. Asked once per batch, so it has to be
    /// cheap. The channel is woken when it changes.
    fn standing(&mut self) -> Standing;

    /// A command ended.
    fn completed(&mut self, command: Completed);

    /// The channel ends before a sanitize operation that one of its commands started. The program
    /// admits the operation again, under a connection number of its own, and continues it.
    fn adopt(&mut self, sanitize: Box<SanitizeWork>);

    /// The channel ended. The nexus ends with its last channel.
    fn close(&mut self);
}
