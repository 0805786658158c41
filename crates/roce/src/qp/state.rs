//! The states of a queue pair.

/// The state of a queue pair.
///
/// ```text
///            Connect
///   Init ──────────────► ReadyToSend
///     │                      │
///     │ Fail                 │ Fail
///     └────────► Error ◄─────┘
/// ```
///
/// Initialized and ready-to-receive are one state here, since this crate's connection manager
/// always passes the latter at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Receives may be posted; nothing is sent, and received packets are dropped.
    Init,
    /// Connected.
    ReadyToSend,
    /// All work is flushed; received packets are dropped.
    Error,
}

/// Events that change the state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transition {
    /// The peer's numbers are known.
    Connect,
    /// A fatal error, or the end.
    Fail,
}

impl QpState {
    /// The state after `transition`; `None` if it is illegal.
    pub const fn apply(self, transition: Transition) -> Option<Self> {
        match (self, transition) {
            (Self::Init, Transition::Connect) => Some(Self::ReadyToSend),
            (Self::Init | Self::ReadyToSend | Self::Error, Transition::Fail) => Some(Self::Error),
            (Self::ReadyToSend | Self::Error, Transition::Connect) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::QpState::{Error, Init, ReadyToSend};
    use super::Transition::{Connect, Fail};

    #[test]
    fn the_transition_table_holds() {
        let table = [
            (Init, Connect, Some(ReadyToSend)),
            (Init, Fail, Some(Error)),
            (ReadyToSend, Connect, None),
            (ReadyToSend, Fail, Some(Error)),
            (Error, Connect, None),
            (Error, Fail, Some(Error)),
        ];
        for (from, transition, to) in table {
            assert_eq!(from.apply(transition), to, "{from:?} {transition:?}");
        }
    }
}
