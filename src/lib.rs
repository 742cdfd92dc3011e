//! `svc` routes events and method calls. This is the map of the house; each floor uses only those below it.

pub mod event;
pub mod id;
pub mod metrics;
pub mod owner;
pub mod pattern;
pub mod permission;
pub mod timestamp;

pub mod config;
pub mod store;

pub mod egress;
