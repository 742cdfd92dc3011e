//! Text of somebody else as one line of bounded length, for errors and details that are shown in a row.

/// Joins the words of a text with single spaces, and keeps at most `max` bytes of the result.
pub fn one_line(text: &str, max: usize) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.truncate(line.floor_char_boundary(max));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_cut_between_characters() {
        assert_eq!(one_line(" too\n\t hot \r\n", 100), "too hot");
        assert_eq!(one_line("a\näö", 4), "a ä");
        assert_eq!(one_line("a\näö", 5), "a ä");
    }
}
