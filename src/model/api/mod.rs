//! The bodies of the HTTP API, each defined once for the server, the command line and the OpenAPI document.
//!
//! A file per subject. `…View` is an answer, `New…`, `…Body`, `…Fields` and `…Patch` are requests, `…Query` is a query
//! string. Requests refuse unknown fields. Answers ignore them, and [`lenient::Lenient`] keeps values that this version
//! does not know, so that an older command line reads the answers of a newer server.
//!
//! `server::http` converts records into views; `cli` reads and prints them. The bodies of the API that an agent serves
//! inside its space are in [`agent`].

pub mod activity;
pub mod agent;
pub mod audit;
pub mod error;
pub mod events;
pub mod health;
pub mod identity;
pub mod lenient;
pub mod list;
pub mod methods;
pub mod replays;
pub mod schemas;
pub mod scripts;
pub mod search_text;
pub mod sequences;
pub mod sinks;
pub mod sources;
pub mod spaces;
pub mod subscriptions;
pub mod templates;
