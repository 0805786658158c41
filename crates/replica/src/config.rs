//! Configurations: who is primary and which members are in sync.

use crate::ids::{Epoch, MemberId};

/// What the store holds for a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Grows by 1 with each change.
    pub epoch: Epoch,
    /// The member that serves the volume. It is in `in_sync`.
    pub primary: MemberId,
    /// The members that have every acknowledged write, in ascending order: 1 to
    /// [`Config::MEMBERS_MAX`].
    pub in_sync: Vec<MemberId>,
}

impl Config {
    /// How many members can be in sync.
    pub const MEMBERS_MAX: usize = 8;

    /// The first configuration of a volume, whose members hold only zeros. `None` if there are more
    /// than [`Self::MEMBERS_MAX`] members or `primary` is not one of them.
    pub fn first(primary: MemberId, members: &[MemberId]) -> Option<Self> {
        let mut in_sync = members.to_vec();
        in_sync.sort_unstable();
        in_sync.dedup();
        let config = Self {
            epoch: Epoch(1),
            primary,
            in_sync,
        };
        config.is_valid().then_some(config)
    }

    /// Whether `member` counts as a copy.
    pub fn has(&self, member: MemberId) -> bool {
        self.in_sync.binary_search(&member).is_ok()
    }

    /// The members in sync except the primary.
    pub fn secondaries(&self) -> impl Iterator<Item = MemberId> + '_ {
        let primary = self.primary;
        self.in_sync
            .iter()
            .copied()
            .filter(move |id| *id != primary)
    }

    /// Whether the configuration obeys its limits. What peers send is checked with it.
    pub fn is_valid(&self) -> bool {
        self.in_sync.len() <= Self::MEMBERS_MAX
            && self.has(self.primary)
            && self.in_sync.is_sorted_by(|a, b| a < b)
    }

    /// The next configuration without the copy on `node`: someone other than a member may propose
    /// it. `None` if the node has none in sync, or the primary.
    #[must_use]
    pub fn without_node(&self, node: u32) -> Option<Self> {
        let mut secondaries = self.secondaries();
        let member = secondaries.find(|member| member.node == node)?;
        Some(self.without(member))
    }

    /// The next configuration with the same members.
    #[must_use]
    pub(crate) fn renumbered(&self) -> Self {
        Self {
            epoch: self.epoch.next(),
            ..self.clone()
        }
    }

    /// The next configuration without `member`, which is not the primary.
    #[must_use]
    pub(crate) fn without(&self, member: MemberId) -> Self {
        assert!(member != self.primary, "the primary removes others only");
        let mut next = self.renumbered();
        next.in_sync.retain(|id| *id != member);
        next
    }

    /// The next configuration with `member` in sync; `None` if there is no place for it.
    pub(crate) fn with(&self, member: MemberId) -> Option<Self> {
        let mut next = self.renumbered();
        next.in_sync.push(member);
        next.in_sync.sort_unstable();
        (next.in_sync.len() <= Self::MEMBERS_MAX).then_some(next)
    }

    /// The next configuration, in which `secondary` is primary and the former one stays in sync.
    #[must_use]
    pub(crate) fn moved_to(&self, secondary: MemberId) -> Self {
        assert!(self.has(secondary), "only a copy becomes primary");
        assert!(secondary != self.primary, "the primary moves elsewhere");
        let mut next = self.renumbered();
        next.primary = secondary;
        next
    }

    /// The next configuration, in which `secondary` replaces the primary, which is removed.
    #[must_use]
    pub(crate) fn taken_over_by(&self, secondary: MemberId) -> Self {
        assert!(self.has(secondary), "only a copy takes over");
        assert!(secondary != self.primary, "a primary does not take over");
        let mut next = self.renumbered();
        next.in_sync.retain(|id| *id != self.primary);
        next.primary = secondary;
        next
    }
}
