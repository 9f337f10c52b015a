//! Commands as the bytes that a client sends.

use std::io::{self, Write};

/// Writes requests; those of a transaction are held back until all of it is known.
pub struct Resp<W> {
    out: W,
    /// The database that the server has selected.
    db: usize,
    group: Option<Group>,
}

/// A transaction.
struct Group {
    bytes: Vec<u8>,
    requests: usize,
}

impl<W: Write> Resp<W> {
    /// A writer of requests for a new connection.
    pub fn new(out: W) -> Resp<W> {
        Resp { out, db: 0, group: None }
    }

    /// Writes a request about a database.
    pub fn request(&mut self, db: usize, words: &[&[u8]]) -> io::Result<()> {
        if db != self.db {
            self.db = db;
            self.write(&[b"SELECT", db.to_string().as_bytes()])?;
        }
        self.write(words)
    }

    /// What follows belongs together.
    pub fn begin(&mut self) {
        self.group = Some(Group { bytes: Vec::new(), requests: 0 });
    }

    /// What belongs together is complete.
    pub fn end(&mut self) -> io::Result<()> {
        let Some(group) = self.group.take() else { return Ok(()) };
        if group.requests > 1 {
            self.write(&[b"MULTI"])?;
        }
        self.out.write_all(&group.bytes)?;
        if group.requests > 1 {
            self.write(&[b"EXEC"])?;
        }
        Ok(())
    }

    /// Hands over what was gathered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn write(&mut self, words: &[&[u8]]) -> io::Result<()> {
        match &mut self.group {
            Some(group) => {
                group.requests += 1;
                write(&mut group.bytes, words)
            }
            None => write(&mut self.out, words),
        }
    }
}

fn write(out: &mut impl Write, words: &[&[u8]]) -> io::Result<()> {
    write!(out, "*{}\r\n", words.len())?;
    for word in words {
        write!(out, "${}\r\n", word.len())?;
        out.write_all(word)?;
        out.write_all(b"\r\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_selected_and_groups_kept_together() {
        let mut out = Vec::new();
        let mut resp = Resp::new(&mut out);
        resp.request(0, &[b"A"]).unwrap();
        resp.begin();
        resp.request(3, &[b"B", b"\r\n"]).unwrap();
        resp.end().unwrap();
        resp.begin();
        resp.request(3, &[b"C"]).unwrap();
        resp.end().unwrap();
        let wanted = "*1\r\n$1\r\nA\r\n*1\r\n$5\r\nMULTI\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n*2\r\n$1\r\nB\r\n$2\r\n\r\n\r\n\
                      *1\r\n$4\r\nEXEC\r\n*1\r\n$1\r\nC\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}
