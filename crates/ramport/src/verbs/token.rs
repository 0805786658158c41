//! `ramport token`.

use control::{NewToken, TokenProof, TokenRequest, TokenView, path_part};

use super::Daemon;
use crate::cli::TokenVerb;
use crate::failure::Failure;
use crate::output;

pub(super) fn run(daemon: &Daemon, verb: &TokenVerb) -> Result<(), Failure> {
    match verb {
        TokenVerb::Create(args) => {
            let proof = if args.certificate {
                TokenProof::Certificate
            } else {
                TokenProof::Bearer
            };
            let request = TokenRequest {
                role: args.role,
                proof,
            };
            let token: NewToken = daemon.client.post(&path(&args.name), &request)?;
            if daemon.is_json() {
                return output::json(&token);
            }
            match &token.token {
                // Alone, so that it can go to a file.
                Some(secret) => output::line(secret),
                None => daemon.say(format_args!(
                    "clients with a certificate for {} have the role {}",
                    token.name, token.role
                )),
            }
        }
        TokenVerb::List => list(daemon),
        TokenVerb::Remove(args) => {
            daemon.client.delete(&path(&args.name))?;
            daemon.say(format_args!("token {} is removed", args.name))
        }
    }
}

fn path(name: &str) -> String {
    format!("/v1/tokens/{}", path_part(name))
}

fn list(daemon: &Daemon) -> Result<(), Failure> {
    let tokens: Vec<TokenView> = daemon.client.get("/v1/tokens")?;
    if daemon.is_json() {
        return output::json(&tokens);
    }
    if tokens.is_empty() {
        return output::line(
            "no tokens; create one with `ramport token create NAME --role read-only`",
        );
    }
    let rows = tokens.iter().map(|token| {
        let proof = match token.proof {
            TokenProof::Bearer => "token",
            TokenProof::Certificate => "certificate",
        };
        vec![token.name.clone(), token.role.to_string(), proof.to_owned()]
    });
    output::table(&["NAME", "ROLE", "PROOF"], &[], rows)
}
