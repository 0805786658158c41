//! The initiator's side of a login: stages, CHAP, negotiation.
//!
//! Read first: RFC 7143 §6.2, §6.3, §11.12, §11.13, §12.1.3.
//!
//! ```text
//!  Security ──────────────────────► Operational ──► done
//!     └─► Algorithms ─► Answered ──────►
//! ```

use super::config::{R2TS_MAX, SessionConfig};
use super::error::{EXCHANGES_MAX, LoginError, SessionError};
use super::pending::Control;
use crate::chap::{Algorithm, Challenge, Credentials};
use crate::params::{BURST_LEN_MAX, FIRST_BURST_LEN_MAX, SEND_SEGMENT_LEN_MAX};
use crate::params::{Digest, OUTSTANDING_R2T_MAX, Parameters, RECV_SEGMENT_LEN_MAX};
use crate::text::{self, TEXT_LEN_MAX, TextBuilder, parse_number};
use crate::wire::login::{CONTINUE, LoginResponse, TRANSIT};

/// The shortest that a length in bytes may be negotiated to (RFC 7143 §13.12 and the like).
const LEN_MIN: u32 = 512;

/// A login in progress.
#[derive(Debug)]
pub(super) struct Login {
    config: SessionConfig,
    stage: Stage,
    exchanges: u32,
    gathered: Vec<u8>,
    parameters: Parameters,
    /// Whether the target has proven itself; true from the start if it need not.
    proven: bool,
    ours: Option<Challenge>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// AuthMethod was offered.
    Security,
    /// CHAP's algorithms were offered.
    Algorithms,
    /// The target's challenge was answered.
    Answered,
    /// The operational keys were offered.
    Operational,
}

/// The next step after a response.
pub(super) enum Next {
    Send(Control),
    /// The full feature phase begins, with these values.
    Done(Box<Parameters>),
}

const CSG_SECURITY: u8 = 0;
const CSG_OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;

impl Login {
    pub(super) fn new(config: &SessionConfig) -> Result<Self, LoginError> {
        match (&config.credentials, &config.target_credentials) {
            (None, Some(_)) => return Err(LoginError::OneSided),
            (Some(ours), Some(theirs)) if ours.secret == theirs.secret => {
                return Err(LoginError::SameSecrets);
            }
            _ => {}
        }
        Ok(Self {
            config: config.clone(),
            stage: Stage::Security,
            exchanges: 0,
            gathered: Vec::new(),
            parameters: Parameters::default(),
            proven: config.target_credentials.is_none(),
            ours: None,
        })
    }

    /// The first request: the names of both ends, and how to authenticate.
    pub(super) fn first(&mut self) -> Control {
        let mut text = TextBuilder::default();
        text.push("InitiatorName", &self.config.initiator);
        match &self.config.target {
            Some(target) => {
                text.push("SessionType", "Normal");
                text.push("TargetName", target);
            }
            None => text.push("SessionType", "Discovery"),
        }
        let (methods, transit) = match (&self.config.credentials, self.proven) {
            (None, _) => ("None", Some(CSG_OPERATIONAL)),
            // A target that need not prove itself may also accept us without a proof.
            (Some(_), true) => ("CHAP,None", None),
            (Some(_), false) => ("CHAP", None),
        };
        text.push("AuthMethod", methods);
        self.request(CSG_SECURITY, transit, text)
    }

    /// Takes a response.
    pub(super) fn on_response(
        &mut self,
        response: &LoginResponse,
        segment: &[u8],
    ) -> Result<Next, SessionError> {
        self.exchanges += 1;
        if self.exchanges > EXCHANGES_MAX {
            return Err(LoginError::Endless.into());
        }
        if self.gathered.len() + segment.len() > TEXT_LEN_MAX {
            return Err(unfit("its text is too long"));
        }
        self.gathered.extend_from_slice(segment);
        if response.status_class == 0 && response.flags & CONTINUE != 0 {
            let csg = self.csg();
            return Ok(Next::Send(self.request(csg, None, TextBuilder::default())));
        }
        let gathered = std::mem::take(&mut self.gathered);
        let pairs = text::parse(&gathered).map_err(|_| unfit("its text is malformed"))?;
        check_status(response, &pairs)?;
        if response.flags >> 2 & 3 != self.csg() {
            return Err(unfit("it is of another stage"));
        }
        let next_stage = (response.flags & TRANSIT != 0).then_some(response.flags & 3);
        match self.stage {
            Stage::Operational => self.on_operational(&pairs, next_stage),
            _ => self.on_security(&pairs, next_stage),
        }
    }

    fn on_security(
        &mut self,
        pairs: &[(&str, &str)],
        next_stage: Option<u8>,
    ) -> Result<Next, SessionError> {
        match (self.stage, find(pairs, "AuthMethod")) {
            (Stage::Security, Some("CHAP")) => return self.offer_algorithms(),
            (Stage::Security, Some("None") | None) | (_, None) => {}
            (_, Some(other)) => return Err(bad_answer("AuthMethod", other)),
        }
        if self.stage == Stage::Algorithms {
            return self.answer_challenge(pairs);
        }
        if self.stage == Stage::Answered {
            self.verify_target(pairs)?;
        }
        match next_stage {
            Some(FULL_FEATURE) => Err(unfit("it leaves the operational stage out")),
            Some(_) if !self.proven => Err(LoginError::TargetNotProven.into()),
            Some(_) => Ok(Next::Send(self.offer_operational())),
            None => {
                let empty = TextBuilder::default();
                Ok(Next::Send(self.request(
                    CSG_SECURITY,
                    Some(CSG_OPERATIONAL),
                    empty,
                )))
            }
        }
    }

    fn offer_algorithms(&mut self) -> Result<Next, SessionError> {
        if self.config.credentials.is_none() {
            return Err(LoginError::NoSecret.into());
        }
        self.stage = Stage::Algorithms;
        let mut text = TextBuilder::default();
        text.push("CHAP_A", Algorithm::OFFER);
        Ok(Next::Send(self.request(CSG_SECURITY, None, text)))
    }

    fn answer_challenge(&mut self, pairs: &[(&str, &str)]) -> Result<Next, SessionError> {
        let missing = || unfit("CHAP's keys are missing");
        let chosen = find(pairs, "CHAP_A").ok_or_else(missing)?;
        let algorithm = Algorithm::choose(chosen).ok_or_else(|| bad_answer("CHAP_A", chosen))?;
        let identifier = find(pairs, "CHAP_I").ok_or_else(missing)?;
        let challenge = find(pairs, "CHAP_C").ok_or_else(missing)?;
        let own: &Credentials = self.config.credentials.as_ref().ok_or_else(missing)?;
        let [our_identifier, our_challenge @ ..] = self.config.challenge;
        let ours = Challenge::new(algorithm, our_identifier, our_challenge);
        let response = ours
            .answer(identifier, challenge, own)
            .map_err(|_| bad_answer("CHAP_C", challenge))?;
        let mut text = TextBuilder::default();
        text.push("CHAP_N", &own.name);
        text.push("CHAP_R", &response);
        if !self.proven {
            text.push("CHAP_I", &ours.identifier());
            text.push("CHAP_C", &ours.challenge());
            self.ours = Some(ours);
        }
        self.stage = Stage::Answered;
        Ok(Next::Send(self.request(
            CSG_SECURITY,
            Some(CSG_OPERATIONAL),
            text,
        )))
    }

    fn verify_target(&mut self, pairs: &[(&str, &str)]) -> Result<(), SessionError> {
        let (Some(expected), Some(ours)) = (&self.config.target_credentials, &self.ours) else {
            return Ok(());
        };
        let proof = find(pairs, "CHAP_N").zip(find(pairs, "CHAP_R"));
        let (name, response) = proof.ok_or(LoginError::TargetNotProven)?;
        ours.verify(name, response, expected)
            .map_err(|_| LoginError::TargetNotProven)?;
        self.proven = true;
        self.ours = None;
        Ok(())
    }

    fn offer_operational(&mut self) -> Control {
        self.stage = Stage::Operational;
        let mut text = TextBuilder::default();
        let digest = |wanted| match wanted {
            Digest::Crc32c => "CRC32C",
            Digest::None => "None",
        };
        text.push("HeaderDigest", digest(self.config.header_digest));
        text.push("DataDigest", digest(self.config.data_digest));
        text.push(
            "MaxRecvDataSegmentLength",
            &RECV_SEGMENT_LEN_MAX.to_string(),
        );
        text.push("DefaultTime2Wait", "2");
        text.push("DefaultTime2Retain", "0");
        text.push("ErrorRecoveryLevel", "0");
        if self.config.target.is_some() {
            text.push("MaxConnections", "1");
            text.push("InitialR2T", "No");
            text.push("ImmediateData", "Yes");
            text.push("MaxBurstLength", &BURST_LEN_MAX.to_string());
            text.push("FirstBurstLength", &FIRST_BURST_LEN_MAX.to_string());
            text.push("MaxOutstandingR2T", &R2TS_OFFERED.to_string());
            text.push("DataPDUInOrder", "Yes");
            text.push("DataSequenceInOrder", "Yes");
        }
        self.request(CSG_OPERATIONAL, Some(FULL_FEATURE), text)
    }

    fn on_operational(
        &mut self,
        pairs: &[(&str, &str)],
        next_stage: Option<u8>,
    ) -> Result<Next, SessionError> {
        let mut answer = TextBuilder::default();
        for (key, value) in pairs {
            self.accept(key, value, &mut answer)?;
        }
        match next_stage {
            Some(FULL_FEATURE) => {
                self.check_digests()?;
                self.parameters.settle();
                Ok(Next::Done(Box::new(self.parameters.clone())))
            }
            Some(_) => Err(unfit("it goes back")),
            None => Ok(Next::Send(self.request(
                CSG_OPERATIONAL,
                Some(FULL_FEATURE),
                answer,
            ))),
        }
    }

    /// Takes the target's value of a key: the result of what was offered, or a declaration.
    fn accept(
        &mut self,
        key: &str,
        value: &str,
        answer: &mut TextBuilder,
    ) -> Result<(), SessionError> {
        let bad = || bad_answer(key, value);
        // The key's default stays in force.
        if matches!(value, "Reject" | "Irrelevant" | "NotUnderstood") {
            return Ok(());
        }
        let number = |low, high| {
            let number = parse_number(value).filter(|number| (low..=high).contains(number));
            number.ok_or_else(bad)
        };
        let yes_no = || match value {
            "Yes" => Ok(true),
            "No" => Ok(false),
            _ => Err(bad()),
        };
        let digest = || match value {
            "CRC32C" => Ok(Digest::Crc32c),
            "None" => Ok(Digest::None),
            _ => Err(bad()),
        };
        let values = &mut self.parameters;
        match key {
            "HeaderDigest" => values.header_digest = digest()?,
            "DataDigest" => values.data_digest = digest()?,
            // The target declares what it receives; this is not negotiated. Segments longer than
            // ours have no use.
            "MaxRecvDataSegmentLength" => {
                let len = number(LEN_MIN, (1 << 24) - 1)?;
                values.send_segment_len_max = len.min(SEND_SEGMENT_LEN_MAX);
            }
            "MaxBurstLength" => values.burst_len_max = number(LEN_MIN, BURST_LEN_MAX)?,
            "FirstBurstLength" => {
                values.first_burst_len_max = number(LEN_MIN, FIRST_BURST_LEN_MAX)?;
            }
            "MaxOutstandingR2T" => values.outstanding_r2t_max = number(1, R2TS_OFFERED)?,
            "InitialR2T" => values.initial_r2t = yes_no()?,
            "ImmediateData" => values.immediate_data = yes_no()?,
            // Of these only one result is possible.
            "MaxConnections" => drop(number(1, 1)?),
            "ErrorRecoveryLevel" => drop(number(0, 0)?),
            "DefaultTime2Retain" => values.time2retain_s = number(0, 0)?,
            "DefaultTime2Wait" => values.time2wait_s = number(0, 3600)?,
            "DataPDUInOrder" | "DataSequenceInOrder" if value == "Yes" => {}
            "DataPDUInOrder" | "DataSequenceInOrder" => return Err(bad()),
            "TargetAlias" | "TargetPortalGroupTag" | "TargetAddress" | "AuthMethod" => {}
            _ => answer.push(key, "NotUnderstood"),
        }
        Ok(())
    }

    fn check_digests(&self) -> Result<(), LoginError> {
        let (wanted, got) = (&self.config, &self.parameters);
        if wanted.header_digest != got.header_digest {
            return Err(LoginError::NoDigest {
                key: "HeaderDigest",
                option: "hdgst",
            });
        }
        if wanted.data_digest != got.data_digest {
            return Err(LoginError::NoDigest {
                key: "DataDigest",
                option: "ddgst",
            });
        }
        Ok(())
    }

    fn csg(&self) -> u8 {
        match self.stage {
            Stage::Operational => CSG_OPERATIONAL,
            _ => CSG_SECURITY,
        }
    }

    fn request(&self, csg: u8, transit: Option<u8>, text: TextBuilder) -> Control {
        let flags = csg << 2 | transit.map_or(0, |next| TRANSIT | next);
        Control::login(flags, self.config.isid, text.into_bytes())
    }
}

/// MaxOutstandingR2T that is offered.
const R2TS_OFFERED: u32 = R2TS_MAX as u32;
const _: () = assert!(R2TS_OFFERED <= OUTSTANDING_R2T_MAX);

fn check_status(response: &LoginResponse, pairs: &[(&str, &str)]) -> Result<(), LoginError> {
    const CLASS_SUCCESS: u8 = 0;
    const CLASS_REDIRECTION: u8 = 1;
    let (class, detail) = (response.status_class, response.status_detail);
    match (class, find(pairs, "TargetAddress")) {
        (CLASS_SUCCESS, _) => Ok(()),
        (CLASS_REDIRECTION, Some(address)) => Err(LoginError::Moved {
            address: address.to_owned(),
        }),
        _ => Err(LoginError::Refused { class, detail }),
    }
}

fn find<'a>(pairs: &[(&str, &'a str)], key: &str) -> Option<&'a str> {
    let found = pairs.iter().find(|(other, _)| *other == key);
    found.map(|(_, value)| *value)
}

fn unfit(what: &'static str) -> SessionError {
    LoginError::Unfit { what }.into()
}

fn bad_answer(key: &str, value: &str) -> SessionError {
    LoginError::Answer {
        key: key.to_owned(),
        value: value.to_owned(),
    }
    .into()
}
