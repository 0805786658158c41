//! The tokens that requests over TCP carry: names, roles and hashes in a file. The tokens
//! themselves are shown once, when they are created.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use server::replace_private;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::Token;
use super::role::Role;

/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;
/// The most tokens.
const TOKENS_MAX: usize = 256;
/// The longest name.
const NAME_MAX_BYTES: usize = 64;
/// The most that is read of the file.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// The tokens of a daemon.
#[derive(Clone, Debug)]
pub(super) struct Tokens(Arc<Mutex<Known>>);

#[derive(Debug)]
struct Known {
    path: PathBuf,
    stored: Stored,
    /// The administrator's token of `--api-token-file`: its name and hash.
    of_file: Option<(String, Hash)>,
}

/// What the file holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    tokens: BTreeMap<String, StoredToken>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredToken {
    role: Role,
    /// Absent if a certificate with the token's name is the proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<Hash>,
}

/// What proves that a client holds a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenProof {
    /// The token itself, in the header `Authorization: Bearer TOKEN`.
    #[default]
    Bearer,
    /// A client certificate with the token's name among its DNS names, signed by an issuer of
    /// `--api-client-ca`.
    Certificate,
}

/// The SHA-256 of a token. Tokens are random and long, so that nothing slower is needed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Hash([u8; 32]);

/// A token, without what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// Its name, which the log shows.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// What proves that a client holds it.
    #[serde(default)]
    pub proof: TokenProof,
}

/// A new token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    /// Its name.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// The token, unless a certificate is the proof. It is not shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// What a token is created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// What its holder may do.
    pub role: Role,
    /// What proves that a client holds it: a token, unless given.
    #[serde(default)]
    pub proof: TokenProof,
}

/// Why tokens stay as they are.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The name is taken.
    #[error("token {0} already exists; remove it first with `ramport token remove {0}`")]
    Exists(String),
    /// No token has the name.
    #[error("there is no token {0}; `ramport token ls` lists those that exist")]
    Unknown(String),
    /// The name has other characters, or none, or too many.
    #[error(
        "{0:?} is not a name of a token; use 1 to {NAME_MAX_BYTES} letters, digits, `.`, `_` and `-`"
    )]
    Name(String),
    /// There are too many.
    #[error("there are {TOKENS_MAX} tokens, which is the maximum; remove one")]
    TooMany,
    /// The file cannot be read or written.
    #[error("cannot use the file of tokens {path}: {source}; make its folder writable for the daemon, and try again", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file has another form.
    #[error("the file of tokens {path} is damaged: {source}; remove it, and create the tokens again", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
}

impl Tokens {
    /// Reads the file, if it exists. `of_file` is an administrator's, too.
    pub(super) fn open(path: &Path, of_file: Option<&Token>) -> Result<Self, TokensError> {
        Ok(Self(Arc::new(Mutex::new(Known {
            path: path.to_owned(),
            stored: read(path)?,
            of_file: of_file.map(|token| (token.name().to_owned(), Hash::of(token.bytes()))),
        }))))
    }

    /// Every stored token, by name.
    pub(super) fn list(&self) -> Vec<TokenView> {
        let known = self.known();
        let views = known.stored.tokens.iter();
        views.map(|(name, token)| token.view(name)).collect()
    }

    /// Creates a token, which is valid when it is stored.
    pub(super) fn create(
        &self,
        name: &str,
        request: TokenRequest,
    ) -> Result<NewToken, TokensError> {
        let TokenRequest { role, proof } = request;
        if !is_name(name) {
            return Err(TokensError::Name(name.to_owned()));
        }
        let mut known = self.known();
        // Names of certificates do not depend on case.
        let mut names = known.stored.tokens.keys();
        if let Some(same) = names.find(|other| other.eq_ignore_ascii_case(name)) {
            return Err(TokensError::Exists(same.clone()));
        }
        if known.stored.tokens.len() >= TOKENS_MAX {
            return Err(TokensError::TooMany);
        }
        let token = (proof == TokenProof::Bearer).then(generate);
        let mut stored = known.stored.clone();
        let sha256 = token.as_ref().map(|token| Hash::of(token.as_bytes()));
        stored
            .tokens
            .insert(name.to_owned(), StoredToken { role, sha256 });
        known.replace(stored)?;
        Ok(NewToken {
            name: name.to_owned(),
            role,
            token,
        })
    }

    /// Removes a token, which is invalid from then on.
    pub(super) fn remove(&self, name: &str) -> Result<(), TokensError> {
        let mut known = self.known();
        let mut stored = known.stored.clone();
        if stored.tokens.remove(name).is_none() {
            return Err(TokensError::Unknown(name.to_owned()));
        }
        known.replace(stored)
    }

    /// The token that the value of an `Authorization` header carries. The time does not depend on
    /// which token is similar to it.
    pub(super) fn find(&self, header: &[u8]) -> Option<TokenView> {
        let given = Hash::of(header.strip_prefix(b"Bearer ")?);
        let known = self.known();
        let of_file = known.of_file.iter();
        let of_file = of_file.map(|(name, hash)| (name, Role::Administrator, hash));
        let stored = known.stored.tokens.iter();
        let stored =
            stored.filter_map(|(name, token)| Some((name, token.role, token.sha256.as_ref()?)));
        let mut found = None;
        for (name, role, hash) in stored.chain(of_file) {
            if bool::from(hash.0.ct_eq(&given.0)) {
                found = Some((name, role));
            }
        }
        found.map(|(name, role)| TokenView {
            name: name.clone(),
            role,
            proof: TokenProof::Bearer,
        })
    }

    /// Whether a token exists still.
    pub(super) fn has(&self, holder: &TokenView) -> bool {
        let known = self.known();
        let stored = known.stored.tokens.get(&holder.name);
        let is_stored = stored.is_some_and(|token| token.view(&holder.name) == *holder);
        let of_file = known.of_file.as_ref();
        is_stored || of_file.is_some_and(|(name, _)| *name == holder.name)
    }

    /// The token of the first of these names, in any case, whose proof is a certificate.
    pub(super) fn of_certificate(&self, names: &[String]) -> Option<TokenView> {
        let known = self.known();
        let tokens = known.stored.tokens.iter();
        let tokens = tokens.filter(|(_, token)| token.sha256.is_none());
        let tokens: Vec<_> = tokens.collect();
        let of = |wanted: &String| {
            let mut tokens = tokens.iter();
            tokens.find(|(name, _)| name.eq_ignore_ascii_case(wanted))
        };
        let (name, token) = names.iter().find_map(of)?;
        Some(token.view(name))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoredToken {
    fn view(&self, name: &str) -> TokenView {
        let proof = match self.sha256 {
            Some(_) => TokenProof::Bearer,
            None => TokenProof::Certificate,
        };
        TokenView {
            name: name.to_owned(),
            role: self.role,
            proof,
        }
    }
}

impl Known {
    fn replace(&mut self, stored: Stored) -> Result<(), TokensError> {
        write(&self.path, &stored).map_err(|source| TokensError::File {
            path: self.path.clone(),
            source,
        })?;
        self.stored = stored;
        Ok(())
    }
}

impl Hash {
    fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> Self {
        hex(&hash.0)
    }
}

impl TryFrom<String> for Hash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        const FORM: &str = "a hash has 64 hexadecimal digits";
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(FORM);
        }
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| FORM)?;
        }
        Ok(Self(bytes))
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
    let digits = digits.filter_map(|digit| char::from_digit(u32::from(digit), 16));
    digits.collect()
}

fn generate() -> String {
    let mut bytes = Zeroizing::new([0; TOKEN_BYTES]);
    let drawn = getrandom(&mut *bytes, GetRandomFlags::empty());
    assert_eq!(
        drawn,
        Ok(TOKEN_BYTES),
        "so few bytes are never drawn in parts, and a started system has them"
    );
    hex(&*bytes)
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=NAME_MAX_BYTES).contains(&name.len()) && name.bytes().all(is_plain)
}

fn read(path: &Path) -> Result<Stored, TokensError> {
    let failed = |source| TokensError::File {
        path: path.to_owned(),
        source,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Stored::default()),
        Err(error) => return Err(failed(error)),
    };
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(file, FILE_MAX_BYTES), &mut text)
        .map_err(failed)?;
    serde_json::from_str(&text).map_err(|source| TokensError::Damaged {
        path: path.to_owned(),
        source,
    })
}

fn write(path: &Path, stored: &Stored) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(stored)?;
    replace_private(path, &text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::testing::Folder;

    fn of(role: Role) -> TokenRequest {
        let proof = TokenProof::Bearer;
        TokenRequest { role, proof }
    }

    fn bearer(token: &str) -> Vec<u8> {
        format!("Bearer {token}").into_bytes()
    }

    #[test]
    fn a_token_is_found_by_itself_alone_and_stored_as_a_hash() {
        let folder = Folder::new();
        let path = folder.join("api-tokens");
        let tokens = Tokens::open(&path, None).expect("none yet");
        let left = path.with_extension("new");
        fs::write(&left, "").expect("written");
        fs::set_permissions(&left, fs::Permissions::from_mode(0o644)).expect("set");
        let new = tokens.create("ci", of(Role::Operator)).expect("created");
        let view = TokenView {
            name: "ci".to_owned(),
            role: Role::Operator,
            proof: TokenProof::Bearer,
        };
        assert_eq!(tokens.list(), std::slice::from_ref(&view));
        let token: &str = new.token.as_deref().expect("a token");
        assert_eq!(token.len(), 2 * TOKEN_BYTES);
        let text = fs::read_to_string(&path).expect("stored");
        assert!(!text.contains(token), "{text}");
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // Another start.
        let tokens = Tokens::open(&path, None).expect("reads");
        assert_eq!(tokens.find(&bearer(token)), Some(view));
        for wrong in [
            bearer(&token[1..]),
            bearer(&format!("{token} ")),
            bearer(&token.to_uppercase().replace(char::is_numeric, "0")),
            token.as_bytes().to_vec(),
            format!("bearer {token}").into_bytes(),
            Vec::new(),
        ] {
            assert_eq!(tokens.find(&wrong), None);
        }
        tokens.remove("ci").expect("removed");
        assert_eq!(tokens.find(&bearer(token)), None);
        let tokens = Tokens::open(&path, None).expect("reads");
        assert_eq!(tokens.find(&bearer(token)), None);
    }

    #[test]
    fn a_certificate_is_the_proof_of_those_tokens_alone_that_say_so() {
        let folder = Folder::new();
        let path = folder.join("api-tokens");
        let tokens = Tokens::open(&path, None).expect("none yet");
        tokens
            .create("other.example", of(Role::Administrator))
            .expect("created");
        let request = TokenRequest {
            role: Role::ReadOnly,
            proof: TokenProof::Certificate,
        };
        let new = tokens.create("Ops.example", request).expect("created");
        assert_eq!(new.token, None);
        // Another start.
        let tokens = Tokens::open(&path, None).expect("reads");
        let found = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            tokens
                .of_certificate(&names)
                .map(|found| (found.name, found.role, found.proof))
        };
        let ops = (
            "Ops.example".to_owned(),
            Role::ReadOnly,
            TokenProof::Certificate,
        );
        assert_eq!(found(&["ops.example"]), Some(ops.clone()));
        assert_eq!(found(&["other.example", "ops.example"]), Some(ops));
        assert_eq!(
            found(&["other.example", "*.example", "ops.example.org", ""]),
            None
        );
        assert_eq!(found(&[]), None);
        assert_eq!(tokens.find(&bearer("")), None);
        tokens.remove("Ops.example").expect("removed");
        assert_eq!(found(&["ops.example"]), None);
    }

    #[test]
    fn what_cannot_be_is_rejected_with_its_reason() {
        let folder = Folder::new();
        let path = folder.join("api-tokens");
        let tokens = Tokens::open(&path, None).expect("none yet");
        tokens.create("a", of(Role::ReadOnly)).expect("created");
        let told = |result: Result<NewToken, TokensError>| {
            result.map(drop).expect_err("rejected").to_string()
        };
        assert!(told(tokens.create("a", of(Role::ReadOnly))).contains("already exists"));
        for name in ["", "a b", "a/b", &"a".repeat(65)] {
            assert!(told(tokens.create(name, of(Role::ReadOnly))).contains("letters"));
        }
        let unknown = tokens.remove("b").expect_err("unknown").to_string();
        assert!(unknown.contains("there is no token b"), "{unknown}");
        for at in 1..TOKENS_MAX {
            tokens
                .create(&format!("t{at}"), of(Role::ReadOnly))
                .expect("room");
        }
        assert!(told(tokens.create("more", of(Role::ReadOnly))).contains("maximum"));
        fs::write(
            &path,
            "{\"tokens\": {\"a\": {\"role\": \"operator\", \"sha256\": \"00\"}}}",
        )
        .expect("written");
        let damaged = Tokens::open(&path, None).expect_err("damaged").to_string();
        assert!(damaged.contains("64 hexadecimal digits"), "{damaged}");
    }
}
