//! Markdown: the rows of tables, and the headings that links lead to.

/// Returns the lines outside of code blocks, with their numbers.
pub(super) fn unfenced(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(line, text)| {
        let fence = text.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((line + 1, text))
    })
}

/// Checks that each row of a table has as many cells as the row above. A Git merge can put two rows
/// on one line.
pub(super) fn rows(text: &str, report: &mut impl FnMut(usize, String, String)) {
    let mut above = None;
    for (line, text) in unfenced(text) {
        // A bar in code is not a border of a cell.
        let cells = text.starts_with('|').then(|| text.split('`').step_by(2).map(bars).sum::<usize>());
        if let (Some(above), Some(cells)) = (above, cells)
            && above != cells
        {
            report(
                line,
                format!("{cells} borders in a row of a table"),
                format!("{above}, as the row above"),
            );
        }
        above = cells;
    }
}

fn bars(text: &str) -> usize {
    text.matches('|').count() - text.matches("\\|").count()
}

/// Returns the path from the root to which a link in the file `from` leads.
pub(super) fn resolve(from: &str, link: &str) -> String {
    if link.is_empty() {
        return from.to_owned();
    }
    let mut path: Vec<&str> = from.split('/').collect();
    path.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            ".." => drop(path.pop()),
            "." => {}
            part => path.push(part),
        }
    }
    path.join("/")
}

/// Returns the anchors of a page's headings.
pub(super) fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings = unfenced(text).filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| {
        let kept = line.trim_start_matches('#').trim().chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || "-_".contains(c) => Some(c.to_ascii_lowercase()),
            _ => None,
        });
        kept.collect()
    })
}
