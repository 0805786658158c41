//! Desired state, its file, the REST interface and metrics: the control plane.
//!
//! Nothing here is on the path of a byte. The [`Engine`] holds what people defined, makes the
//! [`server::Server`] agree with it and keeps it in a file; [`Api`] offers the engine over HTTP;
//! [`Client`] is the other end of that. This crate knows neither protocols nor how a volume keeps
//! its bytes.

#![forbid(unsafe_code)]

mod api;
mod certificate;
mod change;
mod client;
mod cluster;
mod definitions;
mod engine;
mod natural;
mod plan;
mod readable;
mod reservations;
mod saved_state;
mod secret_file;
mod shutdown_save;
mod store;
#[cfg(test)]
mod testing;
mod text;

pub use api::{
    Api, ApiConfig, Applied, ErrorBody, ErrorDetail, ListenError, NewToken, Role, RoleFault,
    ServerTls, ServerTlsError, SocketOwner, TcpConfig, Token, TokenError, TokenProof, TokenRequest,
    TokenView, TokensError, openapi,
};
pub use certificate::{CertificateError, CertificateFiles};
pub use client::{Client, ClientError, ClientTls, ClientTlsError, Endpoint, path_part};
pub use cluster::{
    ClusterControl, ClusterFault, ClusterPatch, ClusterView, DrainView, ExternalEtcd, JoinCluster,
    NewCluster, NodeCounters, NodeRole, NodeState, NodeView, PemIdentity, RebuildProgress,
    RepairAfter, WatchView, WatchedNode,
};
pub use definitions::{
    Access, AfterCrash, BlockLen, Chap, DefinitionFault, Definitions, DefinitionsError,
    DelayFilter, DhChap, FaultFilter, FaultRule, FaultStatus, FaultedKind, Filters, Host, Identity,
    KindFields, MutualChap, Nsid, OptionFault, OptionList, ParentFault, RateLimitFilter,
    RdmaChoice, Saving, SavingFault, Secret, SecretFileError, Share, ShareFault, ShareKind,
    ShareOptions, Target, Tls, ToldBy, Volume,
};
pub use engine::{
    AttachmentView, BrpSessionView, CacheFigures, CacheView, CapacityView, ChapView,
    ClientNameView, Comparison, Contents, CopyState, CopyView, DamageView, DamagedRange,
    DhChapView, Engine, EngineError, Figures, HostView, IfClosed, IscsiConnectionView,
    IscsiSessionView, IscsiState, KindView, LastSaveView, LostContents, MemberState, MemberView,
    MirrorView, NamespaceView, NewCopy, NewSnapshots, NfsClientView, NfsSessionView, OpenError,
    PathView, PortalFigures, PortalPatch, PortalState, PortalView, RangeView, RdmaProvider,
    RdmaSegmentation, RdmaStatisticsView, ReferralView, ReplicaView, ReplicationView, RestoreError,
    RestoreRequest, RestoredView, SaveRequest, SaveView, SavedView, ScrubView, SessionFigures,
    SessionView, SharePatch, ShareView, Starting, StatisticsView, StatusView, TargetAccess,
    TargetView, Task, ThreadFigures, TlsView, TopInterval, TopIntervalFault, TopView,
    VolumeFigures, VolumePatch, VolumeState, VolumeView,
};
pub use plan::PlanError;
pub use readable::readable;
pub use secret_file::is_exposed;
pub use server::{
    CopyFailure, CopyPlace, DhChapHash, DhChapSecret, DhGroupPolicy, ErrorKind, Force, RemoteError,
    TlsKey, TlsPolicy, TlsSuite, VolumeName, check_url, copy_outside, replace_private,
};
pub use store::StoreError;
pub use text::{Period, Portal, PortalFault, Size, Text, TextFault, Written, parse};
pub use volume::{
    ByteSize, CacheModeName, CacheSettings, Damage, Placement, Provision, VolumeKind,
};
