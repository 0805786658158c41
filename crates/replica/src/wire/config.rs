//! Configurations as bytes: in messages, and as the value that the store holds.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Body, FrameKind, WireError, check};
use crate::config::Config;
use crate::ids::{Epoch, MemberId};

/// A member's identity.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct MemberFields {
    /// The node.
    pub node: U32,
    /// Zeros.
    pub reserved: U32,
    /// The incarnation.
    pub incarnation: U64,
}

/// A configuration without its members.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ConfigFields {
    /// At least 1.
    epoch: U64,
    /// One of the members.
    primary: MemberFields,
    /// 1 to [`Config::MEMBERS_MAX`]; as many [`MemberFields`] follow, in ascending order.
    member_count: U32,
    /// Zeros.
    reserved: U32,
}

const _: () = assert!(size_of::<MemberFields>() == 16);
const _: () = assert!(size_of::<ConfigFields>() == 32);

impl From<MemberId> for MemberFields {
    fn from(id: MemberId) -> Self {
        Self {
            node: U32::new(id.node),
            reserved: U32::new(0),
            incarnation: U64::new(id.incarnation),
        }
    }
}

impl MemberFields {
    pub fn check(&self) -> Result<MemberId, WireError> {
        check("member reserved", self.reserved.get().into(), |value| {
            value == 0
        })?;
        Ok(MemberId {
            node: self.node.get(),
            incarnation: self.incarnation.get(),
        })
    }
}

/// The bytes of a configuration, for the store.
pub fn encode_config(config: &Config) -> Vec<u8> {
    let mut out = Vec::new();
    put_config(&mut out, config);
    out
}

/// The configuration of bytes that [`encode_config`] made.
///
/// # Errors
/// If they are no valid configuration.
pub fn decode_config(bytes: &[u8]) -> Result<Config, WireError> {
    let mut body = Body::new(FrameKind::Newer, bytes);
    let config = take_config(&mut body)?;
    body.end()?;
    Ok(config)
}

pub(super) fn put_config(out: &mut Vec<u8>, config: &Config) {
    let fields = ConfigFields {
        epoch: U64::new(config.epoch.0),
        primary: config.primary.into(),
        member_count: U32::new(config.in_sync.len() as u32),
        reserved: U32::new(0),
    };
    out.extend_from_slice(fields.as_bytes());
    for id in &config.in_sync {
        out.extend_from_slice(MemberFields::from(*id).as_bytes());
    }
}

pub(super) fn take_config(body: &mut Body<'_>) -> Result<Config, WireError> {
    let fields: ConfigFields = body.take()?;
    let count = u64::from(fields.member_count.get());
    check("member count", count, |count| {
        (1..=Config::MEMBERS_MAX as u64).contains(&count)
    })?;
    check("config reserved", fields.reserved.get().into(), |value| {
        value == 0
    })?;
    let epoch = check("epoch", fields.epoch.get(), |epoch| {
        epoch > 0 && epoch < u64::MAX
    })?;
    let mut in_sync = Vec::with_capacity(count as usize);
    for _ in 0..count {
        in_sync.push(body.take::<MemberFields>()?.check()?);
    }
    let config = Config {
        epoch: Epoch(epoch),
        primary: fields.primary.check()?,
        in_sync,
    };
    let is_valid = config.is_valid();
    check("config members", count, |_| is_valid)?;
    Ok(config)
}
