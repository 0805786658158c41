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
    /// Whoever read the output has gone away, as `head` does: nothing to tell, exit status 0.
    ReaderGone,
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
            Self::ReaderGone => return ExitCode::SUCCESS,
        };
        eprintln!("ramport: {}", told(error));
        ExitCode::from(code)
    }
}

/// The error and its causes, without those that the text before them has said already.
fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    text
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

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn no_cause_is_told_twice() {
        let error = anyhow!("refused").context("cannot connect: refused");
        assert_eq!(
            told(&error.context("cannot ask")),
            "cannot ask: cannot connect: refused"
        );
    }
}
