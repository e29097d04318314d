use super::*;

#[test]
fn listings_are_one_body_however_they_are_cut() {
    for (make, expected) in [
        (
            (|| Listing::json("\"source\":\"a\",", None)) as fn() -> Listing,
            "{\"source\":\"a\",\"ids\":[\"1\",\"2\",\"3\"]}\n",
        ),
        (|| Listing::lines("\n", None), "1\n2\n3\n"),
        (|| Listing::lines("", None), "1\n2\n3"),
    ] {
        for cut in 0..3 {
            let mut listing = make();
            let mut text = Vec::new();
            listing.write(1..=cut, false, &mut text);
            listing.write(cut + 1..=3, true, &mut text);
            assert_eq!(String::from_utf8_lossy(&text), expected);
        }
    }
}
