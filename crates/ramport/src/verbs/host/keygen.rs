//! `ramport host keygen`.

use std::io::{self, Read as _};

use control::{DhChapHash, DhChapSecret, TlsKey, TlsSuite};
use serde::Serialize;

use crate::cli::KeygenArgs;
use crate::connect_line::identity;
use crate::failure::Failure;
use crate::mistake::Mistake;
use crate::output;
use crate::verbs::Daemon;

/// What is printed with `--json`.
#[derive(Serialize)]
struct Generated<'a> {
    host: &'a str,
    secret: &'a str,
}

pub(super) fn run(daemon: &Daemon, args: &KeygenArgs) -> Result<(), Failure> {
    let host = args.name.as_str();
    let (text, lines) = if args.tls {
        let text = generate_tls(args.hash)?.reveal();
        let lines = tls_lines(host, &text);
        (text, lines)
    } else {
        let text = generate(args.hash)?.reveal();
        let lines = lines(host, &text);
        (text, lines)
    };
    if daemon.is_json() {
        return output::json(&Generated {
            host,
            secret: &text,
        });
    }
    output::line(lines)
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
fn lines(host: &str, secret: &str) -> String {
    format!(
        "{secret}\n\
         \n\
         On this machine, in a file that only its owner can read:\n  \
           ramport host create {host} --dhchap-secret-file FILE\n\
         On the host:\n  \
           nvme connect --transport=tcp --traddr=ADDRESS --trsvcid=4420 --nqn=SUBNQN \\\n    \
             {} --dhchap-secret={secret}",
        identity(host).trim_start()
    )
}

/// The key for TLS, and what to do with it.
fn tls_lines(host: &str, key: &str) -> String {
    format!(
        "{key}\n\
         \n\
         On this machine, in a file that only its owner can read:\n  \
           ramport host create {host} --tls-psk-file FILE\n  \
           ramport portal set nvme+tcp://ADDRESS --tls required\n\
         On the host, where tlshd (package ktls-utils) runs:\n  \
           nvme check-tls-key --insert --identity=1 --hostnqn={host} --subsysnqn=SUBNQN \\\n    \
             --keydata='{key}'\n  \
           nvme connect --transport=tcp --traddr=ADDRESS --trsvcid=4420 --nqn=SUBNQN \\\n    \
             {} --tls",
        identity(host).trim_start()
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
        insta::assert_snapshot!(tls_lines(
            "nqn.2014-08.org.example:h",
            "NVMeTLSkey-1:01:KEY:"
        ));
    }

    #[test]
    fn the_lines_name_host_and_secret() {
        insta::assert_snapshot!(lines("nqn.2014-08.org.example:h", "DHHC-1:01:KEY:"));
    }
}
