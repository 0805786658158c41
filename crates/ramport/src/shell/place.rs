//! Places of the tree: its root, the kinds of objects below it, and the objects.

use std::fmt;

use crate::completion::Noun;

/// A place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Root,
    Kind(Noun),
    Object(Noun, String),
}

/// A text that is not a place.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a place; places are /, {kinds} and what `ls` lists there", kinds = kinds())]
pub(super) struct PlaceFault(String);

impl Place {
    /// The place that `text` means from this one.
    pub(super) fn at(&self, text: &str) -> Result<Self, PlaceFault> {
        let fault = || PlaceFault(text.to_owned());
        if let Some(up) = text.strip_prefix("..") {
            let parent = self.parent();
            return match up.strip_prefix('/') {
                None if up.is_empty() => Ok(parent),
                None => Err(fault()),
                Some("") => Ok(parent),
                Some(rest) => parent.at(rest),
            };
        }
        if let Some(absolute) = text.strip_prefix('/') {
            return if absolute.is_empty() {
                Ok(Self::Root)
            } else {
                Self::Root.at(absolute)
            };
        }
        match self {
            _ if text == "." => Ok(self.clone()),
            // The names of targets and portals have slashes.
            Self::Kind(noun) if !text.is_empty() => Ok(Self::Object(*noun, text.to_owned())),
            Self::Root => {
                let (kind, name) = text.split_once('/').unwrap_or((text, ""));
                let mut nouns = Noun::ALL.into_iter();
                let noun = nouns.find(|noun| kind == folder(*noun)).ok_or_else(fault)?;
                Ok(if name.is_empty() {
                    Self::Kind(noun)
                } else {
                    Self::Object(noun, name.to_owned())
                })
            }
            Self::Kind(_) | Self::Object(..) => Err(fault()),
        }
    }

    /// The place above; the root's is itself.
    pub(super) fn parent(&self) -> Self {
        match self {
            Self::Root | Self::Kind(_) => Self::Root,
            Self::Object(noun, _) => Self::Kind(*noun),
        }
    }

    /// The kind of the objects here, or of the object that this is.
    pub(super) fn noun(&self) -> Option<Noun> {
        match self {
            Self::Root => None,
            Self::Kind(noun) | Self::Object(noun, _) => Some(*noun),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("/"),
            Self::Kind(noun) => write!(f, "/{}", folder(*noun)),
            Self::Object(noun, name) => write!(f, "/{}/{name}", folder(*noun)),
        }
    }
}

const fn folder(noun: Noun) -> &'static str {
    match noun {
        Noun::Volume => "volumes",
        Noun::Target => "targets",
        Noun::Share => "shares",
        Noun::Host => "hosts",
        Noun::Portal => "portals",
        Noun::Referral => "referrals",
        Noun::Token => "tokens",
        Noun::Session => "sessions",
    }
}

fn kinds() -> String {
    Noun::ALL
        .map(|noun| Place::Kind(noun).to_string())
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_from_where_one_is() {
        let place = |from: &Place, text: &str| from.at(text).map(|place| place.to_string());
        let (root, rd0) = (Place::Root, Place::Object(Noun::Volume, "rd0".to_owned()));
        for (from, text, to) in [
            (&root, "/", "/"),
            (&root, "..", "/"),
            (&root, ".", "/"),
            (&root, "volumes", "/volumes"),
            (&root, "volumes/", "/volumes"),
            (&root, "volumes/rd0", "/volumes/rd0"),
            (&rd0, "..", "/volumes"),
            (&rd0, "../", "/volumes"),
            (&rd0, "../rd1", "/volumes/rd1"),
            (&rd0, "../../hosts", "/hosts"),
            (
                &rd0,
                "/portals/nvme+tcp://[::1]:4420",
                "/portals/nvme+tcp://[::1]:4420",
            ),
            (&rd0.parent(), "rd1", "/volumes/rd1"),
        ] {
            assert_eq!(place(from, text).as_deref(), Ok(to), "{from} {text}");
        }
        for (from, text) in [(&root, "volume"), (&root, ""), (&rd0, "x"), (&rd0, "..x")] {
            assert!(from.at(text).is_err(), "{from} {text}");
        }
    }
}
