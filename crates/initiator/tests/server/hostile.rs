//! NVMe/TCP peers that send invalid input, or connect and send nothing, beside a host whose data
//! are verified.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use block::testing::{assert_not_delayed, timed};

use super::*;

/// Peers that have not logged in and stay connected.
const IDLE_PEERS: usize = 64;
/// Each kind of invalid input is sent this often, at least.
const ROUNDS_MIN: usize = 50;
const ROUND_TRIPS: usize = 100;

/// An initialize connection request, of 128 bytes (NVMe/TCP transport specification, 3.6.2.2).
fn initialize_request() -> [u8; 128] {
    let mut pdu = [0; 128];
    (pdu[2], pdu[4]) = (128, 128);
    pdu
}

/// Sends `bytes` and reads until the server closes the connection.
fn send_until_closed(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // Both fail if the server has closed the connection already.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut sink = [0; 4096];
    loop {
        match stream.read(&mut sink) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                let is_timeout = error.kind() == std::io::ErrorKind::WouldBlock;
                assert!(!is_timeout, "the connection was not closed");
                return;
            }
        }
    }
}

/// One connection for each kind of invalid input.
fn send_invalid_input(address: SocketAddr, round: usize) {
    let noise: Vec<u8> = (0..4096).map(|at| (at * 131 + round * 17) as u8).collect();
    send_until_closed(address, &noise);
    let initialize = initialize_request();
    // A header that has not arrived whole, an unknown type of PDU, a length that is out of range, a
    // command before Connect.
    send_until_closed(address, &initialize[..100]);
    let pdus: [[u8; 8]; 3] = [
        [0x7F, 0, 8, 0, 8, 0, 0, 0],
        [0x04, 0, 72, 0, 0xFF, 0xFF, 0xFF, 0x7F],
        [0x04, 0, 72, 0, 72, 0, 0, 0],
    ];
    for pdu in pdus {
        let mut bytes = initialize.to_vec();
        bytes.extend(pdu);
        bytes.extend(&noise[..64]);
        send_until_closed(address, &bytes);
    }
}

#[test]
fn a_host_beside_hostile_peers_notices_nothing() {
    let fixture = Fixture::alone();
    let (_device, mut queues) = fixture.attach("");
    let mut round_trip = || verify(&mut queues[0], 0, 1, |_| {});
    let address = fixture.address;
    let idle: Vec<_> = (0..IDLE_PEERS)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let is_over = AtomicBool::new(false);
    let times: Vec<_> = thread::scope(|scope| {
        let sends = scope.spawn(|| {
            let rounds = (0..).take_while(|&n| n < ROUNDS_MIN || !is_over.load(Ordering::Relaxed));
            rounds.for_each(|round| send_invalid_input(address, round));
        });
        let mut times = Vec::new();
        while !sends.is_finished() {
            times.push(timed(&mut round_trip));
            is_over.store(times.len() >= ROUND_TRIPS, Ordering::Relaxed);
        }
        times
    });
    drop(idle);
    assert!(times.len() >= ROUND_TRIPS, "{} round trips", times.len());
    assert_not_delayed(&times, round_trip);
    assert_eq!(fixture.server.sessions().len(), 1);
}
