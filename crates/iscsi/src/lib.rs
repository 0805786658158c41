//! An iSCSI target (RFC 7143) without sockets: PDUs, login, CHAP, negotiation.
//!
//! It stands between a byte stream and the `scsi` device server. It knows sessions, connections and tasks. It
//! refuses to know sockets, clocks, random numbers and volumes' kinds.
//!
//! ```
//! use iscsi::{Parameters, Phase, TextBuilder};
//! let mut parameters = Parameters::default();
//! let mut answer = TextBuilder::default();
//! parameters.negotiate(Phase::LeadingLogin, "InitialR2T", "No", &mut answer).unwrap();
//! assert_eq!(answer.into_bytes(), b"InitialR2T=No\0");
//! assert!(!parameters.initial_r2t);
//! ```

#![forbid(unsafe_code)]

mod chap;
pub mod params;
pub mod text;
pub mod wire;

pub use chap::{Algorithm, CHALLENGE_LEN, Challenge, ChapError, Credentials};
pub use params::{Digest, Parameters, Phase, Unacceptable};
pub use text::TextBuilder;
