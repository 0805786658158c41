//! What is, as values for requests: definitions together with what the server knows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use block::OpKind;
use serde::{Deserialize, Serialize};
use server::{
    Availability, Capacity, DhChapHash, DhGroupPolicy, HostName, IoStatistics, IscsiConnection,
    Place, PortalAuth, PortalDefinition, PortalInfo, Protocol, ServerError, SessionId, SessionInfo,
    SessionProtocol, TargetInfo, TargetName, TlsPolicy, Transport, VolumeInfo, VolumeName, Warning,
};
use utoipa::ToSchema;
use uuid::Uuid;

use super::brp_views::BrpSessionView;
use super::cache_view::CacheView;
use super::iscsi_views::{IscsiConnectionView, IscsiSessionView, isid_text};
use super::lost::Contents;
use super::mirror_view::MirrorView;
use super::nfs_views::NfsSessionView;
use super::rdma::{RdmaProvider, RdmaSegmentation, RdmaStatisticsView};
use super::remote::PathView;
use super::replication_view::ReplicationView;
use super::save_states::SaveStates;
use super::saves::{DamageView, SaveView};
use super::shortage::memory_when_full;
use super::statistics_views::StatisticsView;
use super::{Engine, Task};
use crate::definitions::{
    Access, Chap, DhChap, Filters, Host, Identity, KindFields, Nsid, RdmaChoice, Tls, ToldBy,
};
use crate::natural::sort_by_text;
use crate::text::{Portal, Text};

/// A volume as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeView {
    /// Its name.
    pub name: String,
    /// Capacity.
    pub size_bytes: u64,
    /// Bytes in a block.
    pub block_size: u64,
    /// What its blocks are kept in, with the settings of that kind.
    #[serde(flatten)]
    pub kind: KindFields,
    /// Memory, or space of its file, that it holds.
    pub used_bytes: u64,
    /// When it was created or, for a snapshot, taken, in seconds since 1970. A restart creates
    /// anew.
    #[serde(default)]
    pub created_unix_s: u64,
    /// The volumes that are made of it: snapshots, clones, or the one that it is a member of.
    #[serde(default)]
    pub children: Vec<String>,
    /// Identifiers that are set.
    #[serde(default)]
    pub identity: Identity,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether what was written is there.
    pub contents: Contents,
    /// Whether commands of hosts are executed.
    #[serde(default)]
    pub state: VolumeState,
    /// Why its file or device could not be opened, its disk not be reached, or which of its members
    /// is offline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What cannot be read, because the save that it was restored from is damaged there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<DamageView>,
    /// The ways to its disk, if that is on another machine. Of those that are up, one is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathView>,
    /// What it has done as a cache, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheView>,
    /// How its members are, if it is a mirror.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorView>,
    /// How its copies are, if it is replicated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<ReplicationView>,
    /// What slows it down or makes it fail.
    pub filters: Filters,
    /// When and where it is saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save: Option<SaveView>,
    /// The attachments.
    pub attachments: Vec<AttachmentView>,
    /// What hosts have done to it.
    pub statistics: StatisticsView,
}

/// Whether commands of hosts are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// They are.
    #[default]
    Online,
    /// They fail until someone acknowledges that the contents are lost, or, if there is a
    /// `problem`, until the daemon is restarted without it.
    Offline,
}

impl From<Availability> for VolumeState {
    fn from(availability: Availability) -> Self {
        match availability {
            Availability::Online => Self::Online,
            Availability::Offline => Self::Offline,
        }
    }
}

/// An attachment of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttachmentView {
    /// The target.
    pub target: String,
    /// The namespace ID or LUN there.
    pub nsid: u32,
    /// The identifiers that hosts see there.
    #[serde(default)]
    pub identifiers: Identity,
}

/// A target as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TargetView {
    /// Its name: a subsystem NQN, or an iSCSI target name.
    pub name: String,
    /// The protocol that its name is of: `nvme` or `iscsi`.
    pub protocol: String,
    /// The access of any host, if the target is for any host.
    pub any_host: Option<Access>,
    /// The hosts that may use it, if it has a list. Without `any_host` and a list, hosts on this
    /// machine may use it.
    #[schema(value_type = Option<std::collections::BTreeMap<String, Access>>)]
    pub hosts: Option<std::collections::BTreeMap<Text<HostName>, Access>>,
    /// The LUNs that hosts on the list see, if they do not see all: each with its number in the
    /// target.
    #[serde(default)]
    #[schema(value_type = std::collections::BTreeMap<String, std::collections::BTreeMap<String, String>>)]
    pub luns: std::collections::BTreeMap<Text<HostName>, std::collections::BTreeMap<Nsid, Nsid>>,
    /// The groups of the portals that an iSCSI target is reached through; all, where empty.
    #[serde(default)]
    pub portal_groups: Vec<u16>,
    /// What hosts without CHAP of their own have to prove to an iSCSI target.
    #[serde(default)]
    pub chap: Option<ChapView>,
    /// Its volumes.
    pub namespaces: Vec<NamespaceView>,
    /// How many sessions it has.
    pub sessions: usize,
    /// What is worth knowing about it.
    pub warnings: Vec<String>,
    /// What hosts have done through it.
    pub statistics: StatisticsView,
}

/// A volume as a namespace or LUN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceView {
    /// The namespace ID or LUN.
    pub nsid: u32,
    /// The volume.
    pub volume: String,
}

/// A host as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostView {
    /// Its name.
    pub name: String,
    /// How it is recognised.
    pub told_by: ToldBy,
    /// Where it may come from; anywhere, where empty.
    pub addresses: Vec<String>,
    /// What it has to prove when it logs in over iSCSI.
    pub chap: Option<ChapView>,
    /// What it has to prove when it connects over NVMe.
    pub dhchap: Option<DhChapView>,
    /// Its keys for TLS over NVMe/TCP.
    #[serde(default)]
    pub tls: Option<TlsView>,
    /// The targets whose lists name it.
    pub targets: Vec<String>,
}

/// CHAP of a host or a target, without the secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChapView {
    /// The name that the host gives.
    pub user: String,
    /// The name that targets give, if they have a secret.
    pub mutual_user: Option<String>,
}

impl ChapView {
    fn of(chap: &Chap) -> Self {
        Self {
            user: chap.user.clone(),
            mutual_user: chap.mutual.as_ref().map(|mutual| mutual.user.clone()),
        }
    }
}

/// DH-HMAC-CHAP of a host, without the secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DhChapView {
    /// Whether the host may use another secret, too.
    pub has_other_secret: bool,
    /// Whether targets prove a secret if the host requests that.
    pub has_ctrl_secret: bool,
    /// The only hash function that is accepted.
    #[schema(value_type = Option<String>, example = "sha256")]
    pub hash: Option<Text<DhChapHash>>,
    /// The groups that are accepted.
    #[schema(value_type = String, example = "any")]
    pub dhgroup: Text<DhGroupPolicy>,
}

impl DhChapView {
    fn of(dhchap: &DhChap) -> Self {
        Self {
            has_other_secret: dhchap.other_secret.is_some(),
            has_ctrl_secret: dhchap.ctrl_secret.is_some(),
            hash: dhchap.hash,
            dhgroup: dhchap.dhgroup,
        }
    }
}

/// TLS of a host, without the keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TlsView {
    /// Whether the host may use another key, too.
    pub has_other_psk: bool,
}

impl TlsView {
    fn of(tls: &Tls) -> Self {
        Self {
            has_other_psk: tls.other_psk.is_some(),
        }
    }
}

/// A portal as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortalView {
    /// Its URL.
    pub url: String,
    /// Whether it listens.
    pub state: PortalState,
    /// What is to carry RDMA, if the portal is over RDMA.
    #[serde(default)]
    pub rdma: Option<RdmaChoice>,
    /// Whether hosts use TLS, if the portal is over NVMe/TCP: `off`, `allowed` or `required`.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "required")]
    pub tls: Option<Text<TlsPolicy>>,
    /// Whether all hosts have to authenticate at it, for discovery too.
    #[serde(default)]
    pub require_auth: bool,
    /// Whether other machines reach it and it requires neither authentication nor TLS of them.
    #[serde(default)]
    pub open: bool,
    /// What carries RDMA, if the portal is over RDMA and open.
    #[serde(default)]
    pub provider: Option<RdmaProvider>,
    /// Whether the system cuts runs of packets (GSO), where software carries RDMA.
    #[serde(default)]
    pub segmentation: Option<RdmaSegmentation>,
    /// Why it is closed; or why RDMA is carried by what carries it.
    #[serde(default)]
    pub reason: Option<String>,
    /// How many connections came through it and are still there.
    pub connections: usize,
    /// What was counted of packets, where software carries RDMA.
    #[serde(default)]
    pub statistics: Option<RdmaStatisticsView>,
}

/// Another discovery service that hosts are referred to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReferralView {
    /// The portal's URL.
    pub url: String,
}

/// Whether a portal listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PortalState {
    /// It does.
    Open,
    /// Its address is not there, or taken by another program, or has no provider of RDMA; it is
    /// tried again.
    Closed,
}

/// A session: a host connected to a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SessionView {
    /// Its number.
    pub id: u64,
    /// The target; none for the discovery service and for NFS.
    pub target: Option<String>,
    /// The name that the host gave; for NFS, its address.
    pub host: String,
    /// Where the host came from.
    pub peer: String,
    /// The local address of the connection.
    pub local: String,
    /// The transport: `nvme+tcp`, `nvme+rdma`, `iscsi`, `iser`, `nfs`, `nfs+udp`, `nfs+rdma`,
    /// `brp`, `brp+rdma` or `srp`.
    pub transport: String,
    /// The controller ID, for NVMe.
    pub controller: Option<u16>,
    /// What an iSCSI session is.
    pub iscsi: Option<IscsiSessionView>,
    /// What a session of NFS is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nfs: Option<NfsSessionView>,
    /// What a session of BRP is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brp: Option<BrpSessionView>,
    /// How many connections (queues) it has.
    pub connections: usize,
    /// When it began, in seconds since 1970.
    pub since_unix_s: u64,
    /// What it has done; for NFS, reads, writes and commits of files.
    pub statistics: StatisticsView,
}

/// Memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CapacityView {
    /// What may be used.
    pub budget_bytes: u64,
    /// What is used.
    pub used_bytes: u64,
    /// What is free.
    pub free_bytes: u64,
    /// What all volumes would take if they were full.
    pub promised_bytes: u64,
    /// The number of volumes that are larger than the budget. Their writes fail when it is used up.
    #[serde(default)]
    pub oversized_volumes: usize,
    /// The number of writes that failed because too little was free.
    #[serde(default)]
    pub failed_writes: u64,
    /// The number of connections that were rejected because too little was free.
    #[serde(default)]
    pub rejected_connections: u64,
    /// What one idle connection costs.
    pub connection_idle_bytes: u64,
    /// What one connection may cost at most.
    pub connection_max_bytes: u64,
    /// What one empty thin volume costs.
    pub volume_bytes: u64,
    /// What a volume's memory is taken in.
    pub slab_bytes: u64,
}

/// The daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusView {
    /// Its version.
    pub version: String,
    /// Its process ID.
    pub pid: u32,
    /// How long it has been running.
    pub uptime_s: u64,
}

impl Engine {
    /// Every volume, by name.
    pub fn volumes(&self) -> Vec<VolumeView> {
        let infos = self.server().volumes();
        let (definitions, lost, saves) = (self.read(), self.lost().clone(), self.saves());
        let machine = self.server().machine();
        let children = definitions.all_children();
        let known = infos.into_iter().filter_map(|info| {
            let volume = definitions.volumes.get(&Text(info.name.clone()))?;
            let children = children
                .get(info.name.as_str())
                .map_or(&[][..], Vec::as_slice);
            Some(volume_view(&info, volume, children, &lost, &saves, machine))
        });
        sorted(known, |volume| &volume.name)
    }

    /// One volume.
    pub fn volume(&self, name: &VolumeName) -> Result<VolumeView, ServerError> {
        let (info, machine) = (self.server().volume(name)?, self.server().machine());
        let definitions = self.read();
        match definitions.volumes.get(&Text(name.clone())) {
            Some(volume) => {
                let children = definitions.children(name);
                let (lost, saves) = (self.lost(), self.saves());
                Ok(volume_view(
                    &info, volume, &children, &lost, &saves, machine,
                ))
            }
            None => Err(ServerError::UnknownVolume(name.clone())),
        }
    }

    /// Every target, by name.
    pub fn targets(&self) -> Vec<TargetView> {
        let infos = self.server().targets();
        let definitions = self.read();
        let views = infos.iter().map(|info| target_view(info, &definitions));
        sorted(views, |target| &target.name)
    }

    /// One target.
    pub fn target(&self, name: &TargetName) -> Result<TargetView, ServerError> {
        let info = self.server().target(name)?;
        Ok(target_view(&info, &self.read()))
    }

    /// Every host, by name.
    pub fn hosts(&self) -> Vec<HostView> {
        let definitions = self.read();
        let views = definitions.hosts.iter().map(|(name, host)| {
            let targets = definitions.targets.iter().filter(|(_, target)| {
                let list = target.hosts.as_ref();
                list.is_some_and(|hosts| hosts.contains_key(name))
            });
            host_view(&name.0, host, targets.map(|(target, _)| target.to_string()))
        });
        sorted(views, |host| &host.name)
    }

    /// One host.
    pub fn host(&self, name: &HostName) -> Result<HostView, ServerError> {
        let mut hosts = self.hosts().into_iter();
        hosts
            .find(|host| host.name == name.as_str())
            .ok_or_else(|| ServerError::UnknownHost(name.clone()))
    }

    /// Every portal, by URL.
    pub fn portals(&self) -> Vec<PortalView> {
        let infos = self.server().portals();
        let definitions = self.read();
        let views = definitions.portals.iter();
        let views = views.map(|portal| portal_view(portal.0, &infos, &self.closed()));
        sorted(views, |portal| &portal.url)
    }

    /// Every referral, by URL.
    pub fn referrals(&self) -> Vec<ReferralView> {
        let definitions = self.read();
        let referrals = definitions.referrals.iter();
        let views = referrals.map(|to| referral_view(to.0));
        sorted(views, |referral| &referral.url)
    }

    /// One referral.
    pub fn referral(&self, referral: Portal) -> Result<ReferralView, ServerError> {
        if !self.read().referrals.contains(&Text(referral)) {
            return Err(ServerError::UnknownReferral(referral.0));
        }
        Ok(referral_view(referral))
    }

    /// One portal.
    pub fn portal(&self, portal: Portal) -> Result<PortalView, ServerError> {
        let portal = self.defined_portal(portal)?;
        let infos = self.server().portals();
        Ok(portal_view(portal, &infos, &self.closed()))
    }

    /// Every session, oldest first.
    pub fn sessions(&self) -> Vec<SessionView> {
        let sessions = self.server().sessions();
        sessions.iter().map(session_view).collect()
    }

    /// One session.
    pub fn session(&self, id: SessionId) -> Result<SessionView, ServerError> {
        let sessions = self.server().sessions();
        match sessions.iter().find(|session| session.id == id) {
            Some(session) => Ok(session_view(session)),
            None => Err(ServerError::UnknownSession(id)),
        }
    }

    /// Counters of volumes, targets and sessions, by name or number.
    pub(crate) fn statistics(&self) -> [Vec<(String, IoStatistics)>; 3] {
        let server = self.server();
        let volumes = server.volumes().into_iter();
        let targets = server.targets().into_iter();
        let sessions = server.sessions().into_iter();
        [
            volumes
                .map(|v| (v.name.to_string(), v.statistics))
                .collect(),
            targets
                .map(|t| (t.definition.name.to_string(), t.statistics))
                .collect(),
            sessions.map(|s| (s.id.to_string(), s.statistics)).collect(),
        ]
    }

    /// Memory.
    pub fn capacity(&self) -> CapacityView {
        let promised = self.read().volumes.values().map(memory_when_full).sum();
        let oversized = self.oversized_volumes().len();
        capacity_view(self.server().capacity(), promised, oversized)
    }

    /// The long operation in progress.
    pub fn tasks(&self) -> Vec<Task> {
        let mut tasks = self.shared.busy.list();
        let saves = self.shared.saving.list().into_iter();
        let is_new = |save: &Task| tasks.iter().all(|task| task.volume != save.volume);
        let saves: Vec<_> = saves.filter(is_new).collect();
        tasks.extend(saves);
        tasks
    }

    /// The daemon.
    pub fn status(&self) -> StatusView {
        let uptime = self.shared.since.elapsed().unwrap_or_default();
        StatusView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: uptime.as_secs(),
        }
    }
}

fn volume_view(
    info: &VolumeInfo,
    volume: &crate::definitions::Volume,
    children: &[&VolumeName],
    lost: &BTreeSet<VolumeName>,
    saves: &SaveStates,
    machine: Uuid,
) -> VolumeView {
    let written = info.statistics.kind(OpKind::Write);
    let holds_data = volume.kind.0.holds_data(info.used_bytes, written.bytes)
        || written.operations > written.errors;
    let contents = if saves.is_planned(&info.name) {
        Contents::Restoring
    } else if lost.contains(&info.name) && !holds_data {
        Contents::Lost
    } else if !info.damage.is_empty() {
        Contents::Damaged
    } else {
        Contents::Present
    };
    let identity = volume.identity.to_server();
    let attachments = info.attachments.iter().map(|attachment| {
        let place = Place {
            machine,
            target: &attachment.target,
            volume: &info.name,
        };
        AttachmentView {
            target: attachment.target.to_string(),
            nsid: attachment.nsid,
            identifiers: identity.seen_at(place).into(),
        }
    });
    VolumeView {
        name: info.name.to_string(),
        size_bytes: info.spec.size.0,
        block_size: info.spec.block_size.bytes(),
        kind: volume.kind.clone(),
        used_bytes: info.used_bytes,
        created_unix_s: unix_s(info.created),
        children: children.iter().map(ToString::to_string).collect(),
        identity: volume.identity.clone(),
        read_only: volume.read_only,
        contents,
        state: match info.problem {
            Some(_) => VolumeState::Offline,
            None => info.availability.into(),
        },
        problem: info.problem.clone(),
        damage: (!info.damage.is_empty()).then(|| DamageView::from(&info.damage)),
        paths: info.paths.iter().cloned().map(PathView::from).collect(),
        cache: info.cache.map(CacheView::from),
        mirror: info.mirror.clone().map(MirrorView::from),
        replication: info.replication.clone().map(ReplicationView::from),
        filters: volume.filters.clone(),
        save: volume.save.as_ref().map(|to| saves.view(&info.name, to)),
        attachments: attachments.collect(),
        statistics: StatisticsView::from(&info.statistics),
    }
}

fn target_view(info: &TargetInfo, definitions: &crate::Definitions) -> TargetView {
    let name = &info.definition.name;
    let target = definitions.targets.get(&Text(name.clone()));
    let namespaces = info.definition.namespaces.iter().map(|ns| NamespaceView {
        nsid: ns.nsid,
        volume: ns.volume.to_string(),
    });
    let warnings = if name.is_nqn() || name.protocol() == Protocol::Iscsi {
        Vec::new()
    } else {
        vec![Warning::NotAnNqn(name.clone()).to_string()]
    };
    TargetView {
        name: name.to_string(),
        protocol: match name.protocol() {
            Protocol::Nvme => "nvme",
            Protocol::Iscsi => "iscsi",
        }
        .to_owned(),
        luns: target.map(|target| target.luns.clone()).unwrap_or_default(),
        any_host: target.and_then(|target| target.any_host),
        hosts: target.and_then(|target| target.hosts.clone()),
        portal_groups: target.map_or_else(Vec::new, |target| {
            target
                .portal_groups
                .iter()
                .map(|group| group.get())
                .collect()
        }),
        chap: target.and_then(|target| target.chap.as_ref().map(ChapView::of)),
        namespaces: namespaces.collect(),
        sessions: info.sessions,
        warnings,
        statistics: StatisticsView::from(&info.statistics),
    }
}

fn host_view(name: &HostName, host: &Host, targets: impl Iterator<Item = String>) -> HostView {
    HostView {
        name: name.to_string(),
        told_by: host.told_by,
        addresses: host.addresses.iter().map(ToString::to_string).collect(),
        chap: host.chap.as_ref().map(ChapView::of),
        dhchap: host.dhchap.as_ref().map(DhChapView::of),
        tls: host.tls.as_ref().map(TlsView::of),
        targets: targets.collect(),
    }
}

fn portal_view(
    portal: Portal,
    infos: &[PortalInfo],
    closed: &BTreeMap<PortalDefinition, String>,
) -> PortalView {
    let info = infos.iter().find(|info| info.definition == portal.0);
    let rdma = info.and_then(|info| info.rdma.as_ref());
    PortalView {
        url: portal.to_string(),
        state: match info {
            Some(_) => PortalState::Open,
            None => PortalState::Closed,
        },
        rdma: (portal.0.transport.is_rdma()).then(|| portal.0.rdma.into()),
        tls: (portal.0.transport == Transport::NvmeTcp).then_some(Text(portal.0.tls)),
        require_auth: portal.0.auth == PortalAuth::Required,
        open: portal.0.admits_strangers(),
        provider: rdma.map(|rdma| rdma.provider.into()),
        reason: match info {
            Some(_) => rdma.map(|rdma| rdma.reason.clone()),
            None => closed.get(&portal.0).cloned(),
        },
        segmentation: rdma.and_then(|rdma| rdma.segmentation).map(Into::into),
        connections: info.map_or(0, |info| info.connections),
        statistics: (info.and_then(|info| info.rdma_statistics.as_ref())).map(Into::into),
    }
}

/// Views in the order in which people list names.
fn sorted<T>(views: impl Iterator<Item = T>, name: impl Fn(&T) -> &str) -> Vec<T> {
    let mut views: Vec<_> = views.collect();
    sort_by_text(&mut views, name);
    views
}

fn referral_view(referral: Portal) -> ReferralView {
    ReferralView {
        url: referral.to_string(),
    }
}

fn session_view(info: &SessionInfo) -> SessionView {
    let (mut controller, mut iscsi, mut nfs, mut brp) = (None, None, None, None);
    match &info.protocol {
        SessionProtocol::Nvme { controller: id, .. } => controller = Some(*id),
        SessionProtocol::Srp { .. } => {}
        SessionProtocol::Nfs {
            shares,
            operations,
            clients,
            ..
        } => {
            nfs = Some(NfsSessionView::new(shares, operations, clients));
        }
        SessionProtocol::Brp {
            unit,
            tags,
            hold,
            is_resumed,
            ..
        } => {
            brp = Some(BrpSessionView::new(*unit, *tags, *hold, *is_resumed));
        }
        SessionProtocol::Iscsi {
            isid,
            tsih,
            state,
            parameters,
            connections,
            ..
        } => {
            iscsi = Some(IscsiSessionView {
                isid: isid_text(*isid),
                tsih: *tsih,
                state: (*state).into(),
                connections: connections.iter().map(iscsi_connection_view).collect(),
                parameters: keys(parameters),
            });
        }
    }
    SessionView {
        id: info.id.0,
        target: info.target.as_ref().map(ToString::to_string),
        host: info.host.to_string(),
        peer: info.peer.to_string(),
        local: info.local.to_string(),
        transport: info.protocol.transport().scheme().to_owned(),
        controller,
        iscsi,
        nfs,
        brp,
        connections: info.connections,
        since_unix_s: unix_s(info.since),
        statistics: StatisticsView::from(&info.statistics),
    }
}

fn iscsi_connection_view(connection: &IscsiConnection) -> IscsiConnectionView {
    IscsiConnectionView {
        cid: connection.cid,
        peer: connection.peer.to_string(),
        local: connection.local.to_string(),
        parameters: keys(&connection.parameters),
    }
}

/// Negotiated keys with their values.
fn keys(keys: &[(&str, String)]) -> BTreeMap<String, String> {
    let keys = keys.iter();
    keys.map(|(k, v)| ((*k).to_owned(), v.clone())).collect()
}

fn capacity_view(
    capacity: Capacity,
    promised_bytes: u64,
    oversized_volumes: usize,
) -> CapacityView {
    CapacityView {
        budget_bytes: capacity.budget_bytes,
        used_bytes: capacity.used_bytes,
        free_bytes: capacity.budget_bytes.saturating_sub(capacity.used_bytes),
        promised_bytes,
        oversized_volumes,
        failed_writes: capacity.failed_writes,
        rejected_connections: capacity.rejected_connections,
        connection_idle_bytes: capacity.connection_idle_bytes,
        connection_max_bytes: capacity.connection_max_bytes,
        volume_bytes: capacity.volume_bytes,
        slab_bytes: capacity.slab_bytes,
    }
}

pub(super) fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
