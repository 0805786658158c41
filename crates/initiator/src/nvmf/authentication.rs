//! What a host proves in band: its secrets, from the files that its URL names.

use std::{fs, path::Path};

use nvme::auth::{Concatenation, HostAuth, HostCredentials, Names, Secret, Seed};
use nvme::host::{Authenticator, HostName};
use nvme::wire::fabrics::NqnField;

use crate::url::DhChapOptions;
use crate::{ConnectError, Url, random};

/// In-band authentication of the queues of a device.
#[derive(Debug)]
pub(crate) struct Authentication {
    options: DhChapOptions,
    /// The last transaction identifier (T_ID).
    transaction: u16,
}

impl Authentication {
    /// That of `url`, with secrets that can be read.
    pub(crate) fn new(url: &Url) -> Result<Self, ConnectError> {
        let authentication = Self {
            options: url.dhchap().clone(),
            transaction: 0,
        };
        authentication.credentials()?;
        Ok(authentication)
    }

    /// What authenticates the next queue; none if the host has no secret. The files are read each
    /// time, so that a secret may be changed while a device is attached.
    pub(crate) fn start(
        &mut self,
        name: &HostName,
        concatenation: Concatenation,
    ) -> Result<Option<Authenticator>, ConnectError> {
        let Some(credentials) = self.credentials()? else {
            return Ok(None);
        };
        let mut seed = [0; Seed::BYTES];
        random::fill(&mut seed).map_err(|source| ConnectError::Resources { source })?;
        self.transaction = self.transaction.wrapping_add(1);
        let text = |field: &NqnField| field.text().unwrap_or_default().to_owned();
        let names = Names {
            host_nqn: text(&name.host_nqn),
            subsystem_nqn: text(&name.subsystem_nqn),
        };
        let auth = HostAuth::new(credentials, names, self.transaction, Seed::new(seed));
        Ok(Some(Authenticator::new(auth.concatenating(concatenation))))
    }

    fn credentials(&self) -> Result<Option<HostCredentials>, ConnectError> {
        let options = &self.options;
        let Some(file) = &options.secret_file else {
            return match &options.controller_secret_file {
                Some(_) => Err(ConnectError::NoHostSecret),
                None => Ok(None),
            };
        };
        let controller_file = options.controller_secret_file.as_ref();
        Ok(Some(HostCredentials {
            secret: read(file)?,
            controller_secret: controller_file.map(|file| read(file)).transpose()?,
            hash: options.hash,
            group: options.group,
        }))
    }
}

/// Reads the secret in the first line of a file.
fn read(path: &Path) -> Result<Secret, ConnectError> {
    let text = fs::read_to_string(path).map_err(|source| ConnectError::SecretsFile {
        path: path.to_owned(),
        source,
    })?;
    Secret::from_first_line(&text).map_err(|source| ConnectError::DhChapSecret {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    fn gather(options: &str) -> Result<Option<HostCredentials>, ConnectError> {
        let url: Url = format!("nvme+tcp://h/rd0?{options}")
            .parse()
            .expect("a URL");
        Authentication::new(&url)?.credentials()
    }

    #[test]
    fn files_give_secrets_and_mistakes_are_named() {
        let secret = Secret::new(&[7; 32], None).expect("32 bytes");
        let path = env::temp_dir().join(format!("dhchap-{}", std::process::id()));
        fs::write(&path, format!("{}\n", *secret.reveal())).expect("writes");
        let option = format!("dhchap-secret-file={}", path.display());
        let found = gather(&option).expect("reads").expect("a secret");
        assert!(found.secret == secret && found.controller_secret.is_none());
        assert!(gather("").expect("none").is_none());
        let alone = format!("dhchap-ctrl-secret-file={}", path.display());
        let error = gather(&alone).expect_err("no host secret").to_string();
        assert!(error.contains("dhchap-secret-file="), "{error}");
        fs::write(&path, "open sesame\n").expect("writes");
        let error = gather(&option).expect_err("no secret").to_string();
        assert!(
            error.contains("DHHC-1:") && !error.contains("sesame"),
            "{error}"
        );
        fs::remove_file(&path).expect("removes");
        let error = gather(&option).expect_err("no file").to_string();
        assert!(error.contains(&*path.to_string_lossy()), "{error}");
    }
}
