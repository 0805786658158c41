//! What is measured: a namespace or logical unit over the network, a block device, a file.

use std::{path::PathBuf, str::FromStr};

use initiator::{Url, UrlError};

/// Where I/O goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A namespace or logical unit behind a URL.
    Url(Box<Url>),
    /// A block device or a file.
    Path(PathBuf),
}

impl FromStr for Source {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text.contains("://") || text.is_empty() {
            return text.parse().map(|url| Self::Url(Box::new(url)));
        }
        Ok(Self::Path(PathBuf::from(text)))
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(url) => url.fmt(f),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}
