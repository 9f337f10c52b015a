//! The commands: one table, and the handlers that its rows name.
//!
//! A request is looked up in the [`table`], checked against its row and handed to the row's handler by [`dispatch`]. Handlers
//! see a [`context::Context`] and give a reply as a value; they know neither sockets nor which host runs them.

mod answers;
pub mod bloom;
pub mod chain;
pub mod connection;
pub mod context;
pub mod counting;
mod deletable;
pub mod dispatch;
pub mod dleft;
mod dumps;
pub mod error;
mod figures;
pub mod form;
pub mod introspection;
mod items;
pub mod keys;
pub mod life;
pub mod lives;
mod merge;
pub mod moving;
mod options;
pub mod persistence;
pub mod reference;
pub mod room;
mod rows;
pub mod server;
pub mod table;
pub mod transactions;
pub mod words;
