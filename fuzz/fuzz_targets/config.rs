//! Any bytes as a config file: no panic, and what a file says can be put in force.

#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use seendb::config::file::{Statement, parse_bytes};
use seendb::config::{Environment, Settings};

fuzz_target!(|data: &[u8]| {
    match parse_bytes(data, "fuzz.conf") {
        Ok(statements) => {
            let values = statements.into_iter().filter_map(|statement| match statement {
                Statement::Set(id, value) => Some((id, value)),
                Statement::Include { .. } => None,
            });
            let environment = Environment {
                cores: 2,
                memory: Some(1 << 30),
                memory_limit: Some(2 << 30),
                folder: PathBuf::from("/"),
            };
            let settings = Settings::new(environment, values);
            // Every setting can be shown.
            assert_eq!(settings.get(|_| true).len(), seendb::config::DIRECTIVES.len());
            assert!(settings.threads() >= 1);
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with("fuzz.conf") && !text.contains(['\n', '\r']), "one line: {text:?}");
            let lines = data.iter().filter(|byte| **byte == b'\n').count() + 1;
            assert!((1..=lines).contains(&error.line));
        }
    }
});
