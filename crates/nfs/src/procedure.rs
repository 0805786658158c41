//! The procedures of all programs.
//!
//! Read first: RFC 1813 sections 3.3, 5.2 and 6.2, RFC 8881 section 16.

/// A procedure of NFS version 3, MOUNT version 3, NLM version 4 or NSM version 1, or a compound of
/// NFS version 4. A compound is counted as what its main operation does: as a procedure of version
/// 3 if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum Procedure {
    Null,
    GetAttr,
    SetAttr,
    Lookup,
    Access,
    ReadLink,
    Read,
    Write,
    Create,
    MkDir,
    SymLink,
    MkNod,
    Remove,
    RmDir,
    Rename,
    Link,
    ReadDir,
    ReadDirPlus,
    FsStat,
    FsInfo,
    PathConf,
    Commit,
    MountNull,
    Mnt,
    Dump,
    Umnt,
    UmntAll,
    Export,
    Open,
    Close,
    Lock,
    Compound,
    NlmTest,
    NlmLock,
    NlmCancel,
    NlmUnlock,
    NlmFreeAll,
    NsmNotify,
}

impl Procedure {
    /// Every procedure, in the order of [`index`](Self::index): NFS version 3 first, by number,
    /// then MOUNT, by number, then what only version 4 has, then NLM and NSM.
    pub const ALL: [Self; 38] = [
        Self::Null,
        Self::GetAttr,
        Self::SetAttr,
        Self::Lookup,
        Self::Access,
        Self::ReadLink,
        Self::Read,
        Self::Write,
        Self::Create,
        Self::MkDir,
        Self::SymLink,
        Self::MkNod,
        Self::Remove,
        Self::RmDir,
        Self::Rename,
        Self::Link,
        Self::ReadDir,
        Self::ReadDirPlus,
        Self::FsStat,
        Self::FsInfo,
        Self::PathConf,
        Self::Commit,
        Self::MountNull,
        Self::Mnt,
        Self::Dump,
        Self::Umnt,
        Self::UmntAll,
        Self::Export,
        Self::Open,
        Self::Close,
        Self::Lock,
        Self::Compound,
        Self::NlmTest,
        Self::NlmLock,
        Self::NlmCancel,
        Self::NlmUnlock,
        Self::NlmFreeAll,
        Self::NsmNotify,
    ];
    /// How many of them are NFS version 3's.
    const NFS_COUNT: usize = 22;
    /// How many are of programs of version 3.
    const OLD_COUNT: usize = Self::NFS_COUNT + 6;

    /// The procedure of NFS version 3 with this number.
    pub(crate) fn of_nfs(number: u32) -> Option<Self> {
        Self::ALL[..Self::NFS_COUNT].get(number as usize).copied()
    }

    /// The procedure of MOUNT version 3 with this number.
    pub(crate) fn of_mount(number: u32) -> Option<Self> {
        let procedures = &Self::ALL[Self::NFS_COUNT..Self::OLD_COUNT];
        procedures.get(number as usize).copied()
    }

    /// The procedure of NFS version 4 with this number.
    pub(crate) const fn of_nfs4(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Null),
            1 => Some(Self::Compound),
            _ => None,
        }
    }

    /// The procedure of NLM version 4 with this number, if it is served: those that Linux calls,
    /// which are the ones with a reply.
    pub(crate) const fn of_nlm(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Null),
            1 => Some(Self::NlmTest),
            2 => Some(Self::NlmLock),
            3 => Some(Self::NlmCancel),
            4 => Some(Self::NlmUnlock),
            23 => Some(Self::NlmFreeAll),
            _ => None,
        }
    }

    /// The procedure of NSM version 1 with this number, if it is served.
    pub(crate) const fn of_nsm(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Null),
            6 => Some(Self::NsmNotify),
            _ => None,
        }
    }

    /// Its place in [`ALL`](Self::ALL), for arrays of counters.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether it belongs to MOUNT.
    pub const fn is_mount(self) -> bool {
        self.index() >= Self::NFS_COUNT && self.index() < Self::OLD_COUNT
    }

    /// Whether it belongs to NLM or NSM.
    pub(crate) const fn is_lock(self) -> bool {
        self.index() > Self::Compound.index()
    }

    /// Its name in lower case, as `nfsstat` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::GetAttr => "getattr",
            Self::SetAttr => "setattr",
            Self::Lookup => "lookup",
            Self::Access => "access",
            Self::ReadLink => "readlink",
            Self::Read => "read",
            Self::Write => "write",
            Self::Create => "create",
            Self::MkDir => "mkdir",
            Self::SymLink => "symlink",
            Self::MkNod => "mknod",
            Self::Remove => "remove",
            Self::RmDir => "rmdir",
            Self::Rename => "rename",
            Self::Link => "link",
            Self::ReadDir => "readdir",
            Self::ReadDirPlus => "readdirplus",
            Self::FsStat => "fsstat",
            Self::FsInfo => "fsinfo",
            Self::PathConf => "pathconf",
            Self::Commit => "commit",
            Self::MountNull => "mount_null",
            Self::Mnt => "mount_mnt",
            Self::Dump => "mount_dump",
            Self::Umnt => "mount_umnt",
            Self::UmntAll => "mount_umntall",
            Self::Export => "mount_export",
            Self::Open => "open",
            Self::Close => "close",
            Self::Lock => "lock",
            Self::Compound => "compound",
            Self::NlmTest => "nlm_test",
            Self::NlmLock => "nlm_lock",
            Self::NlmCancel => "nlm_cancel",
            Self::NlmUnlock => "nlm_unlock",
            Self::NlmFreeAll => "nlm_free_all",
            Self::NsmNotify => "nsm_notify",
        }
    }

    /// Whether a second execution would have another result, so that its reply is kept: RFC 1813
    /// section 4.5.
    pub(crate) const fn is_kept(self) -> bool {
        matches!(
            self,
            Self::SetAttr
                | Self::Create
                | Self::MkDir
                | Self::SymLink
                | Self::MkNod
                | Self::Remove
                | Self::RmDir
                | Self::Rename
                | Self::Link
        )
    }

    /// Whether a call without credentials (AUTH_NONE) may use it: those that reach no file of a
    /// user's, and FSINFO, which a client calls before it knows how to authenticate (RFC 2623
    /// section 2.3.2).
    pub(crate) const fn allows_no_credential(self) -> bool {
        self.is_mount() && !matches!(self, Self::Mnt)
            || matches!(
                self,
                Self::Null | Self::FsInfo | Self::NlmFreeAll | Self::NsmNotify
            )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_rfc_1813() {
        assert_eq!(Procedure::of_nfs(0), Some(Procedure::Null));
        assert_eq!(Procedure::of_nfs(6), Some(Procedure::Read));
        assert_eq!(Procedure::of_nfs(21), Some(Procedure::Commit));
        assert_eq!(Procedure::of_nfs(22), None);
        assert_eq!(Procedure::of_mount(1), Some(Procedure::Mnt));
        assert_eq!(Procedure::of_mount(5), Some(Procedure::Export));
        assert_eq!(Procedure::of_mount(6), None);
        assert_eq!(Procedure::of_nfs4(1), Some(Procedure::Compound));
        assert_eq!(Procedure::of_nfs4(2), None);
        assert_eq!(Procedure::of_nlm(4), Some(Procedure::NlmUnlock));
        assert_eq!(Procedure::of_nlm(5), None, "the client's");
        assert_eq!(Procedure::of_nsm(6), Some(Procedure::NsmNotify));
        assert!(Procedure::NlmTest.is_lock() && !Procedure::Compound.is_lock());
        assert!(Procedure::Export.is_mount() && !Procedure::Open.is_mount());
        for (index, procedure) in Procedure::ALL.into_iter().enumerate() {
            assert_eq!(procedure.index(), index);
        }
    }
}
