//! The identity of this machine, for hosts that are not named.

use std::fs;

use uuid::Uuid;

/// Files that differ between machines.
const MACHINE_FILES: [&str; 2] = ["/etc/machine-id", "/etc/hostname"];

/// Under which identifiers are derived from names.
const NAMESPACE: Uuid = Uuid::from_u128(0x5b1c_7bd1_9f2e_4d43_8a6b_72d0_3f6a_11c7);

/// An identifier that stays the same for the machine.
pub(crate) fn id() -> Uuid {
    let machine = MACHINE_FILES.iter().find_map(|path| first_line(path));
    id_of(&machine.unwrap_or_default())
}

/// An identifier that is the same for the same name.
pub(crate) fn id_of(name: &str) -> Uuid {
    Uuid::new_v5(&NAMESPACE, name.as_bytes())
}

/// The first line of a file, if it has one.
pub(crate) fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}
