//! Credentials: AUTH_NONE and AUTH_SYS, and how an export maps users.

use file_tree::Caller;

use super::{AUTH_BYTES_MAX, AuthError};
use crate::xdr::{Malformed, Reader};
use crate::{ExportOptions, Squash};

/// Flavors (auth_flavor).
const AUTH_NONE: u32 = 0;
/// The flavor that names a user and groups of the client, unproved.
pub(crate) const AUTH_SYS: u32 = 1;
/// The longest name of a machine in AUTH_SYS.
const MACHINE_NAME_BYTES_MAX: usize = 255;
/// The most groups in AUTH_SYS besides the first.
const GROUPS_MAX: usize = 16;

/// On whose behalf a call is made, as the client says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS.
    Sys(User),
}

/// A user and its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    uid: u32,
    gid: u32,
    groups: [u32; GROUPS_MAX],
    groups_len: usize,
}

impl Credential {
    /// Reads a call's credential and verifier.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, AuthError> {
        let bad_credential = |_: Malformed| AuthError::BadCredential;
        let flavor = reader.u32().map_err(bad_credential)?;
        let body = reader.opaque(AUTH_BYTES_MAX).map_err(bad_credential)?;
        let credential = match flavor {
            AUTH_NONE if body.is_empty() => Self::None,
            AUTH_SYS => Self::Sys(User::read(Reader::new(body)).map_err(bad_credential)?),
            _ => return Err(AuthError::BadCredential),
        };
        // Both flavors have the verifier AUTH_NONE (section 10.1 and appendix A).
        let verifier = reader.array::<8>();
        if verifier.is_ok_and(|bytes| bytes == [0; 8]) {
            Ok(credential)
        } else {
            Err(AuthError::BadVerifier)
        }
    }

    pub(super) const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The user that the client names; without one, no user of any export's.
    pub(crate) const fn uid(&self) -> u32 {
        match self {
            Self::None => u32::MAX,
            Self::Sys(user) => user.uid,
        }
    }

    /// CRC32C of the user and the first group, appended to another checksum.
    pub(crate) fn checksum(&self, checksum: u32) -> u32 {
        let Self::Sys(user) = self else {
            return checksum;
        };
        let checksum = crc32c::crc32c_append(checksum, &user.uid.to_be_bytes());
        crc32c::crc32c_append(checksum, &user.gid.to_be_bytes())
    }

    /// The user as whom the export executes the call.
    pub(crate) fn map(&self, options: &ExportOptions) -> User {
        let anonymous = User {
            uid: options.anonymous_uid,
            gid: options.anonymous_gid,
            groups: [0; GROUPS_MAX],
            groups_len: 0,
        };
        let Self::Sys(mut user) = *self else {
            return anonymous;
        };
        match options.squash {
            Squash::All => return anonymous,
            Squash::None => {}
            Squash::Root => {
                let is_root = user.uid == 0;
                let map = |id: &mut u32, anonymous| {
                    if *id == 0 {
                        *id = anonymous;
                    }
                };
                map(&mut user.uid, options.anonymous_uid);
                map(&mut user.gid, options.anonymous_gid);
                for group in &mut user.groups[..user.groups_len] {
                    map(group, options.anonymous_gid);
                }
                if is_root {
                    user = anonymous;
                }
            }
        }
        user
    }
}

impl User {
    /// authsys_parms.
    fn read(mut reader: Reader<'_>) -> Result<Self, Malformed> {
        let _stamp = reader.u32()?;
        let _machine = reader.opaque(MACHINE_NAME_BYTES_MAX)?;
        let (uid, gid) = (reader.u32()?, reader.u32()?);
        let groups_len = reader.u32()? as usize;
        let mut groups = [0; GROUPS_MAX];
        for group in groups.get_mut(..groups_len).ok_or(Malformed)? {
            *group = reader.u32()?;
        }
        reader.finish()?;
        Ok(Self {
            uid,
            gid,
            groups,
            groups_len,
        })
    }

    /// For operations of a tree.
    pub(crate) fn caller(&self) -> Caller<'_> {
        Caller {
            uid: self.uid,
            gid: self.gid,
            groups: &self.groups[..self.groups_len],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn options(squash: Squash) -> ExportOptions {
        ExportOptions {
            read_only: false,
            squash,
            anonymous_uid: 1001,
            anonymous_gid: 1002,
            privileged_port: false,
            is_async: false,
        }
    }

    fn user(uid: u32, gid: u32, group: u32) -> Credential {
        let mut groups = [0; GROUPS_MAX];
        groups[0] = group;
        Credential::Sys(User {
            uid,
            gid,
            groups,
            groups_len: 1,
        })
    }

    #[test]
    fn exports_map_users_by_their_squash() {
        for (credential, squash, uid, gid, groups) in [
            (user(0, 0, 0), Squash::None, 0, 0, &[0][..]),
            (user(0, 0, 7), Squash::Root, 1001, 1002, &[]),
            (user(0, 5, 7), Squash::Root, 1001, 1002, &[]),
            (user(5, 0, 0), Squash::Root, 5, 1002, &[1002]),
            (user(5, 6, 7), Squash::Root, 5, 6, &[7]),
            (user(5, 6, 7), Squash::All, 1001, 1002, &[]),
            (Credential::None, Squash::None, 1001, 1002, &[]),
        ] {
            let mapped = credential.map(&options(squash));
            assert_eq!(
                mapped.caller(),
                Caller { uid, gid, groups },
                "{credential:?} {squash:?}"
            );
        }
    }
}
