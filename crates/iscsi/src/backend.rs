//! What a connection asks of the program around it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use block::OpKind;
use scsi::{Device, Lun, NexusId, SanitizeWork, View};

use crate::chap::Credentials;
use crate::login::{LoggedIn, LoginStatus};
use crate::window::SharedSession;

/// The ends of a session, as its login names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionEnds<'a> {
    /// InitiatorName.
    pub initiator: &'a str,
    /// ISID.
    pub isid: [u8; 6],
    /// TargetName.
    pub target: &'a str,
}

/// Which secrets a login must prove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authentication {
    /// What the initiator must prove; none where it need not.
    pub initiator: Option<Credentials>,
    /// What the target proves where the initiator asks for it.
    pub target: Option<Credentials>,
}

/// Why a login is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No target of that name, at this portal.
    #[error("this portal has no target of that name")]
    NotFound,
    /// The access check refuses the host.
    #[error("the host is not allowed to use this target")]
    Forbidden,
    /// No room for another session.
    #[error("the target accepts no further session")]
    OutOfResources,
    /// The session has as many connections as were negotiated.
    #[error("the session already has the negotiated number of connections")]
    TooManyConnections,
    /// The session that the connection would join does not exist.
    #[error("there is no session with that TSIH")]
    NoSession,
    /// The target is being removed.
    #[error("the target is not available at present")]
    Unavailable,
}

/// A session that a login opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// TSIH, not 0.
    pub tsih: u16,
    /// The nexus at the device.
    pub nexus: NexusId,
}

/// What SendTargets tells of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// TargetName.
    pub name: String,
    /// Where it is reached.
    pub addresses: Vec<TargetAddress>,
}

/// TargetAddress: where a target is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetAddress {
    /// The portal's address.
    pub ip: IpAddr,
    /// Its TCP port.
    pub port: u16,
    /// TargetPortalGroupTag.
    pub group: u16,
}

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
    /// When its PDU was received.
    pub started: Instant,
}

/// How far reservations that are to outlive a restart have been saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// Not yet; the connection is woken when that changes.
    Pending,
    /// They are.
    Yes,
    /// They can't be.
    Failed,
}

/// Commands that are to be aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// By another nexus: each is answered with TASK ABORTED.
    ByAnother(Lun),
    /// By another connection of the session: they are not answered.
    ByOwn {
        /// Which.
        scope: AbortScope,
        /// Of those, the ones with a CmdSN before this.
        before: u32,
    },
}

/// Which commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortScope {
    /// All.
    All,
    /// Of a LUN.
    Lun(Lun),
    /// That of an Initiator Task Tag.
    Task(u32),
}

/// How a session stands, and a connection in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It goes on.
    #[default]
    Good,
    /// Its initiator is asked to log out; where it has not after this time, the session is dropped.
    Leaving(Duration),
    /// The target has dropped all of its connections.
    SessionDropped,
    /// The target has dropped this connection of it.
    ConnectionDropped,
    /// Its initiator has ended it, or this connection's place in it, by another connection (reinstatement, logout).
    Ended,
}

impl Standing {
    /// Whether commands are still served.
    pub fn is_served(self) -> bool {
        matches!(self, Self::Good | Self::Leaving(_))
    }
}

/// The program around a connection.
pub trait Backend {
    /// What a login to `target` (a discovery session where `None`) must prove. Called before the target is
    /// known to exist, so that strangers learn nothing by it.
    fn authentication(&mut self, initiator: &str, target: Option<&str>) -> Authentication;

    /// The connection's number, by which volumes name it when they complete its commands.
    fn connection(&self) -> u64;

    /// TARGET PORTAL GROUP TAG of the portal that the connection came through.
    fn portal_group(&self) -> u16;

    /// Opens a session: access check, reinstatement of an older session of the same ends (which ends it), a
    /// nexus at the device. The connection is bound to that device from then on.
    fn open(&mut self, ends: SessionEnds<'_>) -> Result<Opened, OpenError>;

    /// The session that was just opened may have further connections, which share this. `cid` is the first one's.
    fn share(&mut self, opened: Opened, session: &SharedSession, cid: u16);

    /// Joins a further connection to the session `tsih`, in the place of one that has the same CID (RFC 7143 §6.3.4).
    fn join(
        &mut self,
        ends: SessionEnds<'_>,
        tsih: u16,
        cid: u16,
    ) -> Result<(Opened, SharedSession), OpenError>;

    /// Ends other connections of the session: that of `cid`, or all. How many there were.
    fn end_others(&mut self, opened: Opened, cid: Option<u16>) -> usize;

    /// Aborts the commands of `scope` with a CmdSN before `before` on the session's other connections, as
    /// [`Abort::ByOwn`].
    fn abort_on_others(&mut self, opened: Opened, scope: AbortScope, before: u32);

    /// Whether all connections that this one's task management concerned, of its session and of others, have taken
    /// their aborts. This connection is woken when that changes.
    fn aborts_done(&mut self, opened: Opened) -> bool;

    /// Wakes the session's connection `cid`: a command's turn has come there.
    fn wake_other(&mut self, opened: Opened, cid: u16);

    /// The login is done: full feature phase begins, of a discovery session or of the one that was opened.
    fn logged_in(&mut self, login: &LoggedIn);

    /// A login was refused; names are empty or absent where it did not come so far.
    fn login_refused(&mut self, initiator: &str, target: Option<&str>, status: LoginStatus);

    /// The connection's commands gather `len_bytes` of data-out, no more, from now on. False, and no change, where
    /// the program has no room for that.
    fn charge(&mut self, len_bytes: u64) -> bool;

    /// What the host may discover.
    fn targets(&mut self, initiator: &str) -> Vec<TargetRecord>;

    /// The device that the connection is bound to, held for the length of the call.
    fn with_device<R>(&mut self, call: impl FnOnce(&mut Device) -> R) -> R;

    /// A number for the reservations as they are now, where they have to be saved and are not yet.
    fn unsaved(&mut self) -> Option<u64>;

    /// Whether the reservations of a number that [`unsaved`](Self::unsaved) gave have been saved.
    fn saved(&mut self, number: u64) -> Saved;

    /// What is remembered of `lun`, fetched anew when the device's generation has changed. The region is what
    /// placements in this volume carry.
    fn view(&mut self, nexus: NexusId, lun: Lun) -> Option<(&View, session::SourceId)>;

    /// Random bytes (a CHAP challenge).
    fn random(&mut self) -> [u8; 17];

    /// A command ended.
    fn completed(&mut self, command: Completed);

    /// Which commands of this connection are to be aborted, since the last call. They are ended before anything else
    /// is done.
    fn take_aborts(&mut self, opened: Opened) -> Vec<Abort>;

    /// How the session stands, and the connection in it. Asked once per batch, so it has to be cheap; the connection is
    /// woken when it changes.
    fn standing(&mut self, opened: Opened) -> Standing;

    /// The session's initiator has not logged out in time: all of its connections are to be dropped.
    fn drop_session(&mut self, opened: Opened);

    /// The connection ends before a sanitize operation that it was asked for. The program admits the operation again,
    /// under a connection number of its own, and goes on with it.
    fn adopt(&mut self, sanitize: Box<SanitizeWork>);

    /// The connection ended; with the last one ends the session.
    fn close(&mut self, opened: Opened);
}
