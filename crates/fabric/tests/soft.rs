//! The behavioural suite over the provider in software: two ends over UDP on loopback.

mod ports;
mod suite;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use fabric::verbs::{Event, PathMtu};
use fabric::{ConnectTo, FabricError, Provider, Segmentation, Soft, SoftOptions, Wait};
use suite::{Ends, QP};

fn ends(path_mtu: PathMtu, segmentation: Segmentation) -> Ends<Soft> {
    let port = ports::free_udp_port();
    let at = |host: u8| {
        let address = Ipv4Addr::new(127, 36, 0, host);
        let options = SoftOptions {
            path_mtu,
            segmentation,
            qps_max: 64,
            ..SoftOptions::at(SocketAddr::new(address.into(), port))
        };
        let soft = Soft::bind(&options).expect("a port of loopback is free");
        (soft, address.into())
    };
    Ends::new(at(1), at(2))
}

fn run(make: impl Fn() -> Ends<Soft>) {
    for (_, part) in suite::parts() {
        part(&mut make());
    }
}

#[test]
fn the_suite_passes_with_segmentation_at_4096() {
    run(|| ends(PathMtu::B4096, Segmentation::On));
}

#[test]
fn the_suite_passes_without_segmentation_at_1024() {
    run(|| ends(PathMtu::B1024, Segmentation::Off));
}

#[test]
fn bulk_data_leave_in_runs_and_nothing_is_damaged() {
    let mut both = ends(PathMtu::B4096, Segmentation::On);
    suite::bulk(&mut both);
    let [a, b] = &both.providers;
    let (sent, received) = (a.statistics(), b.statistics());
    assert!(
        sent.datagrams_sent > 4 * sent.send_calls,
        "{} datagrams by {} calls",
        sent.datagrams_sent,
        sent.send_calls
    );
    assert!(
        received.receive_calls < sent.datagrams_sent,
        "{} datagrams came by {} calls",
        sent.datagrams_sent,
        received.receive_calls
    );
    for end in [sent.endpoint, received.endpoint] {
        assert_eq!((end.bad_icrc, end.malformed), (0, 0));
    }
}

#[test]
fn an_end_reaches_itself_over_ipv6() {
    let port = ports::free_udp_port();
    let local = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port);
    let mut soft = Soft::bind(&SoftOptions::at(local)).expect("a port of loopback is free");
    soft.listen(1).expect("any port will do");
    let client = soft.create_qp(QP).expect("there is room");
    let to = ConnectTo {
        address: local.ip(),
        port: 1,
        private_data: &[],
    };
    soft.connect(client, &to).expect("asked");
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut connected = 0;
    while connected < 2 {
        assert!(Instant::now() < deadline, "{:?}", soft.statistics());
        soft.poll(Wait::AtMost(Duration::from_millis(1)))
            .expect("the socket works");
        match soft.next_event() {
            Some(Event::Request(request)) => {
                let server = soft.create_qp(QP).expect("there is room");
                soft.accept(request.id, server, b"").expect("it is open");
            }
            Some(Event::Connected { .. } | Event::Established { .. }) => connected += 1,
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
    assert_eq!(soft.statistics().endpoint.bad_icrc, 0);
}

#[test]
fn mistakes_are_named() {
    let mut both = ends(PathMtu::B1024, Segmentation::On);
    let qpn = both.providers[0].create_qp(QP).expect("there is room");
    let to = ConnectTo {
        address: "::1".parse().expect("an address"),
        port: 1,
        private_data: &[],
    };
    let error = both.providers[0].connect(qpn, &to);
    assert!(
        matches!(error, Err(FabricError::Family { .. })),
        "{error:?}"
    );
    let everywhere = SoftOptions::at("0.0.0.0:0".parse().expect("an address"));
    let mut wild = Soft::bind(&everywhere).expect("any port");
    let qpn = wild.create_qp(QP).expect("there is room");
    let error = wild.connect(qpn, &to);
    assert!(matches!(error, Err(FabricError::NoSource(_))), "{error:?}");
    let port = both.providers[0].local_addr();
    let taken = Soft::bind(&SoftOptions::at(port)).expect_err("the port is taken");
    assert!(
        matches!(&taken, FabricError::SoftPort { error, .. } if error.kind() == std::io::ErrorKind::AddrInUse),
        "{taken:?}"
    );
}
