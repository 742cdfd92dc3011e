//! Entry points of the fuzz targets in `tests/fuzz/`: each takes any bytes and panics if a rule does not hold.
//!
//! The targets of `cargo fuzz` and the tests below, which replay the stored inputs and mutations of them, call the same
//! functions.

use crate::{
    delivery::sinks::signature,
    model::{
        agent_protocol::{self, ToAgent, ToServer},
        api::{
            agent::{AgentEmitBody, KvIncrementBody, KvPutBody, RegisterBody},
            events::{EmitBody, ExplainBody},
            identity::{Credentials, GroupBody, NewToken, RoleBody, UserBody},
            scripts::RunBody,
            sinks::{PreviewBody, RedeliverBody, SampleEvent},
            sources::{SourceRedeliverBody, SourceTestBody},
            spaces::SpaceBody,
        },
        id::UserId,
        json_input::{self, JsonFields},
        jsonrpc::{Id, Request, RpcBody, RpcResponse},
        method::Registration,
        owner::Owner,
        pattern::Patterns,
        script_spec::ScriptSpec,
        sink_spec::SinkSpec,
        source_spec::SourceSpec,
        space_settings::{Driver, SpaceSettings},
        template_spec::TemplateSpec,
        toml_input,
        webhook_secret::WebhookSecret,
    },
    platform::config::Config,
    routing::matcher::Trie,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{json, value::RawValue};
use std::collections::BTreeMap;

pub use crate::scripting::{lua::fuzz_json as lua_json, workers::fuzz_messages as worker_messages};

/// A target and its name, which is also that of its binary and its folder of inputs.
pub type FuzzTarget = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [FuzzTarget; 8] = [
    ("event_patterns", event_patterns),
    ("json_rpc", json_rpc),
    ("agent_protocol", agent_protocol),
    ("toml_definitions", toml_definitions),
    ("webhook_signatures", webhook_signatures),
    ("lua_json", lua_json),
    ("worker_messages", worker_messages),
    ("json_bodies", json_bodies),
];

/// The first line is a list of patterns; each other line is the type of an event. The trie and the patterns agree.
pub fn event_patterns(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (list, kinds) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(patterns) = list.parse::<Patterns>() else { return };
    assert_eq!(patterns.as_str(), list);
    let written: Vec<_> = patterns.iter().map(|pattern| pattern.to_string()).collect();
    let again: Patterns = written.join(",").parse().expect("written patterns are patterns");
    assert!(again.iter().eq(patterns.iter()), "{list:?} was written as {written:?}");
    let (mut trie, user) = (Trie::new(), UserId::new());
    trie.insert(&patterns, Owner::Global, &1);
    for kind in kinds.lines().filter(|kind| kind.split('.').all(|segment| !segment.is_empty())) {
        let found = trie.matches(kind.split('.'), user);
        assert_eq!(found == [1], patterns.matches(kind), "{list:?} for {kind:?}");
    }
    trie.remove(&patterns, Owner::Global, &1);
    assert!(trie.matches(["a"].into_iter(), user).is_empty());
}

/// The body of a request. A request reads back as it was written, and a response to it is JSON with its id.
pub fn json_rpc(data: &[u8]) {
    let requests = match RpcBody::read(data, 16) {
        Ok(RpcBody::Single(request)) => vec![request],
        Ok(RpcBody::Batch(requests)) => requests,
        Err(error) => return check_response(&RpcResponse::Error(error.to_raw()), &Id::null()),
    };
    for request in requests {
        match request {
            Ok(request) => {
                let written = serde_json::to_vec(&request).expect("a request is JSON");
                let Ok(RpcBody::Single(Ok(again))) = RpcBody::read(&written, 16) else {
                    panic!("{} does not read back", String::from_utf8_lossy(&written))
                };
                let Request { method, params, id } = &again;
                assert_eq!(*method, request.method);
                assert_eq!(params.as_ref().map(|raw| raw.get()), request.params.as_ref().map(|raw| raw.get()));
                let result = RpcResponse::Result(params.clone().unwrap_or_else(null));
                check_response(&result, id.as_ref().unwrap_or(&Id::null()));
            }
            Err(invalid) => check_response(&RpcResponse::Error(invalid.error.to_raw()), &invalid.id),
        }
    }
}

fn check_response(response: &RpcResponse, id: &Id) {
    let mut out = Vec::new();
    response.write(id, &mut out);
    // The values stay text: a number in them may be too large for every type.
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(&out).expect("a response is an object");
    assert_eq!(members["jsonrpc"].get(), "\"2.0\"");
    assert_eq!(members["id"].get(), serde_json::to_string(id).expect("an id is JSON"));
    assert!(members.contains_key("result") != members.contains_key("error"));
}

fn null() -> Box<RawValue> {
    RawValue::from_string("null".to_owned()).expect("null is JSON")
}

/// A frame of an agent or of a server. A message reads back as it was written, and a registration is checked in bounded
/// time.
pub fn agent_protocol(data: &[u8]) {
    if let Ok(message) = agent_protocol::decode::<ToServer>(data) {
        let written = agent_protocol::encode(&message);
        let again: ToServer = agent_protocol::decode(&written).expect("a written message is one");
        assert_eq!(agent_protocol::encode(&again), written);
        if let ToServer::Register { registration, .. } = again {
            let _ = registration.publish("space", |_| None);
        }
    }
    if let Ok(message) = agent_protocol::decode::<ToAgent>(data) {
        let written = agent_protocol::encode(&message);
        let again: ToAgent = agent_protocol::decode(&written).expect("a written message is one");
        assert_eq!(agent_protocol::encode(&again), written);
    }
}

/// The text of a TOML file, as each thing that is defined in one. An accepted definition is JSON for the API.
pub fn toml_definitions(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(registration) = Registration::from_toml(text) {
        let _ = registration.publish("space", |_| None);
        serde_json::to_vec(&registration).expect("a registration is JSON");
    }
    if let Ok(sink) = toml_input::parse::<SinkSpec>(text) {
        serde_json::to_vec(&sink).expect("a sink is JSON");
        let _ = sink.check();
    }
    if let Ok(source) = toml_input::parse::<SourceSpec>(text) {
        serde_json::to_vec(&source).expect("a source is JSON");
        let _ = source.check();
    }
    if let Ok(template) = toml_input::parse::<TemplateSpec>(text) {
        serde_json::to_vec(&template).expect("a template is JSON");
        let _ = template.check();
    }
    let _ = toml_input::parse::<Config>(text);
}

/// A secret, an id, a time and a body, on a line each. Signatures have their form, and depend on each byte of the body.
pub fn webhook_signatures(data: &[u8]) {
    let mut parts = data.splitn(4, |byte| *byte == b'\n');
    let mut text = || parts.next().and_then(|part| std::str::from_utf8(part).ok());
    let (Some(secret), Some(id), Some(time)) = (text(), text(), text()) else { return };
    let Ok(secret) = WebhookSecret::parse(secret) else { return };
    let (time, body) = (time.parse().unwrap_or(0), parts.next().unwrap_or_default());
    let mut other = body.to_vec();
    other.push(b'x');

    let signer = signature::WebhookSigner::new(&secret);
    let plain = signer.sign_body(body);
    let hex = plain.strip_prefix("sha256=").expect("the prefix of the form");
    assert!(hex.len() == 64 && hex.bytes().all(|digit| digit.is_ascii_hexdigit()), "{plain}");
    assert_ne!(plain, signer.sign_body(&other));

    let standard = signer.sign_standard(id, time, body);
    assert_eq!(standard.strip_prefix("v1,").map(str::len), Some(44), "{standard}");
    assert_ne!(standard, signer.sign_standard(id, time, &other));
}

/// The body of a request to the API, as each type of body. An accepted body reads back as it was written.
pub fn json_bodies(data: &[u8]) {
    for read in [
        read_back::<EmitBody>,
        read_back::<ExplainBody>,
        read_back::<SampleEvent>,
        read_back::<RunBody>,
        read_back::<PreviewBody>,
        read_back::<RedeliverBody>,
        read_back::<SourceTestBody>,
        read_back::<SourceRedeliverBody>,
        read_back::<AgentEmitBody>,
        read_back::<RegisterBody>,
        read_back::<KvPutBody>,
        read_back::<KvIncrementBody>,
        read_back::<UserBody>,
        read_back::<RoleBody>,
        read_back::<GroupBody>,
        read_back::<NewToken>,
        read_back::<Credentials>,
    ] {
        read(data);
    }
    let _ = json_input::parse::<SpaceBody>(data);
    // Definitions are read as fields first, so that some of them can be put over the stored ones.
    let Ok(fields) = json_input::parse::<JsonFields>(data) else { return };
    let nothing = JsonFields::default();
    if let Ok(sink) = fields.patch::<SinkSpec>(&json!({})) {
        let again: SinkSpec = nothing.patch(&sink).expect("a sink reads back");
        assert_eq!(again, sink);
        let _ = sink.check();
    }
    if let Ok(source) = fields.patch::<SourceSpec>(&json!({})) {
        let again: SourceSpec = nothing.patch(&source).expect("a source reads back");
        assert_eq!(again, source);
        let _ = source.check();
    }
    if let Ok(script) = fields.patch::<ScriptSpec>(&json!({})) {
        let again: ScriptSpec = nothing.patch(&script).expect("a script reads back");
        assert_eq!(again, script);
        let _ = script.check();
    }
    if let Ok(settings) = fields.patch::<SpaceSettings>(&SpaceSettings::default()) {
        let again: SpaceSettings = nothing.patch(&settings).expect("settings read back");
        assert_eq!(again, settings);
        let _ = settings.check(Driver::default());
    }
}

fn read_back<T: DeserializeOwned + Serialize>(data: &[u8]) {
    let Ok(body) = json_input::parse::<T>(data) else { return };
    let written = serde_json::to_vec(&body).expect("a body is JSON");
    let again: T = json_input::parse(&written)
        .unwrap_or_else(|error| panic!("{} does not read back: {error}", String::from_utf8_lossy(&written)));
    assert_eq!(serde_json::to_vec(&again).expect("a body is JSON"), written);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        path::Path,
        time::{Duration, Instant},
    };

    /// Mutated inputs of each target that a usual run tries. `SVC_FUZZ_SECONDS` makes it try others for that long
    /// instead.
    const MUTATIONS: u64 = 300;

    /// Texts that mean something to one of the parsers.
    const TOKENS: [&str; 16] = [
        "\"",
        "{",
        "}",
        "[",
        "]",
        ",",
        ".*",
        "\\u0000",
        "\\ud83d",
        "1e999",
        "-0.0",
        "null",
        "\n",
        "=",
        "whsec_",
        "9007199254740993",
    ];

    fn inputs(name: &str) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(name);
        let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| fs::read(path).unwrap()).collect()
    }

    #[test]
    fn every_stored_input_of_the_fuzz_targets_holds() {
        for (name, target) in TARGETS {
            let inputs = inputs(name);
            assert!(inputs.len() >= 3, "{name} has {} inputs", inputs.len());
            inputs.iter().for_each(|input| target(input));
        }
    }

    #[test]
    fn mutated_inputs_of_the_fuzz_targets_hold() {
        let seconds = std::env::var("SVC_FUZZ_SECONDS").ok().map(|text| text.parse().unwrap());
        let mix = |sum: u64, byte: &u8| sum.wrapping_mul(31).wrapping_add(u64::from(*byte));
        let start = seconds.map_or(1, |_| UserId::new().as_bytes().iter().fold(1, mix));
        for (name, target) in TARGETS {
            let (stored, started) = (inputs(name), Instant::now());
            let goes_on = |count: u64| match seconds {
                Some(seconds) => started.elapsed() < Duration::from_secs(seconds),
                None => count < MUTATIONS,
            };
            let (mut random, mut count) = (Random(start), 0);
            while goes_on(count) {
                let input = random.mutate(&stored);
                count += 1;
                if let Err(panic) = std::panic::catch_unwind(|| target(&input)) {
                    eprintln!("{name} does not hold for {:?}", String::from_utf8_lossy(&input));
                    eprintln!("{name}: the bytes {input:?}");
                    std::panic::resume_unwind(panic);
                }
            }
            if seconds.is_some() {
                eprintln!("{name}: {count} inputs in {:?}", started.elapsed());
            }
        }
    }

    /// Numbers of a linear congruential generator: the same inputs for the same start.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % end.max(1)
        }

        fn mutate(&mut self, stored: &[Vec<u8>]) -> Vec<u8> {
            let mut input = stored[self.below(stored.len())].clone();
            for _ in 0..=self.below(6) {
                let at = self.below(input.len() + 1);
                let end = (at + self.below(16)).min(input.len());
                match self.below(6) {
                    0 if at < input.len() => input[at] ^= 1 << self.below(8),
                    1 => drop(input.drain(at..end)),
                    2 => drop(input.splice(at..at, [u8::try_from(self.below(256)).unwrap()])),
                    3 => drop(input.splice(at..at, TOKENS[self.below(TOKENS.len())].bytes())),
                    4 => {
                        let part = input[at..end].repeat(self.below(40));
                        input.splice(at..at, part);
                    }
                    _ => {
                        let other = &stored[self.below(stored.len())];
                        let from = self.below(other.len() + 1);
                        input.splice(at..at, other[from..].iter().copied());
                    }
                }
            }
            input
        }
    }

    #[test]
    fn every_fuzz_target_has_its_binary() {
        let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/Cargo.toml")).unwrap();
        for (name, _) in TARGETS {
            assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
        }
        assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
    }
}
