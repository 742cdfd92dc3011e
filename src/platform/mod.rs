//! What every part of the program stands on: config, log, metrics, the store and its direct users, outgoing HTTP.

pub mod accept;
pub mod audit;
pub mod config;
pub mod egress;
pub mod keyed_limit;
pub mod kv;
pub mod lines;
pub mod logging;
pub mod metrics;
pub mod outbox;
pub mod percent;
pub mod process_group;
pub mod store;
