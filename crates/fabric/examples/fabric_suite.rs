//! The behavioural suite between any two providers, for machines that have an adapter, real or
//! emulated:
//!
//! ```sh
//! fabric_suite hw:10.2.0.1 hw:10.2.0.1           # an adapter with itself
//! fabric_suite hw:10.2.0.1 soft:10.2.0.2@peer    # with software in the network namespace "peer"
//! fabric_suite hw:10.2.0.1 hw:10.2.0.1 bulk      # only the parts named so
//! ```

#[path = "../tests/suite/mod.rs"]
mod suite;

use std::error::Error;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Instant;

use fabric::{Choice, Provider, SoftOptions, open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use suite::Ends;

/// An end of the suite's connections.
struct End {
    choice: Choice,
    address: IpAddr,
    /// The network namespace that its socket is made in.
    namespace: Option<String>,
}

impl End {
    fn parse(text: &str) -> Result<Self, Box<dyn Error>> {
        let (choice, rest) = text
            .split_once(':')
            .ok_or("an end is hw:ADDRESS or soft:ADDRESS")?;
        let (address, namespace) = match rest.split_once('@') {
            Some((address, namespace)) => (address, Some(namespace.to_owned())),
            None => (rest, None),
        };
        Ok(Self {
            choice: choice.parse()?,
            address: address.parse()?,
            namespace,
        })
    }

    fn open(&self) -> Result<Box<dyn Provider>, Box<dyn Error>> {
        let home = File::open("/proc/self/ns/net")?;
        let network = Some(LinkNameSpaceType::Network);
        if let Some(name) = &self.namespace {
            let other = File::open(format!("/run/netns/{name}"))?;
            move_into_link_name_space(other.as_fd(), network)?;
        }
        let opened = open(self.choice, &SoftOptions::at_ip(self.address));
        move_into_link_name_space(home.as_fd(), network).or_else(|error| {
            // A process without privileges needs no permission to enter a namespace that it is
            // already in.
            self.namespace.as_ref().map_or(Ok(()), |_| Err(error))
        })?;
        let opened = opened?;
        print!(" {},", opened.reason);
        Ok(opened.provider.boxed())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [first, second, names @ ..] = &arguments[..] else {
        return Err("give two ends, such as hw:10.2.0.1 soft:10.2.0.2@peer".into());
    };
    let ends = [End::parse(first)?, End::parse(second)?];
    for (name, part) in suite::parts::<Box<dyn Provider>>() {
        if !names.is_empty() && !names.iter().any(|wanted| wanted == name) {
            continue;
        }
        let start = Instant::now();
        print!("{name}:");
        let [first, second] = [ends[0].open()?, ends[1].open()?];
        part(&mut Ends::new(
            (first, ends[0].address),
            (second, ends[1].address),
        ));
        println!(" {:.1} s", start.elapsed().as_secs_f64());
    }
    Ok(())
}
