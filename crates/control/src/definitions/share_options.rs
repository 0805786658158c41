//! Options of a share, in the words of exports(5).

use std::fmt;
use std::str::FromStr;

use server::{ExportOptions, Squash};

use crate::text::Written;

/// What clients may do with a share, as text:
/// `rw,sync,secure,root_squash,anonuid=65534,anongid=65534`. Read from text, options that are not
/// named have their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareOptions {
    read_only: bool,
    is_async: bool,
    privileged_port: bool,
    squash: Squash,
    anonymous_uid: u32,
    anonymous_gid: u32,
}

/// Some options, as text. Options that are not named stay as they are; of two that exclude each
/// other, the last one counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionList(Vec<Choice>);

/// The user and the group that squashed callers become: `nobody` and `nogroup`.
const ANONYMOUS: u32 = 65_534;

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    ReadOnly(bool),
    Async(bool),
    PrivilegedPort(bool),
    Squash(Squash),
    AnonymousUid(u32),
    AnonymousGid(u32),
    /// Callers are identified by AUTH_SYS (RFC 5531 §8.2), the only flavor that is served.
    AuthSys,
}

/// The options without a value.
const WORDS: [(&str, Choice); 10] = [
    ("rw", Choice::ReadOnly(false)),
    ("ro", Choice::ReadOnly(true)),
    ("sync", Choice::Async(false)),
    ("async", Choice::Async(true)),
    ("secure", Choice::PrivilegedPort(true)),
    ("insecure", Choice::PrivilegedPort(false)),
    ("root_squash", Choice::Squash(Squash::Root)),
    ("no_root_squash", Choice::Squash(Squash::None)),
    ("all_squash", Choice::Squash(Squash::All)),
    ("sec=sys", Choice::AuthSys),
];

/// Why a text has no options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionFault {
    /// A word is no option.
    #[error(
        "contains {0:?}; use rw, ro, sync, async, secure, insecure, root_squash, no_root_squash, all_squash, anonuid=N, anongid=N and sec=sys, separated by commas"
    )]
    Unknown(String),
    /// The value is no user or group ID.
    #[error("contains {0:?}; write a number from 0 to 4294967295 after the =")]
    Id(String),
}

impl ShareOptions {
    /// Whether clients may only read.
    pub const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// These options with `list` in place of those that it names.
    #[must_use]
    pub fn with(mut self, list: &OptionList) -> Self {
        for choice in &list.0 {
            match *choice {
                Choice::ReadOnly(read_only) => self.read_only = read_only,
                Choice::Async(is_async) => self.is_async = is_async,
                Choice::PrivilegedPort(needed) => self.privileged_port = needed,
                Choice::Squash(squash) => self.squash = squash,
                Choice::AnonymousUid(uid) => self.anonymous_uid = uid,
                Choice::AnonymousGid(gid) => self.anonymous_gid = gid,
                Choice::AuthSys => {}
            }
        }
        self
    }

    /// All options, in the order in which they are shown.
    const fn choices(&self) -> [Choice; 6] {
        [
            Choice::ReadOnly(self.read_only),
            Choice::Async(self.is_async),
            Choice::PrivilegedPort(self.privileged_port),
            Choice::Squash(self.squash),
            Choice::AnonymousUid(self.anonymous_uid),
            Choice::AnonymousGid(self.anonymous_gid),
        ]
    }
}

impl Default for ShareOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            is_async: false,
            privileged_port: true,
            squash: Squash::Root,
            anonymous_uid: ANONYMOUS,
            anonymous_gid: ANONYMOUS,
        }
    }
}

impl From<ShareOptions> for ExportOptions {
    fn from(options: ShareOptions) -> Self {
        Self {
            read_only: options.read_only,
            squash: options.squash,
            anonymous_uid: options.anonymous_uid,
            anonymous_gid: options.anonymous_gid,
            privileged_port: options.privileged_port,
            is_async: options.is_async,
        }
    }
}

impl FromStr for ShareOptions {
    type Err = OptionFault;

    fn from_str(text: &str) -> Result<Self, OptionFault> {
        Ok(Self::default().with(&text.parse()?))
    }
}

impl fmt::Display for ShareOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_choices(f, &self.choices())
    }
}

impl FromStr for OptionList {
    type Err = OptionFault;

    fn from_str(text: &str) -> Result<Self, OptionFault> {
        let words = text.split(',').map(str::trim);
        words.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for OptionList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_choices(f, &self.0)
    }
}

impl FromStr for Choice {
    type Err = OptionFault;

    fn from_str(word: &str) -> Result<Self, OptionFault> {
        if let Some((_, choice)) = WORDS.iter().find(|(known, _)| *known == word) {
            return Ok(*choice);
        }
        let id = |id: &str| id.parse().map_err(|_| OptionFault::Id(word.to_owned()));
        match word.split_once('=') {
            Some(("anonuid", uid)) => Ok(Self::AnonymousUid(id(uid)?)),
            Some(("anongid", gid)) => Ok(Self::AnonymousGid(id(gid)?)),
            _ => Err(OptionFault::Unknown(word.to_owned())),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AnonymousUid(uid) => write!(f, "anonuid={uid}"),
            Self::AnonymousGid(gid) => write!(f, "anongid={gid}"),
            word => {
                let word = WORDS.iter().find(|(_, choice)| choice == word);
                f.write_str(word.map_or("", |(word, _)| word))
            }
        }
    }
}

fn write_choices(f: &mut fmt::Formatter<'_>, choices: &[Choice]) -> fmt::Result {
    for (at, choice) in choices.iter().enumerate() {
        if at > 0 {
            f.write_str(",")?;
        }
        write!(f, "{choice}")?;
    }
    Ok(())
}

impl Written for ShareOptions {
    const NOUN: &'static str = "options";
}

impl Written for OptionList {
    const NOUN: &'static str = "options";
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: &str = "rw,sync,secure,root_squash,anonuid=65534,anongid=65534";

    fn options(text: &str) -> ShareOptions {
        text.parse().expect(text)
    }

    #[test]
    fn options_that_are_not_named_have_their_defaults() {
        for (text, shown) in [
            ("rw", DEFAULT),
            ("sec=sys", DEFAULT),
            (
                "ro,no_root_squash",
                "ro,sync,secure,no_root_squash,anonuid=65534,anongid=65534",
            ),
            (
                "insecure, async ,all_squash,anonuid=0,anongid=4294967295",
                "rw,async,insecure,all_squash,anonuid=0,anongid=4294967295",
            ),
            ("ro,rw", DEFAULT),
        ] {
            assert_eq!(options(text).to_string(), shown);
            assert_eq!(options(shown), options(text), "it reads back");
        }
        assert_eq!(ShareOptions::default().to_string(), DEFAULT);
    }

    #[test]
    fn a_list_changes_the_options_that_it_names() {
        let before = options("ro,async,all_squash,anonuid=7");
        let list: OptionList = "rw,anongid=8".parse().expect("a list");
        assert_eq!(
            before.with(&list).to_string(),
            "rw,async,secure,all_squash,anonuid=7,anongid=8"
        );
        assert_eq!(list.to_string(), "rw,anongid=8");
    }

    #[test]
    fn words_that_are_no_options_are_refused_with_those_that_are() {
        for (text, word) in [("rw,", ""), ("rw,krb5", "krb5"), ("RO", "RO"), ("", "")] {
            let refused = text.parse::<ShareOptions>();
            assert_eq!(refused, Err(OptionFault::Unknown(word.to_owned())));
        }
        for text in ["anonuid=", "anonuid=-1", "anongid=4294967296", "anonuid=x"] {
            let refused = text.parse::<OptionList>();
            assert_eq!(refused, Err(OptionFault::Id(text.to_owned())));
        }
    }

    #[test]
    fn the_server_gets_what_the_words_say() {
        let all = ExportOptions::from(options("ro,async,insecure,all_squash,anonuid=1,anongid=2"));
        assert!(all.read_only && all.is_async && !all.privileged_port);
        assert_eq!(all.squash, Squash::All);
        assert_eq!((all.anonymous_uid, all.anonymous_gid), (1, 2));
        let none = ExportOptions::from(options("rw,sync,secure,no_root_squash"));
        assert!(!none.read_only && !none.is_async && none.privileged_port);
        assert_eq!(none.squash, Squash::None);
    }
}
