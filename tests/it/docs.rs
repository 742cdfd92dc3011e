//! The manual (README.md, docs/, the READMEs of the examples) stays true: links lead somewhere, command lines parse,
//! and the settings, routes and snippets that it names exist.

use crate::support::{Daemon, Space};
use isahc::{Request, RequestExt as _};
use regex::Regex;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// One Markdown file.
struct ManualPage {
    path: PathBuf,
    text: String,
    blocks: Vec<CodeBlock>,
    /// The text without code blocks.
    prose: String,
}

/// A fenced block of code.
struct CodeBlock {
    language: String,
    code: String,
}

impl ManualPage {
    fn new(path: PathBuf, text: String) -> Self {
        let (mut blocks, mut prose): (Vec<CodeBlock>, String) = (Vec::new(), String::new());
        let mut is_inside = false;
        for line in text.lines() {
            match (line.strip_prefix("```"), is_inside) {
                (Some(language), false) => {
                    blocks.push(CodeBlock { language: language.to_owned(), code: String::new() });
                    is_inside = true;
                }
                (Some(_), true) => is_inside = false,
                (None, true) => blocks.last_mut().expect("a block has begun").code += &format!("{line}\n"),
                (None, false) => prose += &format!("{line}\n"),
            }
        }
        assert!(!is_inside, "{}: a code block has no end", path.display());
        Self { path, text, blocks, prose }
    }

    fn name(&self) -> String {
        self.path.strip_prefix(root()).expect("pages are in the repository").display().to_string()
    }

    fn code_of<'a>(&'a self, language: &'a str) -> impl Iterator<Item = &'a str> {
        self.blocks.iter().filter(move |block| block.language == language).map(|block| block.code.as_str())
    }

    /// The pieces of code within the prose, between backticks.
    fn code_spans(&self) -> Vec<&str> {
        self.prose.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
    }

    /// The anchors of the headings, as GitHub makes them.
    fn anchors(&self) -> BTreeSet<String> {
        self.prose.lines().filter(|line| line.starts_with('#')).map(anchor).collect()
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn manual() -> Vec<ManualPage> {
    let mut paths = vec![root().join("README.md")];
    for folder in [
        "docs",
        "contrib",
        "contrib/sources",
        "contrib/examples",
        "contrib/examples/lua",
        "contrib/examples/python",
        "contrib/examples/shell",
    ] {
        let entries = fs::read_dir(root().join(folder)).expect("the folder is there");
        let entries = entries.map(|entry| entry.expect("its entries are readable").path());
        paths.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    assert!(paths.len() > 10, "the manual has shrunk to {paths:?}");
    paths.into_iter().map(read_page).collect()
}

fn read_page(path: PathBuf) -> ManualPage {
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    ManualPage::new(path, text)
}

/// Lower case, without punctuation, and with a hyphen for each space.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_of_the_manual_leads_to_a_file_and_a_heading() {
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let mut broken = Vec::new();
    for page in manual() {
        for found in link.captures_iter(&page.prose) {
            let target = &found[1];
            if target.starts_with("https://") {
                continue;
            }
            let (file, heading) =
                target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
            let path = if file.is_empty() { page.path.clone() } else { page.path.parent().unwrap().join(file) };
            let is_right =
                path.exists() && heading.is_none_or(|heading| read_page(path.clone()).anchors().contains(heading));
            if !is_right {
                broken.push(format!("{}: {target}", page.name()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn every_page_of_the_manual_is_linked_from_the_readme() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.lines().count() < 300, "the README is for the first ten minutes; the reference is in docs/");
    for page in manual().iter().map(ManualPage::name).filter(|name| name.starts_with("docs/")) {
        assert!(readme.contains(&format!("({page})")), "{page} is not linked");
    }
}

#[test]
fn every_command_line_of_the_manual_parses() {
    let mut help = Help::default();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in manual() {
        let blocks = page.code_of("sh").map(|code| code.replace("\\\n", " "));
        let spans = page.code_spans().into_iter().map(str::to_owned);
        for command in blocks.chain(spans).flat_map(|code| svc_commands(&code)) {
            count += 1;
            if let Err(problem) = help.check(&command) {
                wrong.push(format!("{}: svc {}: {problem}", page.name(), command.join(" ")));
            }
        }
    }
    assert!(count > 60, "only {count} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The words behind each `svc` of a shell text, up to the end of its command.
fn svc_commands(text: &str) -> Vec<Vec<String>> {
    let command = Regex::new(r#"(?m)(?:^|[\s(|;&])svc ((?:'[^']*'|"[^"]*"|[^\s'"()|;&<>]+| +)*)"#).unwrap();
    let word = Regex::new(r#"(?:'[^']*'|"[^"]*"|[^\s'"])+"#).unwrap();
    let words = |text: &str| word.find_iter(text).map(|found| found.as_str().to_owned()).collect();
    command.captures_iter(text).map(|found| words(&found[1])).collect()
}

/// The help texts of commands, each asked for once.
#[derive(Default)]
struct Help {
    texts: BTreeMap<Vec<String>, String>,
}

impl Help {
    /// Checks that the command exists and has the flags.
    fn check(&mut self, words: &[String]) -> Result<(), String> {
        // `svc COMMAND --help` names no command.
        if words.first().is_none_or(|first| first.chars().all(|c| c.is_uppercase())) {
            return Ok(());
        }
        let mut command: Vec<String> = Vec::new();
        let mut arguments = words;
        while let [next, rest @ ..] = arguments {
            let subcommands = subcommands(self.of(&command));
            if subcommands.is_empty() {
                break;
            }
            if subcommands.contains(next) {
                command.push(next.clone());
                arguments = rest;
            } else if command == ["event"] {
                // `svc event TYPE` is short for `svc event emit TYPE`.
                command.push("emit".to_owned());
            } else if command == ["backup"] {
                // `svc backup FILE` is short for `svc backup create FILE`.
                command.push("create".to_owned());
            } else {
                return Err(format!("no command `{next}`"));
            }
        }
        let help = self.of(&command);
        // Behind the file of `svc run` are the arguments of the program.
        for flag in arguments.iter().filter(|word| word.starts_with("--") && *word != "--help") {
            let is_known = help.split_whitespace().any(|word| word.trim_matches(['[', ']']) == flag);
            if !is_known {
                return Err(format!("no flag {flag}"));
            }
        }
        Ok(())
    }

    fn of(&mut self, command: &[String]) -> &str {
        self.texts.entry(command.to_vec()).or_insert_with(|| {
            let output = Command::new(env!("CARGO_BIN_EXE_svc")).args(command).arg("--help").output().unwrap();
            assert!(output.status.success(), "svc {command:?} --help failed");
            String::from_utf8(output.stdout).unwrap()
        })
    }
}

/// The names under `Commands:`; a description that goes on in the next line is further to the right.
fn subcommands(help: &str) -> Vec<String> {
    let section = help.split("\nCommands:\n").nth(1).unwrap_or_default().split("\n\n").next().unwrap_or_default();
    let lines = section.lines().filter_map(|line| line.strip_prefix("  "));
    lines.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn every_setting_that_the_manual_names_exists() {
    let defaults: toml::Table = toml::from_str(include_str!("../../contrib/svc.default.toml")).unwrap();
    let mut count = 0;
    for page in manual() {
        for span in page.code_spans() {
            let Some((section, key)) = span.split_once('.') else { continue };
            let Some(section) = defaults.get(section).and_then(toml::Value::as_table) else { continue };
            // Files such as `mcp.rs`, the key file, and the type and pattern of an event.
            if key != "rs" && !["secrets.key", "agent.lost", "agent.*"].contains(&span) {
                assert!(section.contains_key(key), "{}: there is no setting `{span}`", page.name());
                count += 1;
            }
        }
    }
    assert!(count > 20, "only {count} settings were found");
}

#[test]
fn every_route_that_the_manual_names_exists() {
    let daemon = Daemon::start();
    let document = daemon.get("/api/openapi.json").json();
    let paths = document["paths"].as_object().unwrap();
    let route = Regex::new(
        r#"(?:\b(GET|POST|PUT|PATCH|DELETE) )?(?:[`"]|\$SVC|\b )(/(?:api/[\w./{}-]*[\w}]|mcp|healthz|readyz|metrics))\b"#,
    );
    let route = route.unwrap();
    // `GET /api/x` and `/api/x`: the method, if any, is inside the backticks.
    let method_in_backticks = Regex::new("`(GET|POST|PUT|PATCH|DELETE) /").unwrap();
    let mut found = BTreeSet::new();
    for page in manual() {
        let text = method_in_backticks.replace_all(&page.text, "$1 `/").into_owned();
        for captures in route.captures_iter(&text) {
            let method = captures.get(1).map(|method| method.as_str().to_lowercase());
            let operations = paths.iter().find(|(path, _)| is_same_route(path, &captures[2])).map(|(_, found)| found);
            let operations =
                operations.unwrap_or_else(|| panic!("{}: there is no route {}", page.name(), &captures[2]));
            let is_known = method.as_ref().is_none_or(|method| operations.get(method).is_some());
            assert!(is_known, "{}: {} has no {method:?}", page.name(), &captures[2]);
            found.insert(captures[2].to_owned());
        }
    }
    assert!(found.len() >= 10, "only these routes were found: {found:?}");
}

/// Returns true if a path fits a route of the OpenAPI document, in which `{…}` stands for any segment.
fn is_same_route(route: &str, path: &str) -> bool {
    let (route, path): (Vec<_>, Vec<_>) = (route.split('/').collect(), path.split('/').collect());
    route.len() == path.len() && route.iter().zip(path).all(|(one, other)| *one == other || one.starts_with('{'))
}

#[test]
fn every_route_of_the_agent_that_the_manual_names_exists() {
    let daemon = Daemon::start();
    let mut space = Space::create(&daemon, "docs");
    space.start(&daemon, &[]);
    let send = |method: &str, path: &str, body: &Value| {
        let request = Request::builder().method(method).uri(format!("{}{path}", space.url));
        let request = request.header("content-type", "application/json").body(body.to_string()).unwrap();
        request.send().unwrap().status().as_u16()
    };
    let route = Regex::new(r"/(?:event|kv|packages/[\w.-]+)\b").unwrap();
    let text = fs::read_to_string(root().join("docs/methods-and-spaces.md")).unwrap();
    let section = text.split("\n## The agent's API\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let named: BTreeSet<&str> = route.find_iter(section).map(|found| found.as_str()).collect();
    assert_eq!(named, ["/event", "/kv", "/packages/svc-libraries.zip", "/packages/user-libraries.zip"].into());
    for path in named {
        let status = match path {
            "/event" => send("POST", path, &serde_json::json!({"type": "x", "payload": {}})),
            "/kv" => send("PUT", "/kv?key=x", &serde_json::json!({"value": 1, "ttl": 60})),
            _ => send("GET", path, &Value::Null),
        };
        assert!((200..300).contains(&status), "{path}: {status}");
    }
}

#[test]
fn every_code_block_of_the_manual_compiles() {
    let lua = mlua::Lua::new();
    let mut languages = BTreeSet::new();
    for page in manual() {
        let name = page.name();
        for code in page.code_of("lua") {
            lua.load(code).into_function().unwrap_or_else(|error| panic!("{name}: {error}\n{code}"));
        }
        for code in page.code_of("toml") {
            toml::from_str::<toml::Table>(code).unwrap_or_else(|error| panic!("{name}: {error}\n{code}"));
        }
        for code in page.code_of("python") {
            check("python3", &["-c", "import ast, sys; ast.parse(sys.argv[1])", code], &name);
        }
        for code in page.code_of("sh") {
            check("bash", &["-n", "-c", code], &name);
        }
        languages.extend(page.blocks.into_iter().map(|block| block.language));
    }
    let known: BTreeSet<String> = ["lua", "python", "sh", "text", "toml"].map(str::to_owned).into();
    assert_eq!(languages, known);
}

fn check(program: &str, arguments: &[&str], page: &str) {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{page}: {}\n{}", String::from_utf8_lossy(&output.stderr), arguments[2]);
}

#[test]
fn commands_are_found_wherever_a_shell_runs_them() {
    let text = "export X=$(svc space create web --port web=80)\nuntil svc whoami > /dev/null; do sleep 1; done\n\
                SVC_TOKEN=x svc event a.b '{\"x\": 1}' --wait | grep x\nimport svc.event";
    let found = svc_commands(text);
    let found: Vec<String> = found.iter().map(|words| words.join(" ")).collect();
    assert_eq!(found, ["space create web --port web=80", "whoami", "event a.b '{\"x\": 1}' --wait"]);
}
