//! The agent as a whole, in this process, against servers that do as a test says.

mod api;
mod links;
mod methods;
mod setup;
mod support;
