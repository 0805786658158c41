//! Values of the command line that are more than a word.

use std::num::NonZeroU64;

use control::{
    FaultRule, FaultStatus, FaultedKind, OptionList, Period, Portal, ShareOptions, Size, parse,
};
use server::{AddressRange, ShareClient};

/// The LUNs that a host sees, as `HOST=LUN:NUMBER,…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostLuns {
    pub(crate) host: String,
    /// LUN and number in the target.
    pub(crate) luns: Vec<(u32, u32)>,
}

/// A volume to be attached, as `NAME` or `NAME=NUMBER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attach {
    pub(crate) volume: String,
    pub(crate) nsid: Option<u32>,
}

/// Which cores serve.
pub(crate) type Cores = server::Cores;

/// The bound of what the daemon takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryBudget {
    Bytes(u64),
    /// Of the memory that is available when the daemon starts.
    Percent(u8),
}

/// What is wrong with a value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("{0:?} is not a namespace ID or LUN; write VOLUME or VOLUME=NUMBER, such as rd0=1")]
    Nsid(String),
    #[error(
        "{0:?} is not a LUN map; write HOST=LUN:NUMBER,…, such as iqn.2025-01.com.example:h=0:3,1:4"
    )]
    LunMap(String),
    #[error(
        "{0:?} is neither a size nor a percentage; write a size such as 50G, or a whole number from 1% to 100%"
    )]
    Memory(String),
    #[error("{0:?} is neither a number of threads nor a list of cores; write 2, or 0,2-3")]
    Cores(String),
    #[error(
        "{0:?} is not a fault rule; write KIND:STATUS[:every=N|:ppm=N], where KIND is any, read, write, discard or flush, and STATUS is read_error, write_error, capacity_exceeded, write_protected or busy"
    )]
    Fault(String),
}

pub(super) fn parse_attach(text: &str) -> Result<Attach, ValueError> {
    let Some((volume, nsid)) = text.rsplit_once('=') else {
        return Ok(Attach {
            volume: text.to_owned(),
            nsid: None,
        });
    };
    match nsid.parse() {
        Ok(nsid) => Ok(Attach {
            volume: volume.to_owned(),
            nsid: Some(nsid),
        }),
        Err(_) => Err(ValueError::Nsid(nsid.to_owned())),
    }
}

/// `50G` is a size, `80%` a part of the available memory.
pub(super) fn parse_memory(text: &str) -> Result<MemoryBudget, ValueError> {
    let wrong = || ValueError::Memory(text.to_owned());
    let Some(percent) = text.strip_suffix('%') else {
        let size: Size = text.parse().map_err(|_| wrong())?;
        return Ok(MemoryBudget::Bytes(size.0));
    };
    match percent.trim().parse() {
        Ok(percent @ 1..=100) => Ok(MemoryBudget::Percent(percent)),
        _ => Err(wrong()),
    }
}

/// `2` is two threads, `0,2-3` and `1,` are cores.
pub(super) fn parse_cores(text: &str) -> Result<Cores, ValueError> {
    let wrong = || ValueError::Cores(text.to_owned());
    if let Ok(count) = text.parse() {
        return if count > 0 {
            Ok(Cores::Count(count))
        } else {
            Err(wrong())
        };
    }
    let mut cores = Vec::new();
    for part in text.trim_end_matches(',').split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.parse().map_err(|_| wrong())?;
        let last: usize = last.parse().map_err(|_| wrong())?;
        if last < first || last - first >= CORES_MAX {
            return Err(wrong());
        }
        cores.extend(first..=last);
    }
    Ok(Cores::Pinned(cores))
}

/// The longest range of cores that is taken seriously.
const CORES_MAX: usize = 4096;

pub(super) fn parse_fault(text: &str) -> Result<FaultRule, ValueError> {
    let wrong = || ValueError::Fault(text.to_owned());
    let mut parts = text.split(':');
    let on = match parts.next() {
        Some("any") => FaultedKind::Any,
        Some("read") => FaultedKind::Read,
        Some("write") => FaultedKind::Write,
        Some("discard") => FaultedKind::Discard,
        Some("flush") => FaultedKind::Flush,
        _ => return Err(wrong()),
    };
    let status = match parts.next() {
        Some("read_error") => FaultStatus::ReadError,
        Some("write_error") => FaultStatus::WriteError,
        Some("capacity_exceeded") => FaultStatus::CapacityExceeded,
        Some("write_protected") => FaultStatus::WriteProtected,
        Some("busy") => FaultStatus::Busy,
        _ => return Err(wrong()),
    };
    let (mut every, mut per_million) = (None, None);
    match parts.next().map(|rate| rate.split_once('=')) {
        None => {}
        Some(Some(("every", n))) => every = Some(n.parse::<NonZeroU64>().map_err(|_| wrong())?),
        Some(Some(("ppm", n))) => per_million = Some(n.parse().map_err(|_| wrong())?),
        Some(_) => return Err(wrong()),
    }
    if parts.next().is_some() {
        return Err(wrong());
    }
    Ok(FaultRule {
        on,
        status,
        every,
        per_million,
    })
}

pub(super) fn parse_period(text: &str) -> Result<Period, control::TextFault> {
    parse(text)
}

/// A time to wait. A number without a unit is in seconds.
pub(super) fn parse_wait(text: &str) -> Result<Period, control::TextFault> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number {
        return parse(&format!("{text}s"));
    }
    parse(text)
}

pub(super) fn parse_portal(text: &str) -> Result<Portal, control::TextFault> {
    parse(text)
}

/// A portal for iSCSI, where no other protocol is named.
pub(super) fn parse_iscsi_portal(text: &str) -> Result<Portal, control::TextFault> {
    portal_of(server::Transport::Iscsi, text)
}

/// A portal for NFS, where no other protocol is named.
pub(super) fn parse_nfs_portal(text: &str) -> Result<Portal, control::TextFault> {
    portal_of(server::Transport::Nfs, text)
}

/// A portal for NVMe/RDMA, where no other protocol is named.
pub(super) fn parse_nvme_rdma_portal(text: &str) -> Result<Portal, control::TextFault> {
    portal_of(server::Transport::NvmeRdma, text)
}

fn portal_of(transport: server::Transport, text: &str) -> Result<Portal, control::TextFault> {
    if text.contains("://") {
        return parse(text);
    }
    parse(&format!("{}://{text}", transport.scheme()))
}

pub(super) fn parse_host_luns(text: &str) -> Result<HostLuns, ValueError> {
    let wrong = || ValueError::LunMap(text.to_owned());
    let (host, map) = text.rsplit_once('=').ok_or_else(wrong)?;
    let pair = |pair: &str| {
        let (lun, number) = pair.split_once(':')?;
        Some((lun.parse().ok()?, number.parse().ok()?))
    };
    let luns = map.split(',').map(pair).collect::<Option<_>>();
    Ok(HostLuns {
        host: host.to_owned(),
        luns: luns.ok_or_else(wrong)?,
    })
}

pub(super) fn parse_share_options(text: &str) -> Result<ShareOptions, control::TextFault> {
    parse(text)
}

pub(super) fn parse_option_list(text: &str) -> Result<OptionList, control::TextFault> {
    parse(text)
}

pub(super) fn parse_range(text: &str) -> Result<AddressRange, control::TextFault> {
    parse(text)
}

pub(super) fn parse_share_client(text: &str) -> Result<ShareClient, control::TextFault> {
    parse(text)
}
