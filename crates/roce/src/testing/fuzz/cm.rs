//! A script of messages of communication management, answers of the application, and time.

use std::time::Duration;

use super::super::{Pair, forge};
use super::{ADDRESSES, small};
use crate::wire::cm::{
    CommId, Drep, Dreq, Gid, IpCmHeader, Message, Mra, MraMessage, Path, Rej, RejReason,
    RejectedMessage, Rep, Req, Rtu, TimeCode,
};
use crate::wire::{MAD_LEN_BYTES, PathMtu, Qpn, U24};
use crate::{CmLimits, CmState, EndpointConfig, Event, QpConfig};
use zerocopy::{FromZeros, IntoBytes};

/// The longest script, so that one run takes milliseconds.
const STEPS_MAX: usize = 300;
const HALF_OPEN_MAX: usize = 6;
const CONNECTIONS_MAX: usize = 10;
const TIME_WAIT_MAX: usize = 4;
/// Kinds of steps.
const KINDS: u8 = 12;
/// The path MTUs that the end may offer.
const OFFERS: [PathMtu; 2] = [PathMtu::B1024, PathMtu::B4096];

/// One end of the connection manager, which receives and sends requests; the script plays the other
/// end. Each step is 6 bytes.
pub fn connection_manager(input: &[u8]) {
    let mut world = World::new();
    for step in input.chunks_exact(6).take(STEPS_MAX) {
        let step: [u8; 6] = step.try_into().expect("chunks of 6");
        world.step(step);
        world.check();
    }
    // After any script, timeouts end everything except established connections.
    world.pair.run(Duration::from_secs(200), |_| false);
    let endpoint = &world.pair.ends[1].endpoint;
    let unmade = world.known.iter().filter(|id| {
        let state = endpoint.connection_state(**id);
        state.is_some_and(|state| state != CmState::Established)
    });
    assert_eq!(unmade.count(), 0);
}

struct World {
    pair: Pair,
    /// Known connections of the end, and its last message.
    known: Vec<CommId>,
    tid: u64,
}

impl World {
    fn new() -> Self {
        let config = EndpointConfig {
            cm: CmLimits {
                connections_max: CONNECTIONS_MAX,
                connections_per_peer_max: CONNECTIONS_MAX,
                half_open_max: HALF_OPEN_MAX,
                half_open_per_peer_max: HALF_OPEN_MAX,
                time_wait: Duration::from_secs(2),
                time_wait_max: TIME_WAIT_MAX,
            },
            ..small()
        };
        let mut pair = Pair::new(3, &config, ADDRESSES, 4096);
        // End 0 is only an address: nothing that end 1 sends arrives.
        pair.faults.loss = 100;
        Self {
            pair,
            known: Vec::new(),
            tid: 0,
        }
    }

    fn step(&mut self, step: [u8; 6]) {
        let [kind, ours, theirs, odd, more, flip] = step;
        match kind % KINDS {
            0 | 1 => {
                let req = self.request(ours, theirs, odd, more);
                self.say(&Message::Req(req), flip);
            }
            2 => {
                let mut rep = Rep::new_zeroed();
                rep.local_comm_id = u32::from(ours).into();
                rep.remote_comm_id = self.id(theirs).0.into();
                rep.qpn = U24::new(u32::from(odd));
                rep.responder_resources = more;
                self.say(&Message::Rep(rep), flip);
            }
            3 => self.say(
                &Message::Rtu(Rtu::new(CommId(ours.into()), self.id(theirs))),
                flip,
            ),
            4 => {
                let reason = RejReason(u16::from(odd));
                let (from, to) = (CommId(ours.into()), self.id(theirs));
                let rej = Rej::new(from, to, RejectedMessage::Rep, reason, &[]);
                self.say(&Message::Rej(rej), flip);
            }
            5 => {
                let timeout = TimeCode::new(odd);
                let mra = Mra::new(
                    CommId(ours.into()),
                    self.id(theirs),
                    MraMessage::Rep,
                    timeout,
                );
                self.say(&Message::Mra(mra), flip);
            }
            6 => {
                let qpn = Qpn::new(u32::from(odd) << 4 | u32::from(more));
                let dreq = Dreq::new(CommId(ours.into()), self.id(theirs), qpn);
                self.say(&Message::Dreq(dreq), flip);
            }
            7 => self.say(
                &Message::Drep(Drep::new(CommId(ours.into()), self.id(theirs))),
                flip,
            ),
            8 => self.answer(ours),
            9 => self.ask(ours),
            10 => {
                let (now, id) = (self.pair.now, self.id(ours));
                // Most states have nothing to disconnect.
                let _ = self.pair.ends[1].endpoint.disconnect(now, id);
            }
            _ => {
                let time = Duration::from_millis(u64::from(ours) * 40);
                self.pair.run(time, |_| false);
            }
        }
    }

    /// A request with odd fields.
    fn request(&self, comm_id: u8, qpn: u8, odd: u8, guid: u8) -> Req {
        let [from, to] = [&self.pair.ends[0], &self.pair.ends[1]].map(|end| end.address);
        let path = Path::roce(Gid::from_ip(from), Gid::from_ip(to), TimeCode::new(17));
        let mut req = Req::reliable(Pair::SERVICE, path);
        req.local_comm_id = u32::from(comm_id).into();
        req.ca_guid = u64::from(guid & 3).into();
        req.qpn = U24::new(qpn.into());
        req.set_path_mtu(PathMtu::B1024);
        req.set_cm_timeouts(TimeCode::new(odd));
        req.set_cm_retries_max(odd >> 4);
        req.responder_resources = guid;
        let header = IpCmHeader::new((from, 1).into(), to);
        req.private_data[..size_of::<IpCmHeader>()].copy_from_slice(header.as_bytes());
        match odd {
            240 => req.mtu = 0,
            241 => req.service_id = 5.into(),
            242 => req.primary.local_gid.0[15] ^= 1,
            243 => req.private_data[0] = 9,
            244 => req.remote_timeout |= 6,
            _ => {}
        }
        req
    }

    /// Sends a message to the end, one byte of which the script may have changed.
    fn say(&mut self, message: &Message, flip: u8) {
        self.tid += 1;
        let flow = self.pair.flow(0);
        let mut datagram = forge::message(&flow, self.tid, message);
        if flip > 128 {
            let at = 20 + usize::from(flip) * 7 % MAD_LEN_BYTES;
            datagram[at] ^= flip;
            let body = datagram.len() - 4;
            datagram = forge::seal(&flow, &datagram[..body]);
        }
        self.pair.inject(1, &datagram);
    }

    /// The application answers the oldest request.
    fn answer(&mut self, how: u8) {
        let Some(id) = self.pair.take_request() else {
            return;
        };
        self.known.push(id);
        let now = self.pair.now;
        let end = &mut self.pair.ends[1];
        // A request may be gone before it is answered, and queue pairs may be used up.
        match end.endpoint.create_qp(QpConfig::default()) {
            Ok(qpn) if how & 1 == 0 => {
                if end
                    .endpoint
                    .accept(now, id, qpn, &[how], &mut end.memory)
                    .is_err()
                {
                    end.endpoint.destroy_qp(now, qpn);
                }
            }
            Ok(qpn) => {
                end.endpoint.destroy_qp(now, qpn);
                let _ = end.endpoint.reject(id, RejReason::CONSUMER, &[how]);
            }
            Err(_) => {
                let _ = end.endpoint.reject(id, RejReason::NO_RESOURCES, &[]);
            }
        }
    }

    /// The end requests a connection itself.
    fn ask(&mut self, offer: u8) {
        let flow = self.pair.flow(1);
        let now = self.pair.now;
        let end = &mut self.pair.ends[1];
        let Ok(qpn) = end.endpoint.create_qp(QpConfig::default()) else {
            return;
        };
        let params = crate::ConnectParams {
            flow,
            service: Pair::SERVICE,
            path_mtu: OFFERS[usize::from(offer) % OFFERS.len()],
            private_data: b"fuzz",
        };
        match end.endpoint.connect(now, qpn, &params, &mut end.memory) {
            Ok(id) => self.known.push(id),
            Err(_) => end.endpoint.destroy_qp(now, qpn),
        }
    }

    /// A connection that the end knows, or none.
    fn id(&self, choice: u8) -> CommId {
        let index = usize::from(choice) % (self.known.len() + 1);
        self.known.get(index).copied().unwrap_or_default()
    }

    fn check(&mut self) {
        assert!(self.pair.ends[1].endpoint.connections() <= CONNECTIONS_MAX);
        self.pair.intercept(1);
        let now = self.pair.now;
        let end = &mut self.pair.ends[1];
        let events = std::mem::take(&mut end.events);
        let (requests, others): (Vec<_>, Vec<_>) = events
            .into_iter()
            .partition(|event| matches!(event, Event::Request(_)));
        end.events = requests;
        for event in others {
            let qpn = match event {
                Event::Disconnected { qpn, .. } => Some(qpn),
                Event::Rejected { qpn, .. } | Event::Unreachable { qpn, .. } => qpn,
                Event::Request(_)
                | Event::Connected { .. }
                | Event::Established { .. }
                | Event::QpFailed { .. } => None,
            };
            if let Some(qpn) = qpn {
                end.endpoint.destroy_qp(now, qpn);
            }
        }
    }
}
