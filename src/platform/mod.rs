//! Technical services that every higher folder is built on.
//!
//! - [`config`], [`logging`], [`metrics`]: settings and observability
//! - [`store`]: everything durable; [`archive`]: backups of it; [`collection`]: typed records in memory over it;
//!   [`audit`], [`kv`]: its direct users
//! - [`secret_keys`]: encryption of stored secrets; [`file_mode`]: private files; [`tls`]: certificates and the crypto
//!   provider; [`value_reader`]: secrets from files and variables
//! - [`egress`]: outgoing HTTP under the egress policy
//! - [`accept`], [`outbox`], [`lines`], [`percent`], [`process_group`]: connections, paths and child processes
//! - [`one_line`], [`spelling`]: text for people
//! - [`memory`]: the allocator, and how memory goes back to the system
//! - [`backoff`], [`keyed_budget`], [`keyed_limit`], [`keyed_mutex`], [`keyed_semaphore`], [`owner_pool`],
//!   [`run_to_completion`], [`runtime_load`], [`task`], [`token_bucket`]: waiting, rates and concurrency

pub mod accept;
pub mod archive;
pub mod audit;
pub mod backoff;
pub mod collection;
pub mod config;
pub mod egress;
pub mod file_mode;
pub mod keyed_budget;
pub mod keyed_limit;
pub mod keyed_mutex;
pub mod keyed_semaphore;
pub mod kv;
pub mod lines;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod one_line;
pub mod outbox;
pub mod owner_pool;
pub mod percent;
pub mod process_group;
pub mod run_to_completion;
pub mod runtime_load;
pub mod secret_keys;
pub mod spelling;
pub mod store;
pub mod task;
pub mod tls;
pub mod token_bucket;
pub mod value_reader;
