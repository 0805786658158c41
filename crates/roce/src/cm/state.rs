//! The states of a connection.

/// The state of a connection.
///
/// ```text
///  passive:  Request ──► ReqReceived ──Accept──► RepSent ──Ready──► Established
///                             │                   │  │                  │
///                           Close               Close└──Disconnect──┐   │ Disconnect
///                             ▼                   ▼                 ▼   ▼
///                           Closed              Closed             DreqSent
///                                                                       │ Ended
///  active:   ReqSent ──Ready──► Established          (RepSent, Established, DreqSent)
///               │ Close                                                 ▼
///               ▼                                                   TimeWait ──Close──► Closed
///             Closed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CmState {
    /// A peer's request waits for the application's answer.
    ReqReceived,
    /// The reply was sent.
    RepSent,
    /// Our request was sent.
    ReqSent,
    /// Made.
    Established,
    /// We have sent a disconnect request.
    DreqSent,
    /// Ended. Its numbers are remembered, to recognize late messages.
    TimeWait,
    /// Forgotten.
    Closed,
}

/// Events that change the state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CmTransition {
    /// The application accepts.
    Accept,
    /// Established at both ends.
    Ready,
    /// We ask for the end.
    Disconnect,
    /// The connection has ended.
    Ended,
    /// Rejected, given up or forgotten.
    Close,
}

impl CmState {
    /// The state after `transition`; `None` if it is illegal.
    pub const fn apply(self, transition: CmTransition) -> Option<Self> {
        use CmTransition::{Accept, Close, Disconnect, Ended, Ready};
        match (self, transition) {
            (Self::ReqReceived, Accept) => Some(Self::RepSent),
            (Self::RepSent | Self::ReqSent, Ready) => Some(Self::Established),
            (Self::RepSent | Self::Established, Disconnect) => Some(Self::DreqSent),
            (Self::RepSent | Self::Established | Self::DreqSent, Ended) => Some(Self::TimeWait),
            (Self::ReqReceived | Self::RepSent | Self::ReqSent | Self::TimeWait, Close) => {
                Some(Self::Closed)
            }
            _ => None,
        }
    }

    /// Whether a peer requested it and it is not yet established.
    pub const fn is_half_open(self) -> bool {
        matches!(self, Self::ReqReceived | Self::RepSent)
    }
}

#[cfg(test)]
mod tests {
    use super::CmState::{Closed, DreqSent, Established, RepSent, ReqReceived, ReqSent, TimeWait};
    use super::CmTransition::{Accept, Close, Disconnect, Ended, Ready};

    #[test]
    fn the_transition_table_holds() {
        let transitions = [Accept, Ready, Disconnect, Ended, Close];
        let table = [
            (ReqReceived, [Some(RepSent), None, None, None, Some(Closed)]),
            (
                RepSent,
                [
                    None,
                    Some(Established),
                    Some(DreqSent),
                    Some(TimeWait),
                    Some(Closed),
                ],
            ),
            (ReqSent, [None, Some(Established), None, None, Some(Closed)]),
            (
                Established,
                [None, None, Some(DreqSent), Some(TimeWait), None],
            ),
            (DreqSent, [None, None, None, Some(TimeWait), None]),
            (TimeWait, [None, None, None, None, Some(Closed)]),
            (Closed, [None; 5]),
        ];
        for (from, results) in table {
            for (transition, to) in transitions.into_iter().zip(results) {
                assert_eq!(from.apply(transition), to, "{from:?} {transition:?}");
            }
        }
    }
}
