use std::fs::File;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use roce::wire::{Bth, Opcode, Psn, Qpn};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zerocopy::IntoBytes;

use super::*;

const LEN: usize = 40;

fn shares(count: usize) -> Vec<PortShare> {
    let file = || File::open("/dev/null").expect("it is there").into();
    let sockets = (0..count).map(|_| file()).collect();
    PortGroup::new(sockets).expect("events").shares().collect()
}

fn datagram(qpn: u32, len: usize) -> Vec<u8> {
    let bth = Bth::new(Opcode::DatagramSend.to_wire(), Qpn::new(qpn), Psn::new(0));
    let mut bytes = bth.as_bytes().to_vec();
    bytes.resize(len, qpn as u8);
    bytes
}

fn received(bytes: &[u8], segment_len_bytes: Option<u16>) -> Received<'_> {
    let at = |address: &str| address.parse().expect("an address");
    Received {
        flow: Flow::new(at("192.0.2.1:4791"), at("192.0.2.2:4791")).expect("one family"),
        bytes,
        segment_len_bytes,
        identification: Ipv4Identification::Unknown,
        congestion_experienced: true,
    }
}

#[test]
fn a_run_is_split_by_whom_its_packets_are_for() {
    let shares = shares(3);
    // Of threads 1, 1, 0, 2, 2 and 1; the last is shorter.
    let parts = [
        (301, LEN),
        (304, LEN),
        (300, LEN),
        (302, LEN),
        (305, LEN),
        (307, 20),
    ];
    let packets: Vec<_> = parts.map(|(qpn, len)| datagram(qpn, len)).into();
    let run = packets.concat();
    let mut own = Vec::new();
    let whole = received(&run, Some(LEN as u16));
    let handed_over = shares[1].sort(&whole, |part| own.push(part.bytes.to_vec()));
    assert_eq!(handed_over, 2);
    assert_eq!(own, [packets[..2].concat(), packets[5].clone()]);
    for (index, expected) in [(0, &packets[2..3]), (1, &[]), (2, &packets[3..5])] {
        let mut came = Vec::new();
        let any = shares[index].collect(|part| {
            assert_eq!(
                (part.flow, part.segment_len_bytes),
                (whole.flow, Some(LEN as u16))
            );
            assert!(part.congestion_experienced);
            came.push(part.bytes.to_vec());
        });
        assert_eq!(any, !expected.is_empty());
        assert_eq!(came.concat(), expected.concat());
    }
}

#[test]
fn what_is_no_packet_is_the_first_threads() {
    let shares = shares(2);
    let mut own = 0;
    for len in 0..8 {
        shares[0].sort(&received(&vec![0xFF; len], None), |part| {
            assert_eq!(part.bytes.len(), len);
            own += 1;
        });
    }
    // Where there is no byte, there is nothing to take.
    assert_eq!(own, 7);
    shares[1].sort(&received(&[1, 2, 3], Some(1)), |_| own += 1);
    assert_eq!(own, 7);
    assert!(shares[0].collect(|part| assert_eq!(part.bytes, [1, 2, 3])));
}

proptest! {
    #[test]
    fn whatever_comes_each_thread_gets_what_is_its_own(
        run in vec(any::<u8>(), 0..3000),
        segment_len in prop::option::of(0_u16..500),
        threads in 1..5_usize,
    ) {
        let shares = shares(threads);
        let steering = shares[0].group.steering;
        let segment = segment_len.map_or(run.len(), usize::from).max(1);
        let mut expected = vec![Vec::new(); threads];
        for packet in run.chunks(segment) {
            expected[steering.thread_of(packet) as usize].extend_from_slice(packet);
        }
        let mut came = vec![Vec::new(); threads];
        shares[0].sort(&received(&run, segment_len), |part| came[0].extend_from_slice(part.bytes));
        for (share, came) in shares.iter().zip(&mut came) {
            share.collect(|part| came.extend_from_slice(part.bytes));
        }
        prop_assert_eq!(came, expected);
    }
}

#[test]
fn what_waits_is_bounded() {
    let shares = shares(2);
    let long = datagram(300, 60_000);
    let most = Inbox::WAITING_MAX_BYTES / long.len();
    for _ in 0..2 * most {
        shares[1].sort(&received(&long, None), |_| panic!("it is the other's"));
    }
    let short = datagram(300, LEN);
    for _ in 0..2 * Mailbox::<HandedOver>::MESSAGES_MAX {
        shares[1].sort(&received(&short, None), |_| panic!("it is the other's"));
    }
    let mut came = 0;
    assert!(shares[0].collect(|part| came += part.bytes.len()));
    assert!((most * long.len()..=Inbox::WAITING_MAX_BYTES).contains(&came));
    let waiting = &shares[0].inbox().waiting_bytes;
    assert_eq!(waiting.load(Ordering::Relaxed), 0);
    shares[1].sort(&received(&short, None), |_| panic!("it is the other's"));
    assert!(shares[0].collect(|part| assert_eq!(part.bytes, short)));
}

#[test]
fn a_thread_that_sleeps_is_woken() {
    let mut shares = shares(2);
    let (second, first) = (shares.remove(1), shares.remove(0));
    let packet = datagram(300, LEN);
    second.sort(&received(&packet, None), |_| panic!("it is the other's"));
    first
        .asleep(|_| -> io::Result<()> { panic!("there is something to do") })
        .expect("no sleep");
    assert!(first.collect(|_| ()));
    let sleeper = std::thread::spawn(move || {
        let began = Instant::now();
        let minute = Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        while !first.collect(|_| ()) {
            let slept = first.asleep(|event| {
                let event = PollFd::from_borrowed_fd(event, PollFlags::IN);
                Ok(poll(&mut [event], Some(&minute))?)
            });
            slept.expect("it can be waited for");
        }
        began.elapsed()
    });
    std::thread::sleep(Duration::from_millis(20));
    second.sort(&received(&packet, None), |_| panic!("it is the other's"));
    let slept = sleeper.join().expect("it ends");
    assert!(slept < Duration::from_secs(30), "{slept:?}");
}
