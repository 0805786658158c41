//! Whatever a host sends, the control path answers.

use super::*;
use crate::controller::subsystem::state::Controller;
use crate::wire::{feature, log::lid};

/// A small generator of numbers that look random (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.next() as usize % choices.len()]
    }

    /// Mostly boundary values.
    fn dword(&mut self) -> u32 {
        let any = self.next() as u32;
        let small = any % 9;
        self.one_of(&[
            0,
            1,
            2,
            3,
            small,
            small << 8,
            small << 16,
            0xFFFF,
            u32::MAX,
            any,
        ])
    }

    fn command(&mut self) -> Sqe {
        let any = self.next() as u8;
        let opcode = self.one_of(&[
            opcode::GET_LOG_PAGE,
            opcode::IDENTIFY,
            opcode::ABORT,
            opcode::SET_FEATURES,
            opcode::GET_FEATURES,
            opcode::ASYNC_EVENT_REQUEST,
            opcode::KEEP_ALIVE,
            opcode::RESERVATION_REGISTER,
            opcode::RESERVATION_REPORT,
            opcode::RESERVATION_ACQUIRE,
            opcode::RESERVATION_RELEASE,
            Sqe::OPCODE_FABRICS,
            any,
        ]);
        let any_nsid = self.dword();
        let nsid = Nsid(self.one_of(&[0, 1, 2, any_nsid]));
        let mut sqe = Sqe::new(opcode, Cid(self.next() as u16), nsid);
        sqe.flags = self.one_of(&[0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, any]);
        let len_bytes = self.dword();
        sqe.sgl1 = Sgl::transport(self.one_of(&[4096, 4096, 1 << 20, 1 << 20, len_bytes]));
        sqe.cdw10 = U32::new(self.dword());
        match opcode {
            opcode::GET_LOG_PAGE => {
                let page =
                    self.one_of(&[lid::ERROR, lid::ANA, lid::DISCOVERY, lid::RESERVATION, any]);
                sqe.cdw10 = U32::new(self.dword() << 16 | u32::from(page));
            }
            opcode::SET_FEATURES | opcode::GET_FEATURES => {
                let fid = self.one_of(&[feature::TIMESTAMP, feature::KEEP_ALIVE_TIMER, 1, 4, any]);
                sqe.cdw10 = U32::new(self.dword() << 8 | u32::from(fid));
            }
            _ => {}
        }
        for field in [
            &mut sqe.cdw11,
            &mut sqe.cdw12,
            &mut sqe.cdw13,
            &mut sqe.cdw14,
        ] {
            *field = U32::new(self.dword());
        }
        sqe
    }
}

/// Checks a reply. Returns 1 if it has data.
fn check(reply: &Reply, sqe: &Sqe) -> u32 {
    if let Reply::Data(bytes) = reply {
        assert!(bytes.len() <= sqe.sgl1.len_bytes.get() as usize, "{sqe:?}");
        assert!(bytes.len() <= 1 << 20, "{sqe:?}");
        return 1;
    }
    0
}

#[test]
fn any_command_is_answered_within_bounds() {
    let mut with_data = 0;
    for seed in 0..200 {
        let mut numbers = Numbers(seed);
        let mut fixture = if seed % 4 == 0 {
            Fixture::discovery()
        } else {
            Fixture::new()
        };
        let mut hosts: Vec<Connection> = Vec::new();
        for _ in 0..200 {
            if let Some(host) = hosts.first() {
                let controller = fixture.subsystem.controllers.get(&host.controller);
                if !controller.is_some_and(Controller::is_ready) {
                    fixture.subsystem.connection_closed(host);
                    hosts.clear();
                }
            }
            if hosts.is_empty() {
                hosts.push(fixture.host());
            }
            let admin = hosts[0].clone();
            let sqe = numbers.command();
            let len = host_data_len(&sqe);
            let wrong = numbers.next() as usize % 600;
            let data = vec![numbers.next() as u8; numbers.one_of(&[len, len, len, wrong])];
            if sqe.opcode == Sqe::OPCODE_FABRICS || !is_control_command(sqe.opcode) {
                let reply = fixture.admin_with(&admin, &sqe, &data);
                with_data += check(&reply, &sqe);
                while fixture.subsystem.poll_kept(&admin).is_some() {}
                continue;
            }
            if fixture.subsystem.is_discovery() {
                continue;
            }
            let io = fixture.io_queue(&admin, 1);
            let reply = fixture.subsystem.io_control(&io, &sqe, &data);
            with_data += check(&reply, &sqe);
            fixture.subsystem.connection_closed(&io);
        }
    }
    assert!(
        with_data > 1000,
        "only {with_data} commands got far enough to bring data"
    );
}
