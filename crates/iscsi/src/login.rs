//! The login phase of one connection: stages, authentication, operational negotiation.
//!
//! Read first: RFC 7143 §6.3, §11.12, §11.13.
//!
//! ```text
//!            T, NSG=1                T, NSG=3
//! Security ───────────► Operational ─────────► Done
//!     └──────────────── T, NSG=3 ──────────────►
//! ```

use crate::backend::{Authentication, Backend, LoggedIn, OpenError, SessionEnds, SessionKind};
use crate::chap::{Algorithm, CHALLENGE_LEN, Challenge};
use crate::params::rdma::RdmaKeys;
use crate::params::{Parameters, Phase};
use crate::peer::COMMANDS_MAX;
use crate::text::{self, TEXT_LEN_MAX, TextBuilder};
use crate::window::CommandWindow;
use crate::wire::login::{CONTINUE, LoginRequest, LoginStatus, TRANSIT};

/// The most PDUs of one login.
const PDUS_MAX: u32 = 64;
/// The longest name of an initiator or target (RFC 7143 §4.2.7.2).
const NAME_LEN_MAX: usize = 223;

/// A login stage (CSG and NSG).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// SecurityNegotiation, 0.
    Security,
    /// LoginOperationalNegotiation, 1.
    Operational,
    /// FullFeaturePhase, 3.
    FullFeature,
}

impl Stage {
    fn from_bits(bits: u8) -> Option<Self> {
        match bits & 3 {
            0 => Some(Self::Security),
            1 => Some(Self::Operational),
            3 => Some(Self::FullFeature),
            _ => None,
        }
    }

    fn bits(self) -> u8 {
        match self {
            Self::Security => 0,
            Self::Operational => 1,
            Self::FullFeature => 3,
        }
    }
}

/// The response to a Login Request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoginReply {
    /// T, C, CSG and NSG.
    pub flags: u8,
    /// TSIH.
    pub tsih: u16,
    /// The data segment.
    pub text: Vec<u8>,
    /// Status; anything but success ends the connection after the response.
    pub status: LoginStatus,
    /// Whether the connection is in full feature phase after the response.
    pub done: bool,
}

#[derive(Clone, Debug)]
enum Chap {
    /// Not begun.
    Idle,
    /// AuthMethod=CHAP was negotiated; the initiator's algorithms are awaited.
    Chosen,
    /// The challenge was sent.
    Challenged(Challenge),
}

/// The login of one connection.
#[derive(Debug)]
pub(crate) struct Login {
    stage: Option<Stage>,
    pdus: u32,
    gathered: Vec<u8>,
    initiator: String,
    /// `None` for a discovery session.
    target: Option<String>,
    isid: [u8; 6],
    tsih: u16,
    cid: u16,
    authentication: Authentication,
    authenticated: bool,
    /// The initiator has proven a secret.
    has_proven: bool,
    chap: Chap,
    parameters: Parameters,
    declared: bool,
    opened: Option<SessionKind>,
    is_shared: bool,
}

impl Login {
    /// A login that awaits its first request.
    pub(crate) fn new() -> Self {
        Self {
            stage: None,
            pdus: 0,
            gathered: Vec::new(),
            initiator: String::new(),
            target: None,
            isid: [0; 6],
            tsih: 0,
            cid: 0,
            authentication: Authentication::default(),
            authenticated: false,
            has_proven: false,
            chap: Chap::Idle,
            parameters: Parameters::default(),
            declared: false,
            opened: None,
            is_shared: false,
        }
    }

    /// A login over RDMA, with these initial keys.
    pub(crate) fn over_rdma(keys: RdmaKeys) -> Self {
        let mut login = Self::new();
        login.parameters.rdma = Some(keys);
        login
    }

    /// The result of the login, once a reply said that it is done.
    pub(crate) fn logged_in(self) -> Option<LoggedIn> {
        Some(LoggedIn {
            initiator: self.initiator,
            target: self.target,
            kind: self.opened?,
            parameters: self.parameters,
            cid: self.cid,
            is_shared: self.is_shared,
        })
    }

    /// Takes a Login Request and its data segment.
    pub(crate) fn handle(
        &mut self,
        request: &LoginRequest,
        segment: &[u8],
        backend: &mut impl Backend,
    ) -> LoginReply {
        match self.try_handle(request, segment, backend) {
            Ok(reply) => reply,
            Err(status) => {
                backend.login_refused(&self.initiator, self.target.as_deref(), status);
                LoginReply {
                    flags: request.flags & 0x0C,
                    tsih: request.tsih.get(),
                    text: Vec::new(),
                    status,
                    done: false,
                }
            }
        }
    }

    fn try_handle(
        &mut self,
        request: &LoginRequest,
        segment: &[u8],
        backend: &mut impl Backend,
    ) -> Result<LoginReply, LoginStatus> {
        self.pdus += 1;
        if request.version_min > 0 {
            return Err(LoginStatus::UNSUPPORTED_VERSION);
        }
        if self.pdus > PDUS_MAX || self.gathered.len() + segment.len() > TEXT_LEN_MAX {
            return Err(LoginStatus::INITIATOR_ERROR);
        }
        let stage = Stage::from_bits(request.flags >> 2).filter(|s| *s != Stage::FullFeature);
        let stage = stage.ok_or(LoginStatus::INITIATOR_ERROR)?;
        if self.stage.is_some_and(|current| current != stage) {
            return Err(LoginStatus::INITIATOR_ERROR);
        }
        self.gathered.extend_from_slice(segment);
        let transit = request.flags & TRANSIT != 0;
        if request.flags & CONTINUE != 0 {
            // T and C exclude each other (RFC 7143 §11.12.2); an empty response requests the rest.
            return if transit {
                Err(LoginStatus::INITIATOR_ERROR)
            } else {
                Ok(self.reply(stage, None, TextBuilder::default()))
            };
        }
        let gathered = std::mem::take(&mut self.gathered);
        let pairs = text::parse(&gathered).map_err(|_| LoginStatus::INITIATOR_ERROR)?;
        let mut answer = TextBuilder::default();
        if self.stage.is_none() {
            self.begin(request, &pairs, backend, &mut answer)?;
            self.stage = Some(stage);
        }
        match stage {
            Stage::Security => self.security(&pairs, backend, &mut answer)?,
            _ => self.operational(&pairs, &mut answer)?,
        }
        let next = if transit {
            let next = Stage::from_bits(request.flags).filter(|next| next.bits() > stage.bits());
            let next = next.ok_or(LoginStatus::INITIATOR_ERROR)?;
            self.transit(next, request.cmd_sn.get(), backend)?
        } else {
            None
        };
        Ok(self.reply(stage, next, answer))
    }

    /// The first request: the names of initiator and target, and the kind of session.
    fn begin(
        &mut self,
        request: &LoginRequest,
        pairs: &[(&str, &str)],
        backend: &mut impl Backend,
        answer: &mut TextBuilder,
    ) -> Result<(), LoginStatus> {
        let find = |key: &str| {
            pairs
                .iter()
                .find(|(other, _)| *other == key)
                .map(|(_, v)| *v)
        };
        let name = |key| match find(key) {
            Some(name) if is_name(name) => Ok(Some(name.to_owned())),
            Some(_) => Err(LoginStatus::INITIATOR_ERROR),
            None => Ok(None),
        };
        self.initiator = name("InitiatorName")?.ok_or(LoginStatus::MISSING_PARAMETER)?;
        self.target = match find("SessionType") {
            None | Some("Normal") => {
                Some(name("TargetName")?.ok_or(LoginStatus::MISSING_PARAMETER)?)
            }
            Some("Discovery") => None,
            Some(_) => return Err(LoginStatus::SESSION_TYPE),
        };
        self.isid = request.isid;
        self.tsih = request.tsih.get();
        self.cid = request.cid.get();
        if self.target.is_none() && self.tsih != 0 {
            return Err(LoginStatus::SESSION_TYPE);
        }
        self.renew_secrets(backend)?;
        self.authenticated = self.authentication.initiator.is_none();
        if self.target.is_some() {
            answer.push("TargetPortalGroupTag", &backend.portal_group().to_string());
        }
        Ok(())
    }

    /// Takes the secrets as they are now. They may change while an initiator logs in.
    fn renew_secrets(&mut self, backend: &mut impl Backend) -> Result<(), LoginStatus> {
        self.authentication = backend
            .authentication(&self.initiator, self.target.as_deref())
            .ok_or(LoginStatus::AUTHENTICATION_FAILURE)?;
        Ok(())
    }

    /// Keys of the security stage.
    fn security(
        &mut self,
        pairs: &[(&str, &str)],
        backend: &mut impl Backend,
        answer: &mut TextBuilder,
    ) -> Result<(), LoginStatus> {
        let find = |key: &str| {
            pairs
                .iter()
                .find(|(other, _)| *other == key)
                .map(|(_, v)| *v)
        };
        if let Some(offer) = find("AuthMethod") {
            self.choose_method(offer, answer)?;
        }
        if let Some(offer) = find("CHAP_A") {
            self.challenge(offer, backend, answer)?;
        }
        if let Some(response) = find("CHAP_R") {
            let name = find("CHAP_N").ok_or(LoginStatus::AUTHENTICATION_FAILURE)?;
            self.renew_secrets(backend)?;
            self.verify(name, response, find("CHAP_I").zip(find("CHAP_C")), answer)?;
        }
        for (key, _) in pairs {
            if !is_security_key(key) {
                answer.push(key, "NotUnderstood");
            }
        }
        Ok(())
    }

    fn choose_method(&mut self, offer: &str, answer: &mut TextBuilder) -> Result<(), LoginStatus> {
        let offers = |method: &str| offer.split(',').any(|offered| offered == method);
        let chap = if self.authenticated {
            !offers("None")
        } else {
            true
        };
        if chap {
            // CHAP needs a secret of the initiator.
            if self.authenticated || !offers("CHAP") {
                return Err(LoginStatus::AUTHENTICATION_FAILURE);
            }
            self.chap = Chap::Chosen;
            answer.push("AuthMethod", "CHAP");
        } else {
            answer.push("AuthMethod", "None");
        }
        Ok(())
    }

    fn challenge(
        &mut self,
        offer: &str,
        backend: &mut impl Backend,
        answer: &mut TextBuilder,
    ) -> Result<(), LoginStatus> {
        let Chap::Chosen = self.chap else {
            return Err(LoginStatus::INITIATOR_ERROR);
        };
        let algorithm = Algorithm::choose(offer).ok_or(LoginStatus::AUTHENTICATION_FAILURE)?;
        let [identifier, bytes @ ..] = backend.random();
        let bytes: [u8; CHALLENGE_LEN] = bytes;
        let challenge = Challenge::new(algorithm, identifier, bytes);
        answer.push("CHAP_A", &algorithm.number().to_string());
        answer.push("CHAP_I", &challenge.identifier());
        answer.push("CHAP_C", &challenge.challenge());
        self.chap = Chap::Challenged(challenge);
        Ok(())
    }

    /// Checks the initiator's CHAP response, and gives ours if it requests one (`theirs` is its
    /// identifier and challenge).
    fn verify(
        &mut self,
        name: &str,
        response: &str,
        theirs: Option<(&str, &str)>,
        answer: &mut TextBuilder,
    ) -> Result<(), LoginStatus> {
        let failure = LoginStatus::AUTHENTICATION_FAILURE;
        // A challenge is answered once: a second try needs a second login.
        let Chap::Challenged(challenge) = std::mem::replace(&mut self.chap, Chap::Idle) else {
            return Err(LoginStatus::INITIATOR_ERROR);
        };
        let expected = self.authentication.initiator.as_ref().ok_or(failure)?;
        challenge
            .verify(name, response, expected)
            .map_err(|_| failure)?;
        if let Some((identifier, bytes)) = theirs {
            let own = self.authentication.target.as_ref().ok_or(failure)?;
            // The same secret in both directions would let anyone reflect it (RFC 7143 §12.1.3).
            if own.secret == expected.secret {
                return Err(failure);
            }
            let response = challenge
                .answer(identifier, bytes, own)
                .map_err(|_| failure)?;
            answer.push("CHAP_N", &own.name);
            answer.push("CHAP_R", &response);
        }
        (self.authenticated, self.has_proven) = (true, true);
        Ok(())
    }

    /// Keys of the operational stage.
    fn operational(
        &mut self,
        pairs: &[(&str, &str)],
        answer: &mut TextBuilder,
    ) -> Result<(), LoginStatus> {
        if !self.authenticated {
            return Err(LoginStatus::AUTHENTICATION_FAILURE);
        }
        let phase = if self.tsih == 0 {
            Phase::LeadingLogin
        } else {
            Phase::FurtherLogin
        };
        for (key, value) in pairs {
            if is_declaration(key) {
                continue;
            }
            self.parameters
                .negotiate(phase, key, value, answer)
                .map_err(|_| LoginStatus::INITIATOR_ERROR)?;
        }
        if !self.declared {
            answer.push(
                "MaxRecvDataSegmentLength",
                &self.parameters.recv_segment_len_max().to_string(),
            );
            self.declared = true;
        }
        Ok(())
    }

    /// The initiator requests the stage `next`. Returns `None` if the target is not ready for it.
    fn transit(
        &mut self,
        next: Stage,
        cmd_sn: u32,
        backend: &mut impl Backend,
    ) -> Result<Option<Stage>, LoginStatus> {
        if !self.authenticated {
            // During CHAP: not yet. Without CHAP: the initiator tries to skip it.
            return match self.chap {
                Chap::Idle => Err(LoginStatus::AUTHENTICATION_FAILURE),
                _ => Ok(None),
            };
        }
        if next == Stage::FullFeature {
            if self.parameters.refuses_rdma() {
                return Err(LoginStatus::INITIATOR_ERROR);
            }
            self.parameters.settle();
            self.renew_secrets(backend)?;
            if self.authentication.initiator.is_some() && !self.has_proven {
                // A secret was set since the login began.
                return Err(LoginStatus::AUTHENTICATION_FAILURE);
            }
            self.opened = Some(self.open(cmd_sn, backend)?);
        }
        self.stage = Some(next);
        Ok(Some(next))
    }

    fn open(
        &mut self,
        cmd_sn: u32,
        backend: &mut impl Backend,
    ) -> Result<SessionKind, LoginStatus> {
        let Some(target) = &self.target else {
            return Ok(SessionKind::Discovery);
        };
        let ends = SessionEnds {
            initiator: &self.initiator,
            isid: self.isid,
            target,
        };
        if self.tsih == 0 {
            let opened = backend.open(ends).map_err(status_of)?;
            if self.parameters.connections_max > 1 {
                let window = CommandWindow::new(cmd_sn, COMMANDS_MAX);
                backend.share(&self.parameters, window, self.cid);
                self.is_shared = true;
            }
            return Ok(SessionKind::Normal(opened));
        }
        if self.parameters.rdma.is_some() {
            // Sessions over RDMA have one connection, and no session mixes transports.
            return Err(LoginStatus::NO_SESSION);
        }
        let joined = backend.join(ends, self.tsih, self.cid);
        let (opened, parameters) = joined.map_err(status_of)?;
        self.parameters.join(&parameters);
        self.is_shared = true;
        Ok(SessionKind::Normal(opened))
    }

    fn reply(&self, stage: Stage, next: Option<Stage>, answer: TextBuilder) -> LoginReply {
        let done = next == Some(Stage::FullFeature);
        let tsih = match &self.opened {
            Some(SessionKind::Normal(opened)) => opened.tsih,
            // A discovery session has one connection: any handle except 0 is valid.
            Some(SessionKind::Discovery) => 1,
            None => self.tsih,
        };
        LoginReply {
            flags: stage.bits() << 2 | next.map_or(0, |next| TRANSIT | next.bits()),
            tsih,
            text: answer.into_bytes(),
            status: LoginStatus::SUCCESS,
            done,
        }
    }
}

fn status_of(error: OpenError) -> LoginStatus {
    match error {
        OpenError::NotFound => LoginStatus::NOT_FOUND,
        OpenError::Forbidden => LoginStatus::AUTHORIZATION_FAILURE,
        OpenError::OutOfResources => LoginStatus::OUT_OF_RESOURCES,
        OpenError::TooManyConnections => LoginStatus::TOO_MANY_CONNECTIONS,
        OpenError::NoSession => LoginStatus::NO_SESSION,
        OpenError::Unavailable => LoginStatus::UNAVAILABLE,
    }
}

/// iSCSI names: `iqn.`, `eui.`, `naa.` and other forms in use; printable ASCII without spaces.
fn is_name(name: &str) -> bool {
    (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Keys that the first request declares; they are not negotiated.
fn is_declaration(key: &str) -> bool {
    matches!(
        key,
        "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType" | "TargetAlias"
    )
}

fn is_security_key(key: &str) -> bool {
    is_declaration(key)
        || matches!(
            key,
            "AuthMethod" | "CHAP_A" | "CHAP_N" | "CHAP_R" | "CHAP_I" | "CHAP_C"
        )
}

#[cfg(test)]
mod tests;
