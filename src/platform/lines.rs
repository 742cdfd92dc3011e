//! Splits a byte stream into lines without holding more of one line than a limit.
//!
//! [`LineSplitter`] does no I/O: the caller pushes the chunks that it reads, from a pipe or from a blocking stream.
//! [`LineReader`] is the same over an asynchronous stream.

use std::io;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// The capacity of a pipe, and so the most that one read returns.
const CHUNK: usize = 64 << 10;

/// A buffer that grew beyond this for a long line is not kept.
const KEPT_BUFFER: usize = 1 << 20;

/// Splits chunks into lines.
#[derive(Debug)]
pub struct LineSplitter {
    limit: usize,
    /// The beginning of a line whose end has not arrived yet, up to the limit.
    partial: Vec<u8>,
    /// Bytes of that line beyond the limit, which are dropped.
    dropped: usize,
}

/// A line, without its line end.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    Whole(&'a [u8]),
    /// A line over the limit: its beginning, and its whole length.
    TooLong {
        beginning: &'a [u8],
        length: usize,
    },
}

/// State of a stream after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    Open,
    Ended,
}

/// The lines of an asynchronous stream.
pub struct LineReader<R> {
    reader: BufReader<R>,
    splitter: LineSplitter,
}

impl LineSplitter {
    pub fn new(limit: usize) -> Self {
        Self { limit, partial: Vec::new(), dropped: 0 }
    }

    /// Takes a chunk, and passes on `each` line that it completes.
    pub fn push(&mut self, chunk: &[u8], mut each: impl FnMut(Line<'_>)) {
        let mut rest = chunk;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            if self.partial.is_empty() && self.dropped == 0 && line.len() <= self.limit {
                each(Line::Whole(line));
                continue;
            }
            self.keep(line);
            each(self.line());
            self.partial.clear();
            self.partial.shrink_to(KEPT_BUFFER);
            self.dropped = 0;
        }
        self.keep(rest);
    }

    /// Ends the stream: bytes after the last line end count as a line.
    pub fn finish(&mut self, each: impl FnOnce(Line<'_>)) {
        if !self.partial.is_empty() || self.dropped > 0 {
            each(self.line());
            (self.partial, self.dropped) = (Vec::new(), 0);
        }
    }

    fn keep(&mut self, part: &[u8]) {
        let room = part.len().min(self.limit - self.partial.len());
        self.partial.extend_from_slice(&part[..room]);
        self.dropped += part.len() - room;
    }

    fn line(&self) -> Line<'_> {
        match self.dropped {
            0 => Line::Whole(&self.partial),
            dropped => Line::TooLong { beginning: &self.partial, length: self.partial.len() + dropped },
        }
    }
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub fn new(stream: R, limit: usize) -> Self {
        Self { reader: BufReader::with_capacity(CHUNK, stream), splitter: LineSplitter::new(limit) }
    }

    /// Reads once, and passes on `each` line that is complete.
    ///
    /// # Errors
    ///
    /// Fails if the stream cannot be read.
    pub async fn read(&mut self, each: impl FnMut(Line<'_>)) -> io::Result<StreamState> {
        let chunk = self.reader.fill_buf().await?;
        let length = chunk.len();
        if length == 0 {
            self.splitter.finish(each);
            return Ok(StreamState::Ended);
        }
        self.splitter.push(chunk, each);
        self.reader.consume(length);
        Ok(StreamState::Open)
    }
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
        let (mut lines, mut seen) = (LineReader::new(reader, limit), Vec::new());
        let each = |line: Line<'_>| match line {
            Line::Whole(line) => format!("{} whole", String::from_utf8_lossy(line)),
            Line::TooLong { beginning, length } => format!("{} of {length}", String::from_utf8_lossy(beginning)),
        };
        while lines.read(|line| seen.push(each(line))).await.unwrap() == StreamState::Open {}
        seen
    }

    #[tokio::test]
    async fn lines_come_whole_however_they_arrive() {
        assert_eq!(lines(&[b"a\nb", b"c\n\n", b"d"], 100).await, ["a whole", "bc whole", " whole", "d whole"]);
        assert_eq!(lines(&[b"0123456789abcdefghij\nk\n"], 100).await, ["0123456789abcdefghij whole", "k whole"]);
    }

    #[tokio::test]
    async fn a_line_of_exactly_the_limit_is_whole_and_a_longer_one_is_cut_without_harm_to_the_next() {
        assert_eq!(lines(&[b"0123\n01234\nok\n"], 4).await, ["0123 whole", "0123 of 5", "ok whole"]);
        assert_eq!(lines(&[b"0123456789abcdefghij\nok"], 4).await, ["0123 of 20", "ok whole"]);
        assert_eq!(lines(&[b"0123456789abcdefghij"], 4).await, ["0123 of 20"]);
        assert_eq!(lines(&[b"0123456", b"\n\nok"], 0).await, [" of 7", " whole", " of 2"]);
    }
}
