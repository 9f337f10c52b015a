//! Where a server is: `redis://[[user]:password@]host[:port][/db]`.

use std::fmt;
use std::str::FromStr;

use super::names::decoded;

/// The port when none is given.
const DEFAULT_PORT: u16 = 6379;

/// A server, a database of it, and who asks.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// Name or number of the host.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// User of the password; without one it is the default user's.
    pub user: Option<Vec<u8>>,
    /// Password, if one is to be given.
    pub password: Option<Vec<u8>>,
    /// Number of the database.
    pub db: u32,
}

/// A URL of another form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It does not begin with `redis://`.
    #[error("an address has the form redis://[user:password@]host[:port][/db]")]
    Form,
    /// There is nothing where the host should be.
    #[error("the host is missing")]
    Host,
    /// The port is no number from 1 to 65535.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// The database is no number.
    #[error("the database must be a number, as in redis://host:6379/0")]
    Db,
    /// A `%` is not followed by two hexadecimal digits.
    #[error("a % in user or password must be followed by two hexadecimal digits (%25 is the % itself)")]
    Percent,
    /// TLS is asked for.
    #[error("TLS (rediss://) is not supported: use a tunnel")]
    Tls,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(url: &str) -> Result<Address, AddressError> {
        if url.starts_with("rediss://") {
            return Err(AddressError::Tls);
        }
        let rest = url.strip_prefix("redis://").ok_or(AddressError::Form)?;
        let (login, rest) = rest.rsplit_once('@').map_or((None, rest), |(login, rest)| (Some(login), rest));
        let (place, db) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match place.strip_prefix('[').and_then(|place| place.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or(AddressError::Port)?)),
            None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() {
            return Err(AddressError::Host);
        }
        let part = |text: &str| decoded(text.as_bytes()).map(|bytes| bytes.into_owned()).ok_or(AddressError::Percent);
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or(("", login))) {
            Some((user, password)) => (Some(part(user)?).filter(|user| !user.is_empty()), Some(part(password)?)),
            None => (None, None),
        };
        let port = port.map_or(Some(DEFAULT_PORT), |port| port.parse().ok().filter(|port| *port > 0));
        Ok(Address {
            host: host.to_owned(),
            port: port.ok_or(AddressError::Port)?,
            user,
            password,
            db: if db.is_empty() { 0 } else { db.parse().map_err(|_| AddressError::Db)? },
        })
    }
}

/// Without user and password: this is what messages and files may hold.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brackets = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{}{}{}:{}/{}", brackets.0, self.host, brackets.1, self.port, self.db)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_read() {
        let full: Address = "redis://joe:p%40ss%3a@example.org:7000/3".parse().unwrap();
        assert_eq!((full.host.as_str(), full.port, full.db), ("example.org", 7000, 3));
        assert_eq!((full.user.as_deref(), full.password.as_deref()), (Some(&b"joe"[..]), Some(&b"p@ss:"[..])));
        assert_eq!(full.to_string(), "example.org:7000/3");
        let bare: Address = "redis://localhost".parse().unwrap();
        assert_eq!((bare.port, bare.db, bare.user, bare.password), (6379, 0, None, None));
        for only_password in ["redis://secret@h", "redis://:secret@h/"] {
            let address: Address = only_password.parse().unwrap();
            assert_eq!((address.user, address.password.as_deref()), (None, Some(&b"secret"[..])));
        }
        let six: Address = "redis://[::1]:7001/1".parse().unwrap();
        assert_eq!((six.host.as_str(), six.to_string().as_str()), ("::1", "[::1]:7001/1"));
    }

    #[test]
    fn other_forms_are_refused_with_the_reason() {
        for (url, error) in [
            ("localhost:6379", AddressError::Form),
            ("rediss://h", AddressError::Tls),
            ("redis://", AddressError::Host),
            ("redis://:secret@/1", AddressError::Host),
            ("redis://h:0", AddressError::Port),
            ("redis://h:65536", AddressError::Port),
            ("redis://[::1]7000", AddressError::Port),
            ("redis://h/first", AddressError::Db),
            ("redis://a:%4@h", AddressError::Percent),
        ] {
            assert_eq!(url.parse::<Address>(), Err(error), "{url}");
        }
    }
}
