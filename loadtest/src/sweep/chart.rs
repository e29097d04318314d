//! The sweep as a chart for the terminal: rate against p50, p99 and p99.9, both on logarithmic axes.

use std::io::{self, Write};

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Constraint, Rect};
use ratatui_core::style::{Color, Style};
use ratatui_core::symbols::Marker;
use ratatui_core::widgets::Widget;
use ratatui_widgets::chart::{Axis, Chart, Dataset, GraphType, LegendPosition};

use super::Sweep;
use super::table::quantile_us;
use crate::value::Time;

/// Each curve's quantile, and the sign and colour of its points; signs, because not every terminal has colours.
const CURVES: [(&str, char, Color); 3] =
    [("p50", 'o', Color::Green), ("p99", '+', Color::Cyan), ("p99.9", '*', Color::Magenta)];

/// As much as tells two steps apart, and still leaves the table on the screen.
const HEIGHT: u16 = 18;

/// Wider than this, a chart only gets harder to read.
const MAX_WIDTH: u16 = 100;

/// How a chart is written.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Columns at hand.
    pub width: u16,
    /// Whether it may have colours.
    pub colours: bool,
}

/// Writes the chart; nothing where there are fewer than two rates.
///
/// # Errors
/// The writer's.
pub fn write(sweep: &Sweep, look: Look, out: &mut dyn Write) -> io::Result<()> {
    let curves = CURVES.map(|(name, ..)| points(sweep, name));
    let all = || curves.iter().flatten();
    let Some(x) = Scale::of(all().map(|point| point.0)) else {
        return Ok(());
    };
    let limits = sweep.settings.objectives.latencies.iter().map(|latency| latency.limit);
    let limits_ms: Vec<f64> = limits.clone().map(|limit| (limit.as_secs_f64() * 1e3).log10()).collect();
    let Some(y) = Scale::of(all().map(|point| point.1).chain(limits_ms.iter().copied())) else {
        return Ok(());
    };
    let lines: Vec<_> = limits_ms.iter().map(|&at| [(x.low, at), (x.high, at)]).collect();
    let mut datasets: Vec<Dataset<'_>> = lines
        .iter()
        .zip(limits)
        .map(|(line, limit)| {
            Dataset::default()
                .name(format!("- {}", Time(limit)))
                .marker(Marker::Custom('-'))
                .graph_type(GraphType::Line)
                .style(Style::new().fg(Color::DarkGray))
                .data(line)
        })
        .collect();
    datasets.extend(CURVES.iter().zip(&curves).map(|(&(name, sign, colour), points)| {
        Dataset::default()
            .name(format!("{sign} {name}"))
            .marker(Marker::Custom(sign))
            .graph_type(GraphType::Scatter)
            .style(Style::new().fg(colour))
            .data(points)
    }));
    let chart = Chart::new(datasets)
        .x_axis(x.axis("IDs/s", about))
        .y_axis(y.axis("ms", about))
        .legend_position(Some(LegendPosition::TopLeft))
        .hidden_legend_constraints((Constraint::Ratio(1, 2), Constraint::Ratio(1, 2)));
    let area = Rect::new(0, 0, look.width.min(MAX_WIDTH), HEIGHT);
    let mut buffer = Buffer::empty(area);
    chart.render(area, &mut buffer);
    writeln!(out)?;
    print(&buffer, look.colours, out)
}

/// Rate and quantile in ms of every step that was answered, as logarithms.
fn points(sweep: &Sweep, quantile: &str) -> Vec<(f64, f64)> {
    let answered = sweep.steps.iter().filter(|step| step.figures.answered > 0);
    answered
        .map(|step| (step.rate, quantile_us(&step.figures, quantile) / 1e3))
        .filter(|&(_, ms)| ms > 0.0)
        .map(|(rate, ms)| (rate.log10(), ms.log10()))
        .collect()
}

/// An axis in logarithms.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// All values with a little air; none where they are one.
    fn of(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.fold(f64::NEG_INFINITY, f64::max);
        let air = (high - low) * 0.03;
        (high > low).then_some(Self { low: low - air, high: high + air })
    }

    fn axis(&self, title: &'static str, label: impl Fn(f64) -> String) -> Axis<'static> {
        let at = |share: f64| label(10_f64.powf(self.low + (self.high - self.low) * share));
        Axis::default().title(title).bounds([self.low, self.high]).labels([0.0, 0.25, 0.5, 0.75, 1.0].map(at))
    }
}

/// Two digits, as an axis needs no more.
fn about(value: f64) -> String {
    let unit = 10_f64.powf(value.log10().floor() - 1.0);
    match (value / unit).round() * unit {
        value @ ..9.95 => format!("{value:.*}", (1.0 - value.log10().floor()).clamp(0.0, 6.0) as usize),
        value @ ..999.5 => format!("{value:.0}"),
        value @ ..999_500.0 => format!("{}k", value.round() / 1e3),
        value => format!("{}M", value.round() / 1e6),
    }
}

fn print(buffer: &Buffer, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let area = buffer.area;
    for y in area.top()..area.bottom() {
        let mut line = String::new();
        for x in area.left()..area.right() {
            let cell = &buffer[(x, y)];
            match ansi(cell.fg).filter(|_| colours && cell.symbol() != " ") {
                Some(code) => line += &format!("\x1b[{code}m{}\x1b[0m", cell.symbol()),
                None => line += cell.symbol(),
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// The colours that are used here.
fn ansi(colour: Color) -> Option<u8> {
    match colour {
        Color::Green => Some(32),
        Color::Magenta => Some(35),
        Color::Cyan => Some(36),
        Color::DarkGray => Some(90),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_two_digits() {
        let labels =
            [0.047, 0.23, 1.07, 9.99, 24.3, 996.0, 1_742.0, 67_770.0, 229_600.0, 4_190_000.0].map(about);
        assert_eq!(labels, ["0.047", "0.23", "1.1", "10", "24", "1k", "1.7k", "68k", "230k", "4.2M"]);
    }
}
