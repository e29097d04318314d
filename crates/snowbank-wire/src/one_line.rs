//! Makes text of other programs safe to print.

/// Returns text of another program as one line that is safe to print. A space replaces each
/// character that ends a line, moves a terminal's cursor or changes the reading direction.
#[must_use]
pub fn one_line(text: &str) -> String {
    text.replace(is_unsafe, " ")
}

/// Returns whether a character moves a cursor, ends a line or changes the reading direction.
fn is_unsafe(shown: char) -> bool {
    shown.is_control()
        || matches!(shown, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_characters_become_blanks() {
        assert_eq!(one_line("a\r\nb\u{1b}[2Jc\u{202e}d\u{2028}é\u{61c} 🙂"), "a  b [2Jc d é  🙂");
    }
}
