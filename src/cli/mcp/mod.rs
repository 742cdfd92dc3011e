//! `svc mcp`: lists the tools that MCP clients are offered, and prints settings for such clients ([`config`]).

mod config;

pub use config::{McpClientApp, PrintMcpConfig};

use crate::cli::{
    client::{Client, to_json},
    failure::Failure,
    json::indented,
    shell::{OutputFormat, Shell},
    table::{Cell, Fit, TextTable, printable},
};
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};

command_family! {
    /// List the tools that MCP clients are offered, and set such clients up.
    #[argh(example = "{command_name} tools\n{command_name} config cursor")]
    McpCommand(McpSubcommand) = "mcp" { ListTools, PrintMcpConfig }
}

client_command! {
    /// List the tools that an MCP client sees with your token, or show one in full.
    #[argh(example = "{command_name}\n{command_name} notes_search\n{command_name} --token svc_…")]
    ListTools = "tools" {
        /// the tool to show
        #[argh(positional)]
        name: Option<String>,
    }
}

/// A page of MCP's tools/list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolPage {
    tools: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct McpTool {
    name: String,
    description: Option<String>,
    input_schema: Box<RawValue>,
    output_schema: Option<Box<RawValue>>,
    #[serde(default, rename = "_meta")]
    meta: ToolMeta,
}

#[derive(Debug, Default, Deserialize)]
struct ToolMeta {
    method: Option<String>,
    owner: Option<String>,
    #[serde(default)]
    keywords: Vec<String>,
}

/// The tools of all pages.
#[derive(Serialize)]
struct AllTools {
    tools: Vec<Box<RawValue>>,
}

impl ListTools {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let all = every_tool(&client)?;
        let read: Vec<McpTool> = all.tools.iter().map(|tool| client.read_text(tool.get())).collect::<Result<_, _>>()?;
        let Some(name) = &self.name else {
            return if self.format() == OutputFormat::Json {
                shell.out.json(&to_json(&all))
            } else {
                list(shell, read)
            };
        };
        let found = read.into_iter().zip(&all.tools).find(|(tool, _)| tool.name == *name);
        let (tool, raw) = found.ok_or_else(|| {
            let name = printable(name);
            Failure::NoSuch(format!("no tool is named `{name}`: `svc mcp tools` lists those there are for you"))
        })?;
        if self.format() == OutputFormat::Json { shell.out.json(raw.get()) } else { show(shell, tool) }
    }
}

fn every_tool(client: &Client) -> Result<AllTools, Failure> {
    let (mut tools, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        let page: ToolPage = client.read_text(client.call_mcp("tools/list", params)?.get())?;
        tools.extend(page.tools);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(AllTools { tools });
        }
    }
}

fn list(shell: &mut Shell<'_>, tools: Vec<McpTool>) -> Result<(), Failure> {
    let mut table = TextTable::new(&[("NAME", Fit::Elastic), ("OWNER", Fit::Elastic), ("DESCRIPTION", Fit::Elastic)]);
    for tool in tools {
        let owner = tool.meta.owner.unwrap_or_default();
        table.row([tool.name, owner, tool.description.unwrap_or_default()].map(Cell::from));
    }
    shell.out.table(&table)
}

fn show(shell: &mut Shell<'_>, tool: McpTool) -> Result<(), Failure> {
    let mut table = TextTable::of_fields();
    table.field("name", tool.name);
    table.field("description", tool.description.unwrap_or_default());
    if let Some(method) = tool.meta.method {
        table.field("method", method);
    }
    table.field("owner", tool.meta.owner.unwrap_or_default());
    table.field("keywords", tool.meta.keywords.join(", "));
    shell.out.table(&table)?;
    for (title, schema) in [("input", Some(tool.input_schema)), ("output", tool.output_schema)] {
        if let Some(schema) = schema {
            shell.out.line(&format!("\n{title}:\n{}", indented(schema.get())))?;
        }
    }
    Ok(())
}
