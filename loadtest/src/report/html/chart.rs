//! Charts as SVG.
//!
//! The plotting library draws with fixed colours. The page's style sheet replaces each colour by a
//! light or dark one. It adds a line style for readers who do not see colours.

use maud::{Markup, PreEscaped, html};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

struct Ink {
    /// The line's class in the style sheet.
    class: &'static str,
    /// The line's colour without the style sheet.
    color: RGBColor,
}

/// The lines of a chart in their order: the first is solid, the second dashed, the third dotted.
const LINES: [Ink; 3] = [
    Ink { class: "first", color: RGBColor(0x00, 0x5F, 0xA8) },
    Ink { class: "second", color: RGBColor(0xB8, 0x4A, 0x00) },
    Ink { class: "third", color: RGBColor(0x00, 0x7A, 0x5A) },
];

/// An upper limit, such as the objective or the offered rate.
const LIMIT: Ink = Ink { class: "limit", color: RGBColor(0xB0, 0x00, 0x20) };

/// A value that was found, such as the saturation point.
const MARK: Ink = Ink { class: "mark", color: RGBColor(0x6A, 0x3D, 0x9A) };

/// The colour of the axes and of their words.
const FRAME: RGBColor = RGBColor(0x55, 0x5F, 0x6B);
const GRID: RGBColor = RGBColor(0xE2, 0xE6, 0xEA);

/// The size of a drawing, in the unit of [`LETTERS`].
const SIZE: (u32, u32) = (600, 300);
const LETTERS: u32 = 15;

/// A logarithmic axis reaches this multiple of a limit, so that the limit's name has room above the
/// limit's line.
const NAME_ROOM: f64 = 2.0;

/// A line of up to this many points has a dot at each point.
const FEW_POINTS: usize = 60;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    /// True for a logarithmic axis, which ends at whole powers of ten. False for a linear axis,
    /// which contains 0.
    pub(crate) is_log: bool,
    /// The text below the axis, which names the axis.
    pub(crate) label: &'static str,
    /// Returns the text that the axis shows at a value.
    pub(crate) words: fn(f64) -> String,
}

/// Points joined to a line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Chart {
    /// The chart's name, also for readers who do not see the chart.
    pub(crate) name: String,
    /// The horizontal axis.
    pub(crate) x: Axis,
    /// The vertical axis.
    pub(crate) y: Axis,
    /// At most three lines.
    pub(crate) series: Vec<Series>,
    /// Values of y, each with a name. The chart shows each as a horizontal line with this name.
    pub(crate) limits: Vec<(f64, String)>,
    /// A value of x, with a name. The chart shows it as a vertical line with this name.
    pub(crate) mark: Option<(f64, String)>,
}

type Plane<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

impl Axis {
    /// Returns the place of a value on the axis. The place is not finite if the axis cannot show
    /// the value.
    fn place(&self, value: f64) -> f64 {
        if self.is_log { value.log10() } else { value }
    }

    fn words_at(&self, place: f64) -> String {
        (self.words)(if self.is_log { 10_f64.powf(place) } else { place })
    }

    /// Returns the first and the last place of an axis that shows these values.
    fn range(&self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        let places = values.map(|value| self.place(value)).filter(|place| place.is_finite());
        let ends = (f64::INFINITY, f64::NEG_INFINITY);
        let (low, high) = places.fold(ends, |(low, high), place| (low.min(place), high.max(place)));
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        if self.is_log {
            (low.floor(), high.ceil().max(low.floor() + 1.0))
        } else if low == 0.0 && high == 0.0 {
            (0.0, 1.0)
        } else {
            (low.min(0.0) * 1.1, high.max(0.0) * 1.1)
        }
    }

    /// Returns the number of labels on the axis.
    fn labels(&self, low: f64, high: f64) -> usize {
        if self.is_log { (high - low) as usize + 1 } else { 8 }
    }
}

impl Chart {
    /// Returns the chart with its legend.
    pub(crate) fn markup(&self) -> Markup {
        let series = LINES.iter().zip(self.series.iter().map(|series| &series.name));
        let limits = self.limits.iter().map(|(_, name)| (&LIMIT, name));
        let mark = self.mark.iter().map(|(_, name)| (&MARK, name));
        html! {
            figure {
                div class="chart" role="img" aria-label=(self.name) tabindex="0" { (PreEscaped(self.svg())) }
                figcaption class="legend" {
                    @for (ink, name) in series.chain(limits).chain(mark) {
                        span class="key" {
                            svg class={ "swatch " (ink.class) } viewBox="0 0 34 12" aria-hidden="true" {
                                line x1="0" y1="6" x2="34" y2="6" {}
                            }
                            " " (name)
                        }
                    }
                }
            }
        }
    }

    fn svg(&self) -> String {
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let painted = self.paint(&area).and_then(|()| area.present().map_err(drop));
        // Drawing into memory should not fail. If it does, the page still has the text that the
        // terminal prints.
        debug_assert!(painted.is_ok());
        drop(area);
        // The page gives the width; the height follows from the drawing's proportions.
        let sized = format!(r#"<svg width="{}" height="{}" "#, SIZE.0, SIZE.1);
        svg.replacen(&sized, r#"<svg aria-hidden="true" "#, 1)
    }

    fn y_range(&self) -> (f64, f64) {
        let points = self.series.iter().flat_map(|series| &series.points).map(|(_, y)| *y);
        let room = if self.y.is_log { NAME_ROOM } else { 1.0 };
        self.y.range(points.chain(self.limits.iter().map(|(y, _)| y * room)))
    }

    fn paint(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), ()> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let marks = self.mark.iter().map(|(x, _)| *x);
        let x = self.x.range(points.clone().map(|(x, _)| *x).chain(marks));
        let y = self.y_range();
        let mut plane = ChartBuilder::on(area)
            .margin(LETTERS)
            .set_label_area_size(LabelAreaPosition::Left, LETTERS * 5)
            .set_label_area_size(LabelAreaPosition::Bottom, LETTERS * 3)
            .build_cartesian_2d(x.0..x.1, y.0..y.1)
            .map_err(drop)?;
        let words = ("sans-serif", LETTERS).into_font().color(&FRAME);
        plane
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(FRAME)
            .label_style(words.clone())
            .axis_desc_style(words.clone())
            .x_desc(self.x.label)
            .x_labels(self.x.labels(x.0, x.1))
            .y_labels(self.y.labels(y.0, y.1))
            .x_label_formatter(&|place| self.x.words_at(*place))
            .y_label_formatter(&|place| self.y.words_at(*place))
            .draw()
            .map_err(drop)?;
        for (ink, series) in LINES.iter().zip(&self.series) {
            self.paint_series(&mut plane, ink.color, series)?;
        }
        for (value, name) in &self.limits {
            let place = self.y.place(*value);
            let name_at = Pos::new(HPos::Left, VPos::Bottom);
            paint_line(&mut plane, &LIMIT, name_at, [(x.0, place), (x.1, place)], name)?;
        }
        if let Some((value, name)) = &self.mark {
            let place = self.x.place(*value);
            let side = if place > f64::midpoint(x.0, x.1) { HPos::Right } else { HPos::Left };
            paint_line(&mut plane, &MARK, Pos::new(side, VPos::Top), [(place, y.1), (place, y.0)], name)?;
        }
        Ok(())
    }

    fn paint_series(&self, plane: &mut Plane<'_, '_>, color: RGBColor, series: &Series) -> Result<(), ()> {
        let places = series.points.iter().map(|&(x, y)| (self.x.place(x), self.y.place(y)));
        let places: Vec<(f64, f64)> = places.filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
        if places.len() <= FEW_POINTS {
            let dots = places.iter().map(|&place| Circle::new(place, 4, color.filled()));
            plane.draw_series(dots).map_err(drop)?;
        }
        plane.draw_series(LineSeries::new(places, color.stroke_width(2))).map(drop).map_err(drop)
    }
}

/// Draws a line, with its name at its start.
fn paint_line(
    plane: &mut Plane<'_, '_>,
    ink: &Ink,
    name_at: Pos,
    ends: [(f64, f64); 2],
    name: &str,
) -> Result<(), ()> {
    let color = ink.color;
    let beside = ("sans-serif", LETTERS).into_font().color(&color).pos(name_at);
    plane.draw_series([PathElement::new(ends, color.stroke_width(2))]).map_err(drop)?;
    plane.draw_series([Text::new(format!(" {name} "), ends[0], beside)]).map(drop).map_err(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_shows_all_values_and_whole_powers_of_ten() {
        let log = Axis { is_log: true, label: "", words: |us| us.to_string() };
        assert_eq!(log.range([47.0, 900.0, 0.0].into_iter()), (1.0, 3.0));
        assert_eq!(log.range([100.0].into_iter()), (2.0, 3.0));
        assert_eq!((log.labels(1.0, 3.0), log.words_at(2.0)), (3, "100".to_owned()));
        let linear = Axis { is_log: false, ..log };
        assert_eq!(linear.range([0.0].into_iter()), (0.0, 1.0));
        let (low, high) = linear.range([5.0, -1.0].into_iter());
        assert!(low < -1.0 && high > 5.0);
    }

    #[test]
    fn a_chart_of_nothing_is_drawn() {
        let axis = Axis { is_log: true, label: "", words: |at| at.to_string() };
        let chart = Chart {
            name: "nothing".to_owned(),
            x: axis,
            y: axis,
            series: vec![Series { name: "line".to_owned(), points: vec![(1.0, 0.0)] }],
            limits: vec![(2_000.0, "limit".to_owned())],
            mark: Some((3.0, "mark".to_owned())),
        };
        assert!(chart.markup().into_string().contains("</svg>"));
        // The name above a limit's line has room even if the limit is a power of ten.
        for (limit, high) in [(2_000.0, 4.0), (10_000.0, 5.0)] {
            let limits = vec![(limit, String::new())];
            assert_eq!(Chart { limits, ..chart.clone() }.y_range().1, high);
        }
    }
}
