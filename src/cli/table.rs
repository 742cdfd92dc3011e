//! Tables for people: aligned, within the terminal's width, coloured where that helps.
//!
//! Values come from other users, so control characters are spelled out: an event's data must not be able to move the
//! reader's cursor.

use crate::model::{
    api::{
        lenient::Lenient,
        scripts::{RunOutcome, ToolOutcome},
    },
    delivery::{AttemptOutcome, DeliveryState},
    method::MethodServerState,
};

/// The least width of an elastic column, below which the line wraps instead.
const NARROWEST: usize = 12;

/// The number of blanks between columns.
const GAP: usize = 2;

/// Rows under titles.
#[derive(Debug, Default)]
pub struct TextTable {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Debug)]
struct Column {
    title: &'static str,
    fit: Fit,
}

/// The behaviour of a column on a narrow terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Never shortened: ids, times and states are useless cut off.
    Rigid,
    /// Shortened with an ellipsis.
    Elastic,
}

/// One value in a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

/// The meaning of a value to the reader, shown as a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    Good,
    Doubtful,
    Bad,
    Quiet,
}

/// The surface that a table is drawn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canvas {
    /// `None` where lines have no limit, as in a file.
    pub width: Option<usize>,
    pub paint: Coloring,
}

/// The use of colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coloring {
    Coloured,
    Bare,
}

impl TextTable {
    /// An empty table with these columns.
    pub fn new(columns: &[(&'static str, Fit)]) -> Self {
        Self { columns: columns.iter().map(|&(title, fit)| Column { title, fit }).collect(), rows: Vec::new() }
    }

    /// A table without titles: a name and a value in each row.
    pub fn of_fields() -> Self {
        Self::new(&[("", Fit::Rigid), ("", Fit::Rigid)])
    }

    /// Adds a row; it has as many cells as there are columns.
    pub fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        let cells = cells.into();
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// Adds a name and a value, unless the value is empty.
    pub fn field(&mut self, name: &str, value: impl Into<Cell>) {
        let value = value.into();
        if !value.text.is_empty() {
            self.row([Cell::toned(name, Tone::Quiet), value]);
        }
    }

    /// The table as lines of text.
    pub fn draw(&self, canvas: Canvas) -> String {
        let widths = self.widths(canvas.width);
        let mut drawn = String::new();
        if self.columns.iter().any(|column| !column.title.is_empty()) {
            let titles = self.columns.iter().map(|column| Cell::toned(column.title, Tone::Quiet)).collect::<Vec<_>>();
            draw_row(&mut drawn, &titles, &widths, canvas.paint);
        }
        for row in &self.rows {
            draw_row(&mut drawn, row, &widths, canvas.paint);
        }
        drawn
    }

    /// The width of each column: its need, or less for elastic columns where the needs exceed the limit.
    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let needs = |index: usize| {
            let cells = self.rows.iter().map(|row| row[index].width());
            cells.chain([self.columns[index].title.chars().count()]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..self.columns.len()).map(needs).collect();
        let Some(limit) = limit else { return widths };
        let gaps = GAP * self.columns.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > limit {
            let elastic = (0..widths.len()).filter(|&index| self.columns[index].fit == Fit::Elastic);
            match elastic.max_by_key(|&index| widths[index]).filter(|&index| widths[index] > NARROWEST) {
                Some(widest) => widths[widest] -= 1,
                None => break,
            }
        }
        widths
    }
}

impl Cell {
    /// A value with a tone.
    pub fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: printable(&text.into()), tone }
    }

    /// A number in this tone, or a quiet zero.
    pub fn count(number: usize, tone: Tone) -> Self {
        Self::toned(number.to_string(), if number == 0 { Tone::Quiet } else { tone })
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

impl Tone {
    /// `text` in this tone's colour.
    pub fn paint(self, text: &str, paint: Coloring) -> String {
        let code = match self {
            Self::Plain => return text.to_owned(),
            _ if paint == Coloring::Bare => return text.to_owned(),
            Self::Good => "32",
            Self::Doubtful => "33",
            Self::Bad => "31",
            Self::Quiet => "2",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

impl From<DeliveryState> for Tone {
    fn from(state: DeliveryState) -> Self {
        match state {
            DeliveryState::Delivered => Self::Good,
            DeliveryState::Queued => Self::Doubtful,
            DeliveryState::Dead | DeliveryState::Dropped => Self::Bad,
            DeliveryState::Skipped | DeliveryState::Discarded => Self::Quiet,
        }
    }
}

impl From<AttemptOutcome> for Tone {
    fn from(outcome: AttemptOutcome) -> Self {
        match outcome {
            AttemptOutcome::Delivered => Self::Good,
            AttemptOutcome::Failed => Self::Doubtful,
            AttemptOutcome::Dead => Self::Bad,
            AttemptOutcome::Skipped => Self::Quiet,
        }
    }
}

impl From<RunOutcome> for Tone {
    fn from(outcome: RunOutcome) -> Self {
        match outcome {
            RunOutcome::Script(outcome) => outcome.into(),
            RunOutcome::Tool(ToolOutcome::Done) => Self::Good,
            RunOutcome::Tool(ToolOutcome::Failed) => Self::Doubtful,
        }
    }
}

impl From<MethodServerState> for Tone {
    fn from(state: MethodServerState) -> Self {
        match state {
            MethodServerState::Running => Self::Good,
            MethodServerState::Restarting | MethodServerState::Unlinked => Self::Bad,
        }
    }
}

/// A value that this version does not know is plain.
impl<T: Copy + Into<Self>> From<&Lenient<T>> for Tone {
    fn from(value: &Lenient<T>) -> Self {
        value.known().map_or(Self::Plain, |known| (*known).into())
    }
}

/// Returns true if a terminal acts on the character instead of showing it. Direction overrides can make a text read as
/// another.
pub fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text with its control characters spelled out, line ends and tabs among them.
pub fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => printable.extend(c.escape_default()),
            c if is_unsafe(c) => {
                printable.push_str(&format!("\\u{{{:x}}}", u32::from(c)));
            }
            c => printable.push(c),
        }
    }
    printable
}

/// `yes` or `no`.
pub fn yes_or_no(on: bool) -> Cell {
    if on { "yes".into() } else { Cell::toned("no", Tone::Quiet) }
}

fn draw_row(drawn: &mut String, cells: &[Cell], widths: &[usize], paint: Coloring) {
    for (index, (cell, &width)) in cells.iter().zip(widths).enumerate() {
        let text = shortened(&cell.text, width);
        drawn.push_str(&cell.tone.paint(&text, paint));
        // The last column is not padded: trailing blanks wrap on narrow terminals and spoil copies.
        if index + 1 < cells.len() {
            drawn.extend(std::iter::repeat_n(' ', width - text.chars().count() + GAP));
        }
    }
    drawn.truncate(drawn.trim_end_matches(' ').len());
    drawn.push('\n');
}

fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Canvas = Canvas { width: None, paint: Coloring::Bare };

    fn sample() -> TextTable {
        let mut table = TextTable::new(&[("NAME", Fit::Elastic), ("STATE", Fit::Rigid), ("WHY", Fit::Elastic)]);
        table.row(["slack".into(), Cell::toned("delivered", Tone::Good), "".into()]);
        table.row(["a-rather-long-name".into(), Cell::toned("dead", Tone::Bad), "the receiver said 500".into()]);
        table
    }

    #[test]
    fn columns_are_aligned_and_nothing_trails() {
        let expected = "\
NAME                STATE      WHY
slack               delivered
a-rather-long-name  dead       the receiver said 500
";
        assert_eq!(sample().draw(FILE), expected);
    }

    #[test]
    fn a_narrow_terminal_shortens_the_elastic_columns_only() {
        let drawn = sample().draw(Canvas { width: Some(42), paint: Coloring::Bare });
        assert!(drawn.lines().all(|line| line.chars().count() <= 42), "{drawn}");
        assert!(drawn.contains("delivered") && drawn.contains('…'), "{drawn}");
    }

    #[test]
    fn a_terminal_that_is_too_narrow_still_gets_a_table() {
        let drawn = sample().draw(Canvas { width: Some(5), paint: Coloring::Bare });
        assert_eq!(drawn.lines().nth(2), Some("a-rather-lo…  dead       the receive…"));
    }

    #[test]
    fn colour_does_not_disturb_the_alignment() {
        let drawn = sample().draw(Canvas { width: None, paint: Coloring::Coloured });
        let bare =
            drawn.replace("\u{1b}[0m", "").replace("\u{1b}[2m", "").replace("\u{1b}[31m", "").replace("\u{1b}[32m", "");
        assert_eq!(bare, sample().draw(FILE));
        assert!(drawn.contains("\u{1b}[31mdead\u{1b}[0m"), "{drawn:?}");
    }

    #[test]
    fn a_value_cannot_control_the_terminal() {
        let mut table = TextTable::of_fields();
        table.field("name", "a\u{1b}[2Jb\nc\u{202e}d");
        table.field("empty", "");
        assert_eq!(table.draw(FILE), "name  a\\u{1b}[2Jb\\nc\\u{202e}d\n");
    }
}
