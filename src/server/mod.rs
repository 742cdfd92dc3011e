//! The server: [`services`] opens and connects everything, [`daemon`] runs it, [`http`] serves the API, [`mcp`] the
//! tools, and [`agent_hub`] the links of agents. [`stop_phases`] are the phases of its end. [`sweep`] deletes what is
//! past its retention, [`user_records`] what belonged to a user, and [`audit_entries`] words the changes of records.
//!
//! The credential of a request, its token's scope and its permissions are checked in one place, `http/authorize.rs`.

pub mod agent_hub;
mod audit_entries;
pub mod daemon;
pub mod http;
pub mod mcp;
mod services;
mod stop_phases;
mod sweep;
mod user_records;
