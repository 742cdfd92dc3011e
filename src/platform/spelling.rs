//! The known name that a mistyped one probably means.

/// The known name that differs from `typed` in the fewest characters, if these are few for its length.
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (differences, meant) = known.into_iter().map(|name| (distance(typed, name), name)).min()?;
    (differences <= typed.chars().count().div_ceil(4).min(3)).then_some(meant)
}

/// The number of characters to insert, delete or replace to make one text of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_wrong_characters_are_forgiven_and_no_more() {
        let known = ["event", "sink", "source", "list"];
        for (typed, meant) in [
            ("evnet", Some("event")),
            ("sinks", Some("sink")),
            ("lst", Some("list")),
            ("fly", None),
            ("", None),
            ("eve", None),
        ] {
            assert_eq!(nearest(typed, known), meant, "{typed}");
        }
    }
}
