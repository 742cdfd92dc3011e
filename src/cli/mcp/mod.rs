//! `svc mcp`: what MCP clients are offered, and how they are told of the server.

mod clients;
mod config;
mod tools;

pub use clients::Target;
pub use config::Config;
pub use tools::Tools;

command_family! {
    /// Look at the tools that MCP clients are offered, and set such clients up.
    #[argh(example = "{command_name} tools\n{command_name} config cursor")]
    Mcp = "mcp" { Tools, Config }
}
