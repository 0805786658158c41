//! What one of several clients measured, in a form that can be sent to another process and added
//! up.

use serde::{Deserialize, Serialize};

use crate::{Direction, Latencies, Latency, Report, report::stddev};

/// The counts of one client, or of several of them added up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Counts of each direction, in the order of [`Direction::ALL`].
    directions: Vec<DirectionPart>,
    /// I/Os that failed.
    pub errors: u64,
    /// The message of the first of them, or why the run ended early.
    pub problem: Option<String>,
}

/// The counts of one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct DirectionPart {
    /// I/Os that completed in time.
    ios: u64,
    bytes: u64,
    /// I/Os per second over the measured time.
    iops: f64,
    /// IOPS in each interval.
    samples: Vec<f64>,
    /// Latencies in nanoseconds, each with its count.
    latencies_ns: Vec<(u64, u64)>,
}

/// The figures of one direction or of all I/Os, in the terms of diskspd.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PartFigures {
    /// Bytes transferred.
    pub bytes: u64,
    /// I/Os.
    pub ios: u64,
    /// MiB per second.
    pub mib_per_s: f64,
    /// I/Os per second.
    pub iops: f64,
    /// Standard deviation of IOPS from interval to interval.
    pub iops_stddev: f64,
    /// Latency in microseconds.
    pub latency_us: Latency,
}

impl Part {
    /// What `report` counts.
    pub fn of(report: &Report) -> Self {
        let directions = Direction::ALL.map(|direction| {
            let index = direction as usize;
            let side = report.side(direction);
            let ios = side.map_or(0, |side| side.ios);
            DirectionPart {
                ios,
                bytes: ios * u64::from(report.workload.bs),
                iops: side.map_or(0.0, |side| side.iops),
                samples: report.samples[index].clone(),
                latencies_ns: report.latencies[index].counts().collect(),
            }
        });
        let problem = report.failure.as_ref().or(report.first_error.as_ref());
        Self {
            directions: directions.to_vec(),
            errors: report.errors,
            problem: problem.cloned(),
        }
    }

    /// Adds what another client counted at the same time.
    pub fn add(&mut self, other: &Self) {
        if self.directions.len() < other.directions.len() {
            let len = other.directions.len();
            self.directions.resize_with(len, DirectionPart::default);
        }
        for (mine, theirs) in self.directions.iter_mut().zip(&other.directions) {
            mine.add(theirs);
        }
        self.errors += other.errors;
        self.problem = self.problem.take().or_else(|| other.problem.clone());
    }

    /// The figures of one direction; none if it had no I/Os.
    pub fn direction(&self, direction: Direction) -> Option<PartFigures> {
        let part = self.directions.get(direction as usize)?;
        (part.ios > 0).then(|| part.figures())
    }

    /// The figures of all I/Os.
    pub fn all(&self) -> PartFigures {
        let mut all = DirectionPart::default();
        for part in &self.directions {
            all.add(part);
        }
        all.figures()
    }
}

impl DirectionPart {
    fn add(&mut self, other: &Self) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.iops += other.iops;
        // Intervals begin together. A client that ended early has fewer of them.
        let both = self.samples.len().max(other.samples.len());
        self.samples.resize(both, 0.0);
        for (mine, theirs) in self.samples.iter_mut().zip(&other.samples) {
            *mine += theirs;
        }
        self.latencies_ns.extend(&other.latencies_ns);
    }

    fn figures(&self) -> PartFigures {
        let mut latencies = Latencies::default();
        for &(ns, count) in &self.latencies_ns {
            latencies.record_many(ns, count);
        }
        let bytes_per_io = self.bytes as f64 / self.ios.max(1) as f64;
        PartFigures {
            bytes: self.bytes,
            ios: self.ios,
            mib_per_s: self.iops * bytes_per_io / f64::from(1 << 20),
            iops: self.iops,
            iops_stddev: stddev(&self.samples),
            latency_us: Latency::new(&latencies),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that read, with these IOPS in each interval of 1 s and latencies in microseconds.
    fn reader(samples: &[f64], latencies_us: &[u64]) -> Part {
        let ios = latencies_us.len() as u64;
        let mut directions = vec![DirectionPart::default(); Direction::ALL.len()];
        directions[Direction::Read as usize] = DirectionPart {
            ios,
            bytes: ios * 4096,
            iops: samples.iter().sum::<f64>() / samples.len() as f64,
            samples: samples.to_vec(),
            latencies_ns: latencies_us.iter().map(|us| (us * 1000, 1)).collect(),
        };
        Part {
            directions,
            ..Part::default()
        }
    }

    fn assert_near(given: f64, expected: f64) {
        let error = (given - expected).abs();
        assert!(error <= 0.002 * expected.abs(), "{given}, not {expected}");
    }

    #[test]
    fn deviations_are_those_of_all_clients_together() {
        // Their latencies are 2, 4, 4, 4, 5, 5, 7, 9 us, whose deviation from the mean is 2.
        let mut total = reader(&[10.0, 30.0], &[2, 4, 4, 4]);
        total.add(&reader(&[30.0, 10.0], &[5, 5, 7, 9]));
        let figures = total.direction(Direction::Read).expect("it read");
        assert_eq!((figures.ios, figures.bytes), (8, 8 * 4096));
        assert_near(figures.latency_us.mean, 5.0);
        assert_near(figures.latency_us.stddev, 2.0);
        assert_near(figures.latency_us.p50, 4.0);
        // What one client lost the other one gained.
        assert_near(figures.iops, 40.0);
        assert!(figures.iops_stddev < 1e-9, "{figures:?}");
        // 80 and 120 IOPS deviate from 100 by the square root of 800 (a sample).
        let mut total = reader(&[40.0, 60.0], &[1]);
        total.add(&reader(&[40.0, 60.0], &[1]));
        assert_near(total.all().iops_stddev, 800_f64.sqrt());
    }

    #[test]
    fn sums_over_clients_equal_totals_of_each_direction_and_of_all() {
        let mut writer = reader(&[5.0, 7.0], &[30, 50]);
        writer
            .directions
            .swap(Direction::Read as usize, Direction::Write as usize);
        writer.errors = 3;
        writer.problem = Some("it failed".to_owned());
        let mut total = Part::default();
        for part in [reader(&[10.0, 30.0], &[1, 2, 3]), writer] {
            total.add(&part);
        }
        let [read, write] = [Direction::Read, Direction::Write]
            .map(|direction| total.direction(direction).expect("it has I/Os"));
        let all = total.all();
        assert_eq!((read.ios, write.ios, all.ios), (3, 2, 5));
        assert_eq!(all.bytes, read.bytes + write.bytes);
        assert_near(all.iops, read.iops + write.iops);
        assert_near(all.mib_per_s, read.mib_per_s + write.mib_per_s);
        assert_near(all.latency_us.mean, 86.0 / 5.0);
        assert!(total.direction(Direction::Trim).is_none());
        assert_eq!(
            (total.errors, total.problem.as_deref()),
            (3, Some("it failed"))
        );
    }

    #[test]
    fn a_part_survives_its_way_to_another_process() {
        let part = reader(&[1.5, 2.5], &[7, 70]);
        let text = serde_json::to_string(&part).expect("JSON");
        let back: Part = serde_json::from_str(&text).expect("a part");
        assert_eq!(back, part);
    }
}
