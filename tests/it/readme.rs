//! The README's tour, pasted into a shell: every `sh` block runs, and prints what the `text` block after it says.

use std::{
    path::Path,
    process::{Command, Stdio},
};

#[test]
fn the_tour_prints_what_the_readme_says() {
    let steps = tour();
    assert!(steps.len() > 6, "the tour has shrunk to {} steps", steps.len());
    // The first step builds; the tests have done that.
    let script: String = steps[1..].iter().map(|step| format!("{}\necho ---\n", step.commands)).collect();
    let home = std::env::temp_dir().join(format!("svc-it-{}", uuid::Uuid::now_v7()));
    std::fs::create_dir(&home).unwrap();
    // The tour starts its server twice, so a port that somebody else may take in between will not do: the usual one,
    // at a loopback address of its own.
    let [.., a, b, c] = *uuid::Uuid::new_v4().as_bytes();
    let address = format!("127.{a}.{b}.{c}:7300");
    let binary = Path::new(env!("CARGO_BIN_EXE_svc")).parent().unwrap();
    let output = Command::new("timeout")
        .args(["120", "bash", "-c", &script])
        .env_clear()
        .env("PATH", format!("{}:{}", binary.display(), std::env::var("PATH").unwrap()))
        .env("HOME", &home)
        .env("TMPDIR", &home)
        .env("SVC_LISTEN", &address)
        .env("SVC_SERVER", format!("http://{address}"))
        .env("SVC_AGENT_LISTEN", address.replace(":7300", ":7301"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    for (step, printed) in steps[1..].iter().zip(printed.split("---\n")) {
        assert_eq!(normal(printed), normal(&step.output), "after:\n{}\n{complaints}", step.commands);
    }
    assert_eq!(printed.matches("---\n").count(), steps.len() - 1, "it ran to its end\n{complaints}");
    std::fs::remove_dir_all(home).unwrap();
}

struct Step {
    commands: String,
    output: String,
}

/// The blocks of the tour's section, each with the output that follows it.
fn tour() -> Vec<Step> {
    let readme = include_str!("../../README.md");
    let section = readme.split("## Five-minute tour").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut steps: Vec<Step> = Vec::new();
    let mut blocks = section.split("```");
    blocks.next();
    while let (Some(block), rest) = (blocks.next(), blocks.next()) {
        match block.split_once('\n').unwrap() {
            ("sh", commands) => steps.push(Step { commands: commands.to_owned(), output: String::new() }),
            ("text", output) => steps.last_mut().unwrap().output = output.to_owned(),
            (other, _) => panic!("a block of kind `{other}`"),
        }
        if rest.is_none() {
            break;
        }
    }
    steps
}

/// The same for every run: ids differ.
fn normal(text: &str) -> String {
    let id = regex::Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").unwrap();
    id.replace_all(text, "ID").trim_end().to_owned()
}
