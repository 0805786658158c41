//! Holds a connection from an adapter to any listening target, and prints what happens to it. For
//! tests that remove the adapter, its address or its peer. After its provider has failed, the
//! program drops the provider and keeps running, which shows whether the device is released.
//!
//! ```sh
//! fabric_hold 10.2.0.1 10.2.0.2 7174       # from, to, port
//! ```

use std::error::Error;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use fabric::verbs::{Event, QpConfig};
use fabric::{ConnectTo, Hw, Provider, Wait};

/// For how long something is waited for.
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [from, to, port] = &arguments[..] else {
        return Err("give an adapter's address, a peer's and a port".into());
    };
    let address: IpAddr = to.parse()?;
    let mut hw = Hw::open(from.parse()?)?;
    let qpn = hw.create_qp(QpConfig::default())?;
    let to = ConnectTo {
        address,
        port: port.parse()?,
        private_data: b"",
    };
    hw.connect(qpn, &to)?;
    let end = Instant::now() + TIMEOUT;
    while Instant::now() < end {
        if let Err(error) = hw.poll(Wait::AtMost(Duration::from_millis(100))) {
            println!("the provider has ended: {error}");
            drop(hw);
            std::thread::sleep(TIMEOUT);
            return Ok(());
        }
        while let Some(event) = hw.next_event() {
            match event {
                Event::Connected { .. } => println!("connected"),
                Event::Disconnected { .. } => {
                    println!("disconnected");
                    hw.destroy_qp(qpn);
                }
                other => return Err(format!("{other:?}").into()),
            }
        }
    }
    Ok(())
}
