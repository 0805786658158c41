//! Names of subsystems and hosts.
//!
//! Read first: NVM Express Base 2.0, "NVMe Qualified Names".

use super::fabrics::NqnField;

/// Why a name is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NqnError {
    /// It is empty.
    #[error("the name is empty")]
    Empty,
    /// It does not fit into the field of the protocol.
    #[error("the name has {len_bytes} bytes; the maximum is {max}", max = NqnField::NAME_MAX_BYTES)]
    TooLong {
        /// The length of the name.
        len_bytes: usize,
    },
    /// It has a blank or control character.
    #[error("the name has a blank or control character at byte {at}")]
    Control {
        /// The character's position.
        at: usize,
    },
    /// It is the name of the discovery subsystem.
    #[error("the name is reserved for the discovery subsystem")]
    Discovery,
}

/// What is unusual about a name that is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NqnWarning {
    /// It does not begin with `nqn.` and a date.
    #[error(
        "the name does not have the form nqn.yyyy-mm.reverse.domain:name; some hosts reject it"
    )]
    NotQualified,
    /// It begins like a UUID-based name, but no UUID follows.
    #[error("no UUID follows {UUID_PREFIX}; some hosts reject the name")]
    BadUuid,
}

const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// Checks the name of a subsystem or host.
pub fn check_nqn(name: &str) -> Result<Option<NqnWarning>, NqnError> {
    if name.is_empty() {
        return Err(NqnError::Empty);
    }
    if name.len() > NqnField::NAME_MAX_BYTES {
        return Err(NqnError::TooLong {
            len_bytes: name.len(),
        });
    }
    if let Some((at, _)) = name
        .char_indices()
        .find(|(_, c)| c.is_control() || c.is_whitespace())
    {
        return Err(NqnError::Control { at });
    }
    if name == super::discovery::DISCOVERY_NQN {
        return Err(NqnError::Discovery);
    }
    if let Some(uuid) = name.strip_prefix(UUID_PREFIX) {
        let is_uuid = uuid.len() == 36 && uuid::Uuid::try_parse(uuid).is_ok();
        return Ok((!is_uuid).then_some(NqnWarning::BadUuid));
    }
    Ok((!is_qualified(name)).then_some(NqnWarning::NotQualified))
}

/// Whether `name` is `nqn.yyyy-mm.` and something more.
fn is_qualified(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("nqn.") else {
        return false;
    };
    let [y0, y1, y2, y3, b'-', m0, m1, b'.', _, ..] = rest.as_bytes() else {
        return false;
    };
    [y0, y1, y2, y3, m0, m1].into_iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualified_names_pass_without_a_word() {
        for name in [
            "nqn.2014-08.com.example:nvme.host.sys.xyz",
            "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        ] {
            assert_eq!(check_nqn(name), Ok(None), "{name}");
        }
    }

    #[test]
    fn names_of_other_forms_pass_with_a_warning() {
        for name in [
            "nvmet-rd0",
            "nqn.x",
            "nqn.2014-8.com.example",
            "nqn.2014-08.",
        ] {
            assert_eq!(
                check_nqn(name),
                Ok(Some(NqnWarning::NotQualified)),
                "{name}"
            );
        }
        let uuid = "nqn.2014-08.org.nvmexpress:uuid:not-one";
        assert_eq!(check_nqn(uuid), Ok(Some(NqnWarning::BadUuid)));
    }

    #[test]
    fn names_that_no_field_can_carry_are_refused() {
        assert_eq!(check_nqn(""), Err(NqnError::Empty));
        assert_eq!(
            check_nqn(&"n".repeat(224)),
            Err(NqnError::TooLong { len_bytes: 224 })
        );
        assert_eq!(check_nqn("a b"), Err(NqnError::Control { at: 1 }));
        assert_eq!(check_nqn("ab\0"), Err(NqnError::Control { at: 2 }));
        assert_eq!(
            check_nqn("nqn.2014-08.org.nvmexpress.discovery"),
            Err(NqnError::Discovery)
        );
    }
}
