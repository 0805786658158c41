//! Where the secrets of CHAP come from: the URL, a file that it names, or the environment, in
//! libiscsi's form.

use std::{env, fs, path::Path};

use iscsi::Credentials;

use crate::{ConnectError, Url};

/// What both sides prove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Secrets {
    /// What this initiator proves.
    pub(crate) ours: Option<Credentials>,
    /// What the target has to prove.
    pub(crate) theirs: Option<Credentials>,
}

/// libiscsi's variables.
const USER: &str = "LIBISCSI_CHAP_USERNAME";
const SECRET: &str = "LIBISCSI_CHAP_PASSWORD";
const TARGET_USER: &str = "LIBISCSI_CHAP_TARGET_USERNAME";
const TARGET_SECRET: &str = "LIBISCSI_CHAP_TARGET_PASSWORD";

impl Secrets {
    /// The secrets for `url`: from the URL, otherwise from its file, otherwise from the
    /// environment. A user without a secret takes the secret from the environment.
    pub(crate) fn gather(url: &Url) -> Result<Self, ConnectError> {
        if let Some(path) = url.secrets_file() {
            return Self::read(path);
        }
        let variable = |name| env::var(name).ok();
        let user = url.user().map(str::to_owned).or_else(|| variable(USER));
        let secret = url.secret().map(|secret| secret.reveal().to_owned());
        let ours = pair(user, secret.or_else(|| variable(SECRET)));
        if let (Some(user), None) = (url.user(), &ours) {
            return Err(ConnectError::NoSecret {
                user: user.to_owned(),
                variable: SECRET,
            });
        }
        Ok(Self {
            ours,
            theirs: pair(variable(TARGET_USER), variable(TARGET_SECRET)),
        })
    }

    /// Reads a file of two or four lines: user, secret, the target's user, the target's secret.
    fn read(path: &Path) -> Result<Self, ConnectError> {
        let text = fs::read_to_string(path).map_err(|source| ConnectError::SecretsFile {
            path: path.to_owned(),
            source,
        })?;
        let mut lines = text.lines().map(str::to_owned);
        let ours = pair(lines.next(), lines.next());
        if ours.is_none() {
            return Err(ConnectError::SecretsForm {
                path: path.to_owned(),
            });
        }
        Ok(Self {
            ours,
            theirs: pair(lines.next(), lines.next()),
        })
    }
}

fn pair(user: Option<String>, secret: Option<String>) -> Option<Credentials> {
    let (name, secret) = user.zip(secret)?;
    (!name.is_empty() && !secret.is_empty()).then(|| Credentials {
        name,
        secret: secret.into_bytes().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(name: &str, secret: &str) -> Option<Credentials> {
        pair(Some(name.into()), Some(secret.into()))
    }

    #[test]
    fn a_url_and_a_file_give_secrets() {
        let url: Url = "iscsi://alice%open%sesame@h/iqn.x/1".parse().unwrap();
        let secrets = Secrets::gather(&url).unwrap();
        assert_eq!(secrets.ours, credentials("alice", "open%sesame"));
        let path = env::temp_dir().join(format!("chap-{}", std::process::id()));
        fs::write(&path, "alice\nsecret of alice\nbob\nsecret of bob\n").unwrap();
        let url: Url = format!("iscsi://h/iqn.x/1?chap={}", path.display())
            .parse()
            .unwrap();
        let secrets = Secrets::gather(&url).unwrap();
        assert_eq!(secrets.ours, credentials("alice", "secret of alice"));
        assert_eq!(secrets.theirs, credentials("bob", "secret of bob"));
        fs::write(&path, "alice\n").unwrap();
        let error = Secrets::gather(&url).unwrap_err().to_string();
        assert!(error.contains("user, secret"), "{error}");
        fs::remove_file(&path).unwrap();
        let error = Secrets::gather(&url).unwrap_err().to_string();
        assert!(error.contains(&*path.to_string_lossy()), "{error}");
    }
}
