//! Asynchronous events of one controller: what is pending, what is masked, which requests wait.
//!
//! Read first: NVM Express Base 2.0, "Asynchronous Event Request command", "Asynchronous Event
//! Configuration".
//!
//! ```text
//!            raise                 request at hand            log read without RAE
//!  Clear ───────────► Pending ─────────────────────► Masked ───────────────────────► Clear
//!                        └──────────── log read without RAE ─────────────────────────► Clear
//! ```

use std::collections::VecDeque;

use crate::controller::{Completion, Limits};
use crate::wire::{Cid, StatusCode};

/// The events that a controller can report to its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Event {
    /// Namespaces were added, removed, resized or locked.
    NamespaceAttributeChanged,
    /// The state of an ANA group changed.
    AnaChange,
    /// The discovery log changed.
    DiscoveryLogChange,
    /// The reservation notification log has an entry.
    ReservationLogAvailable,
}

impl Event {
    const ALL: [Self; 4] = [
        Self::NamespaceAttributeChanged,
        Self::AnaChange,
        Self::DiscoveryLogChange,
        Self::ReservationLogAvailable,
    ];

    /// The bit that enables it in Asynchronous Event Configuration and announces it in OAES; none
    /// if another feature masks it.
    pub(in crate::controller) const fn enable_bit(self) -> Option<u32> {
        match self {
            Self::NamespaceAttributeChanged => Some(1 << 8),
            Self::AnaChange => Some(1 << 11),
            Self::DiscoveryLogChange => Some(1 << 31),
            Self::ReservationLogAvailable => None,
        }
    }

    /// The log page with details (LID).
    pub(in crate::controller) const fn log_page(self) -> u8 {
        match self {
            Self::NamespaceAttributeChanged => 0x04,
            Self::AnaChange => 0x0C,
            Self::DiscoveryLogChange => 0x70,
            Self::ReservationLogAvailable => 0x80,
        }
    }

    /// DW0 of the completion: type in bits 2:0, information in bits 15:8, log page in bits 23:16.
    pub(in crate::controller) const fn dw0(self) -> u32 {
        const NOTICE: u32 = 2;
        const COMMAND_SET_SPECIFIC: u32 = 6;
        let (kind, information) = match self {
            Self::NamespaceAttributeChanged => (NOTICE, 0x00),
            Self::AnaChange => (NOTICE, 0x03),
            Self::DiscoveryLogChange => (NOTICE, 0xF0),
            Self::ReservationLogAvailable => (COMMAND_SET_SPECIFIC, 0x00),
        };
        (self.log_page() as u32) << 16 | information << 8 | kind
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Clear,
    Pending,
    Masked,
}

/// Asynchronous events of one controller.
#[derive(Debug)]
pub(in crate::controller) struct Events {
    /// Asynchronous Event Configuration.
    configuration: u32,
    /// The bits of it that may be set.
    supported: u32,
    states: [State; Event::ALL.len()],
    /// Asynchronous Event Requests kept; at most [`Limits::ASYNC_EVENT_REQUESTS_MAX`].
    requests: VecDeque<Cid>,
    /// Requests that were aborted, to be completed; the sum of both stays within the bound.
    aborted: VecDeque<Cid>,
}

impl Events {
    /// Events of which `supported` (bits of Asynchronous Event Configuration) exist, all of them
    /// enabled.
    pub(in crate::controller) fn new(supported: u32) -> Self {
        Self {
            configuration: supported,
            supported,
            states: [State::Clear; Event::ALL.len()],
            requests: VecDeque::new(),
            aborted: VecDeque::new(),
        }
    }

    pub(in crate::controller) fn configuration(&self) -> u32 {
        self.configuration
    }

    pub(in crate::controller) fn supported(&self) -> u32 {
        self.supported
    }

    /// Sets Asynchronous Event Configuration; bits of events that do not exist are refused.
    pub(in crate::controller) fn configure(&mut self, bits: u32) -> Result<(), StatusCode> {
        if bits & !self.supported != 0 {
            return Err(StatusCode::InvalidField);
        }
        self.configuration = bits;
        Ok(())
    }

    /// Keeps an Asynchronous Event Request.
    pub(in crate::controller) fn request(&mut self, cid: Cid) -> Result<(), StatusCode> {
        if self.requests.len() + self.aborted.len() >= Limits::ASYNC_EVENT_REQUESTS_MAX {
            return Err(StatusCode::AsyncEventLimitExceeded);
        }
        self.requests.push_back(cid);
        Ok(())
    }

    /// Aborts the request `cid`, if it is one that is kept.
    pub(in crate::controller) fn abort(&mut self, cid: Cid) -> bool {
        let Some(at) = self.requests.iter().position(|&kept| kept == cid) else {
            return false;
        };
        self.requests.remove(at);
        self.aborted.push_back(cid);
        true
    }

    /// Forgets everything, as a controller reset does.
    pub(in crate::controller) fn reset(&mut self) {
        *self = Self::new(self.supported);
    }

    /// Records an event. Returns `true` if the host has to be notified and no notification was
    /// pending.
    pub(in crate::controller) fn raise(&mut self, event: Event) -> bool {
        let is_enabled = event
            .enable_bit()
            .is_none_or(|bit| self.configuration & bit != 0);
        if !is_enabled || self.states[event as usize] != State::Clear {
            return false;
        }
        self.states[event as usize] = State::Pending;
        true
    }

    /// The host has read the log page `log_page` without retaining the event.
    pub(in crate::controller) fn log_was_read(&mut self, log_page: u8) {
        for event in Event::ALL {
            if event.log_page() == log_page {
                self.states[event as usize] = State::Clear;
            }
        }
    }

    /// The next request to complete, and how.
    pub(in crate::controller) fn poll(&mut self) -> Option<(Cid, Completion)> {
        if let Some(cid) = self.aborted.pop_front() {
            return Some((cid, StatusCode::AbortRequested.into()));
        }
        let event = Event::ALL
            .into_iter()
            .find(|&event| self.states[event as usize] == State::Pending)?;
        let cid = self.requests.pop_front()?;
        self.states[event as usize] = State::Masked;
        Some((cid, Completion::success(u64::from(event.dw0()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMESPACES: u32 = 1 << 8;
    const ANA: u32 = 1 << 11;

    #[test]
    fn an_event_waits_for_a_request_and_is_masked_until_its_log_is_read() {
        let mut events = Events::new(NAMESPACES | ANA);
        assert!(events.raise(Event::NamespaceAttributeChanged));
        assert_eq!(events.poll(), None);
        events.request(Cid(7)).expect("below the limit");
        events.request(Cid(8)).expect("below the limit");
        assert_eq!(
            events.poll(),
            Some((Cid(7), Completion::success(0x04_00_02)))
        );
        assert!(!events.raise(Event::NamespaceAttributeChanged), "masked");
        assert_eq!(events.poll(), None);
        events.log_was_read(0x0C);
        assert!(
            !events.raise(Event::NamespaceAttributeChanged),
            "another log was read"
        );
        events.log_was_read(0x04);
        assert!(events.raise(Event::NamespaceAttributeChanged));
        assert_eq!(
            events.poll(),
            Some((Cid(8), Completion::success(0x04_00_02)))
        );
    }

    #[test]
    fn reading_the_log_first_takes_a_pending_event_back() {
        let mut events = Events::new(ANA);
        assert!(events.raise(Event::AnaChange));
        events.log_was_read(0x0C);
        events.request(Cid(1)).expect("below the limit");
        assert_eq!(events.poll(), None);
    }

    #[test]
    fn a_disabled_event_does_not_happen() {
        let mut events = Events::new(NAMESPACES | ANA);
        events.configure(ANA).expect("supported");
        assert!(!events.raise(Event::NamespaceAttributeChanged));
        assert!(events.raise(Event::AnaChange));
        assert_eq!(events.configure(1 << 31), Err(StatusCode::InvalidField));
        assert_eq!(events.configuration(), ANA);
    }

    #[test]
    fn one_request_more_than_the_limit_is_refused() {
        let mut events = Events::new(0);
        for cid in 0..Limits::ASYNC_EVENT_REQUESTS_MAX {
            events.request(Cid(cid as u16)).expect("below the limit");
        }
        assert_eq!(
            events.request(Cid(99)),
            Err(StatusCode::AsyncEventLimitExceeded)
        );
    }

    #[test]
    fn an_aborted_request_completes_with_abort_requested() {
        let mut events = Events::new(0);
        events.request(Cid(5)).expect("below the limit");
        assert!(!events.abort(Cid(6)));
        assert!(events.abort(Cid(5)));
        let (cid, completion) = events.poll().expect("aborted");
        assert_eq!(
            (cid, completion.status.code()),
            (Cid(5), Some(StatusCode::AbortRequested))
        );
        assert_eq!(events.poll(), None);
    }

    #[test]
    fn every_event_says_type_information_and_log() {
        assert_eq!(Event::NamespaceAttributeChanged.dw0(), 0x0004_0002);
        assert_eq!(Event::AnaChange.dw0(), 0x000C_0302);
        assert_eq!(Event::DiscoveryLogChange.dw0(), 0x0070_F002);
        assert_eq!(Event::ReservationLogAvailable.dw0(), 0x0080_0006);
    }
}
