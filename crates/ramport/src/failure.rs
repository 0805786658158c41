//! How the program ends when it did not do what was asked.

use std::process::ExitCode;

use control::ClientError;

/// Why the program did not do what was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The person who asked can mend it: exit status 2.
    Mistake(anyhow::Error),
    /// Something broke: exit status 1.
    Broken(anyhow::Error),
}

impl Failure {
    /// A mistake with its reason and mend.
    pub(crate) fn mistake(error: impl Into<anyhow::Error>) -> Self {
        Self::Mistake(error.into())
    }

    /// Tells it on standard error.
    pub(crate) fn tell(&self) -> ExitCode {
        let (error, code) = match self {
            Self::Mistake(error) => (error, 2),
            Self::Broken(error) => (error, 1),
        };
        eprintln!("ramport: {error:#}");
        ExitCode::from(code)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        if error.is_mistake() {
            Self::Mistake(error.into())
        } else {
            Self::Broken(error.into())
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error.into())
    }
}
