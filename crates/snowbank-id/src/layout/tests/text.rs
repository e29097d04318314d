//! Tests of the text form.

use super::*;

#[test]
fn the_canonical_form_has_every_field_and_setting() {
    let spec = "time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=1288834974657";
    assert_eq!(layout("twitter").to_string(), spec);
    for (written, canonical) in [
        ("time:41,sequence:12", "time:41,sequence:12;tick=1ms;epoch=0"),
        ("time:30,sequence:=1000;tick=1000ms", "time:30,sequence:=1000;tick=1s;epoch=0"),
        (
            " time : 30 , sequence:1d ; epoch = 2010-11-04T01:42:54.657Z ",
            "time:30,sequence:1d;tick=1ms;epoch=1288834974657",
        ),
        ("time:30,sequence:1;epoch=1926-11-22;tick=60s", "time:30,sequence:1;tick=60s;epoch=-1360454400000"),
        (
            "time:30,region:2:constant(1),sequence:4,table:3d:random",
            "time:30,region:2:constant(1),sequence:4,table:3d:random;tick=1ms;epoch=0",
        ),
    ] {
        assert_eq!(layout(written).to_string(), canonical);
    }
}

proptest! {
    /// There are three inputs: the text of a layout, the same text with a piece replaced, and any
    /// other text.
    #[test]
    fn every_accepted_text_is_written_back(
        layout in a_layout(), at in any::<prop::sample::Index>(), with in "[a-z0-9:,;=()d .TZ+-]{0,60}",
    ) {
        let mut text = layout.to_string();
        fuzzing::layout_text(text.as_bytes());
        let at = at.index(text.len());
        text.replace_range(at..=at, &with[..with.len().min(4)]);
        fuzzing::layout_text(text.as_bytes());
        fuzzing::layout_text(with.as_bytes());
    }

    #[test]
    fn no_size_of_a_field_panics(
        sizes in vec(prop_oneof![
            any::<u32>().prop_map(FieldSize::Bits), (0..70_u32).prop_map(FieldSize::Bits),
            (0..25_u32).prop_map(FieldSize::Digits), any::<u64>().prop_map(FieldSize::Count),
        ], 2..12),
        tick_ms in any::<u64>(),
        epoch_unix_ms in any::<i64>(),
    ) {
        let names = ["time", "sequence", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        let fields: Vec<FieldSpec> = names.iter().zip(sizes).map(|(name, size)| {
            FieldSpec { name: (*name).to_owned(), size, role: FieldSpec::role_of(name) }
        }).collect();
        let allowed = Layout::new(fields.clone(), 1 + tick_ms % 86_400_000, epoch_unix_ms % 1_000_000_000_000);
        if let Err(refused) = &allowed {
            prop_assert!(!refused.to_string().contains('\n'));
        }
        let _ = Layout::new(fields, tick_ms, epoch_unix_ms);
    }
}
