//! A file of definitions, applied as one transaction or only compared. Both make the same checks.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;

use rustix::net::{AddressFamily, SocketType, bind, socket_with, sockopt};
use server::{Force, PortalDefinition, ServerError, TargetName, VolumeName};
use volume::{ByteSize, VolumeKind, VolumeSpec};

use super::replicated;
use super::saves::check_folder;
use super::verbs::fill_in_size;
use super::{BusyGuard, Engine, EngineError};
use crate::change::{Change, describe};
use crate::definitions::{DefinitionFault, Definitions, Volume};
use crate::plan::{Phase, Step, plan};

/// What applying a file would do.
#[derive(Debug)]
pub struct Comparison {
    /// A line for each change: `+` new, `-` gone, `~` changed.
    pub changes: Vec<String>,
    /// Why applying it would be refused.
    pub refused: Option<EngineError>,
}

/// What has to be done for a file.
struct Application {
    to: Definitions,
    changes: Vec<Change>,
    steps: Vec<Step>,
    shown: Vec<String>,
}

impl Engine {
    /// Makes `to` of what is defined, as one transaction. Whatever destroys data or ends sessions
    /// needs force. Returns a line for each change.
    pub fn apply(&self, to: Definitions, force: Force) -> Result<Vec<String>, EngineError> {
        let mut store = self.begin();
        let application = self.application(to)?;
        let _busy = self.check_application(&application, force)?;
        if force == Force::No {
            self.flush_removed(&application.steps)?;
        }
        self.commit(&mut store, application.changes, force, |_| false)?;
        Ok(application.shown)
    }

    /// Returns what [`apply`](Self::apply) would change, and whether it would be rejected. Fails if
    /// `to` contradicts itself.
    pub fn compare(&self, to: Definitions, force: Force) -> Result<Comparison, EngineError> {
        let _store = self.begin();
        let application = self.application(to)?;
        let refused = self.check_application(&application, force).err();
        Ok(Comparison {
            changes: application.shown,
            refused,
        })
    }

    fn application(&self, mut to: Definitions) -> Result<Application, EngineError> {
        let definitions = self.read();
        to.fill_in_secrets(&definitions)?;
        for (name, volume) in &mut to.volumes {
            let before = definitions.volumes.get(name);
            if let Some(before) = before.filter(|before| volume.has_form_of(before)) {
                volume.take_form_of(before);
            }
            fill_in_size(&name.0, volume)?;
        }
        to.fill_in_sizes_over_members()?;
        to.check()?;
        for (name, volume) in &to.volumes {
            let before = definitions.volumes.get(name);
            if before.is_none_or(|before| before.save != volume.save) {
                check_folder(&name.0, volume)?;
            }
        }
        to.check_identities(to.machine.or(definitions.machine))?;
        let changes = definitions.changes_to(&to);
        let steps = plan(&definitions, &changes)?;
        let shown = describe(&definitions, &changes);
        Ok(Application {
            to,
            changes,
            steps,
            shown,
        })
    }

    /// Every check that needs no change. After these checks an apply can fail only if something
    /// changes in the meantime or RDMA cannot be served. The volumes concerned are busy until the
    /// returned guard is dropped.
    fn check_application(
        &self,
        application: &Application,
        force: Force,
    ) -> Result<Vec<BusyGuard<'_>>, EngineError> {
        let Application { to, steps, .. } = application;
        let touched: BTreeSet<_> = steps.iter().flat_map(Step::volumes).collect();
        let busy = touched
            .iter()
            .map(|volume| self.shared.busy.enter(volume, "apply", 0))
            .collect::<Result<_, _>>()?;
        replicated::check_steps(steps)?;
        check_losses(steps, force)?;
        for step in steps {
            match step {
                Step::CreateVolume(name, volume) => {
                    let size = to.check_new_size(volume);
                    size.map_err(|fault| DefinitionFault::parent(name, fault))?;
                    self.guard_overwritten(name, volume, force)?;
                }
                Step::ChangeMembers { name, from, to } | Step::FreeMember(name, from, to) => {
                    self.check_new_members(name, from, to, force)?;
                }
                Step::ReleaseMembers(name, _) => self.server().check_release(name)?,
                Step::SetSettings { name, to, .. } => self.server().check_settings(name, to)?,
                Step::RemoveTarget(name, _) | Step::Detach(name, ..) => {
                    self.guard_target(name, force)?;
                }
                Step::RemovePortal(portal) => self.guard_portal(*portal, force)?,
                Step::SetMachine { .. } if !self.read().targets.is_empty() => {
                    return Err(ServerError::MachineInUse.into());
                }
                _ => {}
            }
        }
        self.check_budget(steps)?;
        check_exposure(to)?;
        check_addresses(steps)?;
        Ok(busy)
    }

    /// Flushes the volumes that are removed, before anything changes: what a cache cannot write
    /// would be lost.
    fn flush_removed(&self, steps: &[Step]) -> Result<(), ServerError> {
        let mut removed = steps.iter().filter_map(|step| match step {
            Step::RemoveVolume(name, _) | Step::ReleaseMembers(name, _) => Some(name),
            _ => None,
        });
        removed.try_for_each(|name| self.server().flush_volume(name))
    }

    /// Checks members that are to be added to a linear volume or to replace one of a mirror. They
    /// exist already, since what they are is compared with the present members.
    fn check_new_members(
        &self,
        name: &VolumeName,
        from: &Volume,
        to: &Volume,
        force: Force,
    ) -> Result<(), EngineError> {
        if let Some((old, new)) = from.replacement(to) {
            self.server().check_replacement(name, &old, &new)?;
            self.guard_member(name, &new, force)?;
        }
        let added = from.kind.0.added_members(&to.kind.0);
        let mut members = added.into_iter().flatten().filter_map(|of| of.parse().ok());
        members.try_for_each(|member| self.server().check_new_member(name, &member))?;
        Ok(())
    }

    fn guard_target(&self, name: &TargetName, force: Force) -> Result<(), ServerError> {
        let sessions = self.server().target(name)?.sessions;
        if sessions > 0 && force == Force::No {
            return Err(ServerError::TargetInUse {
                target: name.clone(),
                sessions,
            });
        }
        Ok(())
    }

    /// What thick volumes and caches take has to be free before anything is removed.
    fn check_budget(&self, steps: &[Step]) -> Result<(), ServerError> {
        let taken = |step: &Step| match step {
            Step::CreateVolume(_, volume) => volume.spec().reserved_bytes(),
            Step::Resize {
                name,
                from_bytes,
                to_bytes,
            } => match self.defined_volume(name) {
                Ok(volume) => {
                    let of_size = |bytes| VolumeSpec {
                        size: ByteSize(bytes),
                        ..volume.spec()
                    };
                    added_bytes(&of_size(*from_bytes), &of_size(*to_bytes))
                }
                Err(_) => 0,
            },
            Step::SetSettings { name, from, to } => match self.defined_volume(name) {
                Ok(volume) => {
                    let of_kind = |kind: &VolumeKind| VolumeSpec {
                        kind: kind.clone(),
                        ..volume.spec()
                    };
                    added_bytes(&of_kind(from), &of_kind(to))
                }
                Err(_) => 0,
            },
            _ => 0,
        };
        let needed_bytes = steps.iter().map(taken).fold(0, u64::saturating_add);
        let free_bytes = self.capacity().free_bytes;
        if needed_bytes > free_bytes {
            return Err(ServerError::OverBudget {
                needed_bytes,
                free_bytes,
            });
        }
        Ok(())
    }
}

/// What a volume takes of the budget that becomes another.
fn added_bytes(from: &VolumeSpec, to: &VolumeSpec) -> u64 {
    to.reserved_bytes().saturating_sub(from.reserved_bytes())
}

/// Whether portals over TCP could listen now. An address that another portal gives up is free by
/// then.
fn check_addresses(steps: &[Step]) -> Result<(), ServerError> {
    let is_given_up = |portal: &PortalDefinition| {
        steps.iter().any(|step| {
            matches!(step, Step::RemovePortal(gone) if gone.address.port() == portal.address.port())
        })
    };
    for step in steps {
        let Step::AddPortal(portal) = step else {
            continue;
        };
        let address = portal.address;
        if let Err(source) = try_bind(address)
            && !portal.transport.is_rdma()
            && !is_given_up(portal)
        {
            return Err(ServerError::Listen { address, source });
        }
    }
    Ok(())
}

/// Binds a socket, and closes it.
fn try_bind(address: SocketAddr) -> io::Result<()> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    // As the server's own sockets: connections that have just ended are not in the way.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(bind(&socket, &address)?)
}

fn check_exposure(to: &Definitions) -> Result<(), ServerError> {
    let targets = to.targets.iter();
    let targets = targets.map(|(name, target)| target.to_server(&name.0));
    let targets: Vec<_> = targets.collect::<Result<_, _>>()?;
    let shares = to.shares.iter();
    let shares: Vec<_> = shares
        .map(|(name, share)| share.to_server(&name.0))
        .collect();
    let portals: Vec<_> = to.portal_definitions().collect();
    server::check_exposure(targets.iter(), shares.iter(), portals.iter())
}

/// Refuses steps that destroy data, unless forced.
fn check_losses(steps: &[Step], force: Force) -> Result<(), EngineError> {
    let destroyed: Vec<_> = steps
        .iter()
        .filter(|step| step.phase() == Phase::Destroy && !step.keeps_data())
        .map(Step::noun)
        .collect();
    if force == Force::No && !destroyed.is_empty() {
        return Err(EngineError::LosesData {
            names: destroyed.join(", "),
        });
    }
    Ok(())
}
