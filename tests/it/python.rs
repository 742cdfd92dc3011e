//! Runs the tests of the Python package in `contrib/python` with the installed Python.

use std::process::Command;

#[test]
fn the_python_package_passes_its_own_tests() {
    let output = Command::new("python3")
        .args(["-W", "error", "-m", "unittest", "discover", "-t", ".", "-s", "tests"])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("PYTHONPATH")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/python"))
        .output()
        .expect("python3 is there: the test command needs it");
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output_text.contains("Ran "), "{output_text}");
}
