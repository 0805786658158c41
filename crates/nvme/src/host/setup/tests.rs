use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::*;
use std::sync::Arc;

use crate::auth::{
    ControllerAuth, Credentials, GroupPolicy, HostAuth, HostCredentials, Names, Secret, Seed,
};
use crate::wire::auth::{AuthenticationSqe, FailureReason};
use crate::wire::fabrics::{ConnectData, ConnectSqe, NqnField, VERSION_2_0};
use crate::wire::identify::LbaFormat;

/// A controller with prepared answers.
struct Controller {
    id: IdentifyController,
    limits: IdentifyNvmController,
    namespace: IdentifyNamespace,
    active: Vec<Nsid>,
    status: u32,
    /// Looks at CSTS before it is ready.
    ready_after: u32,
    fail: Option<(Phase, StatusCode, u64)>,
    granted: u32,
    /// AUTHREQ in the result of Connect.
    required: u32,
    auth: Option<ControllerAuth>,
    authenticator: Option<Authenticator>,
}

impl Controller {
    fn new() -> Self {
        let mut id = IdentifyController::new_zeroed();
        id.model[..2].copy_from_slice(b"rd");
        id.mdts = 5;
        id.command_capsule_units = U32::new(4 + 512);
        id.commands_max = U16::new(64);
        id.events = U32::new(1 << 8);
        id.version = U32::new(VERSION_2_0);
        let mut namespace = IdentifyNamespace::new_zeroed();
        namespace.size_blocks = U64::new(1000);
        namespace.formats[0].data_shift = 9;
        let mut limits = IdentifyNvmController::new_zeroed();
        limits.verify_max_shift = 1;
        limits.write_zeroes_max_shift = 13;
        limits.dataset_range_blocks_max = U32::new(500);
        limits.dataset_blocks_max = U64::new(400);
        Self {
            id,
            limits,
            namespace,
            active: vec![Nsid(3)],
            status: 1,
            ready_after: 0,
            fail: None,
            granted: 3 << 16 | 1,
            required: 0,
            auth: None,
            authenticator: None,
        }
    }

    /// Runs a set-up to its end; gives the phases that it went through.
    fn run(&mut self, purpose: Purpose) -> (Result<Facts, SetupError>, Vec<Phase>) {
        let mut setup = Setup::new(SetupConfig {
            name: HostName {
                host_nqn: NqnField::new("host").unwrap(),
                host_id: [7; 16],
                subsystem_nqn: NqnField::new("rd0").unwrap(),
            },
            sq_entries: 32,
            keep_alive_timeout_ms: 15_000,
            purpose,
        });
        if let Some(authenticator) = self.authenticator.take() {
            setup = setup.with_authenticator(authenticator);
        }
        let mut buffer = vec![0; Setup::BUFFER_BYTES];
        let mut phases = Vec::new();
        loop {
            let step = match setup.poll(&mut buffer) {
                Ok(step) => step,
                Err(error) => return (Err(error), phases),
            };
            if phases.last() != Some(&setup.phase()) {
                phases.push(setup.phase());
            }
            match step {
                SetupStep::Done => return (Ok(setup.facts().clone()), phases),
                SetupStep::Wait { for_ms } => assert_eq!(for_ms, 10),
                SetupStep::Submit(command) => {
                    let outcome = self.answer(setup.phase(), &command, &mut buffer);
                    if let Err(error) = setup.handle_outcome(&outcome, &buffer) {
                        return (Err(error), phases);
                    }
                }
            }
        }
    }

    fn answer(&mut self, phase: Phase, command: &Command, buffer: &mut [u8]) -> Outcome {
        let mut outcome = Outcome {
            key: Setup::KEY,
            status: Status::SUCCESS,
            result: 0,
        };
        if let Some((at, code, result)) = self.fail
            && at == phase
        {
            outcome.status = code.into();
            outcome.result = result;
            return outcome;
        }
        match phase {
            Phase::Authentication => self.authenticate(command, buffer),
            Phase::Connect => {
                let sqe: ConnectSqe = zerocopy::transmute!(command.sqe);
                assert_eq!((sqe.queue_id.get(), sqe.sq_entries()), (0, 32));
                assert_eq!(sqe.keep_alive_timeout_ms.get(), 15_000);
                let (data, _) = ConnectData::ref_from_prefix(buffer).unwrap();
                assert_eq!(data.controller_id.get(), ConnectData::CONTROLLER_ANY);
                assert_eq!(data.subsystem_nqn.name(), Some("rd0"));
                outcome.result = u64::from(0x0102 | self.required);
            }
            Phase::Capabilities => outcome.result = Capabilities::new(128, 500).0,
            Phase::Ready if self.ready_after > 0 => self.ready_after -= 1,
            Phase::Ready => outcome.result = u64::from(self.status),
            Phase::Controller => buffer.copy_from_slice(self.id.as_bytes()),
            Phase::Limits => {
                assert_eq!(command.sqe.cdw10.get(), 6);
                assert_eq!(command.sqe.cdw11.get() >> 24, 0, "the NVM command set");
                buffer.copy_from_slice(self.limits.as_bytes());
            }
            Phase::QueueCount => outcome.result = u64::from(self.granted),
            Phase::ActiveNamespaces => {
                let after = command.sqe.nsid().0;
                let active = self.active.iter().copied().filter(|nsid| nsid.0 > after);
                buffer.copy_from_slice(&crate::wire::identify::namespace_list(active));
            }
            Phase::Namespace => buffer.copy_from_slice(self.namespace.as_bytes()),
            Phase::Descriptors => {
                let list = NamespaceDescriptor::list(&[NamespaceDescriptor::Uuid([9; 16])]);
                buffer.copy_from_slice(&list);
            }
            Phase::Enable | Phase::Events | Phase::Done => {}
        }
        outcome
    }

    fn authenticate(&mut self, command: &Command, buffer: &mut [u8]) {
        let sqe: AuthenticationSqe = zerocopy::transmute!(command.sqe);
        assert!(sqe.is_authentication());
        let auth = self.auth.as_mut().expect("authentication is required");
        match command.transfer {
            Transfer::ToController(range) => {
                let message = &buffer[..range.len_bytes as usize];
                assert!(
                    auth.handle_message(message, &Seed::new([5; Seed::BYTES]))
                        .is_none()
                );
            }
            Transfer::ToHost(range) => {
                let message = auth.poll_message(range.len_bytes as usize).expect("room");
                buffer[..message.len()].copy_from_slice(&message);
            }
            Transfer::None => panic!("every command has a message"),
        }
    }

    /// It requires authentication with a secret of bytes `secret`, and the host has `of_host`.
    fn with_secrets(secret: u8, of_host: u8) -> Self {
        let of_bytes = |byte| Secret::new(&[byte; 32], None).expect("32 bytes");
        let names = Names {
            host_nqn: "host".to_owned(),
            subsystem_nqn: "rd0".to_owned(),
        };
        let of_controller = Credentials {
            secret: of_bytes(secret),
            other_secret: None,
            controller_secret: Some(of_bytes(99)),
            hash: None,
            group: GroupPolicy::NoGroup,
        };
        let of_host = HostCredentials {
            secret: of_bytes(of_host),
            controller_secret: Some(of_bytes(99)),
            hash: None,
            group: GroupPolicy::Any,
        };
        let seed = Seed::new([6; Seed::BYTES]);
        let host = HostAuth::new(of_host, names.clone(), 1, seed);
        Self {
            required: CONNECT_AUTHENTICATION_REQUIRED,
            auth: Some(ControllerAuth::new(Arc::new(of_controller), names)),
            authenticator: Some(Authenticator::new(host)),
            ..Self::new()
        }
    }
}

const IO: Purpose = Purpose::Io {
    nsid: Nsid(3),
    queues: 4,
};

#[test]
fn the_phases_are_in_order() {
    let (facts, phases) = Controller::new().run(IO);
    assert!(facts.is_ok());
    assert_eq!(
        phases,
        [
            Phase::Connect,
            Phase::Capabilities,
            Phase::Enable,
            Phase::Ready,
            Phase::Controller,
            Phase::Limits,
            Phase::QueueCount,
            Phase::ActiveNamespaces,
            Phase::Namespace,
            Phase::Descriptors,
            Phase::Events,
            Phase::Done,
        ]
    );
    let (_, phases) = Controller::new().run(Purpose::Discovery);
    assert_eq!(
        phases[3..],
        [Phase::Ready, Phase::Controller, Phase::Events, Phase::Done]
    );
}

#[test]
fn a_host_authenticates_before_anything_else() {
    let (facts, phases) = Controller::with_secrets(1, 1).run(IO);
    assert_eq!(facts.expect("set up").controller.id, 0x0102);
    let first = [Phase::Connect, Phase::Authentication, Phase::Capabilities];
    assert_eq!(phases[..3], first);
}

#[test]
fn a_host_ends_where_authentication_fails_or_is_missing() {
    let error = |mut controller: Controller| controller.run(IO).0.expect_err("fails");
    let failed = HostAuthError::Rejected(FailureReason::Failed);
    assert_eq!(
        error(Controller::with_secrets(1, 2)),
        SetupError::Authentication(failed)
    );
    assert_eq!(
        error(Controller {
            authenticator: None,
            ..Controller::with_secrets(1, 1)
        }),
        SetupError::AuthenticationRequired
    );
    // The controller was to prove itself, so one that requires nothing is not the one meant.
    assert_eq!(
        error(Controller {
            required: 0,
            ..Controller::with_secrets(1, 1)
        }),
        SetupError::ControllerNotProven
    );
    assert_eq!(
        error(Controller {
            required: CONNECT_SECURE_CHANNEL_REQUIRED,
            ..Controller::new()
        }),
        SetupError::SecureChannelRequired
    );
}

#[test]
fn facts_are_in_the_units_that_their_names_say() {
    let (facts, _) = Controller::new().run(IO);
    let facts = facts.unwrap();
    let controller = &facts.controller;
    assert_eq!(controller.id, 0x0102);
    assert_eq!(controller.model, "rd");
    assert_eq!(controller.transfer_max_bytes, Some(128 * 1024));
    assert_eq!(controller.verify_max_bytes, Some(8192));
    assert_eq!(controller.write_zeroes_max_bytes, Some(32 << 20));
    assert_eq!(controller.deallocate_max_blocks, Some(400));
    assert_eq!(controller.in_capsule_max_bytes, 8192);
    assert_eq!(controller.queue_entries_max, 64, "MAXCMD is less than MQES");
    assert_eq!(facts.io_queues, 2, "the lesser of 2 and 4, both 0's based");
    let namespace = facts.namespace.unwrap();
    assert_eq!(
        namespace.geometry,
        Geometry::new(BlockSize::B512, Blocks(1000))
    );
    assert_eq!(namespace.uuid, Some([9; 16]));
}

#[test]
fn a_controller_that_reports_no_limits_has_none() {
    let without = |controller: &ControllerFacts| {
        assert_eq!(controller.verify_max_bytes, None);
        assert_eq!(controller.write_zeroes_max_bytes, None);
        assert_eq!(controller.deallocate_max_blocks, None);
    };
    let mut controller = Controller::new();
    controller.limits = IdentifyNvmController::new_zeroed();
    without(&controller.run(IO).0.expect("set up").controller);
    let mut older = Controller::new();
    older.fail = Some((Phase::Limits, StatusCode::InvalidField, 0));
    without(&older.run(IO).0.expect("set up").controller);
}

#[test]
fn a_controller_gets_the_time_that_it_claims_to_become_ready() {
    let mut controller = Controller::new();
    controller.ready_after = 50;
    assert!(controller.run(IO).0.is_ok());
    controller.ready_after = 51;
    assert_eq!(
        controller.run(IO).0,
        Err(SetupError::NotReady { timeout_ms: 500 })
    );
    controller.ready_after = 0;
    controller.status = 0b11;
    assert_eq!(controller.run(IO).0, Err(SetupError::Fatal));
}

#[test]
fn a_refused_connect_is_put_into_words() {
    let subsystem_nqn = 1 << 16 | 256;
    for (code, result, error) in [
        (
            StatusCode::ConnectInvalidParameters,
            subsystem_nqn,
            SetupError::UnknownSubsystem,
        ),
        (
            StatusCode::ConnectInvalidHost,
            0,
            SetupError::HostNotAllowed,
        ),
        (
            StatusCode::ConnectControllerBusy,
            0,
            SetupError::Refused {
                phase: Phase::Connect,
                status: StatusCode::ConnectControllerBusy.into(),
            },
        ),
    ] {
        let mut controller = Controller::new();
        controller.fail = Some((Phase::Connect, code, result));
        assert_eq!(controller.run(IO).0, Err(error));
    }
}

#[test]
fn controllers_without_descriptors_or_events_will_do() {
    for phase in [Phase::Descriptors, Phase::Events] {
        let mut controller = Controller::new();
        controller.fail = Some((phase, StatusCode::InvalidField, 0));
        assert!(controller.run(IO).0.is_ok(), "{phase}");
    }
}

#[test]
fn a_namespace_that_is_missing_or_unusable_is_an_error() {
    let mut controller = Controller::new();
    controller.active = vec![Nsid(1), Nsid(4)];
    assert_eq!(
        controller.run(IO).0,
        Err(SetupError::NoNamespace { nsid: Nsid(3) })
    );
    for (data_shift, metadata_bytes) in [(0, 0), (10, 0), (9, 8), (255, 0)] {
        let mut controller = Controller::new();
        controller.namespace.formats[0] = LbaFormat {
            metadata_bytes: U16::new(metadata_bytes),
            data_shift,
            relative_performance: 0,
        };
        assert_eq!(
            controller.run(IO).0,
            Err(SetupError::Format {
                nsid: Nsid(3),
                data_shift,
                metadata_bytes
            })
        );
    }
    let mut controller = Controller::new();
    controller.namespace.size_blocks = U64::new(u64::MAX);
    assert!(
        controller.run(IO).0.is_err(),
        "more bytes than can be counted"
    );
}
