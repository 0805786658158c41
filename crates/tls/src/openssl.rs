//! Handshakes by OpenSSL 3, which is loaded at run time.

mod library;
mod negotiation;

pub use library::ProviderError;
pub(crate) use negotiation::{Negotiation, Side};

use std::sync::Arc;

use library::{Context, Library};

/// OpenSSL, loaded and configured. One is enough for a program.
#[derive(Clone)]
pub struct Provider {
    context: Arc<Context>,
}

impl Provider {
    /// Loads OpenSSL. The error says what to install.
    pub fn load() -> Result<Self, ProviderError> {
        let mut context = Context::new(Library::load()?)?;
        negotiation::configure(&mut context)?;
        Ok(Self {
            context: Arc::new(context),
        })
    }
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Provider")
    }
}
