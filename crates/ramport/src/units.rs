//! Sizes, times and lists for people.

use std::time::{SystemTime, UNIX_EPOCH};

/// A size for people: three figures and a unit of 1024.
#[expect(clippy::cast_precision_loss, reason = "three figures are shown")]
pub(crate) fn bytes(count: u64) -> String {
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if unit == 0 || value.fract() == 0.0 || value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// A part of a whole in per cent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    let percent = u128::from(part) * 100 / u128::from(whole.max(1));
    format!("{percent} %")
}

/// The paths of shares that a session of NFS has used; `nfs` if there are none yet.
pub(crate) fn paths(shares: &[String]) -> String {
    if shares.is_empty() {
        return "nfs".to_owned();
    }
    let paths: Vec<_> = shares.iter().map(|share| format!("/{share}")).collect();
    paths.join(" ")
}

/// A span of time for people, from seconds.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// How long ago a time is, which is in seconds since 1970.
pub(crate) fn age(since_unix_s: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_unix_s = now.unwrap_or_default().as_secs();
    span(now_unix_s.saturating_sub(since_unix_s))
}

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_figures() {
        for (count, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "0.98 KiB"),
            (1536, "1.50 KiB"),
            (1 << 30, "1 GiB"),
            (50 << 30, "50 GiB"),
            (123_456_789, "118 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes(count), shown);
        }
    }

    #[test]
    fn spans_have_the_unit_that_fits() {
        let shown = [7, 119, 120, 7_200, 200_000].map(span);
        assert_eq!(shown, ["7 s", "119 s", "2 min", "2 h", "2 days"]);
    }
}
