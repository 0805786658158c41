//! What a connection needs from the program around it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use block::OpKind;
use scsi::{Device, Lun, NexusId, SanitizeWork, View};

use crate::chap::Credentials;
use crate::params::Parameters;
use crate::window::CommandWindow;
use crate::window::order::AbortScope;
use crate::wire::login::LoginStatus;

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

/// The secrets that a login must prove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authentication {
    /// The secret that the initiator must prove; `None` if it need not prove any.
    pub initiator: Option<Credentials>,
    /// The secret that the target proves if the initiator requests it.
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

/// The kind of session that a login made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKind {
    /// Discovery: SendTargets, and no commands.
    Discovery,
    /// Commands.
    Normal(Opened),
}

/// The result of a login, from which full feature phase starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    /// InitiatorName.
    pub initiator: String,
    /// TargetName; `None` in a discovery session.
    pub target: Option<String>,
    /// The kind of session.
    pub kind: SessionKind,
    /// The negotiated values.
    pub parameters: Parameters,
    /// CID.
    pub cid: u16,
    /// Whether the session may have several connections. If so, [`Backend::with_window`] has its
    /// command window.
    pub is_shared: bool,
}

/// What SendTargets reports of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// TargetName.
    pub name: String,
    /// The addresses at which hosts reach it.
    pub addresses: Vec<TargetAddress>,
}

/// TargetAddress: an address at which hosts reach a target.
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
    /// Not yet. The connection is woken when that changes.
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
    /// By another connection of the session: they are not answered.
    ByOwn {
        /// Which commands.
        scope: AbortScope,
        /// Of those, the ones with a CmdSN before this.
        before: u32,
    },
}

/// The state of a session, and of a connection in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionState {
    /// It serves commands.
    #[default]
    Active,
    /// It serves commands, and its initiator is asked to log out. The session is dropped if it has
    /// not done so within this time.
    LogoutRequested(Duration),
    /// The target has dropped all of its connections.
    SessionDropped,
    /// The target has dropped this connection of it.
    ConnectionDropped,
    /// Its initiator has ended it, or this connection, by another connection (reinstatement,
    /// logout).
    Ended,
}

impl SessionState {
    /// Whether commands are still served.
    pub fn is_served(self) -> bool {
        matches!(self, Self::Active | Self::LogoutRequested(_))
    }
}

/// The program around a connection. A backend belongs to one connection. It knows the connection's
/// session once [`open`](Self::open) or [`join`](Self::join) has succeeded; in a discovery session
/// it knows none.
pub trait Backend {
    /// The secrets that a login to `target` (a discovery session if `None`) must prove; `None` if
    /// the initiator has no secret and the portal requires one: the login is refused. Called before
    /// the target is known to exist, so that strangers cannot learn which targets exist, and again
    /// when the initiator's response is checked and before the session is opened, since secrets may
    /// change meanwhile.
    fn authentication(&mut self, initiator: &str, target: Option<&str>) -> Option<Authentication>;

    /// The connection's number, by which volumes name it when they complete its commands.
    fn connection(&self) -> u64;

    /// TARGET PORTAL GROUP TAG of the connection's portal.
    fn portal_group(&self) -> u16;

    /// Opens a session: checks access, ends an older session between the same ends (reinstatement),
    /// and opens a nexus at the device.
    fn open(&mut self, ends: SessionEnds<'_>) -> Result<Opened, OpenError>;

    /// The session that was just opened may have further connections, which get these parameters
    /// and this window. `cid` is the CID of the first one.
    fn share(&mut self, parameters: &Parameters, window: CommandWindow, cid: u16);

    /// Joins a further connection to the session `tsih`, and ends one that has the same CID (RFC
    /// 7143 §6.3.4). Returns the session's parameters.
    fn join(
        &mut self,
        ends: SessionEnds<'_>,
        tsih: u16,
        cid: u16,
    ) -> Result<(Opened, Parameters), OpenError>;

    /// Runs `call` with the command window of a session that was [shared](Self::share). The window
    /// is complete between any two calls.
    fn with_window<R>(&mut self, call: impl FnOnce(&mut CommandWindow) -> R) -> R;

    /// Ends other connections of the session: that of `cid`, or all. Returns how many there were.
    fn end_others(&mut self, cid: Option<u16>) -> usize;

    /// Aborts the commands of `scope` with a CmdSN before `before` on the session's other
    /// connections, as [`Abort::ByOwn`].
    fn abort_on_others(&mut self, scope: AbortScope, before: u32);

    /// A number for everything that was ended or aborted so far on other connections of the target:
    /// sessions, connections and commands.
    fn fence(&mut self) -> u64;

    /// Whether no thread executes any more what was ended or aborted before [`fence`](Self::fence)
    /// returned this number: only then may it be answered. If not, this connection is woken when
    /// that changes.
    fn is_past(&mut self, fence: u64) -> bool;

    /// Wakes the session's connection `cid`, since the next command to start arrived on it.
    fn wake_other(&mut self, cid: u16);

    /// The login is done: full feature phase begins, of a discovery session or of the one that was
    /// opened.
    fn logged_in(&mut self, login: &LoggedIn);

    /// A login was refused. Names are empty or absent if the login ended before they were known.
    fn login_refused(&mut self, initiator: &str, target: Option<&str>, status: LoginStatus);

    /// From now on, the connection's commands gather at most `len_bytes` of data-out. Returns
    /// false, and changes nothing, if the program has no room for that.
    fn charge(&mut self, len_bytes: u64) -> bool;

    /// The targets that the host may discover.
    fn targets(&mut self, initiator: &str) -> Vec<TargetRecord>;

    /// Runs `call` with the device of the session's target and the session's nexus.
    fn with_device<R>(&mut self, call: impl FnOnce(&mut Device, NexusId) -> R) -> R;

    /// A number for the present reservations, if they have to be saved and are not yet.
    fn unsaved(&mut self) -> Option<u64>;

    /// Whether the reservations with a number of [`unsaved`](Self::unsaved) have been saved.
    fn saved(&mut self, number: u64) -> Saved;

    /// The session's view of `lun`, renewed if the device's generation has changed, and the region
    /// of placements in its volume.
    fn view(&mut self, lun: Lun) -> Option<(&View, session::SourceId)>;

    /// Random bytes (a CHAP challenge).
    fn random(&mut self) -> [u8; 17];

    /// A command ended.
    fn completed(&mut self, command: Completed);

    /// The commands of this connection that are to be aborted, since the last call. The caller ends
    /// them before it does anything else.
    fn take_aborts(&mut self) -> Vec<Abort>;

    /// The state of the session and of the connection in it. Asked once per batch, so it has to be
    /// cheap. The connection is woken when it changes.
    fn session_state(&mut self) -> SessionState;

    /// The session's initiator has not logged out in time: drops all of its connections.
    fn drop_session(&mut self);

    /// The connection ends before a sanitize operation that one of its commands started. The
    /// program admits the operation again, under a connection number of its own, and continues it.
    fn adopt(&mut self, sanitize: Box<SanitizeWork>);

    /// The connection ended. The session ends with its last connection.
    fn close(&mut self);
}
