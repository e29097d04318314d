//! Tests of whole layouts.

mod examples;
mod layout_numbering;
mod refusals;
mod space;
mod text;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn layout(name_or_spec: &str) -> Layout {
    Layout::resolve(name_or_spec).unwrap_or_else(|error| panic!("{name_or_spec}: {error}"))
}

fn instant(text: &str) -> UnixMicros {
    text.parse().unwrap()
}

fn small_size() -> impl Strategy<Value = FieldSize> {
    prop_oneof![
        (1..=6_u32).prop_map(FieldSize::Bits),
        Just(FieldSize::Digits(1)),
        (2..=40_u64).prop_map(FieldSize::Count),
    ]
}

/// Generates sizes of the time field. With the largest decimal sizes, the limit of IDs excludes
/// some values of the field.
fn time_size() -> impl Strategy<Value = FieldSize> {
    prop_oneof![
        (1..=45_u32).prop_map(FieldSize::Bits),
        (1..=16_u32).prop_map(FieldSize::Digits),
        (2..=u64::from(u32::MAX)).prop_map(FieldSize::Count),
    ]
}

fn field() -> impl Strategy<Value = (FieldSize, Role)> {
    prop_oneof![
        3 => (small_size(), Just(Role::Node)),
        1 => (small_size(), any::<u64>()).prop_map(|(size, value)| {
            (size, Role::Constant(value % size.values().unwrap()))
        }),
    ]
}

prop_compose! {
    /// Generates any layout with up to three fields above the sequence, up to three fields below
    /// it, and up to two random fields. Generates `None` if the layout does not fit.
    fn any_layout()(
        time in time_size(),
        above in vec(field(), 0..=3),
        sequence in small_size(),
        below in vec(field(), 0..=3),
        random in vec(small_size(), 0..=2),
        tick_ms in prop_oneof![Just(1), Just(10), Just(1000), 1..=86_400_000_u64],
        epoch_unix_ms in prop_oneof![Just(0), -10_000_000_000_000..=10_000_000_000_000_i64],
    ) -> Option<Layout> {
        let mut fields = vec![("time".to_owned(), time, Role::Time)];
        let named = |(index, (size, role)): (usize, (FieldSize, Role)), side| (format!("{side}{index}"), size, role);
        fields.extend(above.into_iter().enumerate().map(|field| named(field, "a")));
        fields.push(("sequence".to_owned(), sequence, Role::Sequence));
        fields.extend(below.into_iter().enumerate().map(|field| named(field, "b")));
        fields.extend(random.into_iter().enumerate().map(|(index, size)| (format!("r{index}"), size, Role::Random)));
        let fields = fields.into_iter().map(|(name, size, role)| FieldSpec { name, size, role }).collect();
        Layout::new(fields, tick_ms, epoch_unix_ms).ok()
    }
}

/// Generates any layout that fits.
fn a_layout() -> impl Strategy<Value = Layout> {
    any_layout().prop_filter_map("does not fit", |layout| layout)
}
