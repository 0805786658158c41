//! Files that hold secrets.

use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt as _;

/// Permissions of the group and of other users.
const FORBIDDEN_MODE: u32 = 0o077;

/// Whether users other than the owner can access a file that holds a secret. Pipes and other
/// special files do not count.
pub fn is_exposed(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.permissions().mode() & FORBIDDEN_MODE != 0
}
