//! The rows of a view, with their columns, filter and order, for the screen and for `--once`.

use std::cmp::Ordering;

use control::{CacheFigures, Figures, TopView, VolumeFigures};

use crate::cli::{Column, View};
use crate::units::{bytes, paths};

impl View {
    pub(super) const ALL: [Self; 5] = [
        Self::Volumes,
        Self::Sessions,
        Self::Portals,
        Self::Threads,
        Self::Caches,
    ];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Volumes => "Volumes",
            Self::Caches => "Caches",
            Self::Sessions => "Sessions",
            Self::Portals => "Portals",
            Self::Threads => "Threads",
        }
    }

    /// Its columns, from left to right.
    pub(super) fn columns(self) -> Vec<Column> {
        let mut columns = vec![Column::Name];
        if self == Self::Sessions {
            columns.push(Column::Host);
        }
        let (figures, last): (&[Column], &[Column]) = match self {
            Self::Volumes => (&Column::FIGURES, &[Column::Used]),
            Self::Caches => (&Column::RATES, &Column::OF_CACHES),
            Self::Sessions | Self::Portals => (&Column::FIGURES, &[Column::Connections]),
            Self::Threads => (&Column::FIGURES, &[Column::Cpu]),
        };
        columns.extend(figures.iter().chain(last));
        columns
    }

    /// How many rows it has without a filter.
    pub(super) fn len(self, document: &TopView) -> usize {
        match self {
            Self::Volumes => document.volumes.len(),
            Self::Caches => caches(document).count(),
            Self::Sessions => document.sessions.len(),
            Self::Portals => document.portals.len(),
            Self::Threads => document.threads.len(),
        }
    }

    /// Its rows that have `filter` in them.
    pub(super) fn rows(self, document: &TopView, filter: &str) -> Vec<Row> {
        let filter = filter.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&filter);
        let mut rows = self.all_rows(document);
        rows.retain(|row| has(&row.name) || has(&row.host));
        rows
    }

    fn all_rows(self, document: &TopView) -> Vec<Row> {
        let row = |name: &str, figures: &Figures| Row {
            name: name.to_owned(),
            figures: figures.clone(),
            ..Row::default()
        };
        match self {
            Self::Volumes => (document.volumes.iter())
                .map(|volume| Row {
                    used_bytes: volume.used_bytes,
                    ..row(&volume.name, &volume.figures)
                })
                .collect(),
            Self::Caches => caches(document)
                .map(|(volume, cache)| Row {
                    cache: *cache,
                    ..row(&volume.name, &volume.figures)
                })
                .collect(),
            Self::Sessions => (document.sessions.iter())
                .map(|session| {
                    let target = match &session.target {
                        Some(target) => target.clone(),
                        None if session.transport.starts_with("nfs") => paths(&session.shares),
                        None => "discovery".to_owned(),
                    };
                    Row {
                        host: session.host.clone(),
                        connections: session.connections,
                        ..row(&format!("{target} #{}", session.id), &session.figures)
                    }
                })
                .collect(),
            Self::Portals => (document.portals.iter())
                .map(|portal| Row {
                    connections: portal.connections,
                    ..row(&portal.url, &portal.figures)
                })
                .collect(),
            Self::Threads => (document.threads.iter())
                .map(|thread| Row {
                    connections: thread.connections,
                    cpu_percent: thread.cpu_percent,
                    ..row(&thread.name, &thread.figures)
                })
                .collect(),
        }
    }
}

/// The volumes that are caches, with what they did as such.
fn caches(document: &TopView) -> impl Iterator<Item = (&VolumeFigures, &CacheFigures)> {
    let volumes = document.volumes.iter();
    volumes.filter_map(|volume| Some((volume, volume.cache.as_ref()?)))
}

/// A row of any view; what its view does not have is empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    name: String,
    host: String,
    connections: usize,
    cpu_percent: f64,
    used_bytes: u64,
    cache: CacheFigures,
    figures: Figures,
}

impl Column {
    /// The columns of rates.
    const RATES: [Self; 3] = [Self::Iops, Self::Read, Self::Write];
    /// What only caches have.
    const OF_CACHES: [Self; 6] = [
        Self::ReadHits,
        Self::WriteHits,
        Self::Evictions,
        Self::SlowerRead,
        Self::SlowerWrite,
        Self::Dirty,
    ];
    /// The columns of all views except that of caches.
    const FIGURES: [Self; 7] = [
        Self::Iops,
        Self::Read,
        Self::Write,
        Self::Mean,
        Self::P99,
        Self::Depth,
        Self::Errors,
    ];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Name => "NAME",
            Self::Host => "HOST",
            Self::Iops => "IOPS",
            Self::Read => "R MiB/s",
            Self::Write => "W MiB/s",
            Self::Mean => "MEAN",
            Self::P99 => "P99",
            Self::Depth => "DEPTH",
            Self::Errors => "ERRORS",
            Self::Used => "USED",
            Self::ReadHits => "R HIT%",
            Self::WriteHits => "W HIT%",
            Self::Evictions => "EVICT/s",
            Self::SlowerRead => "DISK R",
            Self::SlowerWrite => "DISK W",
            Self::Dirty => "DIRTY",
            Self::Connections => "CONN",
            Self::Cpu => "CPU %",
        }
    }

    /// Its width on the screen in characters; names share what is left.
    pub(super) const fn width(self) -> Option<u16> {
        match self {
            Self::Name | Self::Host => None,
            Self::Used | Self::Dirty => Some(8),
            Self::Iops | Self::Read | Self::Write | Self::Mean | Self::P99 | Self::Evictions => {
                Some(7)
            }
            Self::Depth
            | Self::Errors
            | Self::Connections
            | Self::Cpu
            | Self::ReadHits
            | Self::WriteHits
            | Self::SlowerRead
            | Self::SlowerWrite => Some(6),
        }
    }

    /// Its value in a row.
    pub(super) fn text(self, row: &Row) -> String {
        let figures = &row.figures;
        match self {
            Self::Name => row.name.clone(),
            Self::Host => row.host.clone(),
            Self::Iops => count(figures.iops),
            Self::Read => mib(figures.read_bytes_per_s),
            Self::Write => mib(figures.write_bytes_per_s),
            Self::Mean => latency(figures.latency_mean_us),
            Self::P99 => latency(figures.latency_p99_us),
            Self::Depth => decimal(figures.queue_depth),
            Self::Errors => errors(figures.errors_total),
            Self::Used => bytes(row.used_bytes),
            Self::ReadHits => share(row.cache.read_hit_percent),
            Self::WriteHits => share(row.cache.write_hit_percent),
            Self::Evictions => count(row.cache.evictions_per_s),
            Self::SlowerRead => mib(row.cache.slower_read_bytes_per_s),
            Self::SlowerWrite => mib(row.cache.slower_write_bytes_per_s),
            Self::Dirty => bytes(row.cache.dirty_bytes),
            Self::Connections => row.connections.to_string(),
            Self::Cpu => decimal(row.cpu_percent),
        }
    }

    /// The order of rows: names up, figures down.
    fn compare(self, a: &Row, b: &Row) -> Ordering {
        let down = |a: f64, b: f64| b.total_cmp(&a);
        let (of_a, of_b) = (&a.figures, &b.figures);
        match self {
            // Documents list names in order.
            Self::Name => Ordering::Equal,
            Self::Host => a.host.cmp(&b.host),
            Self::Iops => down(of_a.iops, of_b.iops),
            Self::Read => down(of_a.read_bytes_per_s, of_b.read_bytes_per_s),
            Self::Write => down(of_a.write_bytes_per_s, of_b.write_bytes_per_s),
            Self::Mean => down(
                of_a.latency_mean_us.unwrap_or(0.0),
                of_b.latency_mean_us.unwrap_or(0.0),
            ),
            Self::P99 => down(
                of_a.latency_p99_us.unwrap_or(0.0),
                of_b.latency_p99_us.unwrap_or(0.0),
            ),
            Self::Depth => down(of_a.queue_depth, of_b.queue_depth),
            Self::Errors => of_b.errors_total.cmp(&of_a.errors_total),
            Self::Used => b.used_bytes.cmp(&a.used_bytes),
            Self::ReadHits => down(
                a.cache.read_hit_percent.unwrap_or(0.0),
                b.cache.read_hit_percent.unwrap_or(0.0),
            ),
            Self::WriteHits => down(
                a.cache.write_hit_percent.unwrap_or(0.0),
                b.cache.write_hit_percent.unwrap_or(0.0),
            ),
            Self::Evictions => down(a.cache.evictions_per_s, b.cache.evictions_per_s),
            Self::SlowerRead => down(
                a.cache.slower_read_bytes_per_s,
                b.cache.slower_read_bytes_per_s,
            ),
            Self::SlowerWrite => down(
                a.cache.slower_write_bytes_per_s,
                b.cache.slower_write_bytes_per_s,
            ),
            Self::Dirty => b.cache.dirty_bytes.cmp(&a.cache.dirty_bytes),
            Self::Connections => b.connections.cmp(&a.connections),
            Self::Cpu => down(a.cpu_percent, b.cpu_percent),
        }
    }

    /// Sorts rows by this column; equal ones stay in the order of their names.
    pub(super) fn sort(self, rows: &mut [Row]) {
        rows.sort_by(|a, b| self.compare(a, b));
    }
}

/// The lines of text above a view.
#[expect(
    clippy::cast_precision_loss,
    reason = "a share in whole percent is shown"
)]
pub(super) fn summary(document: &TopView) -> [String; 2] {
    let (total, memory) = (&document.total, &document.memory);
    let share = memory.used_bytes as f64 / memory.budget_bytes.max(1) as f64 * 100.0;
    [
        format!(
            "IOPS {}  read {} MiB/s  write {} MiB/s  mean {}  p99 {}  depth {}",
            count(total.iops),
            mib(total.read_bytes_per_s),
            mib(total.write_bytes_per_s),
            latency(total.latency_mean_us),
            latency(total.latency_p99_us),
            decimal(total.queue_depth),
        ),
        format!(
            "CPU {} %  memory {} of {} ({share:.0} %)  errors {}",
            decimal(document.cpu_percent),
            bytes(memory.used_bytes),
            bytes(memory.budget_bytes),
            errors(total.errors_total),
        ),
    ]
}

/// A count in at most six characters.
fn count(value: f64) -> String {
    if value < 10.0 {
        decimal(value)
    } else if value < 999_999.5 {
        format!("{value:.0}")
    } else if value < 99_999_999.0 {
        format!("{:.0}k", value / 1e3)
    } else {
        format!("{:.0}M", value / 1e6)
    }
}

#[expect(clippy::cast_precision_loss, reason = "six figures are shown")]
fn errors(value: u64) -> String {
    if value < 10 {
        value.to_string()
    } else {
        count(value as f64)
    }
}

fn mib(bytes_per_s: f64) -> String {
    decimal(bytes_per_s / f64::from(1 << 20))
}

/// A share in percent; none without commands.
fn share(percent: Option<f64>) -> String {
    percent.map_or_else(|| "-".to_owned(), decimal)
}

/// A value with a decimal where it has less than four figures.
fn decimal(value: f64) -> String {
    if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// A latency in at most six characters.
fn latency(us: Option<f64>) -> String {
    match us {
        None => "-".to_owned(),
        Some(us) if us < 999.5 => format!("{}us", decimal(us)),
        Some(us) if us < 999_500.0 => format!("{}ms", decimal(us / 1e3)),
        Some(us) => format!("{}s", decimal(us / 1e6)),
    }
}
