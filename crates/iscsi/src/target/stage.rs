//! The stages of a connection, and the entry points that both transports share.
//!
//! ```text
//!         the login is done
//!  Login ───────────────────► Full
//! ```

use std::time::Instant;

use block::Completion;

use super::full_feature::FullFeature;
use super::login_phase::LoginPhase;
use crate::backend::Backend;
use crate::params::Parameters;
use crate::peer::PeerError;

/// The stage of a connection.
pub(crate) enum Stage {
    /// Before full feature phase.
    Login(Box<LoginPhase>),
    /// In full feature phase.
    Full(Box<FullFeature>),
}

impl Stage {
    /// The stage of a connection that was just accepted.
    pub(crate) fn new(login: LoginPhase) -> Self {
        Self::Login(Box::new(login))
    }

    pub(crate) fn parameters(&self) -> Option<&Parameters> {
        match self {
            Self::Full(full) => Some(&full.parameters),
            Self::Login(_) => None,
        }
    }

    pub(crate) fn initiator(&self) -> Option<&str> {
        match self {
            Self::Full(full) => Some(full.initiator()),
            Self::Login(_) => None,
        }
    }

    /// Whether tasks have something to send.
    pub(crate) fn has_ready(&self) -> bool {
        match self {
            Self::Full(full) => full.tasks.has_ready(),
            Self::Login(_) => false,
        }
    }

    pub(crate) fn has_replies(&self) -> bool {
        match self {
            Self::Full(full) => !full.replies.is_empty(),
            Self::Login(login) => !login.replies.is_empty(),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Self::Full(full) => full.is_idle(),
            Self::Login(_) => true,
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        match self {
            Self::Full(full) => full.is_closing(),
            Self::Login(login) => login.is_closing(),
        }
    }

    pub(crate) fn handle_wake<B: Backend>(&mut self, now: Instant, backend: &mut B) {
        if let Self::Login(login) = self
            && let Some(full) = login.finish(now, backend)
        {
            *self = Self::Full(Box::new(full));
        }
        if let Self::Full(full) = self {
            full.handle_wake(now, backend);
        }
    }

    pub(crate) fn handle_completion<B: Backend>(
        &mut self,
        now: Instant,
        completion: Completion,
        backend: &mut B,
    ) {
        if let Self::Full(full) = self {
            full.handle_completion(now, completion, backend);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Full(full) => full.poll_timeout(),
            Self::Login(login) => login.poll_timeout(),
        }
    }

    pub(crate) fn handle_timeout<B: Backend>(
        &mut self,
        now: Instant,
        backend: &mut B,
    ) -> Result<(), PeerError> {
        match self {
            Self::Full(full) => full.handle_timeout(now, backend),
            Self::Login(login) => login.handle_timeout(now),
        }
    }

    pub(crate) fn handle_close<B: Backend>(&mut self, now: Instant, backend: &mut B) {
        if let Self::Full(full) = self {
            full.handle_close(now, backend);
        }
    }
}
