//! `svc` routes events and method calls. This is the map of the house; each floor uses only those below it.

pub mod event;
pub mod id;
pub mod metrics;
pub mod owner;
pub mod pattern;
pub mod permission;
pub mod timestamp;

pub mod config;
pub mod logging;
pub mod store;

pub mod audit;
pub mod egress;
pub mod kv;
pub mod route;

pub mod identity;
pub mod queue;

pub mod live;

pub mod emit;

pub mod script;

pub mod sink;

pub mod deliver;

pub mod http;

pub mod daemon;

pub mod cli;
