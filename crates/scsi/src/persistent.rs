//! PERSISTENT RESERVE IN and OUT: the wire form of [`crate::reservation`].
//!
//! Read first: SPC-5, "PERSISTENT RESERVE IN", "PERSISTENT RESERVE OUT", "TransportID identifiers".

use block::HostPath;

use crate::access_state::shown_number;
use crate::device::{Device, Lun, NexusId};
use crate::reservation::{NexusPorts, Outcome, Refusal, Register, Registration, Reservations};
use crate::response::Response;
use crate::sense::{Asc, ScsiStatus, Sense};

/// Length of the basic parameter list.
const LIST_LEN: usize = 24;
/// TransportID: iSCSI, format 01b (name and ISID).
const ISCSI_PORT: u8 = 0x45;
/// TransportID: iSCSI, format 00b (name alone).
const ISCSI_DEVICE: u8 = 0x05;
/// TransportID of an SRP initiator port, and its length in bytes.
const SRP_PORT: u8 = 0x04;
const SRP_LEN: usize = 24;

/// The service actions of PERSISTENT RESERVE OUT.
mod out {
    pub(super) const REGISTER: u8 = 0;
    pub(super) const RESERVE: u8 = 1;
    pub(super) const RELEASE: u8 = 2;
    pub(super) const CLEAR: u8 = 3;
    pub(super) const PREEMPT: u8 = 4;
    pub(super) const PREEMPT_AND_ABORT: u8 = 5;
    pub(super) const REGISTER_AND_IGNORE: u8 = 6;
}

impl Device {
    pub(crate) fn persistent_in(&self, lun: Lun, cdb: &[u8; 16]) -> Vec<u8> {
        let unit = &self.units[&lun];
        let state = &unit.reservations;
        match cdb[1] & 0x1F {
            0 => read_keys(state),
            1 => read_reservation(state),
            2 => report_capabilities(state),
            _ => read_full_status(state, unit.path),
        }
    }

    pub(crate) fn persistent_out(
        &mut self,
        id: NexusId,
        lun: Lun,
        cdb: &[u8; 16],
        list: &[u8],
    ) -> Result<Vec<u8>, Response> {
        let action = cdb[1] & 0x1F;
        let ports = self.nexuses[&id].ports.clone();
        let port_numbers: Vec<u16> = self.ports.iter().map(|port| port.relative_id).collect();
        let unit = self
            .units
            .get_mut(&lun)
            .expect("dispatch has looked the unit up");
        if unit.reserved_by.is_some_and(|holder| holder != id) {
            return Err(Response::status(ScsiStatus::ReservationConflict));
        }
        let path = unit.path;
        let plain_number = |shown| {
            let mut numbers = port_numbers.iter().copied();
            let found = numbers.find(|number| shown_number(*number, path) == shown);
            found.unwrap_or(shown)
        };
        let state = &mut unit.reservations;
        let result = apply(state, &ports, action, cdb[2], list, &plain_number);
        let outcome = result.map_err(|refusal| match refusal {
            Refusal::Conflict => Response::status(ScsiStatus::ReservationConflict),
            Refusal::Check(sense) => Response::check(sense),
        })?;
        if action == out::PREEMPT_AND_ABORT {
            self.abort_commands_of(lun, &outcome.abort);
        }
        self.tell(lun, &outcome.notices);
        self.reservations_changed();
        Ok(Vec::new())
    }
}

/// `plain_number` turns the number of a port as initiators see it into the device's own.
fn apply(
    state: &mut Reservations,
    ports: &NexusPorts,
    action: u8,
    scope_and_type: u8,
    list: &[u8],
    plain_number: &dyn Fn(u16) -> u16,
) -> Result<Outcome, Refusal> {
    let length_error = Refusal::Check(Sense::illegal(Asc::PARAMETER_LIST_LENGTH));
    if list.len() < LIST_LEN {
        return Err(length_error);
    }
    let key = be64(&list[0..8]);
    let action_key = be64(&list[8..16]);
    let flags = list[20];
    let spec_i_pt = flags & 0x08 != 0;
    let registers = matches!(action, out::REGISTER | out::REGISTER_AND_IGNORE);
    if registers || action <= out::REGISTER_AND_IGNORE {
        if spec_i_pt && action != out::REGISTER {
            return Err(Refusal::Check(Sense::invalid_parameter(20)));
        }
        if !spec_i_pt && list.len() != LIST_LEN {
            return Err(length_error);
        }
    }
    match action {
        out::REGISTER | out::REGISTER_AND_IGNORE => {
            let others = if spec_i_pt {
                transport_ids(list, ports.target_port)?
            } else {
                Vec::new()
            };
            let ask = Register {
                key: (action == out::REGISTER).then_some(key),
                new_key: action_key,
                all_target_ports: flags & 0x04 != 0,
                persist: flags & 0x01 != 0,
                others,
            };
            state.register(ports, &ask)
        }
        out::RESERVE => state.reserve(ports, key, scope_and_type),
        out::RELEASE => state.release(ports, key, scope_and_type),
        out::CLEAR => state.clear(ports, key),
        out::PREEMPT | out::PREEMPT_AND_ABORT => {
            state.preempt(ports, key, action_key, scope_and_type)
        }
        _ => register_and_move(state, ports, key, action_key, list, plain_number),
    }
}

/// REGISTER AND MOVE has a parameter list of its own: UNREG and APTPL in byte 17, RELATIVE TARGET
/// PORT IDENTIFIER in 18-19, the TransportID's length in 20-23.
fn register_and_move(
    state: &mut Reservations,
    ports: &NexusPorts,
    key: u64,
    new_key: u64,
    list: &[u8],
    plain_number: &dyn Fn(u16) -> u16,
) -> Result<Outcome, Refusal> {
    let id_len = u32::from_be_bytes([list[20], list[21], list[22], list[23]]) as usize;
    let id = list
        .get(LIST_LEN..LIST_LEN + id_len)
        .ok_or(Refusal::Check(Sense::illegal(Asc::PARAMETER_LIST_LENGTH)))?;
    let (initiator, _) = transport_id(id).ok_or(Refusal::Check(Sense::invalid_parameter(24)))?;
    let target_port = plain_number(u16::from_be_bytes([list[18], list[19]]));
    let to = NexusPorts {
        initiator,
        target_port,
    };
    let outcome = state.register_and_move(ports, key, &to, new_key, list[17] & 0x02 != 0)?;
    state.persist = list[17] & 0x01 != 0;
    Ok(outcome)
}

/// The TransportIDs behind a REGISTER's parameter list.
fn transport_ids(list: &[u8], target_port: u16) -> Result<Vec<NexusPorts>, Refusal> {
    let bad = |byte| Refusal::Check(Sense::invalid_parameter(byte));
    let length = list.get(24..28).ok_or(bad(20))?;
    let len = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
    let mut rest = list
        .get(28..)
        .filter(|rest| rest.len() == len)
        .ok_or(bad(24))?;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (initiator, used) = transport_id(rest).ok_or(bad(28))?;
        found.push(NexusPorts {
            initiator,
            target_port,
        });
        rest = &rest[used..];
    }
    Ok(found)
}

/// A TransportID of iSCSI or SRP: the initiator port's name, and how many bytes it takes.
fn transport_id(bytes: &[u8]) -> Option<(String, usize)> {
    let [kind, _, high, low, ..] = *bytes else {
        return None;
    };
    if kind == SRP_PORT {
        let port: [u8; 16] = bytes.get(8..SRP_LEN)?.try_into().ok()?;
        return Some((format!("{:#034x}", u128::from_be_bytes(port)), SRP_LEN));
    }
    if !matches!(kind, ISCSI_PORT | ISCSI_DEVICE) {
        return None;
    }
    let len = 4 + usize::from(u16::from_be_bytes([high, low]));
    let name = bytes.get(4..len)?;
    let end = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len());
    let name = std::str::from_utf8(&name[..end]).ok()?;
    (!name.is_empty()).then(|| (name.to_owned(), len))
}

/// The TransportID of an initiator port. Ports of SRP are named by `0x` and 32 hexadecimal digits.
fn encode_transport_id(name: &str) -> Vec<u8> {
    let digits = name.strip_prefix("0x").filter(|digits| digits.len() == 32);
    if let Some(port) = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok()) {
        let mut out = vec![0; SRP_LEN];
        out[0] = SRP_PORT;
        out[8..].copy_from_slice(&port.to_be_bytes());
        return out;
    }
    let mut value = name.as_bytes().to_vec();
    value.push(0);
    value.resize(value.len().next_multiple_of(4).max(20), 0);
    let kind = if name.contains(",i,0x") {
        ISCSI_PORT
    } else {
        ISCSI_DEVICE
    };
    let mut out = vec![kind, 0];
    out.extend((value.len() as u16).to_be_bytes());
    out.extend(value);
    out
}

fn with_header(state: &Reservations, body: &[u8]) -> Vec<u8> {
    let mut data = state.generation.to_be_bytes().to_vec();
    data.extend((body.len() as u32).to_be_bytes());
    data.extend(body);
    data
}

fn read_keys(state: &Reservations) -> Vec<u8> {
    let keys: Vec<u8> = state
        .registrations
        .iter()
        .flat_map(|r| r.key.to_be_bytes())
        .collect();
    with_header(state, &keys)
}

fn read_reservation(state: &Reservations) -> Vec<u8> {
    let Some(reservation) = &state.reservation else {
        return with_header(state, &[]);
    };
    // All registrants hold together: the key is 0 then.
    let holder = state
        .registrations
        .iter()
        .find(|r| r.ports == reservation.holder);
    let one_holder = !matches!(reservation.kind as u8, 7 | 8);
    let key = holder
        .filter(|_| one_holder)
        .map_or(0, |registration| registration.key);
    let mut body = key.to_be_bytes().to_vec();
    body.extend([0, 0, 0, 0, 0, reservation.kind as u8, 0, 0]);
    with_header(state, &body)
}

fn report_capabilities(state: &Reservations) -> Vec<u8> {
    // SIP_C, ATP_C, PTPL_C; TMV, PTPL_A; the mask names all six types.
    let activated = u8::from(state.persist);
    vec![0, 8, 0x0D, 0x80 | activated, 0xEA, 0x01, 0, 0]
}

fn read_full_status(state: &Reservations, path: HostPath) -> Vec<u8> {
    let body: Vec<u8> = state
        .registrations
        .iter()
        .flat_map(|registration| full_status(state, registration, path))
        .collect();
    with_header(state, &body)
}

fn full_status(state: &Reservations, registration: &Registration, path: HostPath) -> Vec<u8> {
    let id = encode_transport_id(&registration.ports.initiator);
    let holds = state.holds(&registration.ports);
    let kind = state
        .reservation
        .as_ref()
        .filter(|_| holds)
        .map_or(0, |r| r.kind as u8);
    let mut out = registration.key.to_be_bytes().to_vec();
    out.extend([0; 4]);
    let all_ports = if registration.all_target_ports {
        0x02
    } else {
        0
    };
    out.extend([all_ports | u8::from(holds), kind, 0, 0, 0, 0]);
    let target_port = shown_number(registration.ports.target_port, path);
    out.extend(target_port.to_be_bytes());
    out.extend((id.len() as u32).to_be_bytes());
    out.extend(id);
    out
}

fn be64(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_ids_go_both_ways() {
        let name = "iqn.1993-08.org.debian:01:abc,i,0x00023d000001";
        let encoded = encode_transport_id(name);
        assert_eq!((encoded[0], encoded.len() % 4), (ISCSI_PORT, 0));
        assert_eq!(
            transport_id(&encoded),
            Some((name.to_owned(), encoded.len()))
        );
        assert_eq!(transport_id(&encoded[..10]), None);
        assert_eq!(transport_id(&[0x06, 0, 0, 0]), None);
        let name = "0x0000000000000001505400fffe123456";
        let encoded = encode_transport_id(name);
        assert_eq!(
            (encoded[0], encoded.len(), encoded[23]),
            (SRP_PORT, 24, 0x56)
        );
        assert_eq!(transport_id(&encoded), Some((name.to_owned(), 24)));
        assert_eq!(transport_id(&encoded[..23]), None);
    }

    #[test]
    fn a_list_of_another_length_is_refused() {
        let ports = NexusPorts {
            initiator: "a".into(),
            target_port: 1,
        };
        let mut state = Reservations::default();
        for len in [0, 23, 25] {
            let got = apply(
                &mut state,
                &ports,
                out::REGISTER,
                0,
                &vec![0; len],
                &|number| number,
            );
            let want = Refusal::Check(Sense::illegal(Asc::PARAMETER_LIST_LENGTH));
            assert_eq!(got, Err(want), "{len} bytes");
        }
    }

    #[test]
    fn register_with_transport_ids_registers_all_of_them() {
        let ports = NexusPorts {
            initiator: "a".into(),
            target_port: 1,
        };
        let mut list = vec![0; 24];
        list[15] = 9;
        list[20] = 0x08;
        let id = encode_transport_id("iqn.b,i,0x1");
        list.extend((id.len() as u32).to_be_bytes());
        list.extend(id);
        let mut state = Reservations::default();
        apply(&mut state, &ports, out::REGISTER, 0, &list, &|number| {
            number
        })
        .expect("registers");
        assert_eq!(state.registrations.len(), 2);
        assert_eq!(read_keys(&state)[..8], [0, 0, 0, 1, 0, 0, 0, 16]);
    }
}
