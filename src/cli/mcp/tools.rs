//! `svc mcp tools`: what an MCP client with this token sees, asked as such a client would.

use crate::cli::{
    api,
    client::Client,
    failure::Failure,
    json::indented,
    shell::{Form, Shell},
    table::{Cell, Fit, Table, printable},
};
use serde::Serialize;
use serde_json::{json, value::RawValue};

client_command! {
    /// List the tools that an MCP client sees with your token, or show one in full.
    #[argh(example = "{command_name}\n{command_name} notes_search\n{command_name} --token svc_…")]
    Tools = "tools" {
        /// the tool to show
        #[argh(positional)]
        name: Option<String>,
    }
}

/// All pages as one.
#[derive(Serialize)]
struct All {
    tools: Vec<Box<RawValue>>,
}

impl Tools {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let all = every_tool(&client)?;
        let read: Vec<api::Tool> =
            all.tools.iter().map(|tool| client.read_text(tool.get())).collect::<Result<_, _>>()?;
        let Some(name) = &self.name else {
            return if self.form() == Form::Json { shell.out.json(&to_json(&all)) } else { list(shell, read) };
        };
        let found = read.into_iter().zip(&all.tools).find(|(tool, _)| tool.name == *name);
        let (tool, raw) = found.ok_or_else(|| {
            let name = printable(name);
            Failure::NoSuch(format!("no tool is named `{name}`: `svc mcp tools` lists those there are for you"))
        })?;
        if self.form() == Form::Json { shell.out.json(raw.get()) } else { show(shell, tool) }
    }
}

fn every_tool(client: &Client) -> Result<All, Failure> {
    let (mut tools, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        let page: api::ToolPage = client.read_text(client.ask_mcp("tools/list", params)?.get())?;
        tools.extend(page.tools);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(All { tools });
        }
    }
}

fn list(shell: &mut Shell<'_>, tools: Vec<api::Tool>) -> Result<(), Failure> {
    let mut table = Table::new(&[("NAME", Fit::Elastic), ("OWNER", Fit::Elastic), ("DESCRIPTION", Fit::Elastic)]);
    for tool in tools {
        let owner = tool.meta.owner.unwrap_or_default();
        table.row([tool.name, owner, tool.description.unwrap_or_default()].map(Cell::from));
    }
    shell.out.table(&table)
}

fn show(shell: &mut Shell<'_>, tool: api::Tool) -> Result<(), Failure> {
    let mut table = Table::of_fields();
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

fn to_json(all: &All) -> String {
    serde_json::to_string(all).expect("JSON values are JSON")
}
