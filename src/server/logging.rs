//! Log lines: text for people or JSON for programs, on standard error or in a file.

use std::fs::OpenOptions;
use std::sync::OnceLock;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::config::{LogFormat, LogLevel, Settings};

static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Start logging as the settings say.
///
/// # Errors
/// The log file cannot be opened.
pub fn start(settings: &Settings) -> Result<(), String> {
    let writer = match settings.logfile() {
        None => BoxMakeWriter::new(std::io::stderr),
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(&path);
            BoxMakeWriter::new(file.map_err(|error| format!("cannot open log file '{}': {error}", path.display()))?)
        }
    };
    let (level, handle) = reload::Layer::new(filter(settings.loglevel()));
    let lines = fmt::layer().with_writer(writer).with_target(false).with_ansi(false);
    let lines = match settings.log_format() {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    // A second server in one process (tests) keeps the first one's log.
    if tracing_subscriber::registry().with(level).with(lines).try_init().is_ok() {
        let _ = LEVEL.set(handle);
    }
    Ok(())
}

/// Change the level of a running log.
pub(super) fn set_level(level: LogLevel) {
    if let Some(handle) = LEVEL.get()
        && let Err(error) = handle.reload(filter(level))
    {
        tracing::warn!("the log level stays as it was: {error}");
    }
}

const fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::TRACE,
        LogLevel::Verbose => LevelFilter::DEBUG,
        LogLevel::Notice => LevelFilter::INFO,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Nothing => LevelFilter::OFF,
    }
}
