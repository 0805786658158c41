//! How the members of a mirror are, as lists and the REST API show it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use volume::{Cause, MirrorInfo, MirrorMember, Role, ScrubReport};

/// How the members of a mirror are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MirrorView {
    /// Its members in their order.
    pub members: Vec<MemberView>,
    /// Bytes that were copied to members that had missed them.
    pub resynced_bytes: u64,
}

/// A member of a mirror.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberView {
    /// The volume.
    pub volume: String,
    /// What it is used for.
    pub state: MemberState,
    /// Why it is not in sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Bytes of the regions that are to be copied to it.
    pub missing_bytes: u64,
}

/// What a member of a mirror is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// It has everything: it is read and written.
    InSync,
    /// It is written, and what it missed is copied to it.
    Resyncing,
    /// It is not used.
    OutOfSync,
}

/// What a comparison of the members of a mirror has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScrubView {
    /// Bytes of the mirror that were compared.
    pub compared_bytes: u64,
    /// Bytes of the pieces of 64 KiB that differ.
    pub differing_bytes: u64,
    /// Bytes of those that were repaired.
    pub repaired_bytes: u64,
    /// Where they are: at most the first 64 ranges of differing pieces.
    pub ranges: Vec<RangeView>,
}

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RangeView {
    /// The first.
    pub offset_bytes: u64,
    /// How many.
    pub len_bytes: u64,
}

impl From<ScrubReport> for ScrubView {
    fn from(of: ScrubReport) -> Self {
        let ranges = of.ranges.iter().map(|range| RangeView {
            offset_bytes: range.offset,
            len_bytes: range.len,
        });
        Self {
            compared_bytes: of.compared_bytes,
            differing_bytes: of.differing_bytes,
            repaired_bytes: of.repaired_bytes,
            ranges: ranges.collect(),
        }
    }
}

impl From<MirrorInfo> for MirrorView {
    fn from(of: MirrorInfo) -> Self {
        Self {
            members: of.members.into_iter().map(MemberView::from).collect(),
            resynced_bytes: of.resynced_bytes,
        }
    }
}

impl From<MirrorMember> for MemberView {
    fn from(of: MirrorMember) -> Self {
        Self {
            volume: of.name,
            state: match of.role {
                Role::InSync => MemberState::InSync,
                Role::Resyncing => MemberState::Resyncing,
                Role::Absent => MemberState::OutOfSync,
            },
            problem: of.cause.map(|cause| problem(cause, of.role)),
            missing_bytes: of.missing_bytes,
        }
    }
}

fn problem(cause: Cause, role: Role) -> String {
    let why = match cause {
        Cause::Person => "it was taken out of use".to_owned(),
        Cause::Failed(status) => format!("a command on it failed: {status}"),
    };
    match role {
        Role::Absent if cause.passes() => format!("{why}; it is tried again by itself"),
        Role::Absent => format!("{why}; `ramport volume mirror --return` uses it again"),
        Role::Resyncing | Role::InSync => why,
    }
}

#[cfg(test)]
mod tests {
    use block::Status;

    use super::*;

    #[test]
    fn a_member_out_of_sync_says_why_and_what_to_do() {
        let member = |role, cause| {
            MemberView::from(MirrorMember {
                name: "b".to_owned(),
                role,
                cause,
                missing_bytes: 1 << 20,
            })
        };
        let failed = member(Role::Absent, Some(Cause::Person));
        insta::assert_snapshot!(failed.problem.unwrap_or_default(), @"it was taken out of use; `ramport volume mirror --return` uses it again");
        let lost = member(Role::Absent, Some(Cause::Failed(Status::Gone)));
        insta::assert_snapshot!(lost.problem.unwrap_or_default(), @"a command on it failed: the volume was removed; it is tried again by itself");
        let in_sync = member(Role::InSync, None);
        assert_eq!(
            (in_sync.state, in_sync.problem),
            (MemberState::InSync, None)
        );
    }
}
