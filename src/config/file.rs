//! The config file: lines of words, as in `redis.conf`.
//!
//! A line is blank, a comment (its first character that is no blank is `#`), `include path`, or a directive and its
//! words. Words are separated by blanks; quotes hold a word with blanks together: inside `"…"` the escapes `\n \r \t \b
//! \a \xHH` and `\` before any other character, inside `'…'` only `\'`. A closing quote ends its word. A comment needs a
//! line of its own. A directive given again replaces the earlier one (output limits: class by class).
//!
//! [`parse_bytes`] is pure and takes any bytes; [`load`] reads files and follows `include`. Every mistake is a
//! [`ConfigError`] that says where it is. A file is read to its end whatever is wrong in it: whoever brings the file of another
//! server would else find its strange lines one start at a time.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::directive::{Id, find, nearest};
use super::value::{Value, printable};

/// Largest file read; a config of every directive with its comments is a hundredth of it.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// How deep files may include each other, as in Redis.
const MAX_INCLUDE_DEPTH: usize = 16;
/// Most files read in all.
const MAX_FILES: usize = 256;

/// What a line that is neither blank nor a comment says.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// A directive gets a value.
    Set(Id, Value),
    /// Another file is to be read here.
    Include {
        /// Its path, relative to the current folder.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The line as written.
        text: String,
    },
}

/// A mistake in a file or on the command line, and where. `Display` gives one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Name of the file; `standard input` or `command line` for these.
    pub file: String,
    /// Number of the line, from 1; 0 if no line in particular is wrong.
    pub line: usize,
    /// The line as written, passwords hidden.
    pub text: String,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ", line {}", self.line)?;
        }
        if !self.text.is_empty() {
            write!(f, ": '{}'", self.text)?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for ConfigError {}

/// The most mistakes that are listed; further ones are counted.
const MOST_LISTED: usize = 20;

/// The mistakes of all that was read, in that order. `Display` gives a line each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes {
    /// The first of them, at most 20.
    pub listed: Vec<ConfigError>,
    /// How many came after those.
    pub left_out: usize,
}

impl Mistakes {
    /// One more.
    pub fn add(&mut self, mistake: ConfigError) {
        if self.listed.len() < MOST_LISTED {
            self.listed.push(mistake);
        } else {
            self.left_out += 1;
        }
    }

    /// Those of another reading come after these.
    pub fn append(&mut self, other: Self) {
        other.listed.into_iter().for_each(|mistake| self.add(mistake));
        self.left_out += other.left_out;
    }

    /// The value, if there are none.
    ///
    /// # Errors
    /// These, if there are.
    pub fn unless_any<T>(self, value: T) -> Result<T, Self> {
        if self.listed.is_empty() { Ok(value) } else { Err(self) }
    }

    /// A line each, without line feeds.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let more = (self.left_out > 0).then(|| format!("further mistakes: {}", self.left_out));
        self.listed.iter().map(ConfigError::to_string).chain(more)
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().collect::<Vec<_>>().join("\n"))
    }
}

impl std::error::Error for Mistakes {}

/// Parses the text of a file; `origin` is its name for messages.
///
/// ```
/// use seendb::config::file::{parse, Statement};
/// use seendb::config::{Id, Value};
/// let read = parse("# limits\nmaxclients 500\n", "seendb.conf").expect("a correct file");
/// assert_eq!(read, [Statement::Set(Id::MaxClients, Value::Number(500))]);
/// let error = parse("\nfoo 1\n", "seendb.conf").expect_err("no such directive");
/// assert_eq!(error.to_string(), "seendb.conf, line 2: 'foo 1': unknown directive 'foo'");
/// ```
///
/// # Errors
/// [`ConfigError`] for the first line that is wrong.
pub fn parse(text: &str, origin: &str) -> Result<Vec<Statement>, ConfigError> {
    parse_bytes(text.as_bytes(), origin)
}

/// [`parse`] for bytes that may not be UTF-8: values may hold any byte, messages replace what is no text.
///
/// # Errors
/// [`ConfigError`] for the first line that is wrong.
pub fn parse_bytes(bytes: &[u8], origin: &str) -> Result<Vec<Statement>, ConfigError> {
    statements(bytes, origin).collect()
}

/// What each line says that is neither blank nor a comment.
fn statements(bytes: &[u8], origin: &str) -> impl Iterator<Item = Result<Statement, ConfigError>> {
    /// Some editors begin a file with this mark.
    const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).enumerate();
    let said = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#"));
    said.map(move |(index, line)| {
        statement(line, index + 1).map_err(|reason| ConfigError {
            file: origin.to_string(),
            line: index + 1,
            text: shown(line),
            reason,
        })
    })
}

fn statement(line: &[u8], number: usize) -> Result<Statement, String> {
    let words = words(line).ok_or("unbalanced quotes")?;
    let Some((name, values)) = words.split_first() else {
        return Err("no directive".to_string());
    };
    if name.eq_ignore_ascii_case(b"include") {
        return match values {
            [path] if !path.is_empty() && !path.contains(&0) => Ok(Statement::Include {
                path: PathBuf::from(std::ffi::OsStr::from_bytes(path)),
                line: number,
                text: shown(line),
            }),
            [_] => Err("argument must be a path".to_string()),
            _ => Err("wrong number of arguments".to_string()),
        };
    }
    let (id, value) = assignment(name, values)?;
    Ok(Statement::Set(id, value))
}

/// Finds the directive and checks its words; the error is the reason alone.
pub(super) fn assignment<W: AsRef<[u8]>>(name: &[u8], values: &[W]) -> Result<(Id, Value), String> {
    let directive = find(name).ok_or_else(|| unknown(name))?;
    match directive.parse(values) {
        Ok(value) => Ok((directive.id, value)),
        Err(error) if values.iter().any(|word| word.as_ref().starts_with(b"#")) => {
            Err(format!("{error} (a comment needs a line of its own)"))
        }
        Err(error) => Err(error.to_string()),
    }
}

fn unknown(name: &[u8]) -> String {
    let near = nearest(name).map(|near| format!(", did you mean '{near}'?")).unwrap_or_default();
    format!("unknown directive '{}'{near}", printable(name))
}

/// A line for messages. The value of a secret directive is hidden, also where the name is mistyped or the line too
/// broken to be read.
fn shown(line: &[u8]) -> String {
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let name: Vec<u8> = line[..end].iter().copied().filter(|byte| !b"\"'".contains(byte)).collect();
    let meant = find(&name).or_else(|| find(nearest(&name)?.as_bytes()));
    if meant.is_some_and(|directive| directive.is_secret()) {
        return format!("{} (hidden)", printable(&name));
    }
    printable(line).into_owned()
}

/// Takes a line apart. `None` if a quote does not close, or something other than a blank follows a closing one.
fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let (word, after) = word(rest)?;
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Some(words)
}

/// The word at the beginning of `rest`, which does not begin with a blank, and what follows it.
fn word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] => return Some((word, rest)),
            [blank, ..] if blank.is_ascii_whitespace() => return Some((word, rest)),
            [quote @ (b'"' | b'\''), inside @ ..] => {
                let after = quoted(*quote, inside, &mut word)?;
                let ends = after.first().is_none_or(u8::is_ascii_whitespace);
                return ends.then_some((word, after));
            }
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

/// Appends what stands before the closing quote; returns what follows it.
fn quoted<'a>(quote: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, after) = match (quote, rest) {
            (_, []) => return None,
            (_, [byte, after @ ..]) if *byte == quote => return Some(after),
            (b'"', [b'\\', b'x', high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex(*high) << 4 | hex(*low), after)
            }
            (b'"', [b'\\', byte, after @ ..]) => (escaped(*byte), after),
            (b'\'', [b'\\', b'\'', after @ ..]) => (b'\'', after),
            (_, [byte, after @ ..]) => (*byte, after),
        };
        word.push(byte);
        rest = after;
    }
}

const fn escaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

/// Value of a hexadecimal digit.
const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// Reads a file with all that it includes; `-` is standard input.
///
/// # Errors
/// [`Mistakes`]: files that cannot be read, lines that are wrong, files that include each other in a circle, too deep or too
/// many.
pub fn load(path: &Path) -> Result<Vec<(Id, Value)>, Mistakes> {
    let mut loader = Loader { values: Vec::new(), mistakes: Mistakes::default(), open: Vec::new(), files: 1 };
    let (origin, read) = if path == Path::new("-") {
        ("standard input".to_string(), read_limited(io::stdin().lock()))
    } else {
        loader.open.extend(path.canonicalize());
        (path.display().to_string(), File::open(path).and_then(read_limited))
    };
    match read {
        Ok(bytes) => loader.run(&bytes, &origin),
        Err(error) => {
            let reason = format!("cannot be read: {error}");
            loader.mistakes.add(ConfigError { file: origin, line: 0, text: String::new(), reason });
        }
    }
    loader.mistakes.unless_any(loader.values)
}

/// The state of one [`load`].
struct Loader {
    values: Vec<(Id, Value)>,
    mistakes: Mistakes,
    /// The files that are being read, outermost first, by their real paths.
    open: Vec<PathBuf>,
    /// Files read so far.
    files: usize,
}

impl Loader {
    fn run(&mut self, bytes: &[u8], origin: &str) {
        for statement in statements(bytes, origin) {
            match statement {
                Ok(Statement::Set(id, value)) => self.values.push((id, value)),
                Ok(Statement::Include { path, line, text }) => match self.enter(&path) {
                    Ok((real, bytes)) => {
                        self.open.push(real);
                        self.run(&bytes, &path.display().to_string());
                        self.open.pop();
                    }
                    Err(reason) => self.mistakes.add(ConfigError { file: origin.to_string(), line, text, reason }),
                },
                Err(mistake) => self.mistakes.add(mistake),
            }
        }
    }

    /// Reads a file that is included; the error is the reason alone.
    fn enter(&mut self, path: &Path) -> Result<(PathBuf, Vec<u8>), String> {
        let real = path.canonicalize().map_err(|error| format!("cannot be read: {error}"))?;
        if self.open.contains(&real) {
            return Err("the file includes itself".to_string());
        }
        if self.open.len() >= MAX_INCLUDE_DEPTH {
            return Err(format!("files include each other more than {MAX_INCLUDE_DEPTH} deep"));
        }
        if self.files >= MAX_FILES {
            return Err(format!("more than {MAX_FILES} files"));
        }
        self.files += 1;
        let bytes = File::open(&real).and_then(read_limited).map_err(|error| format!("cannot be read: {error}"))?;
        Ok((real, bytes))
    }
}

fn read_limited(source: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("it is larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Option<Vec<Vec<u8>>> {
        words(line.as_bytes())
    }

    #[test]
    fn words_and_quotes_are_those_of_redis() {
        let cases: [(&str, &[&[u8]]); 13] = [
            ("a b", &[b"a", b"b"]),
            (" a\t b \r", &[b"a", b"b"]),
            (r#"a "b c" d"#, &[b"a", b"b c", b"d"]),
            (r#"a "" ''"#, &[b"a", b"", b""]),
            (r#""\n\r\t\b\a""#, &[b"\n\r\t\x08\x07"]),
            (r#""\x00\xfF""#, &[b"\x00\xff"]),
            (r#""\xfg""#, &[b"xfg"]),
            (r#""\"\\""#, &[b"\"\\"]),
            (r"'a\'b' c", &[b"a'b", b"c"]),
            (r"'\n'", &[br"\n"]),
            (r#"pre"fix y""#, &[b"prefix y"]),
            (r"back\slash", &[br"back\slash"]),
            ("", &[]),
        ];
        for (line, expected) in cases {
            assert_eq!(
                split(line).as_deref(),
                Some(&expected.iter().map(|w| w.to_vec()).collect::<Vec<_>>()[..]),
                "{line}"
            );
        }
    }

    #[test]
    fn quotes_must_close_and_end_their_word() {
        for line in
            [r#"""#, "'", r#"a "b"#, "a 'b", r#"a "b"c"#, "a 'b'c", r#""a\"#, r#""\""#, r"'\'", r#"""a"#, r#""a"'b'"#]
        {
            assert_eq!(split(line), None, "{line}");
        }
    }
}
