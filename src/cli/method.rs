//! `svc method` finds and calls methods. `svc methods` publishes methods from inside a space, and removes them.

use super::{
    arguments::{PayloadSource, brief, read_file},
    client::{AgentHttp, Client, QueryString, to_json},
    failure::Failure,
    json::{indented, on_one_line},
    resource::joined,
    shell::{OutputFormat, Shell},
    table::{Cell, Fit, TextTable, Tone, printable},
};
use crate::{
    calls::call::CallError,
    model::{
        api::{
            agent::{RegisterBody, RegisteredView, UnregisteredView},
            methods::{MethodDetail, MethodView, MethodsView, RefusalView, RefusedSpaceView},
        },
        jsonrpc::{ErrorObject, Id, MAX_BATCH, Request, ResponseMembers, RpcResponse},
        method::MethodNames,
    },
    platform::percent,
};
use serde_json::value::RawValue;
use std::path::PathBuf;

/// The most bytes of a batch in one request, a little under the server's default limit.
const BATCH_BYTES: usize = 1000 << 10;

command_family! {
    /// Find methods that spaces publish, and call them.
    #[argh(example = "{command_name} list\n{command_name} call notes.search '{{\"query\": \"tea\"}}'")]
    MethodCommand(MethodSubcommand) = "method" { ListMethods, CallMethod }
}

command_family! {
    /// Publish methods from inside a space, or remove them.
    #[argh(
        example = "{command_name} register methods.toml\n{command_name} unregister",
        note = "These ask the agent of this space, at SVC_AGENT_URL or http://127.0.0.1:7301."
    )]
    MethodsCommand(MethodsSubcommand) = "methods" { RegisterMethods, UnregisterMethods }
}

local_command! {
    /// Register the methods that a file declares, in place of all that this space registered before.
    #[argh(
        example = "{command_name} methods.toml\n{command_name} methods.lua",
        note = "A script is run by the agent, with `svc.methods` to load: it must call `register` on its server."
    )]
    RegisterMethods = "register" {
        /// the registration, in TOML, or a Lua or Python script; its method server runs in the file's directory
        #[argh(positional)]
        file: PathBuf,
    }
}

local_command! {
    /// Remove methods of this space; without any left their server is stopped.
    #[argh(example = "{command_name}\n{command_name} search")]
    UnregisterMethods = "unregister" {
        /// the one to remove, by its local name; all if left out
        #[argh(positional)]
        local_name: Option<String>,
    }
}

client_command! {
    /// List the methods you can call, or show one in full.
    #[argh(example = "{command_name}\n{command_name} notes.search\n{command_name} --find 'search notes'")]
    ListMethods = "list" {
        /// the method to show
        #[argh(positional)]
        name: Option<String>,

        /// only those with these words in their name, description or keywords
        #[argh(option, arg_name = "words")]
        find: Option<String>,
    }
}

client_command! {
    /// Call a method and print its result.
    #[argh(
        example = "{command_name} notes.search '{{\"query\": \"tea\"}}'\n{command_name} notes.search --batch '[{{\"query\": \"tea\"}}, {{\"query\": \"cake\"}}]'\necho '{{\"query\": \"tea\"}}' | {command_name} notes.search",
        note = "Each result is one line of JSON. The exit code is 1 if any call failed."
    )]
    CallMethod = "call" {
        /// the method's name
        #[argh(positional)]
        name: String,

        /// its params, an object or an array; @FILE reads a file, - reads stdin, which is also read if something is
        /// piped in
        #[argh(positional)]
        params: Option<String>,

        /// make one call for each element of an array of params
        #[argh(switch)]
        batch: bool,

        /// send a notification: do not wait for a result
        #[argh(switch)]
        notify: bool,
    }
}

impl ListMethods {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        match &self.name {
            Some(name) => show(shell, &client, name, self.format()),
            None => self.list(shell, &client),
        }
    }

    fn list(&self, shell: &mut Shell<'_>, client: &Client) -> Result<(), Failure> {
        let answer = client.get(&QueryString::default().with_some("q", self.find.as_deref()).on("/api/methods"))?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(answer.as_str());
        }
        let mut table = TextTable::new(&[
            ("NAME", Fit::Elastic),
            ("SCOPE", Fit::Rigid),
            ("OWNER", Fit::Elastic),
            ("MCP", Fit::Rigid),
            ("AVAILABLE", Fit::Rigid),
            ("DESCRIPTION", Fit::Elastic),
        ]);
        let MethodsView { methods, refused } = client.read(&answer)?;
        for method in methods {
            let tool = if method.mcp_tool { "yes" } else { "no" };
            let available = available(&method);
            let scope = method.scope.to_string().into();
            let [name, owner, description] = [method.name, method.owner, method.description].map(Cell::from);
            table.row([name, scope, owner, tool.into(), available, description]);
        }
        shell.out.table(&table)?;
        refused.iter().try_for_each(|RefusedSpaceView { space, refusal, .. }| {
            shell.out.line(&printable(&format!("space {space}: its registration is {}", refused_line(refusal))))
        })
    }
}

/// The refusal of a registration, in words that follow its subject.
pub fn refused_line(refusal: &RefusalView) -> String {
    format!("refused since {}: {}", brief(refusal.since), refusal.reason)
}

fn show(shell: &mut Shell<'_>, client: &Client, name: &str, format: OutputFormat) -> Result<(), Failure> {
    let path = format!("/api/methods/{}", percent::encode(name));
    let answer = client.get(&path).map_err(|failure| match failure {
        Failure::Rejected { status: 404, .. } => unknown(name),
        other => other,
    })?;
    if format == OutputFormat::Json {
        return shell.out.json(answer.as_str());
    }
    let MethodDetail { method, providers } = client.read(&answer)?;
    let mut table = TextTable::of_fields();
    let available = available(&method);
    table.field("name", method.name);
    table.field("description", method.description);
    table.field("owner", method.owner);
    table.field("scope", method.scope.to_string());
    table.field("groups", joined(method.groups.iter().map(|group| &group.name)));
    table.field("keywords", method.keywords.join(", "));
    table.field("mcp tool", if method.mcp_tool { "yes" } else { "no" });
    table.field("events", method.events.join(", "));
    table.field("providers", method.provider_count.to_string());
    table.field("available", available);
    for provider in providers.unwrap_or_default() {
        let reason = provider.reason.map_or_else(String::new, |reason| format!(": {reason}"));
        let text = format!("{} {}{reason}", provider.space, provider.health);
        table.field("space", Cell::toned(text, Tone::from(&provider.health)));
    }
    shell.out.table(&table)?;
    for (title, schema) in [("params", method.params_schema), ("result", method.result_schema)] {
        if let Some(schema) = schema {
            shell.out.line(&format!("\n{title}:\n{}", indented(schema.get())))?;
        }
    }
    Ok(())
}

impl CallMethod {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let client = self.client(shell)?;
        let text = PayloadSource::of_argument(self.params.as_deref()).text(shell)?;
        let given = text.as_deref().map(str::trim).filter(|text| !text.is_empty());
        if self.batch {
            let all = given.ok_or_else(|| Failure::Usage(format!("{BATCH_SHAPE}; nothing was given")))?;
            return self.call_each(shell, &client, all);
        }
        let params = given.map(params).transpose()?;
        self.call_once(shell, &client, params)
    }

    fn call_once(&self, shell: &mut Shell<'_>, client: &Client, params: Option<Box<RawValue>>) -> Result<(), Failure> {
        let answer = client.post_without_timeout(CALL, to_json(&self.request(params, 1)))?;
        if answer.as_str().is_empty() && self.notify {
            return Ok(());
        }
        let response = read_response(client, answer.as_str())?;
        if self.format() == OutputFormat::Json {
            shell.out.json(answer.as_str())?;
        }
        match &response {
            RpcResponse::Error(_) => Err(self.failed(&response)),
            RpcResponse::Result(_) if self.format() == OutputFormat::Json => Ok(()),
            RpcResponse::Result(result) => shell.out.json(result.get()),
        }
    }

    /// Sends as many batches as it takes, and prints the results of each as it arrives.
    fn call_each(&self, shell: &mut Shell<'_>, client: &Client, text: &str) -> Result<(), Failure> {
        let all: Vec<Box<RawValue>> = serde_json::from_str(text)
            .map_err(|error| Failure::Usage(format!("{BATCH_SHAPE}; this is not ({error})")))?;
        let (mut gathered, mut failures) = (Vec::new(), 0);
        for batch in batches(&all) {
            let request = |(number, params): &(usize, &RawValue)| self.request(Some((*params).to_owned()), *number);
            let requests: Vec<Request> = batch.iter().map(request).collect();
            let answer = client.post_without_timeout(CALL, to_json(&requests))?;
            if answer.as_str().is_empty() && self.notify {
                continue;
            }
            if answer.as_str().trim_start().starts_with('{') {
                // One response is the refusal of the whole batch.
                return Err(Failure::Bad(read_response(client, answer.as_str())?.to_string()));
            }
            let responses: Vec<Box<RawValue>> = client.read(&answer)?;
            if !self.notify && responses.len() != batch.len() {
                let counts = format!("{} responses to {} calls", responses.len(), batch.len());
                return Err(client.unexpected(&counts));
            }
            for ((number, _), raw) in batch.iter().zip(responses) {
                match read_response(client, raw.get())? {
                    error @ RpcResponse::Error(_) => {
                        failures += 1;
                        // The response to a notification does not say which one it is for.
                        let call = if self.notify { String::new() } else { format!("call {number}: ") };
                        shell.note(&format!("svc: {call}{error}"));
                    }
                    RpcResponse::Result(result) if self.format() == OutputFormat::Text => {
                        shell.out.line(&on_one_line(result.get()))?;
                    }
                    RpcResponse::Result(_) => {}
                }
                if self.format() == OutputFormat::Json {
                    gathered.push(raw);
                }
            }
        }
        if self.format() == OutputFormat::Json && !self.notify {
            shell.out.json(&to_json(&gathered))?;
        }
        match failures {
            0 => Ok(()),
            _ => Err(Failure::Bad(format!("{failures} of {} calls of `{}` failed", all.len(), printable(&self.name)))),
        }
    }

    fn request(&self, params: Option<Box<RawValue>>, number: usize) -> Request {
        Request { method: self.name.clone(), params, id: (!self.notify).then(|| Id::number(number)) }
    }

    /// The failure of a call. A program answers with the same code if it does not know its own method, so that only the
    /// server's own error means that nobody publishes the name.
    fn failed(&self, error: &RpcResponse) -> Failure {
        let unknown_name = ErrorObject::from(CallError::UnknownMethod(self.name.clone()));
        match error.to_string() {
            text if text == RpcResponse::from(unknown_name).to_string() => unknown(&self.name),
            text => Failure::Bad(text),
        }
    }
}

/// The path of JSON-RPC calls. The server bounds the time of a method.
const CALL: &str = "/api/methods/call";

const BATCH_SHAPE: &str = "--batch takes an array with the params of each call, such as '[{\"query\": \"tea\"}]'";

/// Numbered params, grouped into batches that a server takes in one request.
fn batches(all: &[Box<RawValue>]) -> Vec<Vec<(usize, &RawValue)>> {
    let mut batches: Vec<Vec<(usize, &RawValue)>> = Vec::new();
    let mut bytes = 0;
    for (index, params) in all.iter().enumerate() {
        let size = params.get().len() + 400;
        if batches.last().is_none_or(|batch| batch.len() == MAX_BATCH) || bytes + size > BATCH_BYTES {
            batches.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        batches.last_mut().expect("the loop pushed one").push((index + 1, params));
    }
    batches
}

fn params(text: &str) -> Result<Box<RawValue>, Failure> {
    let raw: Box<RawValue> = serde_json::from_str(text).map_err(|error| {
        Failure::Usage(format!("the params are not JSON ({error}): write an object such as '{{\"query\": \"tea\"}}'"))
    })?;
    match raw.get().as_bytes()[0] {
        b'{' | b'[' => Ok(raw),
        _ => {
            Err(Failure::Usage("the params must be a JSON object or array, such as '{\"query\": \"tea\"}'".to_owned()))
        }
    }
}

/// Reads a JSON-RPC response, which has a result or an error.
fn read_response(client: &Client, text: &str) -> Result<RpcResponse, Failure> {
    let members: ResponseMembers<'_> = client.read_text(text)?;
    match (members.result, members.error) {
        (None, None) => Err(client.unexpected("neither a result nor an error")),
        _ => Ok(members.to_response()),
    }
}

fn unknown(name: &str) -> Failure {
    Failure::NoSuch(format!("no method is named `{}`: `svc method list` lists those you can call", printable(name)))
}

fn available(method: &MethodView) -> Cell {
    let tone = match method.available_count {
        0 => Tone::Bad,
        some if some < method.provider_count => Tone::Doubtful,
        _ => Tone::Good,
    };
    Cell::toned(format!("{} of {}", method.available_count, method.provider_count), tone)
}

impl RegisterMethods {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let agent = AgentHttp::find(shell.environment)?;
        let source = read_file(&self.file)?;
        let path =
            std::path::absolute(&self.file).map_err(|source| Failure::File { path: self.file.clone(), source })?;
        if path.to_str().is_none() {
            return Err(Failure::Usage(format!("`{}` is not UTF-8", path.display())));
        }
        let body = RegisterBody { path: Some(path), source: Some(source), ..RegisterBody::default() };
        agent.note_wait_for_link(shell);
        let answer = agent.post_without_timeout("/methods", to_json(&body))?;
        if self.format() == OutputFormat::Json {
            return shell.out.json(answer.as_str());
        }
        let registered: RegisteredView = agent.read(&answer)?;
        for line in registered.output.iter().flat_map(|output| output.lines()) {
            shell.out.line(&printable(line))?;
        }
        for warning in &registered.warnings {
            shell.note(&format!("svc: warning: {warning}"));
        }
        if !registered.methods.is_empty() {
            shell.out.line(&format!("registered {}", counted(&registered.methods)))?;
        }
        match registered.removed.is_empty() {
            true if registered.methods.is_empty() => shell.out.line("nothing was registered"),
            true => Ok(()),
            false => shell.out.line(&format!("removed {}", counted(&registered.removed))),
        }
    }
}

impl UnregisterMethods {
    pub fn run(self, shell: &mut Shell<'_>) -> Result<(), Failure> {
        let agent = AgentHttp::find(shell.environment)?;
        let answer = match &self.local_name {
            Some(name) => {
                agent.note_wait_for_link(shell);
                agent.delete(&format!("/methods/{}", percent::encode(name)))?
            }
            None => agent.delete("/methods")?,
        };
        if self.format() == OutputFormat::Json {
            return shell.out.json(answer.as_str());
        }
        let removed: UnregisteredView = agent.read(&answer)?;
        match removed.removed.is_empty() {
            true => shell.out.line("nothing was registered"),
            false => shell.out.line(&format!("removed {}", counted(&removed.removed))),
        }
    }
}

/// The number of methods and their names.
fn counted(methods: &[MethodNames]) -> String {
    let names = methods.iter().map(|method| printable(&method.name)).collect::<Vec<_>>().join(", ");
    match methods.len() {
        1 => format!("1 method: {names}"),
        many => format!("{many} methods: {names}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_batch_is_sent_in_parts_that_a_server_takes() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let many: Vec<_> = (0..2500).map(|n| raw(&n.to_string())).collect();
        let parts = batches(&many);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [1000, 1000, 500]);
        assert_eq!((parts[2][0].0, parts[2][0].1.get()), (2001, "2000"));
        let heavy: Vec<_> = (0..3).map(|_| raw(&format!("\"{}\"", "x".repeat(600 << 10)))).collect();
        assert_eq!(batches(&heavy).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
        assert!(batches(&[]).is_empty());
    }

    #[test]
    fn params_are_an_object_or_an_array() {
        assert_eq!(params(" {\"a\": 1.0} ").unwrap().get(), "{\"a\": 1.0}");
        assert!(params("[]").is_ok());
        for bad in ["5", "\"x\"", "{", "null", "query=tea"] {
            assert_eq!(params(bad).unwrap_err().exit_code(), 2, "{bad}");
        }
    }
}
