//! What the holders of tokens may do.

use std::fmt;
use std::str::FromStr;

use axum::http::Method;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a caller may do. Each role includes those before it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Read everything except secrets and tokens.
    ReadOnly,
    /// Change volumes, snapshots and copies, and end sessions, without naming files or other
    /// machines.
    Operator,
    /// Everything.
    Administrator,
}

/// A text that is no role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a role; write read-only, operator or administrator")]
pub struct RoleFault;

impl Role {
    const ALL: [Self; 3] = [Self::ReadOnly, Self::Operator, Self::Administrator];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Operator => "operator",
            Self::Administrator => "administrator",
        }
    }

    /// The role that a request needs, as far as its line tells. What is not known needs an
    /// administrator.
    pub(super) fn needed(method: &Method, path: &str, query: Option<&str>) -> Self {
        let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        let mut parts = path.split('/').skip(1);
        let noun = match (parts.next(), parts.next()) {
            (Some("v1"), Some(noun)) => noun,
            _ => "",
        };
        match noun {
            "tokens" => Self::Administrator,
            "definitions" if reads && has_parameter(query, "with_secrets") => Self::Administrator,
            _ if reads => Self::ReadOnly,
            // A save on the daemon's machine is a file.
            "volumes" if has_parameter(query, "from") => Self::Administrator,
            "volumes" | "snapshots" | "copies" | "acknowledge" | "sessions" => Self::Operator,
            _ => Self::Administrator,
        }
    }
}

/// Whether a request's query has a parameter. Decoded first, so that no spelling hides it.
fn has_parameter(query: Option<&str>, name: &str) -> bool {
    let query = percent_decode_str(query.unwrap_or_default()).decode_utf8_lossy();
    let mut keys = query.split('&').map(|pair| pair.split('=').next());
    keys.any(|key| key == Some(name))
}

/// Whether the JSON of a request names a file of the daemon's machine or another machine, which
/// operators must not: no other value has a slash, and an escape could hide one.
pub(super) fn names_a_place(body: &[u8]) -> bool {
    const KEYS: [&[u8]; 3] = [b"\"path\"", b"\"urls\"", b"\"file\""];
    let has_key = |key: &[u8]| {
        let mut places = body.windows(key.len()).enumerate();
        places.any(|(at, found)| {
            found == key && body[at + key.len()..].trim_ascii_start().starts_with(b":")
        })
    };
    body.contains(&b'/') || body.contains(&b'\\') || KEYS.into_iter().any(has_key)
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = RoleFault;

    fn from_str(text: &str) -> Result<Self, RoleFault> {
        let mut roles = Self::ALL.into_iter();
        roles.find(|role| role.name() == text).ok_or(RoleFault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_needs_the_role_of_the_table() {
        let cases = [
            ("GET", "/v1/volumes", Role::ReadOnly),
            ("HEAD", "/v1/hosts/a", Role::ReadOnly),
            ("GET", "/metrics", Role::ReadOnly),
            ("GET", "/v1/definitions", Role::ReadOnly),
            (
                "GET",
                "/v1/definitions?with_secrets=true",
                Role::Administrator,
            ),
            (
                "GET",
                "/v1/definitions?x=1&with%5Fsecrets=true",
                Role::Administrator,
            ),
            ("GET", "/v1/tokens", Role::Administrator),
            ("POST", "/v1/tokens/a", Role::Administrator),
            ("POST", "/v1/volumes/a", Role::Operator),
            ("POST", "/v1/volumes/a?from=%2Ftmp%2Fa", Role::Administrator),
            ("POST", "/v1/volumes/a?%66rom=a", Role::Administrator),
            ("PATCH", "/v1/volumes/a?force=true", Role::Operator),
            ("DELETE", "/v1/volumes/a", Role::Operator),
            ("POST", "/v1/snapshots", Role::Operator),
            ("POST", "/v1/copies", Role::Operator),
            ("POST", "/v1/acknowledge", Role::Operator),
            ("DELETE", "/v1/sessions/1", Role::Operator),
            ("PUT", "/v1/definitions", Role::Administrator),
            ("POST", "/v1/hosts/a", Role::Administrator),
            ("PUT", "/v1/targets/a/access", Role::Administrator),
            ("POST", "/v1/shares/a", Role::Administrator),
            ("POST", "/v1/portals/a", Role::Administrator),
            ("DELETE", "/v1/referrals/a", Role::Administrator),
            ("POST", "/v2/volumes/a", Role::Administrator),
            ("POST", "/volumes/v1", Role::Administrator),
        ];
        for (method, uri, role) in cases {
            let (path, query) = match uri.split_once('?') {
                Some((path, query)) => (path, Some(query)),
                None => (uri, None),
            };
            let method = method.parse().expect("a method");
            assert_eq!(Role::needed(&method, path, query), role, "{method} {uri}");
        }
    }

    #[test]
    fn files_and_other_machines_are_found_however_they_are_spelt() {
        for body in [
            r#"{"kind": "file", "path" : "a"}"#,
            r#"{"urls": []}"#,
            r#"{"file":"a"}"#,
            r#"{"save": {"to": "/srv"}}"#,
            r#"{"source": "a", "destination": "\u002fetc"}"#,
            r#"{"p\u0061th": "a"}"#,
        ] {
            assert!(names_a_place(body.as_bytes()), "{body}");
        }
        for body in [
            "",
            r#"{"size": "4M"}"#,
            r#"{"of": "path", "kind": "clone"}"#,
        ] {
            assert!(!names_a_place(body.as_bytes()), "{body}");
        }
    }

    #[test]
    fn roles_include_those_before_them() {
        assert!(Role::ReadOnly < Role::Operator && Role::Operator < Role::Administrator);
        for role in Role::ALL {
            assert_eq!(role.name().parse(), Ok(role));
        }
        assert_eq!("root".parse::<Role>(), Err(RoleFault));
    }
}
