//! How the program ends after a failure.

use std::fmt;
use std::process::ExitCode;

use control::{ClientError, ErrorBody, ErrorDetail};
use serde_json::json;

use crate::form::Form;
use crate::mistake::{Mistake, SystemFailure};

/// Why the program failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The user can fix it: exit status 2.
    Mistake(anyhow::Error),
    /// The daemon rejected a file: exit status 1.
    Refused(ErrorDetail),
    /// Any other failure: exit status 1.
    Broken(anyhow::Error),
    /// The reader of the output has closed it, as `head` does. Nothing is printed; exit status 0.
    ReaderGone,
}

impl Failure {
    /// A mistake with its reason and how to fix it.
    pub(crate) fn mistake(error: impl Into<anyhow::Error>) -> Self {
        Self::Mistake(error.into())
    }

    /// Prints the failure on standard error.
    pub(crate) fn tell(&self, form: Form) -> ExitCode {
        let (error, code) = match self {
            Self::Mistake(error) => (detail(error, "mistake"), 2),
            Self::Refused(error) => (error.clone(), 1),
            Self::Broken(error) => (detail(error, "failed"), 1),
            Self::ReaderGone => return ExitCode::SUCCESS,
        };
        print(form, error);
        ExitCode::from(code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mistake(error) | Self::Broken(error) => f.write_str(&told(error)),
            Self::Refused(error) => f.write_str(&error.message),
            Self::ReaderGone => f.write_str("the reader has closed the output"),
        }
    }
}

/// Prints an error about an invalid command line on standard error, or help on standard output.
pub(crate) fn tell_usage(error: &clap::Error, form: Form) -> ExitCode {
    if form == Form::Json && error.use_stderr() {
        let text = error.render().to_string();
        let text = text.trim().trim_start_matches("error: ");
        let error = ErrorDetail {
            kind: "usage".to_owned(),
            message: text.to_owned(),
            needs_force: false,
        };
        print(form, error);
    } else {
        // The reader may have closed the output.
        let _ = error.print();
    }
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Prints an error; as JSON it has the form of REST's errors.
fn print(form: Form, mut error: ErrorDetail) {
    if error.needs_force {
        error.message.push_str("; to do it anyway, use --force");
    }
    match form {
        Form::Text => eprintln!("ramport: {}", error.message),
        Form::Json => eprintln!("{}", json!(ErrorBody { error })),
    }
}

/// The kind is that of the daemon's answer, if there was one, and `otherwise` if not.
fn detail(error: &anyhow::Error, otherwise: &str) -> ErrorDetail {
    let (kind, needs_force) = match error.downcast_ref() {
        Some(ClientError::Refused {
            kind, needs_force, ..
        }) => (kind.as_str(), *needs_force),
        _ => (otherwise, false),
    };
    ErrorDetail {
        kind: kind.to_owned(),
        message: told(error),
        needs_force,
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

impl From<Mistake> for Failure {
    fn from(mistake: Mistake) -> Self {
        Self::Mistake(mistake.into())
    }
}

impl From<SystemFailure> for Failure {
    fn from(failure: SystemFailure) -> Self {
        Self::Broken(failure.into())
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
    fn each_cause_is_reported_once() {
        let error = anyhow!("refused").context("cannot connect: refused");
        assert_eq!(
            told(&error.context("cannot ask")),
            "cannot ask: cannot connect: refused"
        );
    }
}
