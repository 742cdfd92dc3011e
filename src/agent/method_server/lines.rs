//! Splits a stream into lines without ever holding more of one than a limit.

use std::io;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// What a pipe holds, and so the most that one read gives.
const CHUNK: usize = 64 << 10;

/// A buffer that grew beyond this for a long line is not kept.
const KEPT: usize = 1 << 20;

/// The lines of a stream.
pub struct Lines<R> {
    reader: BufReader<R>,
    limit: usize,
    /// The beginning of a line whose end has not come yet, up to the limit.
    begun: Vec<u8>,
    /// How much more of that line there was than `begun` holds.
    beyond: usize,
}

/// A line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    Whole(&'a [u8]),
    /// Longer than the limit: its beginning, and how long it is in all.
    TooLong {
        beginning: &'a [u8],
        length: usize,
    },
}

/// Whether there is more to come.
#[derive(Debug, PartialEq, Eq)]
pub enum Stream {
    GoesOn,
    Ended,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub fn new(stream: R, limit: usize) -> Self {
        Self { reader: BufReader::with_capacity(CHUNK, stream), limit, begun: Vec::new(), beyond: 0 }
    }

    /// Reads once and gives `each` line that is complete thereby. What stands after the last line end counts as a
    /// line when the stream ends.
    ///
    /// # Errors
    ///
    /// Fails if the stream cannot be read.
    pub async fn read(&mut self, mut each: impl FnMut(Line<'_>)) -> io::Result<Stream> {
        let chunk = self.reader.fill_buf().await?;
        let length = chunk.len();
        if length == 0 {
            if !self.begun.is_empty() || self.beyond > 0 {
                each(complete(&self.begun, self.beyond));
                (self.begun, self.beyond) = (Vec::new(), 0);
            }
            return Ok(Stream::Ended);
        }
        let mut rest = chunk;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            if self.begun.is_empty() && line.len() <= self.limit {
                each(Line::Whole(line));
                continue;
            }
            keep(&mut self.begun, &mut self.beyond, line, self.limit);
            each(complete(&self.begun, self.beyond));
            self.begun.clear();
            self.begun.shrink_to(KEPT);
            self.beyond = 0;
        }
        keep(&mut self.begun, &mut self.beyond, rest, self.limit);
        self.reader.consume(length);
        Ok(Stream::GoesOn)
    }
}

fn complete(begun: &[u8], beyond: usize) -> Line<'_> {
    match beyond {
        0 => Line::Whole(begun),
        _ => Line::TooLong { beginning: begun, length: begun.len() + beyond },
    }
}

fn keep(begun: &mut Vec<u8>, beyond: &mut usize, part: &[u8], limit: usize) {
    let room = part.len().min(limit - begun.len());
    begun.extend_from_slice(&part[..room]);
    *beyond += part.len() - room;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    async fn lines(parts: &[&[u8]], limit: usize) -> Vec<String> {
        let (mut writer, reader) = tokio::io::duplex(7);
        let parts: Vec<Vec<u8>> = parts.iter().map(|part| part.to_vec()).collect();
        tokio::spawn(async move {
            for part in parts {
                writer.write_all(&part).await.unwrap();
            }
        });
        let (mut lines, mut seen) = (Lines::new(reader, limit), Vec::new());
        let each = |line: Line<'_>| match line {
            Line::Whole(line) => format!("{} whole", String::from_utf8_lossy(line)),
            Line::TooLong { beginning, length } => format!("{} of {length}", String::from_utf8_lossy(beginning)),
        };
        while lines.read(|line| seen.push(each(line))).await.unwrap() == Stream::GoesOn {}
        seen
    }

    #[tokio::test]
    async fn lines_come_whole_however_they_arrive() {
        assert_eq!(lines(&[b"a\nb", b"c\n\n", b"d"], 100).await, ["a whole", "bc whole", " whole", "d whole"]);
        assert_eq!(lines(&[b"0123456789abcdefghij\nk\n"], 100).await, ["0123456789abcdefghij whole", "k whole"]);
    }

    #[tokio::test]
    async fn a_line_of_just_the_limit_is_whole_and_a_longer_one_is_cut_without_harm_to_the_next() {
        assert_eq!(lines(&[b"0123\n01234\nok\n"], 4).await, ["0123 whole", "0123 of 5", "ok whole"]);
        assert_eq!(lines(&[b"0123456789abcdefghij\nok"], 4).await, ["0123 of 20", "ok whole"]);
        assert_eq!(lines(&[b"0123456789abcdefghij"], 4).await, ["0123 of 20"]);
    }
}
