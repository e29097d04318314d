//! Charts as SVG.
//!
//! The library draws with fixed colours. The page's style sheet selects each by its value and replaces it
//! with the light or dark one, and with a line style for readers who do not see colours. So an [`Ink`] is a
//! name, and its number is the colour in a viewer without the style sheet.
//!
//! On a phone a shrunk drawing has unreadable letters. So each chart is drawn twice, wide and narrow, and the
//! style sheet shows one of them.

use maud::{Markup, PreEscaped, html};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The style of a line or an area: a class of the style sheet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    /// The first line: solid.
    First,
    /// The second: dashed.
    Second,
    /// The third: dotted.
    Third,
    /// An upper limit.
    Limit,
    /// A chosen or found value, such as the offered rate or the knee.
    Mark,
    /// Errors.
    Error,
    /// An announced outage.
    Band,
    /// Axes and their words.
    Frame,
    /// The grid.
    Grid,
}

impl Ink {
    /// Returns its colour without the style sheet, and its class in there.
    const fn style(self) -> ((u8, u8, u8), &'static str) {
        match self {
            Self::First => ((0x00, 0x5F, 0xA8), "first"),
            Self::Second => ((0xB8, 0x4A, 0x00), "second"),
            Self::Third => ((0x00, 0x7A, 0x5A), "third"),
            Self::Limit => ((0xB0, 0x00, 0x20), "limit"),
            Self::Mark => ((0x6A, 0x3D, 0x9A), "mark"),
            Self::Error => ((0xC0, 0x1C, 0x28), "error"),
            Self::Band => ((0xE8, 0xC8, 0x70), "band"),
            Self::Frame => ((0x55, 0x5F, 0x6B), "frame"),
            Self::Grid => ((0xE2, 0xE6, 0xEA), "grid"),
        }
    }

    const fn color(self) -> RGBColor {
        let ((red, green, blue), _) = self.style();
        RGBColor(red, green, blue)
    }
}

/// One axis: values are positions, ticks have labels.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    /// From the first to the last value drawn.
    pub(crate) range: (f64, f64),
    /// Positions of ticks and their labels.
    pub(crate) ticks: Vec<(f64, String)>,
    pub(crate) label: String,
}

/// Points joined, or each a bar from zero.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) ink: Ink,
    pub(crate) shape: Shape,
    /// A y that is not finite is a gap.
    pub(crate) points: Vec<(f64, f64)>,
}

/// The shape of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A line.
    Line,
    /// A line with a dot at each point.
    Dots,
    /// A dot at each point, in addition to a line of the same ink that the legend names.
    DotsAlone,
    /// A bar from each point down to the axis, nearly as wide as one unit.
    Bars,
}

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chart {
    /// The text for readers who do not see the chart.
    pub(crate) alternative: String,
    /// To the right.
    pub(crate) x: Axis,
    /// Up.
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
    /// Values of y that are drawn as a line across, with its name and style.
    pub(crate) limits: Vec<(f64, String, Ink)>,
    /// Values of x that are drawn as a line up, with its name.
    pub(crate) marks: Vec<(f64, String)>,
    /// Spans of x that are shaded, with their name.
    pub(crate) bands: Vec<(f64, f64, String)>,
}

/// A drawing's size in the units of its own letters.
struct Size {
    class: &'static str,
    width: u32,
    height: u32,
    letters: u32,
    y_labels: u32,
}

const WIDE: Size = Size { class: "wide", width: 1_000, height: 340, letters: 15, y_labels: 78 };
const NARROW: Size = Size { class: "narrow", width: 360, height: 270, letters: 13, y_labels: 62 };

impl Chart {
    /// Returns the chart in both sizes, with its legend.
    pub(crate) fn markup(&self) -> Markup {
        html! {
            figure {
                @for size in [WIDE, NARROW] {
                    div class={ "chart " (size.class) } role="img" aria-label=(self.alternative) {
                        (PreEscaped(self.svg(&size)))
                    }
                }
                figcaption class="legend" { (self.legend()) }
            }
        }
    }

    fn legend(&self) -> Markup {
        let named = self.series.iter().filter(|series| series.shape != Shape::DotsAlone);
        let series = named.map(|series| (series.ink, series.shape, series.name.as_str()));
        let limits = self.limits.iter().map(|(_, name, ink)| (*ink, Shape::Line, name.as_str()));
        let marks = self.marks.iter().map(|(_, name)| (Ink::Mark, Shape::Line, name.as_str()));
        let bands = self.bands.iter().take(1).map(|(.., name)| (Ink::Band, Shape::Bars, name.as_str()));
        html! {
            @for (ink, shape, name) in series.chain(limits).chain(marks).chain(bands) {
                span class="key" {
                    svg class={ "swatch " (ink.style().1) } viewBox="0 0 34 12" aria-hidden="true" {
                        @if shape == Shape::Bars {
                            rect x="10" y="0" width="14" height="12" {}
                        } @else {
                            line x1="0" y1="6" x2="34" y2="6" {}
                        }
                        @if shape == Shape::Dots {
                            circle cx="17" cy="6" r="4" {}
                        }
                    }
                    " " (name)
                }
            }
        }
    }

    fn svg(&self, size: &Size) -> String {
        let mut svg = String::new();
        let drawn = {
            let area = SVGBackend::with_string(&mut svg, (size.width, size.height)).into_drawing_area();
            self.draw(&area, size).and_then(|()| area.present().map_err(drop))
        };
        // Drawing into memory does not fail; if it does, the words and the table beside the chart remain.
        debug_assert!(drawn.is_ok());
        // The page gives the width; the height follows from the drawing's proportions.
        let sized = format!(r#"<svg width="{}" height="{}" "#, size.width, size.height);
        svg.replacen(&sized, r#"<svg aria-hidden="true" "#, 1)
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, size: &Size) -> Result<(), ()> {
        let mut chart = ChartBuilder::on(area)
            .margin_top(size.letters)
            .margin_right(size.letters * 2)
            .margin_bottom(4)
            .set_label_area_size(LabelAreaPosition::Left, size.y_labels)
            .set_label_area_size(LabelAreaPosition::Bottom, size.letters * 3)
            .build_cartesian_2d(self.x.clone(), self.y.clone())
            .map_err(drop)?;
        let words = ("sans-serif", size.letters).into_font().color(&Ink::Frame.color());
        self.draw_bands(&mut chart)?;
        chart
            .configure_mesh()
            .bold_line_style(Ink::Grid.color())
            .axis_style(Ink::Frame.color())
            .label_style(words.clone())
            .axis_desc_style(words.clone())
            .x_desc(&self.x.label)
            .draw()
            .map_err(drop)?;
        for series in &self.series {
            draw_series(&mut chart, series, size, self.y.range.0)?;
        }
        self.draw_lines(&mut chart, &words)
    }

    fn draw_bands(&self, chart: &mut Plane<'_, '_>) -> Result<(), ()> {
        let (low, high) = self.y.range;
        let bands = self.bands.iter().map(|&(from, to, _)| {
            let (from, to) = (from.clamp(self.x.range.0, self.x.range.1), to.min(self.x.range.1));
            Rectangle::new([(from, low), (to, high)], Ink::Band.color().filled())
        });
        chart.draw_series(bands).map(drop).map_err(drop)
    }

    /// Draws the limits and marks, each with its name beside it.
    fn draw_lines(&self, chart: &mut Plane<'_, '_>, words: &TextStyle<'_>) -> Result<(), ()> {
        let ((left, right), (low, high)) = (self.x.range, self.y.range);
        for (at, name, ink) in self.limits.iter().filter(|(at, ..)| (low..=high).contains(at)) {
            let limit = ink.color();
            let line = PathElement::new([(left, *at), (right, *at)], limit.stroke_width(2));
            let place = words.clone().color(&limit).pos(Pos::new(HPos::Left, VPos::Bottom));
            chart.draw_series([line]).map_err(drop)?;
            let beside = left + (right - left) / 100.0;
            chart.draw_series([Text::new(name.clone(), (beside, *at), place)]).map_err(drop)?;
        }
        let mark = Ink::Mark.color();
        for (at, name) in self.marks.iter().filter(|(at, _)| (left..=right).contains(at)) {
            let line = PathElement::new([(*at, low), (*at, high)], mark.stroke_width(2));
            let side = if *at > f64::midpoint(left, right) { HPos::Right } else { HPos::Left };
            let place = words.clone().color(&mark).pos(Pos::new(side, VPos::Top));
            chart.draw_series([line]).map_err(drop)?;
            chart.draw_series([Text::new(name.clone(), (*at, high), place)]).map_err(drop)?;
        }
        Ok(())
    }
}

type Plane<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

fn draw_series(chart: &mut Plane<'_, '_>, series: &Series, size: &Size, floor: f64) -> Result<(), ()> {
    let color = series.ink.color();
    let points = || series.points.iter().copied().filter(|(_, y)| y.is_finite());
    match series.shape {
        Shape::Bars => {
            let bars = points().filter(|&(_, y)| y > floor);
            let bars = bars.map(|(x, y)| Rectangle::new([(x - 0.4, floor), (x + 0.4, y)], color.filled()));
            chart.draw_series(bars).map_err(drop)?;
        }
        Shape::Line | Shape::Dots | Shape::DotsAlone => {
            let width = size.letters / 6;
            let joined = series.shape != Shape::DotsAlone;
            for part in series.points.split(|(_, y)| !y.is_finite()).filter(|_| joined) {
                let line = LineSeries::new(part.iter().copied(), color.stroke_width(width));
                chart.draw_series(line).map_err(drop)?;
            }
            if series.shape != Shape::Line {
                let dots = points().map(|point| Circle::new(point, width + 2, color.filled()));
                chart.draw_series(dots).map_err(drop)?;
            }
        }
    }
    Ok(())
}

impl Axis {
    /// Returns an axis from 0 to a round number above `max`.
    pub(crate) fn from_zero(max: f64, label: &str, words: impl Fn(f64) -> String) -> Self {
        let step = round_step(max);
        let steps = (max / step).ceil().max(1.0) as u32;
        let ticks = (0..=steps).map(|tick| f64::from(tick) * step).map(|at| (at, words(at))).collect();
        Self { range: (0.0, f64::from(steps) * step), ticks, label: label.to_owned() }
    }

    /// Returns an axis with 0 and all `values`, from a round number to a round number.
    pub(crate) fn around(values: impl Iterator<Item = f64>, words: impl Fn(f64) -> String) -> Self {
        let (low, high) =
            values.fold((0.0_f64, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        let step = round_step((high - low) * 1.1);
        let ends = ((low / step).floor() as i32, (high / step).ceil() as i32);
        let (from, to) = (ends.0, ends.1.max(ends.0 + 1));
        let ticks = (from..=to).map(|tick| f64::from(tick) * step).map(|at| (at, words(at))).collect();
        Self { range: (f64::from(from) * step, f64::from(to) * step), ticks, label: String::new() }
    }

    /// Powers of ten, and 2 and 5 between them where there are few, on both sides of all `values`.
    pub(crate) fn logarithmic(
        values: impl Iterator<Item = f64>,
        label: &str,
        words: impl Fn(f64) -> String,
    ) -> Self {
        let (low, high) = values
            .filter(|value| *value > 0.0 && value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low <= high { (low.log10(), high.log10()) } else { (0.0, 1.0) };
        let all = || {
            let decades = low.floor() as i32..=high.ceil() as i32;
            decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|step| (decade, step)))
        };
        let place = |(decade, step): (i32, f64)| f64::from(decade) + step.log10();
        // The next tick outward on each side, so that no line lies on the frame.
        let from = all().map(place).filter(|at| *at < low - 0.01).fold(low - 0.3, f64::max).max(low - 0.4);
        let to = all().map(place).filter(|at| *at > high + 0.01).fold(high + 0.3, f64::min).min(high + 0.4);
        let few = to - from < 3.0;
        let ticks = all().filter(|&(_, step)| few || step < 1.5);
        let ticks = ticks.map(|tick| (place(tick), words(tick.1 * 10_f64.powi(tick.0))));
        let ticks = ticks.filter(|(at, _)| (from - 1e-9..=to + 1e-9).contains(at)).collect();
        Self { range: (from, to), ticks, label: label.to_owned() }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let (from, to) = self.range;
        let share = if to > from { (value - from) / (to - from) } else { 0.5 };
        // Rounded to where the drawing has its points; a float out of range becomes the nearest whole number.
        (f64::from(first) + share * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // The finer grid between the ticks: there is none.
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        self.ticks.iter().map(|(at, _)| *at).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.range.0..self.range.1
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, at: &f64) -> String {
        let near = |one: &&(f64, String), other: &&(f64, String)| {
            (one.0 - at).abs().total_cmp(&(other.0 - at).abs())
        };
        self.ticks.iter().min_by(near).map(|(_, words)| words.clone()).unwrap_or_default()
    }
}

/// Returns 1, 2 or 5 times a power of ten: some five steps up to `max`.
pub(crate) fn round_step(max: f64) -> f64 {
    if !(max > 0.0 && max.is_finite()) {
        return 1.0;
    }
    let rough = max / 5.0;
    let decade = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade);
    steps.into_iter().find(|&step| step >= rough * 0.999).unwrap_or(rough)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_all_values() {
        for max in [0.0, 0.3, 1.0, 7.0, 10_000.0, 123_456.0, f64::NAN] {
            let axis = Axis::from_zero(max, "", |at| at.to_string());
            assert!(axis.range.1 >= max || max.is_nan(), "{max}: {axis:?}");
            assert!((2..=7).contains(&axis.ticks.len()), "{max}: {axis:?}");
        }
        for values in [&[1.0, 1.0][..], &[0.06, 44.0], &[3.0, 4.0], &[], &[1e-3, 1e6]] {
            let axis = Axis::logarithmic(values.iter().copied(), "", |at| at.to_string());
            let inside = |value: &f64| (axis.range.0..axis.range.1).contains(&value.log10());
            assert!(values.iter().all(inside), "{values:?}: {axis:?}");
            assert!((1..=12).contains(&axis.ticks.len()), "{values:?}: {axis:?}");
        }
    }
}
