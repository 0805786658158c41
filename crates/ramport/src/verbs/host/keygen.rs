//! `ramport host keygen`.

use std::io::{self, Read as _};

use control::{DhChapHash, DhChapSecret, PortalView, TargetView, TlsKey, TlsSuite};
use serde::Serialize;
use server::Transport;

use crate::cli::KeygenArgs;
use crate::connect_line::{Offer, Wish, identity, nvme_commands};
use crate::failure::Failure;
use crate::mistake::Mistake;
use crate::output;
use crate::verbs::Daemon;
use crate::verbs::connect_line::addresses;
use crate::verbs::words::target_path;

/// What is printed with `--json`.
#[derive(Serialize)]
struct Generated<'a> {
    host: &'a str,
    secret: &'a str,
    /// For the target that was given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    connect: Vec<String>,
}

pub(super) fn run(daemon: &Daemon, args: &KeygenArgs) -> Result<(), Failure> {
    let host = args.name.as_str();
    let (secret, proof) = if args.tls {
        (generate_tls(args.hash)?.reveal(), "--tls".to_owned())
    } else {
        let secret = generate(args.hash)?.reveal();
        let proof = format!("--dhchap-secret={}", *secret);
        (secret, proof)
    };
    let target = args.target.as_deref();
    let connect = match target {
        Some(target) => connect_commands(daemon, args, target, &proof)?,
        None => Vec::new(),
    };
    if daemon.is_json() {
        return output::json(&Generated {
            host,
            secret: &secret,
            connect,
        });
    }
    let connect = match target {
        Some(_) => connect.join("\n  "),
        None => pattern(host, &proof),
    };
    output::line(if args.tls {
        tls_lines(host, &secret, target.unwrap_or(UNKNOWN_TARGET), &connect)
    } else {
        lines(host, &secret, &connect)
    })
}

/// The placeholder for the target if none is given.
const UNKNOWN_TARGET: &str = "SUBNQN";

/// The commands by which the host connects to the target, through each of its portals.
fn connect_commands(
    daemon: &Daemon,
    args: &KeygenArgs,
    target: &str,
    proof: &str,
) -> Result<Vec<String>, Failure> {
    let target: TargetView = daemon.client.get(&target_path(target))?;
    let portals: Vec<PortalView> = daemon.client.get("/v1/portals")?;
    let offer = Offer {
        target: &target,
        hosts: &[],
        portals: &portals,
        volumes: &[],
    };
    let wish = Wish {
        addresses: addresses(daemon, None),
        ..Wish::default()
    };
    let has_tls = |transport| transport == Transport::NvmeTcp || !args.tls;
    let commands = nvme_commands(&offer, &wish, (&args.name, proof), has_tls);
    commands.map_err(Failure::mistake)
}

/// The command by which the host connects, with placeholders for the target and its address.
fn pattern(host: &str, proof: &str) -> String {
    format!(
        "nvme connect --transport=tcp --traddr=ADDRESS --trsvcid=4420 --nqn={UNKNOWN_TARGET} \\\n    \
           {} {proof}",
        identity(host).trim_start()
    )
}

fn generate(hash: DhChapHash) -> Result<DhChapSecret, Failure> {
    let secret = DhChapSecret::new(&random(hash.len_bytes())?, Some(hash));
    Ok(secret.expect("digests have a length that keys may have"))
}

fn generate_tls(hash: DhChapHash) -> Result<TlsKey, Failure> {
    let suite = match hash {
        DhChapHash::Sha256 => TlsSuite::Aes128GcmSha256,
        DhChapHash::Sha384 => TlsSuite::Aes256GcmSha384,
        DhChapHash::Sha512 => return Err(Failure::mistake(Mistake::TlsHash)),
    };
    let key = TlsKey::new(&random(suite.hash_bytes())?, Some(suite));
    Ok(key.expect("the key has the suite's length"))
}

fn random(len_bytes: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0; len_bytes];
    let mut source = std::fs::File::open("/dev/urandom").map_err(unreadable)?;
    source.read_exact(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

fn unreadable(source: io::Error) -> Failure {
    Failure::mistake(Mistake::ReadFile {
        path: "/dev/urandom".into(),
        source,
    })
}

/// The secret, and what to do with it.
fn lines(host: &str, secret: &str, connect: &str) -> String {
    format!(
        "{secret}\n\
         \n\
         On this machine, in a file that only its owner can read:\n  \
           ramport host create {host} --dhchap-secret-file FILE\n\
         On the host:\n  \
           {connect}"
    )
}

/// The key for TLS, and what to do with it.
fn tls_lines(host: &str, key: &str, target: &str, connect: &str) -> String {
    format!(
        "{key}\n\
         \n\
         On this machine, in a file that only its owner can read:\n  \
           ramport host create {host} --tls-psk-file FILE\n  \
           ramport portal set nvme+tcp://ADDRESS --tls required\n\
         On the host, where tlshd (package ktls-utils) runs:\n  \
           nvme check-tls-key --insert --identity=1 --hostnqn={host} --subsysnqn={target} \\\n    \
             --keydata='{key}'\n  \
           {connect}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_have_the_length_of_their_function_and_differ() {
        for (hash, len) in [
            (DhChapHash::Sha256, 59),
            (DhChapHash::Sha384, 83),
            (DhChapHash::Sha512, 103),
        ] {
            let [a, b] = [generate(hash), generate(hash)].map(|made| made.expect("random"));
            assert_eq!(a.reveal().len(), len);
            assert_eq!(a.hash(), Some(hash));
            assert_ne!(a, b);
            let again: DhChapSecret = a.reveal().parse().expect("reads back");
            assert_eq!(again, a);
        }
    }

    #[test]
    fn keys_for_tls_have_the_length_of_their_suite() {
        for (hash, len) in [(DhChapHash::Sha256, 65), (DhChapHash::Sha384, 89)] {
            let key = generate_tls(hash).expect("random");
            assert_eq!(key.reveal().len(), len);
            assert_eq!(key.reveal().parse(), Ok(key));
        }
        assert!(generate_tls(DhChapHash::Sha512).is_err());
    }

    #[test]
    fn the_lines_of_tls_name_host_and_key() {
        let host = "nqn.2014-08.org.example:h";
        let connect = pattern(host, "--tls");
        insta::assert_snapshot!(tls_lines(
            host,
            "NVMeTLSkey-1:01:KEY:",
            UNKNOWN_TARGET,
            &connect
        ));
    }

    #[test]
    fn the_lines_name_host_and_secret() {
        let host = "nqn.2014-08.org.example:h";
        let connect = pattern(host, "--dhchap-secret=DHHC-1:01:KEY:");
        insta::assert_snapshot!(lines(host, "DHHC-1:01:KEY:", &connect));
    }
}
