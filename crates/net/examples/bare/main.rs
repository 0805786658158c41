//! The limit of a machine's loopback: a bare TCP exchange with the message sizes of NVMe/TCP,
//! without protocol and without storage. A client on one core sends requests of 72 bytes (a command
//! capsule) and gets replies of 24 bytes with the data of a read; or it sends 72 bytes with the
//! data of a write and gets 24 bytes. What a target reaches with the same sizes, depth and cores
//! can be given as a share of this.
//!
//! `cargo run --release -p net --example bare -- --json bare.json`; with `--memory-bytes 536870912`
//! the server reads and writes memory as a volume of 512 MiB does, which the processor's caches do
//! not hold.

#![expect(
    clippy::cast_precision_loss,
    reason = "counts beyond 2^53 do not occur"
)]

mod calls;
mod end;
mod exchange;
mod multishot;
mod outgoing;
mod provided;
mod uring;

use std::{path::PathBuf, str::FromStr, time::Duration};

use clap::{Parser, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use exchange::{Figures, exchange};

/// Measure bare TCP exchanges between two cores
#[derive(Debug, Parser)]
struct Args {
    /// What to exchange, as DIRECTION:LEN:DEPTH [default: the shapes of the issue]
    #[arg(long, value_name = "SHAPE")]
    shape: Vec<Shape>,
    /// What the ends do with messages
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "bytes,messages"
    )]
    work: Vec<Work>,
    /// Which system calls carry it
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "plain,epoll,uring,uring-multi,uring-zc"
    )]
    calls: Vec<Calls>,
    /// Who sleeps while nothing arrives
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "none,server,both"
    )]
    sleepers: Vec<Sleepers>,
    /// Bytes of memory that the server's data come from and go to, anywhere in it; how large a
    /// volume is matters
    #[arg(long, default_value_t = 1 << 20)]
    memory_bytes: usize,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// How often each is measured, in turn; medians are printed
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// The server's and the client's processor
    #[arg(long, num_args = 2, value_names = ["SERVER", "CLIENT"], default_values_t = [0, 1])]
    cpus: Vec<usize>,
    /// Write the figures there as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Which way the data go, how many bytes, how many exchanges at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Shape {
    direction: Direction,
    len_bytes: u32,
    depth: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Direction {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum Work {
    /// Only count bytes: what the system can carry
    Bytes,
    /// Write and read each header, copy data in and out: what no protocol can do without
    Messages,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum Calls {
    /// recv and send, nonblocking
    Plain,
    /// The same after epoll_wait
    Epoll,
    /// io_uring
    Uring,
    /// The same with a multishot receive into provided buffers, and registered buffers to send from
    UringMulti,
    /// The same with zero-copy sends
    UringZc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum Sleepers {
    /// Both ends poll
    None,
    /// The server sleeps, the client polls
    Server,
    /// Both ends sleep
    Both,
}

impl Shape {
    /// Bytes of a command capsule without data.
    const COMMAND_BYTES: usize = 72;
    /// Bytes of a response capsule, or of the header before the data of a read.
    const REPLY_BYTES: usize = 24;

    fn request_bytes(self) -> usize {
        match self.direction {
            Direction::Read => Self::COMMAND_BYTES,
            Direction::Write => Self::COMMAND_BYTES + self.len_bytes as usize,
        }
    }

    fn reply_bytes(self) -> usize {
        match self.direction {
            Direction::Read => Self::REPLY_BYTES + self.len_bytes as usize,
            Direction::Write => Self::REPLY_BYTES,
        }
    }

    const fn new(direction: Direction, len_bytes: u32, depth: u32) -> Self {
        Self {
            direction,
            len_bytes,
            depth,
        }
    }
}

const SHAPES: [Shape; 10] = [
    Shape::new(Direction::Read, 512, 128),
    Shape::new(Direction::Write, 512, 128),
    Shape::new(Direction::Read, 4096, 1),
    Shape::new(Direction::Write, 4096, 1),
    Shape::new(Direction::Read, 4096, 32),
    Shape::new(Direction::Write, 4096, 32),
    Shape::new(Direction::Read, 4096, 128),
    Shape::new(Direction::Write, 4096, 128),
    Shape::new(Direction::Read, 128 << 10, 8),
    Shape::new(Direction::Write, 128 << 10, 8),
];

impl FromStr for Shape {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "write read:LEN:DEPTH or write:LEN:DEPTH in bytes, as read:4096:32";
        let mut parts = text.split(':');
        let direction = match parts.next() {
            Some("read") => Direction::Read,
            Some("write") => Direction::Write,
            _ => return Err(FORM),
        };
        let mut number = || parts.next()?.parse().ok().filter(|&number| number > 0);
        match (number(), number()) {
            (Some(len_bytes), Some(depth)) => Ok(Self::new(direction, len_bytes, depth)),
            _ => Err(FORM),
        }
    }
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, Serialize)]
struct Case {
    #[serde(flatten)]
    shape: Shape,
    work: Work,
    calls: Calls,
    sleepers: Sleepers,
    memory_bytes: usize,
}

/// One row of the result.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    case: Case,
    #[serde(flatten)]
    figures: Figures,
}

fn main() -> std::io::Result<()> {
    let args = Args::parse();
    let shapes = if args.shape.is_empty() {
        SHAPES.to_vec()
    } else {
        args.shape.clone()
    };
    let mut cases = Vec::new();
    for &shape in &shapes {
        for &work in &args.work {
            for &sleepers in &args.sleepers {
                cases.extend(args.calls.iter().map(|&calls| Case {
                    shape,
                    work,
                    calls,
                    sleepers,
                    memory_bytes: args.memory_bytes,
                }));
            }
        }
    }
    let time = Duration::from_secs_f64(args.seconds);
    let cpus = [args.cpus[0], args.cpus[1]];
    let mut results = vec![Vec::with_capacity(args.runs); cases.len()];
    for _ in 0..args.runs.max(1) {
        for (case, results) in cases.iter().zip(&mut results) {
            results.push(exchange(*case, time, cpus)?);
        }
    }
    let rows: Vec<Row> = cases
        .iter()
        .zip(results)
        .map(|(&case, results)| Row {
            case,
            figures: median(results),
        })
        .collect();
    print(&rows);
    if let Some(path) = args.json {
        std::fs::write(path, serde_json::to_string_pretty(&rows)?)?;
    }
    Ok(())
}

/// The run whose rate is the median.
fn median(mut results: Vec<Figures>) -> Figures {
    results.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
    results[results.len() / 2]
}

fn print(rows: &[Row]) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header([
        "direction",
        "bytes",
        "depth",
        "work",
        "asleep",
        "calls",
        "per second",
        "MiB/s",
        "server CPU us",
        "client CPU us",
    ]);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for row in rows {
        let figures = &row.figures;
        let mib_per_s =
            figures.per_second * f64::from(row.case.shape.len_bytes) / f64::from(1 << 20);
        table.add_row([
            format!("{:?}", row.case.shape.direction),
            row.case.shape.len_bytes.to_string(),
            row.case.shape.depth.to_string(),
            format!("{:?}", row.case.work),
            format!("{:?}", row.case.sleepers),
            format!("{:?}", row.case.calls),
            format!("{:.0}", figures.per_second),
            format!("{mib_per_s:.0}"),
            format!("{:.2}", figures.server_cpu_us),
            format!("{:.2}", figures.client_cpu_us),
        ]);
    }
    println!("{table}");
}
