//! How a connection is ended by others than its initiator.
//!
//! Read first: RFC 7143 §11.9 (Asynchronous Message), §6.3.5 (reinstatement).

use std::time::Instant;

use crate::backend::SessionState;
use crate::peer::DROP_TIMEOUT;

/// How a connection is ended by others than its initiator on it. (A logout on the connection ends
/// it after the last reply: [`Replies::is_finished`](super::reply::Replies::is_finished).)
///
/// ```text
///      asked to log out                     dropped           ended elsewhere
/// Open ────────────────► LogoutRequested ───────────► Dropped ───────────────► Closed
///  │ └────────────────────── dropped ────────────────────▲                       ▲
///  └──────────────────────── ended elsewhere ────────────────────────────────────┘
/// ```
///
/// When the time of a logout is over, the core drops the session, whose state then says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The connection continues.
    Open,
    /// The initiator was asked to log out by this instant.
    LogoutRequested(Instant),
    /// Nothing is received any more. The initiator has to read the notice by this instant.
    Dropped(Instant),
    /// Nothing is sent or received any more.
    Closed,
}

impl Ending {
    /// The state that follows when the session has this state at `now`.
    pub(super) fn after(self, session: SessionState, now: Instant) -> Self {
        match (self, session) {
            (_, SessionState::Ended) => Self::Closed,
            (
                Self::Open | Self::LogoutRequested(_),
                SessionState::SessionDropped | SessionState::ConnectionDropped,
            ) => Self::Dropped(now + DROP_TIMEOUT),
            (Self::Open, SessionState::LogoutRequested(within)) => {
                Self::LogoutRequested(now + within)
            }
            (unchanged, _) => unchanged,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_connection_ends_by_its_diagram() {
        let now = Instant::now();
        let within = Duration::from_secs(3);
        let asked = Ending::LogoutRequested(now + within);
        let dropped = Ending::Dropped(now + DROP_TIMEOUT);
        let closed = Ending::Closed;
        let sessions = [
            SessionState::Active,
            SessionState::LogoutRequested(within),
            SessionState::SessionDropped,
            SessionState::ConnectionDropped,
            SessionState::Ended,
        ];
        // A row for each state, a column for each state of the session, in this order.
        let table = [
            (
                Ending::Open,
                [Ending::Open, asked, dropped, dropped, closed],
            ),
            (asked, [asked, asked, dropped, dropped, closed]),
            (dropped, [dropped, dropped, dropped, dropped, closed]),
            (closed, [closed; 5]),
        ];
        for (ending, row) in table {
            for (session, next) in sessions.into_iter().zip(row) {
                assert_eq!(ending.after(session, now), next, "{ending:?}, {session:?}");
            }
        }
    }
}
