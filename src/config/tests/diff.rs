//! The changes that a reload may make.

use super::*;

#[test]
fn each_change_is_taken_at_a_reload_or_refused_with_its_reason() {
    for case in include_str!("diff.txt").split("\n\n").filter(|block| !block.starts_with("##")) {
        let (expected, documents): (Vec<&str>, Vec<&str>) =
            case.lines().partition(|line| line.starts_with("=> "));
        let documents: Vec<Settings> =
            documents.split(|line| *line == "->").map(|lines| settings(&lines.join("\n"))).collect();
        let [running, wanted] = &documents[..] else { panic!("{case}") };
        let found: Vec<String> = match diff(running, wanted) {
            Ok(changed) => changed.iter().map(|changed| format!("=> {changed}")).collect(),
            Err(refused) => refused.to_string().lines().map(|line| format!("=> {line}")).collect(),
        };
        assert_eq!(found, expected, "{case}");
    }
}
