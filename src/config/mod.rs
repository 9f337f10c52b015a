//! Settings: what an operator may choose, how it is written, and what is in force now.
//!
//! The model, from the inside out:
//!
//! * one table, [`DIRECTIVES`], says everything that is known about a directive: name, kind of value, default, whether
//!   it may change at run time, what it means. Every other place (the file parser, the command line, `CONFIG GET` and
//!   `SET`, the help, the reference page) reads that table; no name is written twice;
//! * words become a [`Value`] in [`Directive::parse`] and nowhere else, so that a file, the command line and
//!   `CONFIG SET` accept the same and refuse with the same text;
//! * [`Settings`] holds the values in force. Hot paths read numbers with one relaxed load; a change is all or nothing
//!   and raises [`Settings::version`].
//!
//! The precedence is: command line, then file, then default. A file is read once, at start.
//!
//! This layer knows nothing of filters, keys or sockets. A side effect of a change (a new log level, say) belongs to
//! whoever called [`Settings::set`], which returns the directives that changed.

#[cfg(feature = "server")]
pub mod cli;
mod directive;
mod environment;
pub mod file;
pub mod memory;
mod settings;
mod value;

pub use directive::{
    Change, DIRECTIVES, DefaultValue, Directive, FSYNC_POLICIES, Id, Kind, POLICIES, find, markdown_table,
};
pub use environment::Environment;
pub use file::{ConfigError, Mistakes};
pub use settings::{Prepared, SetError, Settings};
pub use value::{BindAddress, ClientClass, LogFormat, LogLevel, OutputLimit, SavePoint, Value, ValueError, parse_size};
