//! Pictures of figures side by side, as bars.

use std::{ops::Range, path::Path};

use plotters::{
    coord::{
        Shift,
        ranged1d::{DefaultFormatting, KeyPointHint, Ranged},
    },
    prelude::{BLACK, Color, DrawingArea, IntoDrawingArea, IntoFont, Rectangle, SVGBackend, WHITE},
    style::RGBColor,
};

use crate::{BenchError, svg};

/// The size of one chart in pixels.
const CHART_SIZE: (u32, u32) = (960, 320);
/// The part of a group's width that its bars take.
const GROUP_FILLED: f64 = 0.8;
/// The colours of series, which repeat if there are more series.
const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 69, 65),
    RGBColor(127, 127, 127),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
];

/// Groups of bars: each group has a bar of each series.
#[derive(Clone, Debug, PartialEq)]
pub struct BarChart {
    /// What it shows.
    pub title: String,
    /// What the bars measure, with its unit.
    pub measure: String,
    /// The names of the series.
    pub series: Vec<String>,
    /// The name of each group, and the figure of each series; `None` if it was not measured.
    pub groups: Vec<(String, Vec<Option<f64>>)>,
}

impl BarChart {
    /// Draws charts below each other into an SVG file.
    pub fn draw_all(charts: &[Self], path: &Path) -> Result<(), BenchError> {
        svg::write(path, |text| Self::draw_text(charts, text))
    }

    fn draw_text(charts: &[Self], text: &mut String) -> Result<(), svg::DrawError> {
        let rows = charts.len().max(1);
        let height = CHART_SIZE.1.saturating_mul(rows as u32);
        let area = SVGBackend::with_string(text, (CHART_SIZE.0, height)).into_drawing_area();
        area.fill(&WHITE)?;
        for (chart, part) in charts.iter().zip(area.split_evenly((rows, 1))) {
            chart.draw(&part)?;
        }
        area.present()
    }

    /// The lowest and the highest figure, and zero.
    fn range(&self) -> (f64, f64) {
        let figures = self.groups.iter().flat_map(|(_, figures)| figures);
        let figures = figures.flatten().filter(|figure| figure.is_finite());
        figures.fold((0.0, 0.0), |(low, high), &figure| {
            (low.min(figure), high.max(figure))
        })
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), svg::DrawError> {
        let (low, high) = self.range();
        let margin = ((high - low) * 0.1).max(f64::MIN_POSITIVE);
        let low = if low < 0.0 { low - margin } else { low };
        let mut chart = plotters::chart::ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 18).into_font())
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(70)
            .build_cartesian_2d(Groups(self.groups.len()), low..high + margin)?;
        let name = |at: &f64| {
            let mut groups = self.groups.iter().enumerate();
            let found = groups.find(|(group, _)| (middle(*group) - at).abs() < 0.5);
            found.map_or_else(String::new, |(_, (name, _))| name.clone())
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_label_formatter(&name)
            .y_desc(&self.measure)
            .draw()?;
        for (series, name) in self.series.iter().enumerate() {
            let colour = COLOURS[series % COLOURS.len()];
            let bars = self.bars(series).map(|(from, to, figure)| {
                Rectangle::new([(from, 0.0), (to, figure)], colour.mix(0.7).filled())
            });
            chart.draw_series(bars)?.label(name).legend(move |(x, y)| {
                Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled())
            });
        }
        chart
            .configure_series_labels()
            .border_style(BLACK)
            .background_style(WHITE.mix(0.8))
            .draw()
    }

    /// The bars of a series: where each begins and ends, and its figure.
    fn bars(&self, series: usize) -> impl Iterator<Item = (f64, f64, f64)> {
        let width = GROUP_FILLED / self.series.len().max(1) as f64;
        let groups = self.groups.iter().enumerate();
        groups.filter_map(move |(group, (_, figures))| {
            let figure = figures.get(series).copied().flatten()?;
            let from = group as f64 + (1.0 - GROUP_FILLED) / 2.0 + series as f64 * width;
            figure.is_finite().then_some((from, from + width, figure))
        })
    }
}

/// The horizontal axis: each group is one unit wide, and its name is at its middle.
struct Groups(usize);

impl Ranged for Groups {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let part = value / self.range().end;
        from + (f64::from(to - from) * part) as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        (0..self.0).map(middle).collect()
    }

    fn range(&self) -> Range<f64> {
        0.0..self.0.max(1) as f64
    }
}

/// The middle of a group on the horizontal axis.
fn middle(group: usize) -> f64 {
    group as f64 + 0.5
}

#[cfg(test)]
mod tests {
    use block::testing::Folder;

    use super::*;

    fn chart() -> BarChart {
        BarChart {
            title: "IOPS".to_owned(),
            measure: "IOPS".to_owned(),
            series: vec!["off".to_owned(), "on".to_owned()],
            groups: vec![
                ("100/0".to_owned(), vec![Some(100.0), Some(150.0)]),
                ("70/30".to_owned(), vec![Some(-20.0), None]),
            ],
        }
    }

    #[test]
    fn bars_of_a_group_stand_side_by_side_and_missing_figures_have_none() {
        let chart = chart();
        let [off, on]: [Vec<_>; 2] = [0, 1].map(|series| chart.bars(series).collect());
        assert_eq!((off.len(), on.len()), (2, 1));
        assert!((off[0].1 - on[0].0).abs() < 1e-9, "they touch");
        assert!(on[0].1 < off[1].0, "groups are apart");
        assert_eq!(chart.range(), (-20.0, 150.0));
    }

    #[test]
    fn all_charts_are_in_the_picture() {
        let folder = Folder::new();
        let path = folder.join("bars.svg");
        let other = BarChart {
            title: "latency".to_owned(),
            groups: Vec::new(),
            ..chart()
        };
        BarChart::draw_all(&[chart(), other], &path).expect("drawn");
        let text = std::fs::read_to_string(&path).expect("written");
        for word in ["IOPS", "latency", "100/0", "70/30", "off"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let missing = folder.join("no such folder/bars.svg");
        let error = BarChart::draw_all(&[chart()], &missing).expect_err("no folder");
        assert!(error.to_string().contains("bars.svg"), "{error}");
    }
}
