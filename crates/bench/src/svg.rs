//! A picture of the latency distribution.

use std::path::Path;

use plotters::{
    coord::combinators::IntoLogRange,
    prelude::{BLACK, Color, IntoDrawingArea, IntoFont, PathElement, Rectangle, SVGBackend, WHITE},
    style::RGBColor,
};

use crate::{BenchError, Direction, Latencies, Report, format::thousands};

/// Columns per power of ten.
const COLUMNS_PER_DECADE: f64 = 20.0;
const SIZE: (u32, u32) = (960, 480);
const COLOURS: [RGBColor; 3] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 69, 65),
    RGBColor(127, 127, 127),
];

/// Draws the report's latencies into an SVG file: the share of I/Os over latency on a logarithmic
/// scale, with lines at p50, p99 and p99.9.
pub(crate) fn draw(report: &Report, path: &Path) -> Result<(), BenchError> {
    write(path, |text| draw_text(report, text))
}

/// Writes what `draw` draws to a file.
pub(crate) fn write(
    path: &Path,
    draw: impl FnOnce(&mut String) -> Result<(), DrawError>,
) -> Result<(), BenchError> {
    let mut text = String::new();
    draw(&mut text).map_err(|error| BenchError::Draw {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    std::fs::write(path, text).map_err(|source| BenchError::Write {
        path: path.to_owned(),
        source,
    })
}

/// One direction's columns: from, to in microseconds and the share in per cent.
struct Columns {
    direction: Direction,
    name: &'static str,
    bars: Vec<(f64, f64, f64)>,
}

fn columns(latencies: &Latencies) -> Vec<(f64, f64, f64)> {
    let mut columns: Vec<(i32, u64)> = Vec::new();
    for (low, high, count) in latencies.steps() {
        let middle_us = low.midpoint(high).max(1) as f64 / 1000.0;
        let index = (middle_us.log10() * COLUMNS_PER_DECADE).floor() as i32;
        match columns.last_mut() {
            Some((last, sum)) if *last == index => *sum += count,
            _ => columns.push((index, count)),
        }
    }
    let total = latencies.count().max(1) as f64;
    let edge = |index: i32| 10_f64.powf(f64::from(index) / COLUMNS_PER_DECADE);
    columns
        .into_iter()
        .map(|(index, count)| (edge(index), edge(index + 1), count as f64 * 100.0 / total))
        .collect()
}

/// Why a picture cannot be drawn.
pub(crate) type DrawError = plotters::drawing::DrawingAreaErrorKind<std::io::Error>;

fn draw_text(report: &Report, text: &mut String) -> Result<(), DrawError> {
    let sides = sides(report);
    let all = || sides.iter().flat_map(|side| side.bars.iter());
    let from = all().map(|column| column.0).fold(f64::INFINITY, f64::min);
    let to = all().map(|column| column.1).fold(0.0, f64::max);
    let top = all().map(|column| column.2).fold(0.0, f64::max);
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    if sides.is_empty() {
        return area.present();
    }
    let mut chart = plotters::chart::ChartBuilder::on(&area)
        .caption(caption(report), ("sans-serif", 18).into_font())
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d((from..to).log_scale(), 0.0..top * 1.1)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_desc("latency in us")
        .y_desc("share of I/Os in %")
        .draw()?;
    for side in &sides {
        let colour = COLOURS[side.direction as usize];
        let bars = side.bars.iter().map(|&(from, to, share)| {
            Rectangle::new([(from, 0.0), (to, share)], colour.mix(0.5).filled())
        });
        let latencies = &report.latencies[side.direction as usize];
        let label = percentile_label(side.name, latencies);
        chart
            .draw_series(bars)?
            .label(label)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        for percent in PERCENTILES {
            let at_us = latencies.percentile_ns(percent) as f64 / 1000.0;
            let line = PathElement::new(vec![(at_us, 0.0), (at_us, top * 1.1)], colour);
            chart.draw_series(std::iter::once(line))?;
        }
    }
    chart
        .configure_series_labels()
        .border_style(BLACK)
        .background_style(WHITE)
        .draw()?;
    area.present()
}

/// The columns of each direction that has I/Os.
fn sides(report: &Report) -> Vec<Columns> {
    Direction::ALL
        .into_iter()
        .zip(["read", "write", "trim"])
        .map(|(direction, name)| Columns {
            direction,
            name,
            bars: columns(&report.latencies[direction as usize]),
        })
        .filter(|side| !side.bars.is_empty())
        .collect()
}

fn caption(report: &Report) -> String {
    let workload = &report.workload;
    format!(
        "{} bs={} iodepth={} numjobs={}: {} IOPS",
        workload.rw,
        workload.bs,
        workload.iodepth,
        workload.numjobs,
        thousands(report.iops)
    )
}

const PERCENTILES: [f64; 3] = [50.0, 99.0, 99.9];

fn percentile_label(name: &str, latencies: &Latencies) -> String {
    let [p50, p99, p99_9] =
        PERCENTILES.map(|percent| latencies.percentile_ns(percent) as f64 / 1000.0);
    format!("{name}: p50 {p50:.1}, p99 {p99:.1}, p99.9 {p99_9:.1} us")
}
