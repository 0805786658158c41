//! On whose behalf an operation is done.

/// A user as a protocol has authenticated and an export's options have mapped it (`root_squash`
/// and others act before).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller<'a> {
    /// The user ID.
    pub uid: u32,
    /// The group ID.
    pub gid: u32,
    /// Further groups.
    pub groups: &'a [u32],
}

impl Caller<'_> {
    /// The superuser, whom no permission bits restrict.
    pub const ROOT: Caller<'static> = Caller {
        uid: 0,
        gid: 0,
        groups: &[],
    };

    /// Whether permission bits do not restrict it.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether it belongs to the group.
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// What a caller may do with a file, by its mode, owner and group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Read the file, or list the directory.
    pub read: bool,
    /// Change the file's data, or the directory's entries.
    pub write: bool,
    /// Execute the file, or look up names in the directory.
    pub execute: bool,
}
