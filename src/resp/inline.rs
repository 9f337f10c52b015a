//! Requests typed as a line of text: words between blanks, with quotes for what a word cannot hold.
//!
//! * Blanks between words are those of C's `isspace`; a bare word ends at a space, a tab or a line break.
//! * A double quote opens text in which `\n \r \t \b \a` and `\xHH` are escapes and a backslash before anything else
//!   stands for that byte; a single quote opens text in which only `\'` is one. Either may open inside a word.
//! * A closing quote ends the word: a blank or the end of the line must follow.
//!
//! Every escape is longer than what it stands for, so a line is decoded where it lies: each word is written from its own
//! first byte on and never catches up with what is still to be read.

use super::Span;

/// The quotes of a line do not match up, or text follows a closing quote.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnbalancedQuotes;

/// Splits `line` (no line break at its end, shorter than 4 GiB) into words, decoded in place; appends their places to
/// `spans`, none for a line of blanks. After an error the line holds rubbish.
pub(super) fn split(line: &mut [u8], spans: &mut Vec<Span>) -> Result<(), UnbalancedQuotes> {
    let mut at = 0;
    while let Some(&byte) = line.get(at) {
        if is_blank(byte) {
            at += 1;
            continue;
        }
        let mut word = Word { line, start: at, read: at, write: at };
        word.decode()?;
        spans.push(Span::new(word.start as u32, (word.write - word.start) as u32));
        at = word.read;
    }
    Ok(())
}

/// The blanks of C's `isspace` in the C locale.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// One word while it is decoded; `start <= write <= read` always.
struct Word<'a> {
    line: &'a mut [u8],
    start: usize,
    read: usize,
    write: usize,
}

impl Word<'_> {
    fn decode(&mut self) -> Result<(), UnbalancedQuotes> {
        while let Some(byte) = self.peek(0) {
            match byte {
                // Vertical tab and form feed separate words, yet do not end a bare one: so it is in Redis.
                b' ' | b'\t' | b'\r' | b'\n' => break,
                b'"' => return self.double_quoted(),
                b'\'' => return self.single_quoted(),
                _ => self.put(byte, 1),
            }
        }
        Ok(())
    }

    fn double_quoted(&mut self) -> Result<(), UnbalancedQuotes> {
        self.read += 1;
        loop {
            match (self.peek(0).ok_or(UnbalancedQuotes)?, self.peek(1)) {
                (b'"', next) => return self.close(next),
                (b'\\', Some(escaped)) => match self.hex_escape() {
                    Some(byte) => self.put(byte, 4),
                    None => self.put(unescape(escaped), 2),
                },
                (byte, _) => self.put(byte, 1),
            }
        }
    }

    fn single_quoted(&mut self) -> Result<(), UnbalancedQuotes> {
        self.read += 1;
        loop {
            match (self.peek(0).ok_or(UnbalancedQuotes)?, self.peek(1)) {
                (b'\'', next) => return self.close(next),
                (b'\\', Some(b'\'')) => self.put(b'\'', 2),
                (byte, _) => self.put(byte, 1),
            }
        }
    }

    /// Ends the word behind a closing quote, given the byte that follows it.
    fn close(&mut self, next: Option<u8>) -> Result<(), UnbalancedQuotes> {
        self.read += 1;
        if next.is_none_or(is_blank) { Ok(()) } else { Err(UnbalancedQuotes) }
    }

    /// The byte `ahead` of the one that is read next.
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.line.get(self.read + ahead).copied()
    }

    /// The byte that the escape at the reading place stands for, if it is a whole `\xHH`.
    fn hex_escape(&self) -> Option<u8> {
        let digit = |ahead| self.peek(ahead).and_then(|byte| char::from(byte).to_digit(16));
        (self.peek(1)? == b'x').then_some((digit(2)? << 4 | digit(3)?) as u8)
    }

    /// Appends `byte` to the word in exchange for `read` bytes of the line.
    fn put(&mut self, byte: u8, read: usize) {
        self.line[self.write] = byte;
        self.write += 1;
        self.read += read;
    }
}

/// What a backslash and `byte` stand for between double quotes.
fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::Args;

    fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut line = line.to_vec();
        let mut spans = Vec::new();
        split(&mut line, &mut spans).ok()?;
        Some(Args::new(&line, &spans).iter().map(<[u8]>::to_vec).collect())
    }

    /// Each line as redis-server 7.0.15 splits it, the last one excepted: a NUL has no special meaning here (Redis waits for ever).
    #[test]
    fn lines_split_as_redis_splits_them() {
        let cases: &[(&[u8], &[&[u8]])] = &[
            (b"", &[]),
            (b" \t\x0b\x0c\r ", &[]),
            (b"PING", &[b"PING"]),
            (b"  PING  ", &[b"PING"]),
            (b"BF.ADD k 'lorem ipsum'", &[b"BF.ADD", b"k", b"lorem ipsum"]),
            (b"BF.ADD k \"a\\x00b\"", &[b"BF.ADD", b"k", b"a\0b"]),
            (b"a\tb\rc", &[b"a", b"b", b"c"]),
            (b"a\x0bb \x0bc\x0c", &[b"a\x0bb", b"c\x0c"]),
            (b"\"\" ''", &[b"", b""]),
            (br#""\n\r\t\b\a\\\"\q""#, &[b"\n\r\t\x08\x07\\\"q"]),
            (br#""\x4a\x4A\xfF""#, &[b"JJ\xff"]),
            (br#""\x4g \x4" "\x""#, &[b"x4g x4", b"x"]),
            (br"'\n \x41 \' \\ '", &[br"\n \x41 ' \\ "]),
            (br#"a"b c"  d'e f'"#, &[b"ab c", b"de f"]),
            (b"\"a\"\x0b\"b\"", &[b"a", b"b"]),
            (br"a\ b \x41", &[br"a\", b"b", br"\x41"]),
            (b"a\0b \xff\xfe", &[b"a\0b", b"\xff\xfe"]),
        ];
        for (line, expected) in cases {
            let found = words(line);
            assert_eq!(found.as_deref(), Some(owned(expected).as_slice()), "{}", line.escape_ascii());
        }
    }

    fn owned(words: &[&[u8]]) -> Vec<Vec<u8>> {
        words.iter().map(|word| word.to_vec()).collect()
    }

    #[test]
    fn unbalanced_quotes_are_refused() {
        for line in [
            &b"\"a"[..],
            b"'a",
            b"\"",
            b"'",
            b"\"a\"b",
            b"'a'b",
            b"\"a\"\"b\"",
            b"\"a\\",
            b"\"a\\\"",
            b"'a\\'",
            b"a\"b",
        ] {
            assert_eq!(words(line), None, "{}", line.escape_ascii());
        }
    }
}
