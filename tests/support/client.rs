//! A small blocking client that hands out replies twice: as the bytes that came, for comparing servers, and as a
//! [`Value`], for reading them in a test.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// One reply, of either protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `+text`
    Simple(String),
    /// `-text`, whole
    Error(String),
    /// `:n`
    Int(i64),
    /// `$n` with its bytes; `=n` (verbatim) too
    Bulk(Vec<u8>),
    /// `$-1`, `*-1` and `_`
    Null,
    /// `#t` and `#f`
    Bool(bool),
    /// `,number`, as text: how it is printed is part of the protocol
    Double(String),
    /// `*n`; sets and pushes too
    Array(Vec<Value>),
    /// `%n`
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// The text of an error reply; fails the test for any other reply.
    #[track_caller]
    pub fn error(&self) -> &str {
        match self {
            Value::Error(text) => text,
            other => panic!("expected an error, got {other:?}"),
        }
    }

    /// The elements of an array reply; fails the test for any other reply.
    #[track_caller]
    pub fn array(&self) -> &[Value] {
        match self {
            Value::Array(elements) => elements,
            other => panic!("expected an array, got {other:?}"),
        }
    }

    /// The number in an integer reply; fails the test for any other reply.
    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Value::Int(number) => *number,
            other => panic!("expected an integer, got {other:?}"),
        }
    }

    /// The bytes of a bulk reply; fails the test for any other reply.
    #[track_caller]
    pub fn bulk(&self) -> &[u8] {
        match self {
            Value::Bulk(bytes) => bytes,
            other => panic!("expected a bulk string, got {other:?}"),
        }
    }

    /// The text of a simple or bulk reply; fails the test for any other reply.
    #[track_caller]
    pub fn text(&self) -> String {
        match self {
            Value::Simple(text) => text.clone(),
            Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("expected text, got {other:?}"),
        }
    }

    /// The value beside `name` in a map, or in a flat array of names and values.
    #[track_caller]
    pub fn field(&self, name: &str) -> &Value {
        let found = match self {
            Value::Map(pairs) => pairs.iter().find(|(key, _)| key.text() == name).map(|(_, value)| value),
            Value::Array(flat) => flat.chunks_exact(2).find(|pair| pair[0].text() == name).map(|pair| &pair[1]),
            other => panic!("expected a map, got {other:?}"),
        };
        found.unwrap_or_else(|| panic!("no field {name:?} in {self:?}"))
    }

    /// True for `:1` and `#t`, false for `:0` and `#f`; fails the test for any other reply.
    #[track_caller]
    pub fn truth(&self) -> bool {
        match self {
            Value::Bool(truth) => *truth,
            Value::Int(1) => true,
            Value::Int(0) => false,
            other => panic!("expected a truth value, got {other:?}"),
        }
    }
}

impl PartialEq<&str> for Value {
    fn eq(&self, text: &&str) -> bool {
        matches!(self, Value::Simple(mine) | Value::Error(mine) if mine == text)
            || matches!(self, Value::Bulk(bytes) if bytes == text.as_bytes())
    }
}

impl PartialEq<i64> for Value {
    fn eq(&self, number: &i64) -> bool {
        matches!(self, Value::Int(mine) if mine == number)
    }
}

/// One connection.
pub struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    /// Connects to a port of this machine. A reply that takes longer than a minute fails the test.
    pub fn connect(port: u16) -> std::io::Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Client { reader: BufReader::with_capacity(64 << 10, stream) })
    }

    /// Sends a command, returns its reply.
    #[track_caller]
    pub fn call(&mut self, args: &[impl AsRef<[u8]>]) -> Value {
        self.call_raw(args).1
    }

    /// Sends a command given as words between blanks, returns its reply.
    #[track_caller]
    pub fn cmd(&mut self, line: &str) -> Value {
        self.call(&line.split_ascii_whitespace().collect::<Vec<_>>())
    }

    /// Sends a command, returns its reply as bytes and as a value.
    #[track_caller]
    pub fn call_raw(&mut self, args: &[impl AsRef<[u8]>]) -> (Vec<u8>, Value) {
        self.send(&encode(args));
        self.read_raw()
    }

    /// Switches the connection's protocol with `HELLO`.
    #[track_caller]
    pub fn hello(&mut self, protocol: u8) -> Value {
        let reply = self.call(&["HELLO", &protocol.to_string()]);
        assert!(!matches!(reply, Value::Error(_)), "HELLO {protocol} was answered {reply:?}");
        reply
    }

    /// Sends bytes as they are.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).expect("the server takes what is sent");
    }

    /// Sends bytes as they are; a server that has closed the connection by then is no failure.
    pub fn send_if_open(&mut self, bytes: &[u8]) {
        let _ = self.reader.get_mut().write_all(bytes);
    }

    /// Reads one reply.
    #[track_caller]
    pub fn read(&mut self) -> Value {
        self.read_raw().1
    }

    /// Reads one reply as bytes and as a value.
    #[track_caller]
    pub fn read_raw(&mut self) -> (Vec<u8>, Value) {
        let mut raw = Vec::new();
        match self.read_into(&mut raw) {
            Ok(value) => (raw, value),
            Err(error) => panic!("no whole reply ({error}); so far: {}", show_bytes(&raw)),
        }
    }

    /// Sends a command, returns its reply; an error if the connection ends before it has come whole.
    pub fn try_call(&mut self, args: &[impl AsRef<[u8]>]) -> std::io::Result<Value> {
        self.try_send(&encode(args))?;
        self.try_read()
    }

    /// Sends bytes as they are, if the connection lets it.
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Reads one reply; an error if the connection ends before it has come whole.
    pub fn try_read(&mut self) -> std::io::Result<Value> {
        self.read_into(&mut Vec::new())
    }

    /// Everything that still comes until the server closes the connection.
    #[track_caller]
    pub fn read_to_close(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => rest,
            // A peer that closes with unread bytes of ours in its buffer resets the connection.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => rest,
            Err(error) => panic!("the connection was not closed ({error}); so far: {}", show_bytes(&rest)),
        }
    }

    /// Tells the server that nothing more will be sent; replies can still be read.
    pub fn finish_sending(&mut self) {
        let _ = self.reader.get_ref().shutdown(std::net::Shutdown::Write);
    }

    fn read_into(&mut self, raw: &mut Vec<u8>) -> std::io::Result<Value> {
        read_value(&mut self.reader, raw)
    }
}

/// Reads one reply, whose bytes are appended to `raw`.
pub fn read_value(reader: &mut impl BufRead, raw: &mut Vec<u8>) -> std::io::Result<Value> {
    let start = raw.len();
    reader.read_until(b'\n', raw)?;
    let line = &raw[start..];
    if !line.ends_with(b"\r\n") {
        return Err(std::io::Error::new(ErrorKind::UnexpectedEof, "the line of a reply ends without CR LF"));
    }
    let kind = line[0];
    let text = String::from_utf8_lossy(&line[1..line.len() - 2]).into_owned();
    let invalid = |what: String| std::io::Error::new(ErrorKind::InvalidData, what);
    let number = || text.parse::<i64>().map_err(|_| invalid(format!("not a number: {text:?}")));
    Ok(match kind {
        b'+' => Value::Simple(text),
        b'-' => Value::Error(text),
        b':' => Value::Int(number()?),
        b',' => Value::Double(text),
        b'_' => Value::Null,
        b'#' => Value::Bool(text == "t"),
        b'$' | b'=' if number()? < 0 => Value::Null,
        b'$' | b'=' => {
            let (from, length) = (raw.len(), number()? as usize);
            raw.resize(from + length + 2, 0);
            reader.read_exact(&mut raw[from..])?;
            if !raw.ends_with(b"\r\n") {
                return Err(invalid("a bulk string does not end with CR LF".into()));
            }
            Value::Bulk(raw[from..from + length].to_vec())
        }
        b'*' | b'~' | b'>' if number()? < 0 => Value::Null,
        b'*' | b'~' | b'>' => {
            Value::Array((0..number()?).map(|_| read_value(reader, raw)).collect::<std::io::Result<_>>()?)
        }
        b'%' => Value::Map(
            (0..number()?)
                .map(|_| Ok((read_value(reader, raw)?, read_value(reader, raw)?)))
                .collect::<std::io::Result<_>>()?,
        ),
        other => return Err(invalid(format!("a reply of kind {:?}", other as char))),
    })
}

/// A command as the array of bulk strings that clients send.
pub fn encode(args: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Bytes in printable form, cut after 600.
pub fn show_bytes(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(600)];
    let mut out = format!("\"{}\"", cut.escape_ascii());
    if bytes.len() > cut.len() {
        let _ = write!(out, "… ({} bytes)", bytes.len());
    }
    out
}

/// A command as one could type it into redis-cli.
pub fn show_args(args: &[impl AsRef<[u8]>]) -> String {
    let plain = |arg: &[u8]| !arg.is_empty() && arg.iter().all(|b| b.is_ascii_graphic() && !b"\"'\\".contains(b));
    let show = |arg: &[u8]| match plain(arg) {
        true => String::from_utf8_lossy(arg).into_owned(),
        false => format!("\"{}\"", arg.escape_ascii()),
    };
    args.iter().map(|arg| show(arg.as_ref())).collect::<Vec<_>>().join(" ")
}
