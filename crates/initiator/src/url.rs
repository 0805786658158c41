//! URLs:
//! `nvme+tcp://host:port/subnqn?ns=1&hdgst=on&ddgst=on&queues=4&hostnqn=…&tls-psk-file=FILE&dhchap-secret-file=FILE`,
//! `nvme+rdma://host:port/subnqn?ns=1&rdma=auto&local=192.0.2.9&queues=4&hostnqn=…`,
//! `brp://host:port/nqn?unit=1&step=2&merge=adaptive&queues=4&hostnqn=…`,
//! `brp+rdma://host:port/nqn?unit=1&rdma=auto&local=192.0.2.9`,
//! `srp://host:port/iqn/lun?rdma=auto&local=192.0.2.9&sessions=4&initiator=0x…` and
//! `iscsi://user%secret@host:port/iqn/lun?hdgst=on&ddgst=on&sessions=4&initiator=…&chap=FILE`.

mod dhchap;
mod scheme;
mod tls;

use brp::wire::{Features, Step};
use fabric::Choice as RdmaChoice;
use percent_encoding::{
    AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_decode_str, utf8_percent_encode,
};
use srp::wire::PortId;
use std::{
    fmt,
    net::IpAddr,
    path::{Path, PathBuf},
    str::FromStr,
};

pub use self::dhchap::DhChapOptions;
pub use self::scheme::Scheme;
pub use self::tls::TlsOptions;

/// Names a namespace or a logical unit (or, without a path, a discovery service) and how to reach
/// it. What is shown of it parses to the same URL, except for the secret, which is never shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    scheme: Scheme,
    host: String,
    port: u16,
    target: Option<String>,
    /// Namespace identifier, unit or LUN.
    unit: u32,
    header_digest: Switch,
    data_digest: Switch,
    queues: Option<u16>,
    /// The host's NQN or the initiator's name.
    own_name: Option<String>,
    user: Option<String>,
    secret: Option<Secret>,
    secrets_file: Option<PathBuf>,
    dhchap: DhChapOptions,
    tls: TlsOptions,
    rdma: RdmaChoice,
    local: Option<IpAddr>,
    step: Step,
    merge: Merge,
}

/// A secret, which nothing prints.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Something that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    #[default]
    Off,
}

/// When a BRP target joins replies in step 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Merge {
    /// Under load.
    #[default]
    Adaptive,
    /// Whatever the load.
    Always,
}

/// What is wrong with a URL, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// There is no `scheme://`.
    #[error(
        "{text:?} has no scheme; write nvme+tcp://HOST[:PORT]/SUBNQN, nvme+rdma://HOST[:PORT]/SUBNQN, brp://HOST[:PORT]/NQN, brp+rdma://HOST[:PORT]/NQN, srp://HOST[:PORT]/IQN/LUN or iscsi://HOST[:PORT]/IQN/LUN"
    )]
    NoScheme {
        /// The text.
        text: String,
    },
    /// A scheme that is not known.
    #[error(
        "scheme {scheme:?} is not supported; use nvme+tcp://, nvme+rdma://, brp://, brp+rdma://, srp:// or iscsi://"
    )]
    UnknownScheme {
        /// The scheme.
        scheme: String,
    },
    /// There is no host.
    #[error("the URL has no host; write it after ://, as in nvme+tcp://HOST[:PORT]/SUBNQN")]
    NoHost,
    /// An IPv6 address without its closing bracket, or something behind it that is no port.
    #[error(
        "{authority:?} is not HOST or HOST:PORT; write an IPv6 address in brackets: [::1]:4420"
    )]
    Authority {
        /// What stands between `://` and the path.
        authority: String,
    },
    /// The port is not one.
    #[error("port {port:?} is not a number from 1 to 65535")]
    Port {
        /// The text.
        port: String,
    },
    /// A name is too long.
    #[error("the name has {len_bytes} bytes; the maximum is {max_bytes}")]
    NameTooLong {
        /// Its length.
        len_bytes: usize,
        /// The longest possible one.
        max_bytes: usize,
    },
    /// `%` without two hexadecimal digits, or bytes that are not UTF-8 or hold a zero.
    #[error("{text:?} has an invalid percent encoding; write the character % as %25")]
    Encoding {
        /// The text.
        text: String,
    },
    /// An option that does not exist.
    #[error("unknown option {option:?}; known options: {known}")]
    UnknownOption {
        /// The option.
        option: String,
        /// Those that the scheme has.
        known: &'static str,
    },
    /// A LUN that is not one.
    #[error("{text:?} is not a LUN; write the path as /IQN/LUN with a number from 0 to 16383")]
    Lun {
        /// The part after the last `/`.
        text: String,
    },
    /// A user before the host, which the protocol does not support.
    #[error("{scheme}:// accepts no user; only iscsi:// accepts USER%SECRET@ before the host")]
    User {
        /// The protocol.
        scheme: Scheme,
    },
    /// An option's value is not possible.
    #[error("{option}={value} is invalid; {expected}")]
    OptionValue {
        /// The option.
        option: &'static str,
        /// The value.
        value: String,
        /// What would be.
        expected: &'static str,
    },
}

impl Url {
    /// The longest NQN or iSCSI name in bytes.
    pub const NAME_BYTES_MAX: usize = 223;

    /// The protocol.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host's name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; the protocol's default if the URL has none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The subsystem's NQN or the target's name, if the URL has a path.
    pub fn target(&self) -> Option<&str> {
        self.target.as_deref()
    }

    /// The namespace identifier (`ns=`) or BRP's unit (`unit=`); 1 if the URL has none.
    pub fn namespace(&self) -> u32 {
        self.unit
    }

    /// The LUN; 0 if an `iscsi` or `srp` URL has none.
    pub fn lun(&self) -> u16 {
        self.unit as u16
    }

    /// Whether header digests are requested (`hdgst=`).
    pub fn header_digest(&self) -> Switch {
        self.header_digest
    }

    /// Whether data digests are requested (`ddgst=`).
    pub fn data_digest(&self) -> Switch {
        self.data_digest
    }

    /// How many I/O queues (`queues=`) or sessions (`sessions=`) are requested.
    pub fn queues(&self) -> Option<u16> {
        self.queues
    }

    /// The name by which the host calls itself (`hostnqn=`).
    pub fn host_nqn(&self) -> Option<&str> {
        self.own_name.as_deref()
    }

    /// The name by which the initiator calls itself (`initiator=`).
    pub fn initiator(&self) -> Option<&str> {
        self.own_name.as_deref()
    }

    /// The user of CHAP before the host.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The secret of CHAP behind the user.
    pub fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }

    /// The file of CHAP's users and secrets (`chap=`).
    pub fn secrets_file(&self) -> Option<&Path> {
        self.secrets_file.as_deref()
    }

    /// Every file of secrets that it names.
    pub fn secret_files(&self) -> impl Iterator<Item = &Path> {
        let files = [
            &self.secrets_file,
            &self.dhchap.secret_file,
            &self.dhchap.controller_secret_file,
            &self.tls.psk_file,
        ];
        files.into_iter().filter_map(|file| file.as_deref())
    }

    /// In-band authentication of NVMe (`dhchap-…=`).
    pub fn dhchap(&self) -> &DhChapOptions {
        &self.dhchap
    }

    /// TLS of NVMe/TCP (`tls…=`).
    pub fn tls(&self) -> &TlsOptions {
        &self.tls
    }

    /// What is to execute RDMA (`rdma=`).
    pub fn rdma(&self) -> RdmaChoice {
        self.rdma
    }

    /// The address of this machine to come from (`local=`).
    pub fn local(&self) -> Option<IpAddr> {
        self.local
    }

    /// The features that BRP's login asks for (`step=`, `merge=`).
    pub fn features(&self) -> Features {
        match self.merge {
            Merge::Adaptive => self.step.features(),
            Merge::Always => self.step.features().or(Features::MERGE_ALWAYS),
        }
    }

    /// The discovery service at the same host and port.
    #[must_use]
    pub fn service(&self) -> Self {
        Self {
            target: None,
            ..self.clone()
        }
    }

    /// The same service, another subsystem or target.
    #[must_use]
    pub fn with_target(&self, name: &str) -> Self {
        Self {
            target: Some(name.to_owned()),
            ..self.clone()
        }
    }

    fn set_option(&mut self, option: &str, value: &str) -> Result<(), UrlError> {
        match (self.scheme, option) {
            (Scheme::NvmeTcp | Scheme::NvmeRdma, "ns") => self.unit = volume_number("ns", value)?,
            (Scheme::Brp | Scheme::BrpRdma, "unit") => self.unit = volume_number("unit", value)?,
            (Scheme::NvmeTcp | Scheme::Iscsi, "hdgst") => {
                self.header_digest = switch("hdgst", value)?;
            }
            (Scheme::NvmeTcp | Scheme::Iscsi, "ddgst") => {
                self.data_digest = switch("ddgst", value)?;
            }
            (Scheme::Brp | Scheme::BrpRdma, "step") => self.step = step(value)?,
            (Scheme::Brp | Scheme::BrpRdma, "merge") => self.merge = merge(value)?,
            (scheme, "rdma") if scheme.is_rdma() => self.rdma = rdma_choice(value)?,
            (scheme, "local") if scheme.is_rdma() => self.local = Some(local(value)?),
            (Scheme::Srp, "initiator") => self.own_name = Some(initiator_port(value)?),
            (scheme, option) if option == scheme.queues_option() => {
                self.queues = Some(queues(scheme.queues_option(), value)?);
            }
            (scheme, option) if option == scheme.own_name_option() => {
                self.own_name = Some(decode_name(value)?);
            }
            (Scheme::NvmeTcp | Scheme::NvmeRdma, dhchap) if dhchap.starts_with("dhchap-") => {
                let known = self.scheme.options();
                self.dhchap.set(dhchap, value, known)?;
            }
            (Scheme::NvmeTcp, tls) if tls.starts_with("tls") => {
                let known = self.scheme.options();
                self.tls.set(tls, value, known)?;
            }
            (Scheme::Iscsi, "chap") => self.secrets_file = Some(decode(value)?.into()),
            _ => {
                return Err(UrlError::UnknownOption {
                    option: option.to_owned(),
                    known: self.scheme.options(),
                });
            }
        }
        Ok(())
    }

    fn set_path(&mut self, path: &str) -> Result<(), UrlError> {
        let name = match (self.scheme, path.rsplit_once('/')) {
            (scheme, Some((name, lun))) if scheme.has_luns() => {
                self.unit = parse_lun(lun)?;
                name
            }
            _ => path,
        };
        if !name.is_empty() {
            self.target = Some(decode_name(name)?);
        }
        Ok(())
    }

    /// `user%secret`, as libiscsi writes it: everything behind the first `%` is the secret.
    fn set_user(&mut self, text: &str) -> Result<(), UrlError> {
        if self.scheme != Scheme::Iscsi {
            return Err(UrlError::User {
                scheme: self.scheme,
            });
        }
        let (user, secret) = match text.split_once('%') {
            Some((user, secret)) => (user, Some(Secret(secret.to_owned()))),
            None => (text, None),
        };
        self.user = Some(user.to_owned());
        self.secret = secret;
        Ok(())
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| UrlError::NoScheme {
            text: text.to_owned(),
        })?;
        let known = Scheme::ALL.into_iter().find(|known| known.name() == scheme);
        let scheme = known.ok_or_else(|| UrlError::UnknownScheme {
            scheme: scheme.to_owned(),
        })?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, authority)) => (Some(user), authority),
            None => (None, authority),
        };
        let (host, port) = split_authority(authority)?;
        let mut url = Self {
            scheme,
            host: host.to_owned(),
            port: port.unwrap_or(scheme.default_port()),
            target: None,
            unit: scheme.default_unit(),
            header_digest: Switch::Off,
            data_digest: Switch::Off,
            queues: None,
            own_name: None,
            user: None,
            secret: None,
            secrets_file: None,
            dhchap: DhChapOptions::default(),
            tls: TlsOptions::default(),
            rdma: RdmaChoice::default(),
            local: None,
            step: Step::Parallel,
            merge: Merge::default(),
        };
        if let Some(user) = user {
            url.set_user(user)?;
        }
        url.set_path(path)?;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (option, value) = pair.split_once('=').unwrap_or((pair, ""));
            url.set_option(option, value)?;
        }
        Ok(url)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)?;
        } else {
            write!(f, "{}:{}", self.host, self.port)?;
        }
        let mut options = Vec::new();
        if let Some(target) = &self.target {
            write!(f, "/{}", encode_name(target))?;
            match self.scheme {
                Scheme::NvmeTcp | Scheme::NvmeRdma => options.push(format!("ns={}", self.unit)),
                Scheme::Brp | Scheme::BrpRdma => options.push(format!("unit={}", self.unit)),
                Scheme::Iscsi | Scheme::Srp => write!(f, "/{}", self.unit)?,
            }
        }
        if self.header_digest == Switch::On {
            options.push("hdgst=on".to_owned());
        }
        if self.data_digest == Switch::On {
            options.push("ddgst=on".to_owned());
        }
        if self.step != Step::Parallel {
            options.push(format!("step={}", self.step.number()));
        }
        if self.merge == Merge::Always {
            options.push("merge=always".to_owned());
        }
        if self.rdma != RdmaChoice::default() {
            options.push(format!("rdma={}", self.rdma));
        }
        if let Some(local) = self.local {
            options.push(format!("local={local}"));
        }
        if let Some(count) = self.queues {
            options.push(format!("{}={count}", self.scheme.queues_option()));
        }
        if let Some(name) = &self.own_name {
            let option = self.scheme.own_name_option();
            options.push(format!("{option}={}", encode_name(name)));
        }
        if let Some(path) = &self.secrets_file {
            options.push(format!("chap={}", encode_name(&path.to_string_lossy())));
        }
        options.extend(self.dhchap.shown());
        options.extend(self.tls.shown());
        for (option, separator) in options
            .iter()
            .zip(std::iter::once('?').chain(std::iter::repeat('&')))
        {
            write!(f, "{separator}{option}")?;
        }
        Ok(())
    }
}

fn split_authority(authority: &str) -> Result<(&str, Option<u16>), UrlError> {
    let bad = || UrlError::Authority {
        authority: authority.to_owned(),
    };
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(bad)?;
        let port = match rest {
            "" => None,
            _ => Some(rest.strip_prefix(':').ok_or_else(bad)?),
        };
        (host, port)
    } else {
        match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err(bad()),
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    if host.is_empty() {
        return Err(UrlError::NoHost);
    }
    let port = port.map(parse_port).transpose()?;
    Ok((host, port))
}

fn parse_port(text: &str) -> Result<u16, UrlError> {
    match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(UrlError::Port {
            port: text.to_owned(),
        }),
    }
}

fn parse_lun(text: &str) -> Result<u32, UrlError> {
    // Beyond this a LUN has no single-level form.
    const LUN_MAX: u32 = (1 << 14) - 1;
    match text.parse::<u32>() {
        Ok(lun) if lun <= LUN_MAX => Ok(lun),
        _ => Err(UrlError::Lun {
            text: text.to_owned(),
        }),
    }
}

fn volume_number(option: &'static str, value: &str) -> Result<u32, UrlError> {
    let range = 1..=u64::from(u32::MAX) - 1;
    let expected = "it is the number of a volume in its target, from 1 on";
    Ok(number(option, value, range, expected)? as u32)
}

fn queues(option: &'static str, value: &str) -> Result<u16, UrlError> {
    let range = 1..=u64::from(u16::MAX) - 1;
    Ok(number(option, value, range, "it is a number from 1 to 65534")? as u16)
}

fn number(
    option: &'static str,
    value: &str,
    range: std::ops::RangeInclusive<u64>,
    expected: &'static str,
) -> Result<u64, UrlError> {
    match value.parse::<u64>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(UrlError::OptionValue {
            option,
            value: value.to_owned(),
            expected,
        }),
    }
}

fn switch(option: &'static str, value: &str) -> Result<Switch, UrlError> {
    match value {
        "on" => Ok(Switch::On),
        "off" => Ok(Switch::Off),
        _ => Err(UrlError::OptionValue {
            option,
            value: value.to_owned(),
            expected: "it is on or off",
        }),
    }
}

fn step(value: &str) -> Result<Step, UrlError> {
    let number = number("step", value, 1..=3, "it is 1, 2 or 3")?;
    Ok(Step::ALL[number as usize - 1])
}

fn merge(value: &str) -> Result<Merge, UrlError> {
    match value {
        "adaptive" => Ok(Merge::Adaptive),
        "always" => Ok(Merge::Always),
        _ => Err(UrlError::OptionValue {
            option: "merge",
            value: value.to_owned(),
            expected: "it is adaptive or always",
        }),
    }
}

fn rdma_choice(value: &str) -> Result<RdmaChoice, UrlError> {
    value.parse().map_err(|_| UrlError::OptionValue {
        option: "rdma",
        value: value.to_owned(),
        expected: "it is auto, soft or hw",
    })
}

fn local(value: &str) -> Result<IpAddr, UrlError> {
    value.parse().map_err(|_| UrlError::OptionValue {
        option: "local",
        value: value.to_owned(),
        expected: "it is an address of this machine, such as 192.0.2.9 or 2001:db8::9",
    })
}

/// A port identifier of SRP.
fn initiator_port(value: &str) -> Result<String, UrlError> {
    let port: Result<PortId, _> = value.parse();
    let port = port.map_err(|_| UrlError::OptionValue {
        option: "initiator",
        value: value.to_owned(),
        expected: "over SRP it is 0x and 32 hexadecimal digits",
    })?;
    Ok(port.to_string())
}

fn decode_name(text: &str) -> Result<String, UrlError> {
    let name = decode(text)?;
    if name.len() > Url::NAME_BYTES_MAX {
        return Err(UrlError::NameTooLong {
            len_bytes: name.len(),
            max_bytes: Url::NAME_BYTES_MAX,
        });
    }
    Ok(name)
}

fn decode(text: &str) -> Result<String, UrlError> {
    let bad = || UrlError::Encoding {
        text: text.to_owned(),
    };
    // The crate passes a `%` without two digits through.
    let is_encoded = |rest: &str| {
        let digits = rest.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| bad())?;
    if decoded.contains('\0') || !text.split('%').skip(1).all(is_encoded) {
        return Err(bad());
    }
    Ok(decoded.into_owned())
}

/// Characters of a name that are not escaped.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':')
    .remove(b'@')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b'!')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'$');

fn encode_name(name: &str) -> PercentEncode<'_> {
    utf8_percent_encode(name, PLAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Url, UrlError> {
        text.parse()
    }

    #[test]
    fn what_is_shown_parses_to_the_same_url() {
        for text in [
            "nvme+tcp://h/nqn.2014-08.org:x",
            "nvme+tcp://[::1]:4421/rd0?ns=7&hdgst=on&ddgst=on&queues=4&hostnqn=nqn.x:y",
            "nvme+tcp://h/a%20b%25?ns=2&hdgst=off",
            "nvme+tcp://10.0.0.1:8009",
            "iscsi://10.0.0.1/iqn.2026-11.com.example:a/7?sessions=2&hdgst=on&ddgst=on&initiator=iqn.x:y",
            "iscsi://alice@[::1]:3261/iqn.x:y/0?chap=%2Fetc%2Fchap",
            "iscsi://h",
            "nvme+rdma://h/nqn.x:y?ns=3&rdma=soft&local=127.0.0.9&queues=2&hostnqn=nqn.x:z",
            "nvme+rdma://[::1]/rd0?local=::2",
            "brp://h/rd0?unit=3&step=1",
            "srp://h/iqn.x:y/3?rdma=soft&local=127.0.0.9&sessions=2&initiator=0x0000000000000001505400fffe010203",
            "srp://[::1]:5556/0xc12cd17a86ff5e0cbb7c8154549be133/0",
            "brp+rdma://h/rd0?unit=3&step=3&merge=always&rdma=soft&local=127.0.0.9&queues=2&hostnqn=nqn.x:z",
            "nvme+tcp://h/rd0?dhchap-secret-file=a&dhchap-ctrl-secret-file=b%20c&dhchap-hash=sha384&dhchap-dhgroup=none&dhchap-interval=60",
            "nvme+tcp://h/rd0?tls-psk-file=a%20b",
            "nvme+tcp://h/rd0?tls-psk-file=a&tls-identity=0",
            "nvme+tcp://h/rd0?dhchap-secret-file=a&tls=generated",
        ] {
            let url = parse(text).unwrap();
            assert_eq!(parse(&url.to_string()).unwrap(), url, "{text}");
        }
    }

    #[test]
    fn defaults_are_port_4420_namespace_1_and_no_digests() {
        let url = parse("nvme+tcp://disk.example/rd0").unwrap();
        assert_eq!((url.port(), url.namespace()), (4420, 1));
        assert_eq!(url.header_digest(), Switch::Off);
        assert_eq!(url.data_digest(), Switch::Off);
        assert_eq!(url.target(), Some("rd0"));
        assert_eq!(parse("nvme+tcp://disk.example/").unwrap().target(), None);
        let url = parse("iscsi://disk.example/iqn.x:y").unwrap();
        assert_eq!(
            (url.port(), url.lun(), url.target()),
            (3260, 0, Some("iqn.x:y"))
        );
    }

    #[test]
    fn a_secret_is_taken_and_never_shown() {
        let url = parse("iscsi://alice%s3c@ret@h:1/iqn.x:y/3").unwrap();
        assert_eq!(url.user(), Some("alice"));
        assert_eq!(url.secret().map(Secret::reveal), Some("s3c@ret"));
        assert_eq!((url.host(), url.port(), url.lun()), ("h", 1, 3));
        assert!(!format!("{url} {url:?}").contains("s3c"));
    }

    #[test]
    fn a_mistake_is_named() {
        let name = "n".repeat(224);
        for (text, hint) in [
            ("disk/rd0", "no scheme"),
            ("nvme://h/rd0", "use nvme+tcp://"),
            ("nvme+tcp:///rd0", "no host"),
            ("nvme+tcp://::1/rd0", "brackets"),
            ("nvme+tcp://[::1/rd0", "brackets"),
            ("nvme+tcp://[::1]4420/rd0", "brackets"),
            ("nvme+tcp://h:0/rd0", "1 to 65535"),
            ("nvme+tcp://h:70000/rd0", "1 to 65535"),
            ("nvme+tcp://h/rd0?ns=0", "from 1 on"),
            ("nvme+tcp://h/rd0?ns=4294967295", "from 1 on"),
            ("nvme+tcp://h/rd0?hdgst=yes", "on or off"),
            ("nvme+tcp://h/rd0?nsid=1", "known options: ns"),
            ("nvme+tcp://h/rd0?queues=0", "1 to 65534"),
            ("iscsi://h/iqn.x/y", "/IQN/LUN"),
            ("iscsi://h/iqn.x/16384", "0 to 16383"),
            ("iscsi://h/iqn.x/0?ns=1", "known options: hdgst"),
            ("iscsi://h/iqn.x/0?sessions=0", "1 to 65534"),
            (
                "nvme+tcp://h/rd0?dhchap-hash=md5",
                "sha256, sha384 or sha512",
            ),
            ("nvme+tcp://h/rd0?dhchap-dhgroup=1", "ffdhe2048"),
            ("nvme+tcp://h/rd0?dhchap-interval=0", "1 to 2592000"),
            ("nvme+tcp://h/rd0?tls=on", "tls-psk-file="),
            ("nvme+tcp://h/rd0?tls-identity=2", "0 or 1"),
            ("nvme+tcp://h/rd0?tls-psk=a", "known options: ns"),
            ("nvme+tcp://h/rd0?dhchap-secret=x", "known options: ns"),
            (
                "iscsi://h/iqn.x/0?dhchap-secret-file=a",
                "known options: hdgst",
            ),
            ("nvme+rdma://h/rd0?rdma=on", "auto, soft or hw"),
            ("nvme+rdma://h/rd0?local=eth0", "an address of this machine"),
            (
                "nvme+rdma://h/rd0?hdgst=on",
                "known options: ns, rdma, local",
            ),
            ("nvme+tcp://h/rd0?rdma=soft", "known options: ns, hdgst"),
            ("brp://h/rd0?step=4", "1, 2 or 3"),
            ("brp://h/rd0?merge=never", "adaptive or always"),
            ("srp://h/iqn.x/y", "/IQN/LUN"),
            ("srp://h/iqn.x/0?initiator=iqn.x", "32 hexadecimal digits"),
            ("srp://h/iqn.x/0?hdgst=on", "known options: rdma, local"),
            (
                "brp://h/rd0?rdma=soft",
                "known options: unit, step, merge, queues",
            ),
            ("nvme+tcp://alice@h/rd0", "only iscsi://"),
            ("nvme+tcp://h/rd%2", "percent encoding"),
            ("nvme+tcp://h/rd%00", "percent encoding"),
            ("nvme+tcp://h/rd%ff", "percent encoding"),
            (&format!("nvme+tcp://h/{name}"), "maximum is 223"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(hint), "{text}: {message}");
        }
    }
}
