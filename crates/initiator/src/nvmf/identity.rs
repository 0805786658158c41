//! By which name this machine calls itself towards subsystems.

use nvme::host::HostName;
use nvme::wire::discovery::DISCOVERY_NQN;
use nvme::wire::fabrics::NqnField;
use uuid::Uuid;

use crate::machine::{self, first_line};
use crate::{ConnectError, Url};

/// Where nvme-cli and the kernel's host keep the machine's names.
const HOST_NQN_FILE: &str = "/etc/nvme/hostnqn";
const HOST_ID_FILE: &str = "/etc/nvme/hostid";

const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// The names to connect with. The host's is that of the URL, else the machine's, else one that
/// stays the same for the machine. Without a subsystem the URL means the discovery subsystem.
pub(crate) fn host_name(url: &Url) -> Result<HostName, ConnectError> {
    let (host_nqn, host_id) = match url.host_nqn() {
        Some(nqn) => (nqn.to_owned(), id_of(nqn)),
        None => machine_name(),
    };
    Ok(HostName {
        host_nqn: field(&host_nqn)?,
        host_id: host_id.into_bytes(),
        subsystem_nqn: field(url.target().unwrap_or(DISCOVERY_NQN))?,
    })
}

/// The host's name alone.
pub(crate) fn host_nqn(url: &Url) -> String {
    url.host_nqn()
        .map_or_else(|| machine_name().0, str::to_owned)
}

fn machine_name() -> (String, Uuid) {
    if let Some(nqn) = first_line(HOST_NQN_FILE).filter(|nqn| NqnField::new(nqn).is_some()) {
        let id = first_line(HOST_ID_FILE).and_then(|id| Uuid::try_parse(&id).ok());
        let id = id.unwrap_or_else(|| id_of(&nqn));
        return (nqn, id);
    }
    let id = machine::id();
    (format!("{UUID_PREFIX}{id}"), id)
}

/// The identifier in a name based on one, else one derived from the name: hosts with the same name
/// have the same one.
fn id_of(nqn: &str) -> Uuid {
    nqn.strip_prefix(UUID_PREFIX)
        .and_then(|id| Uuid::try_parse(id).ok())
        .unwrap_or_else(|| machine::id_of(nqn))
}

fn field(name: &str) -> Result<NqnField, ConnectError> {
    NqnField::new(name)
        .filter(|_| !name.is_empty())
        .ok_or_else(|| ConnectError::Name {
            name: name.to_owned(),
            max_bytes: NqnField::NAME_MAX_BYTES,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        host_name(&text.parse().expect("a URL")).expect("names fit")
    }

    #[test]
    fn a_name_based_on_a_uuid_gives_its_host_id() {
        let uuid = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
        let name = name(&format!("nvme+tcp://h/rd0?hostnqn={UUID_PREFIX}{uuid}"));
        assert_eq!(
            Uuid::from_bytes(name.host_id),
            Uuid::try_parse(uuid).unwrap()
        );
    }

    #[test]
    fn the_same_name_gives_the_same_host_id() {
        let (a, b) = (
            name("nvme+tcp://h/rd0?hostnqn=a"),
            name("nvme+tcp://h/rd0?hostnqn=b"),
        );
        assert_ne!(a.host_id, b.host_id);
        assert_eq!(a.host_id, name("nvme+tcp://h/rd1?hostnqn=a").host_id);
        assert_eq!(name("nvme+tcp://h/rd0"), name("nvme+tcp://h/rd0"));
    }

    #[test]
    fn without_a_subsystem_discovery_is_meant() {
        assert_eq!(
            name("nvme+tcp://h").subsystem_nqn.name(),
            Some(DISCOVERY_NQN)
        );
    }
}
