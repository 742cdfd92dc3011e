//! The server: [`daemon`] puts it together and runs it, [`http`] serves the API, [`mcp`] the tools, and [`agent_hub`] the
//! links of agents.

pub mod agent_hub;
pub mod daemon;
pub mod http;
pub mod mcp;
