//! The tour of the README, pasted into a shell: every `sh` block runs and prints the `text` block after it.

use std::{
    path::Path,
    process::{Command, Stdio},
};

#[test]
fn the_tour_prints_the_output_shown_in_the_readme() {
    let steps = tour();
    assert!(steps.len() > 6, "the tour has shrunk to {} steps", steps.len());
    // The first step builds the binary, which the tests have done.
    let script: String = steps[1..].iter().map(|step| format!("{}\necho ---\n", step.commands)).collect();
    let home = tempfile::tempdir().unwrap();
    // The tour starts its server twice, so a free port could be taken in between: it uses the usual port at a random
    // loopback address.
    let [.., a, b, c] = *uuid::Uuid::new_v4().as_bytes();
    let address = format!("127.{a}.{b}.{c}:7300");
    let binary = Path::new(env!("CARGO_BIN_EXE_svc")).parent().unwrap();
    let output = Command::new("timeout")
        .args(["120", "bash", "-c", &script])
        .env_clear()
        .env("PATH", format!("{}:{}", binary.display(), std::env::var("PATH").unwrap()))
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .env("SVC_LISTEN", &address)
        .env("SVC_SERVER", format!("http://{address}"))
        .env("SVC_AGENT_LISTEN", address.replace(":7300", ":7301"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    for (step, printed) in steps[1..].iter().zip(printed.split("---\n")) {
        assert_eq!(without_ids(printed), without_ids(&step.output), "after:\n{}\n{errors}", step.commands);
    }
    assert_eq!(printed.matches("---\n").count(), steps.len() - 1, "the tour ran to its end\n{errors}");
}

struct TourStep {
    commands: String,
    output: String,
}

/// The blocks of the tour, each with the output that follows it.
fn tour() -> Vec<TourStep> {
    let readme = include_str!("../../README.md");
    let section = readme.split("## Five-minute tour").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut steps: Vec<TourStep> = Vec::new();
    let mut blocks = section.split("```");
    blocks.next();
    while let (Some(block), rest) = (blocks.next(), blocks.next()) {
        match block.split_once('\n').unwrap() {
            ("sh", commands) => steps.push(TourStep { commands: commands.to_owned(), output: String::new() }),
            ("text", output) => steps.last_mut().unwrap().output = output.to_owned(),
            (other, _) => panic!("a block of kind `{other}`"),
        }
        if rest.is_none() {
            break;
        }
    }
    steps
}

/// Replaces ids, which differ between runs.
fn without_ids(text: &str) -> String {
    let id = regex::Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").unwrap();
    id.replace_all(text, "ID").trim_end().to_owned()
}
