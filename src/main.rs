//! The `seendb` server.
fn main() {}
