use super::*;
use crate::AbortScope;
use crate::backend::Opened;
use crate::chap::Credentials;
use crate::wire::login::LoginRequest;
use zerocopy::FromBytes;

struct Gate {
    secrets: Option<Authentication>,
    known: &'static str,
    opened: usize,
}

impl Backend for Gate {
    fn authentication(&mut self, _: &str, _: Option<&str>) -> Option<Authentication> {
        self.secrets.clone()
    }

    fn connection(&self) -> u64 {
        1
    }

    fn portal_group(&self) -> u16 {
        3
    }

    fn open(&mut self, ends: SessionEnds<'_>) -> Result<Opened, OpenError> {
        if ends.target != self.known {
            return Err(OpenError::NotFound);
        }
        self.opened += 1;
        Ok(Opened {
            tsih: 42,
            nexus: scsi::NexusId(1),
        })
    }

    fn share(&mut self, _: &Parameters, _: CommandWindow, _: u16) {}

    fn join(
        &mut self,
        _: SessionEnds<'_>,
        _: u16,
        _: u16,
    ) -> Result<(Opened, Parameters), OpenError> {
        Err(OpenError::NoSession)
    }

    fn with_window<R>(&mut self, call: impl FnOnce(&mut CommandWindow) -> R) -> R {
        call(&mut CommandWindow::new(0, COMMANDS_MAX))
    }

    fn end_others(&mut self, _: Option<u16>) -> usize {
        0
    }

    fn abort_on_others(&mut self, _: AbortScope, _: u32) {}

    fn fence(&mut self) -> u64 {
        0
    }

    fn is_past(&mut self, _: u64) -> bool {
        true
    }

    fn wake_other(&mut self, _: u16) {}

    fn targets(&mut self, _: &str) -> Vec<crate::TargetRecord> {
        let name = self.known.to_owned();
        let addresses = Vec::new();
        vec![crate::TargetRecord { name, addresses }]
    }

    fn logged_in(&mut self, _: &LoggedIn) {}

    fn login_refused(&mut self, _: &str, _: Option<&str>, _: LoginStatus) {}

    fn charge(&mut self, _: u64) -> bool {
        true
    }

    fn with_device<R>(&mut self, call: impl FnOnce(&mut scsi::Device, scsi::NexusId) -> R) -> R {
        let mut device = scsi::Device::new(String::new(), Vec::new());
        call(&mut device, scsi::NexusId(1))
    }

    fn view(&mut self, _: u16) -> Option<(&scsi::View, session::SourceId)> {
        None
    }

    fn unsaved(&mut self) -> Option<u64> {
        None
    }

    fn saved(&mut self, _: u64) -> crate::Saved {
        crate::Saved::Yes
    }

    fn random(&mut self) -> [u8; 17] {
        [7; 17]
    }

    fn completed(&mut self, _: crate::Completed) {}

    fn take_aborts(&mut self) -> Vec<crate::Abort> {
        Vec::new()
    }

    fn session_state(&mut self) -> crate::SessionState {
        crate::SessionState::Active
    }

    fn drop_session(&mut self) {}

    fn adopt(&mut self, _: Box<scsi::SanitizeWork>) {}

    fn close(&mut self) {}
}

fn open_gate() -> Gate {
    Gate {
        secrets: Some(Authentication::default()),
        known: "iqn.t",
        opened: 0,
    }
}

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials {
        name: name.into(),
        secret: secret.as_bytes().to_vec().into(),
    }
}

fn ask(login: &mut Login, gate: &mut Gate, flags: u8, text: &str) -> LoginReply {
    let mut header = [0; 48];
    header[0] = 0x43;
    header[1] = flags;
    let request = LoginRequest::read_from_bytes(&header).expect("48 bytes");
    login.handle(&request, text.replace('|', "\0").as_bytes(), gate)
}

/// CSG 0, NSG 1, T.
const SECURITY_TO_OPERATIONAL: u8 = 0x81;
/// CSG 0, no transit.
const SECURITY: u8 = 0x00;
/// CSG 1, NSG 3, T.
const OPERATIONAL_TO_FULL: u8 = 0x87;

const WHO: &str = "InitiatorName=iqn.i|TargetName=iqn.t|SessionType=Normal|";

#[test]
fn a_login_in_two_stages() {
    let (mut login, mut gate) = (Login::new(), open_gate());
    let text = format!("{WHO}AuthMethod=CHAP,None|");
    let reply = ask(&mut login, &mut gate, SECURITY_TO_OPERATIONAL, &text);
    assert_eq!(
        (reply.status, reply.flags),
        (LoginStatus::SUCCESS, SECURITY_TO_OPERATIONAL)
    );
    assert_eq!(reply.text, b"TargetPortalGroupTag=3\0AuthMethod=None\0");
    let reply = ask(&mut login, &mut gate, OPERATIONAL_TO_FULL, "InitialR2T=No|");
    assert!(reply.done && reply.tsih == 42);
    let logged_in = login.logged_in().expect("done");
    assert!(!logged_in.parameters.initial_r2t);
}

#[test]
fn refusals_by_status() {
    let cases = [
        (
            OPERATIONAL_TO_FULL,
            "TargetName=iqn.t|",
            LoginStatus::MISSING_PARAMETER,
        ),
        (
            OPERATIONAL_TO_FULL,
            "InitiatorName=iqn.i|",
            LoginStatus::MISSING_PARAMETER,
        ),
        (
            OPERATIONAL_TO_FULL,
            "InitiatorName=iqn.i|TargetName=iqn.other|",
            LoginStatus::NOT_FOUND,
        ),
        (
            OPERATIONAL_TO_FULL,
            "InitiatorName=iqn.i|SessionType=Odd|",
            LoginStatus::SESSION_TYPE,
        ),
        (
            OPERATIONAL_TO_FULL,
            "InitiatorName",
            LoginStatus::INITIATOR_ERROR,
        ),
        // C and T at once; back to an earlier stage; a stage that does not exist.
        (0xC7, WHO, LoginStatus::INITIATOR_ERROR),
        (0x84, WHO, LoginStatus::INITIATOR_ERROR),
        (0x8B, WHO, LoginStatus::INITIATOR_ERROR),
    ];
    for (flags, text, want) in cases {
        let reply = ask(&mut Login::new(), &mut open_gate(), flags, text);
        assert_eq!(reply.status, want, "{flags:02x} {text}");
        assert!(!reply.done);
    }
}

#[test]
fn text_may_come_in_continued_requests() {
    let (mut login, mut gate) = (Login::new(), open_gate());
    let reply = ask(&mut login, &mut gate, 0x44, "InitiatorName=iqn.i|TargetNa");
    assert_eq!((reply.status, reply.text.len()), (LoginStatus::SUCCESS, 0));
    assert!(ask(&mut login, &mut gate, OPERATIONAL_TO_FULL, "me=iqn.t|").done);
}

fn secrets_of_alice(secret: &str) -> Authentication {
    Authentication {
        initiator: Some(credentials("alice", secret)),
        target: None,
    }
}

/// A login whose challenge is to be answered.
fn challenged(gate: &mut Gate) -> Login {
    let mut login = Login::new();
    let text = format!("{WHO}AuthMethod=CHAP,None|");
    let reply = ask(&mut login, gate, SECURITY_TO_OPERATIONAL, &text);
    assert_eq!(reply.flags & TRANSIT, 0, "not before the proof");
    let reply = ask(&mut login, gate, SECURITY, "CHAP_A=7|");
    let text = String::from_utf8(reply.text).expect("ASCII");
    assert!(
        text.starts_with("CHAP_A=7\0CHAP_I=7\0CHAP_C=0x0707"),
        "{text}"
    );
    login
}

/// Answers the challenge with this secret of alice.
fn prove(login: &mut Login, gate: &mut Gate, secret: &str) -> LoginStatus {
    let theirs = Challenge::new(Algorithm::Sha256, 0, [0; CHALLENGE_LEN]);
    let challenge = format!("0x{}", "07".repeat(CHALLENGE_LEN));
    let response = theirs.answer("7", &challenge, &credentials("alice", secret));
    let proof = format!("CHAP_N=alice|CHAP_R={}|", response.expect("answered"));
    ask(login, gate, SECURITY_TO_OPERATIONAL, &proof).status
}

#[test]
fn chap_lets_in_only_who_knows_the_secret() {
    for (secret, lets_in) in [("a secret of alice", true), ("another secret", false)] {
        let mut gate = open_gate();
        gate.secrets = Some(secrets_of_alice("a secret of alice"));
        let mut login = challenged(&mut gate);
        let status = prove(&mut login, &mut gate, secret);
        let want = if lets_in {
            LoginStatus::SUCCESS
        } else {
            LoginStatus::AUTHENTICATION_FAILURE
        };
        assert_eq!(status, want);
        if lets_in {
            assert!(ask(&mut login, &mut gate, OPERATIONAL_TO_FULL, "").done);
        }
    }
}

#[test]
fn the_secret_counts_that_is_set_when_the_response_is_checked() {
    for (now, proven, status) in [
        (
            Some(secrets_of_alice("a new secret")),
            "a secret of alice",
            LoginStatus::AUTHENTICATION_FAILURE,
        ),
        (
            Some(secrets_of_alice("a new secret")),
            "a new secret",
            LoginStatus::SUCCESS,
        ),
        // None is set any more, and at a portal that requires one.
        (
            Some(Authentication::default()),
            "a secret of alice",
            LoginStatus::AUTHENTICATION_FAILURE,
        ),
        (
            None,
            "a secret of alice",
            LoginStatus::AUTHENTICATION_FAILURE,
        ),
    ] {
        let mut gate = open_gate();
        gate.secrets = Some(secrets_of_alice("a secret of alice"));
        let mut login = challenged(&mut gate);
        gate.secrets = now;
        assert_eq!(prove(&mut login, &mut gate, proven), status);
    }
}

#[test]
fn a_secret_that_is_set_during_a_login_without_one_is_required() {
    let (mut login, mut gate) = (Login::new(), open_gate());
    let text = format!("{WHO}AuthMethod=None|");
    let reply = ask(&mut login, &mut gate, SECURITY_TO_OPERATIONAL, &text);
    assert_eq!(reply.status, LoginStatus::SUCCESS);
    gate.secrets = Some(secrets_of_alice("a secret of alice"));
    let reply = ask(&mut login, &mut gate, OPERATIONAL_TO_FULL, "");
    assert_eq!(reply.status, LoginStatus::AUTHENTICATION_FAILURE);
    assert_eq!(gate.opened, 0);
}

#[test]
fn skipping_the_proof_is_refused_in_every_way() {
    let attempts: [&[(u8, &str)]; 4] = [
        &[(OPERATIONAL_TO_FULL, WHO)],
        &[(SECURITY_TO_OPERATIONAL, WHO)],
        &[(
            0x83,
            "InitiatorName=iqn.i|TargetName=iqn.t|AuthMethod=None|",
        )],
        &[
            (
                SECURITY,
                "InitiatorName=iqn.i|TargetName=iqn.t|AuthMethod=CHAP|",
            ),
            (SECURITY, "CHAP_N=alice|CHAP_R=0x00|"),
        ],
    ];
    for attempt in attempts {
        let mut gate = open_gate();
        gate.secrets = Some(secrets_of_alice("a secret of alice"));
        let mut login = Login::new();
        let replies: Vec<_> = attempt
            .iter()
            .map(|(flags, text)| ask(&mut login, &mut gate, *flags, text))
            .collect();
        let last = replies.last().expect("at least one");
        assert_ne!(last.status, LoginStatus::SUCCESS, "{attempt:?}");
        assert_eq!(gate.opened, 0);
    }
}

#[test]
fn an_initiator_without_the_secret_that_is_required_is_refused_at_once() {
    for (flags, who) in [
        (SECURITY_TO_OPERATIONAL, WHO),
        (OPERATIONAL_TO_FULL, WHO),
        (
            SECURITY_TO_OPERATIONAL,
            "InitiatorName=iqn.i|SessionType=Discovery|",
        ),
    ] {
        for offer in ["", "AuthMethod=None|", "AuthMethod=CHAP,None|"] {
            let (mut login, mut gate) = (Login::new(), open_gate());
            gate.secrets = None;
            let reply = ask(&mut login, &mut gate, flags, &format!("{who}{offer}"));
            assert_eq!(reply.status, LoginStatus::AUTHENTICATION_FAILURE);
            assert!(!reply.done && reply.text.is_empty() && gate.opened == 0);
        }
    }
}

#[test]
fn a_login_without_end_is_ended() {
    let (mut login, mut gate) = (Login::new(), open_gate());
    ask(&mut login, &mut gate, 0x04, WHO);
    let refused = (0..PDUS_MAX).map(|_| ask(&mut login, &mut gate, 0x04, ""));
    assert_eq!(
        refused.last().map(|reply| reply.status),
        Some(LoginStatus::INITIATOR_ERROR)
    );
}
