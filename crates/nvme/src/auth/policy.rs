//! What both sides state about a transaction beforehand.

use super::DhGroup;

/// Which groups one side accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupPolicy {
    /// All. Controllers choose the smallest that the host offers, and none if it offers none.
    #[default]
    Any,
    /// No group.
    NoGroup,
    /// This group alone.
    Only(DhGroup),
}

/// Who speaks to whom: the names in Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Host NQN.
    pub host_nqn: String,
    /// Subsystem NQN.
    pub subsystem_nqn: String,
}
