//! `ramport host keygen`.

use std::io::{self, Read as _};

use control::{DhChapHash, DhChapSecret};
use serde::Serialize;

use crate::cli::KeygenArgs;
use crate::connect_line::identity;
use crate::failure::Failure;
use crate::output;
use crate::verbs::Daemon;

/// What is printed with `--json`.
#[derive(Serialize)]
struct Generated<'a> {
    host: &'a str,
    secret: &'a str,
}

pub(super) fn run(daemon: &Daemon, args: &KeygenArgs) -> Result<(), Failure> {
    let secret = generate(args.hash)?;
    let text = secret.reveal();
    let host = args.name.as_str();
    if daemon.is_json() {
        return output::json(&Generated {
            host,
            secret: &text,
        });
    }
    output::line(lines(host, &text))
}

fn generate(hash: DhChapHash) -> Result<DhChapSecret, Failure> {
    let mut key = vec![0; hash.len_bytes()];
    let mut source = std::fs::File::open("/dev/urandom").map_err(unreadable)?;
    source.read_exact(&mut key).map_err(unreadable)?;
    let secret = DhChapSecret::new(&key, Some(hash));
    Ok(secret.expect("digests have a length that keys may have"))
}

fn unreadable(source: io::Error) -> Failure {
    Failure::mistake(crate::mistake::Mistake::ReadFile {
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
    fn the_lines_name_host_and_secret() {
        insta::assert_snapshot!(lines("nqn.2014-08.org.example:h", "DHHC-1:01:KEY:"));
    }
}
