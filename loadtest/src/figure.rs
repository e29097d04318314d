//! A figure: its name, its unit and its value. All reports of a run are made from one list of
//! figures.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::units::{grouped, ids_per_s, percent, time};

/// The text of a figure that is not known.
pub(crate) const UNKNOWN: &str = "–";

/// A value that the user set, or that a run found or measured. No two figures have the same row and
/// name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// The row of the report that shows the figure.
    pub(crate) row: String,
    pub(crate) name: String,
    pub(crate) unit: Unit,
    /// A number or words; null if it is unknown.
    pub(crate) value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    /// No unit: words, or a number of things.
    #[serde(rename = "")]
    None,
    #[serde(rename = "IDs/s")]
    IdsPerS,
    #[serde(rename = "us")]
    Us,
    #[serde(rename = "s")]
    S,
    /// A share, where 1 is the whole. For processor time, 1 is one core.
    #[serde(rename = "share")]
    Share,
    #[serde(rename = "bytes")]
    Bytes,
}

/// The figures of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Figures(Vec<Figure>);

impl Unit {
    /// Returns a number with this unit, as a person reads it.
    pub(crate) fn text(self, number: f64) -> String {
        match self {
            Self::None => grouped(number),
            Self::IdsPerS => ids_per_s(number),
            Self::Us => time(number),
            Self::S => time(number * 1e6),
            Self::Share => percent(number),
            Self::Bytes => format!("{} MiB", grouped(number / f64::from(1 << 20))),
        }
    }
}

impl Figure {
    /// Returns the figure's value with its unit, as a person reads it.
    pub(crate) fn text(&self) -> String {
        if let Value::String(words) = &self.value {
            return words.clone();
        }
        self.value.as_f64().map_or_else(|| UNKNOWN.to_owned(), |number| self.unit.text(number))
    }
}

impl Figures {
    pub(crate) fn add(&mut self, row: &str, name: &str, unit: Unit, value: impl Into<Value>) {
        let row = row.to_owned();
        let name = name.to_owned();
        self.0.push(Figure { row, name, unit, value: value.into() });
    }

    /// Adds a figure if this run has it.
    pub(crate) fn add_if(&mut self, row: &str, name: &str, unit: Unit, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.add(row, name, unit, value);
        }
    }

    pub(crate) fn extend(&mut self, others: &Self) {
        self.0.extend(others.0.iter().cloned());
    }

    pub(crate) fn row(&self, row: &str) -> impl Iterator<Item = &Figure> {
        self.0.iter().filter(move |figure| figure.row == row)
    }

    pub(crate) fn get(&self, row: &str, name: &str) -> Option<&Figure> {
        self.row(row).find(|figure| figure.name == name)
    }

    /// Returns the number of a figure, if it is known.
    pub(crate) fn number(&self, row: &str, name: &str) -> Option<f64> {
        self.get(row, name)?.value.as_f64()
    }

    /// Returns a figure's text, or a dash if there is no such figure.
    pub(crate) fn text(&self, row: &str, name: &str) -> String {
        self.get(row, name).map_or_else(|| UNKNOWN.to_owned(), Figure::text)
    }

    /// Returns the words of a figure, if it is known and has words.
    pub(crate) fn words(&self, row: &str, name: &str) -> Option<&str> {
        self.get(row, name)?.value.as_str()
    }

    /// Returns a row of the report as text; `None` for a row without a figure.
    pub(crate) fn row_text(&self, row: &str) -> Option<String> {
        let texts: Vec<String> =
            self.row(row).map(|figure| format!("{} {}", figure.name, figure.text())).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_has_its_text_and_an_unknown_figure_a_dash() {
        let mut figures = Figures::default();
        let units = [Unit::None, Unit::IdsPerS, Unit::Us, Unit::S, Unit::Share, Unit::Bytes];
        for (number, unit) in
            [1_234.0, 10_000.0, 1_270.0, 10.0, 0.223, 3.0 * 1_048_576.0].into_iter().zip(units)
        {
            figures.add("row", "is", unit, number);
        }
        figures.add("row", "cpu", Unit::Share, None::<f64>);
        let expected = "is 1,234, is 10,000 IDs/s, is 1.27 ms, is 10 s, is 22.3 %, is 3 MiB, cpu –";
        assert_eq!(figures.row_text("row").as_deref(), Some(expected));
        assert_eq!((figures.row_text("none"), figures.number("row", "cpu")), (None, None));
    }
}
