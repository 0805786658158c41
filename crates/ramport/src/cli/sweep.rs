//! What `ramport fleet run` varies: `bs=4k; w=0,10,30; threads=1; iodepth=4; runtime=120`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bench::{NumberError, parse_len, parse_time};
use serde::{Deserialize, Serialize};

/// The most combinations of a sweep.
pub(crate) const POINTS_MAX: usize = 1000;

/// One name with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SweepItem {
    BlockLen(Vec<u32>),
    Writes(Vec<u8>),
    Threads(Vec<u16>),
    Depth(Vec<u16>),
    Runtime(Vec<Duration>),
}

/// Why a text is no item of a sweep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SweepFault {
    #[error(
        "{text:?} is not NAME=VALUE,…; names are bs, w, threads, iodepth and runtime, as in 'bs=4k; w=0,10,30; runtime=120'"
    )]
    Form { text: String },
    #[error(transparent)]
    Number(#[from] NumberError),
    #[error("{name}={text} is out of range; choose {min} to {max}")]
    Range {
        name: &'static str,
        text: String,
        min: u64,
        max: u64,
    },
    #[error("{name} is given twice; separate its values with commas")]
    Twice { name: &'static str },
    #[error(
        "the sweep has {points} combinations; leave out values, up to {POINTS_MAX} are measured"
    )]
    Points { points: usize },
}

/// One combination of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// Bytes of each I/O.
    pub(crate) bs: u32,
    /// Writes in per cent.
    pub(crate) w: u8,
    /// Threads of each client, with a connection each.
    pub(crate) threads: u16,
    /// I/Os in flight of each thread.
    pub(crate) iodepth: u16,
    /// How long it is measured.
    #[serde(rename = "runtime_s", with = "seconds")]
    pub(crate) runtime: Duration,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bs,
            w,
            threads,
            iodepth,
            runtime,
        } = self;
        write!(
            f,
            "bs={bs} w={w} threads={threads} iodepth={iodepth} runtime={runtime:?}"
        )
    }
}

impl SweepItem {
    const fn name(&self) -> &'static str {
        match self {
            Self::BlockLen(_) => "bs",
            Self::Writes(_) => "w",
            Self::Threads(_) => "threads",
            Self::Depth(_) => "iodepth",
            Self::Runtime(_) => "runtime",
        }
    }
}

impl FromStr for SweepItem {
    type Err = SweepFault;

    fn from_str(text: &str) -> Result<Self, SweepFault> {
        let form = || SweepFault::Form {
            text: text.trim().to_owned(),
        };
        let (name, values) = text.split_once('=').ok_or_else(form)?;
        let values: Vec<_> = values.split(',').map(str::trim).collect();
        Ok(match name.trim() {
            "bs" => Self::BlockLen(each(&values, |text| {
                let len = parse_len(text)?;
                in_range("bs", text, len, 512, 1 << 30)
            })?),
            "w" => Self::Writes(each(&values, |text| number("w", text, 0, 100))?),
            "threads" => Self::Threads(each(&values, |text| number("threads", text, 1, 64))?),
            "iodepth" => Self::Depth(each(&values, |text| number("iodepth", text, 1, 1024))?),
            "runtime" => Self::Runtime(each(&values, |text| {
                let time = parse_time(text)?;
                let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                let _: u64 = in_range("runtime", text, ms, 1, u64::MAX)?;
                Ok(time)
            })?),
            _ => return Err(form()),
        })
    }
}

fn each<T>(
    values: &[&str],
    parse: impl Fn(&str) -> Result<T, SweepFault>,
) -> Result<Vec<T>, SweepFault> {
    values.iter().map(|text| parse(text)).collect()
}

fn number<T: TryFrom<u64>>(
    name: &'static str,
    text: &str,
    min: u64,
    max: u64,
) -> Result<T, SweepFault> {
    let value = text.parse().unwrap_or(u64::MAX);
    in_range(name, text, value, min, max)
}

fn in_range<T: TryFrom<u64>>(
    name: &'static str,
    text: &str,
    value: u64,
    min: u64,
    max: u64,
) -> Result<T, SweepFault> {
    let value = (min..=max)
        .contains(&value)
        .then(|| T::try_from(value).ok());
    value.flatten().ok_or_else(|| SweepFault::Range {
        name,
        text: text.to_owned(),
        min,
        max,
    })
}

/// All combinations of the items' values, the first item changing slowest: bs, w, threads, iodepth,
/// runtime.
pub(crate) fn points(items: &[SweepItem]) -> Result<Vec<Point>, SweepFault> {
    let (mut bs, mut w, mut threads, mut depth) = (vec![4096], vec![0], vec![1], vec![4]);
    let mut runtime = vec![Duration::from_secs(10)];
    for (at, item) in items.iter().enumerate() {
        let name = item.name();
        if items[..at].iter().any(|earlier| earlier.name() == name) {
            return Err(SweepFault::Twice { name });
        }
        match item.clone() {
            SweepItem::BlockLen(values) => bs = values,
            SweepItem::Writes(values) => w = values,
            SweepItem::Threads(values) => threads = values,
            SweepItem::Depth(values) => depth = values,
            SweepItem::Runtime(values) => runtime = values,
        }
    }
    let counts = [bs.len(), w.len(), threads.len(), depth.len(), runtime.len()];
    let count = counts.into_iter().fold(1_usize, usize::saturating_mul);
    if count > POINTS_MAX {
        return Err(SweepFault::Points { points: count });
    }
    let mut points = Vec::with_capacity(count);
    for &bs in &bs {
        for &w in &w {
            for &threads in &threads {
                for &iodepth in &depth {
                    points.extend(runtime.iter().map(|&runtime| Point {
                        bs,
                        w,
                        threads,
                        iodepth,
                        runtime,
                    }));
                }
            }
        }
    }
    Ok(points)
}

/// Durations as seconds.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(
        time: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(time.as_secs_f64())
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swept(text: &str) -> Result<Vec<Point>, SweepFault> {
        let items: Result<Vec<_>, _> = text.split(';').map(str::parse).collect();
        points(&items?)
    }

    #[test]
    fn every_combination_is_measured() {
        let points =
            swept("bs=4k,1m; w=0,10,30; threads=1; iodepth=4; runtime=120").expect("points");
        let found: Vec<_> = points.iter().map(|point| (point.bs, point.w)).collect();
        let expected = [4096, 1 << 20].map(|bs| [0, 10, 30].map(|w| (bs, w)));
        assert_eq!(found, expected.concat());
        assert_eq!(points[0].runtime, Duration::from_secs(120));
        assert_eq!(
            points[0].to_string(),
            "bs=4096 w=0 threads=1 iodepth=4 runtime=120s"
        );
    }

    #[test]
    fn what_is_not_given_has_its_default() {
        let points = swept("w=100").expect("points");
        assert_eq!(points.len(), 1);
        assert_eq!((points[0].bs, points[0].iodepth), (4096, 4));
    }

    #[test]
    fn mistakes_say_how_to_fix_them() {
        let many = format!("w={}", vec!["1"; POINTS_MAX + 1].join(","));
        for (text, hint) in [
            ("w", "NAME=VALUE"),
            ("depth=4", "iodepth"),
            ("w=101", "0 to 100"),
            ("w=", "0 to 100"),
            ("bs=1", "512 to"),
            ("bs=4x", "4k"),
            ("threads=0", "1 to 64"),
            ("iodepth=70000", "1 to 1024"),
            ("runtime=0", "1 to"),
            ("runtime=soon", "500ms"),
            ("w=1;w=2", "commas"),
            (&many, "combinations"),
        ] {
            let fault = swept(text).expect_err(text).to_string();
            assert!(fault.contains(hint), "{text}: {fault}");
        }
    }
}
