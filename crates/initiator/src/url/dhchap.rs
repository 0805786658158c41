//! Options of in-band authentication.

use std::path::PathBuf;
use std::time::Duration;

use nvme::auth::{GroupPolicy, Hash as DhChapHash};

use super::{UrlError, decode, encode_name, number};

/// In-band authentication of NVMe (DH-HMAC-CHAP), as a URL sets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DhChapOptions {
    /// The file of the host's secret (`dhchap-secret-file=`).
    pub secret_file: Option<PathBuf>,
    /// The file of the secret that the controller has to prove (`dhchap-ctrl-secret-file=`).
    pub controller_secret_file: Option<PathBuf>,
    /// The only hash function to offer (`dhchap-hash=`).
    pub hash: Option<DhChapHash>,
    /// The groups to offer (`dhchap-dhgroup=`).
    pub group: GroupPolicy,
    /// How long after an authentication the admin queue authenticates again (`dhchap-interval=`, in
    /// seconds); never without it.
    pub interval: Option<Duration>,
}

/// The longest interval: 30 days.
const INTERVAL_MAX_S: u64 = 30 * 24 * 3600;

impl DhChapOptions {
    /// Sets `option`; `known` are those that a URL may have.
    pub(super) fn set(
        &mut self,
        option: &str,
        value: &str,
        known: &'static str,
    ) -> Result<(), UrlError> {
        let bad = |option, expected| UrlError::OptionValue {
            option,
            value: value.to_owned(),
            expected,
        };
        match option {
            "dhchap-secret-file" => self.secret_file = Some(decode(value)?.into()),
            "dhchap-ctrl-secret-file" => {
                self.controller_secret_file = Some(decode(value)?.into());
            }
            "dhchap-hash" => {
                let hash = value.parse();
                let hash =
                    hash.map_err(|_| bad("dhchap-hash", "it is sha256, sha384 or sha512"))?;
                self.hash = Some(hash);
            }
            "dhchap-dhgroup" => {
                let expected =
                    "it is any, none, ffdhe2048, ffdhe3072, ffdhe4096, ffdhe6144 or ffdhe8192";
                self.group = value.parse().map_err(|_| bad("dhchap-dhgroup", expected))?;
            }
            "dhchap-interval" => {
                let expected = "it is a number of seconds from 1 to 2592000";
                let seconds = number("dhchap-interval", value, 1..=INTERVAL_MAX_S, expected)?;
                self.interval = Some(Duration::from_secs(seconds));
            }
            _ => {
                return Err(UrlError::UnknownOption {
                    option: option.to_owned(),
                    known,
                });
            }
        }
        Ok(())
    }

    /// The options in a URL.
    pub(super) fn shown(&self) -> impl Iterator<Item = String> {
        let file = |option, path: &Option<PathBuf>| {
            let path = path.as_ref()?;
            Some(format!("{option}={}", encode_name(&path.to_string_lossy())))
        };
        let is_any = self.group == GroupPolicy::Any;
        let shown = [
            file("dhchap-secret-file", &self.secret_file),
            file("dhchap-ctrl-secret-file", &self.controller_secret_file),
            self.hash.map(|hash| format!("dhchap-hash={hash}")),
            (!is_any).then(|| format!("dhchap-dhgroup={}", self.group)),
            self.interval
                .map(|interval| format!("dhchap-interval={}", interval.as_secs())),
        ];
        shown.into_iter().flatten()
    }
}
