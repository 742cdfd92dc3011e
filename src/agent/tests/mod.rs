//! Tests of the whole agent in this process, against a scripted server.

mod api;
mod links;
mod methods;
mod setup;
mod support;
