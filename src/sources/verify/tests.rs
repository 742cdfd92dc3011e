//! Each scheme on the example that its provider documents, and on requests that must be refused.

use super::*;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The tolerance of every scheme.
const TOLERANCE: Span = Span(Duration::from_secs(300));

fn request(headers: &[(&str, &str)], body: &'static str) -> InboundRequest {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
    }
    InboundRequest { headers: map, query: String::new(), body: Bytes::from_static(body.as_bytes()) }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

/// The headers of a documented example, which is verified at `now`, and everything that must be refused about it.
fn check_example(
    verifier: &Verifier,
    secret: &str,
    (headers, body): (&[(&str, &str)], &'static str),
    signature: &str,
    now: i64,
) -> Option<String> {
    let verify = |secrets: &[&str], request: &InboundRequest, now| verify(verifier, secrets, request, at(now));
    let verified = verify(&[secret], &request(headers, body), now).unwrap();
    assert_eq!(verify(&["another secret", secret], &request(headers, body), now).as_ref(), Ok(&verified), "rotation");
    assert!(verify(&["another secret"], &request(headers, body), now).is_err(), "a wrong secret");
    assert!(verify(&[], &request(headers, body), now).is_err(), "no secret");
    let changed: &'static str = Box::leak(format!("{body} ").into_boxed_str());
    assert_eq!(verify(&[secret], &request(headers, changed), now), Err(Unverified::Signature), "another body");
    for (name, value) in headers.iter().filter(|(name, _)| *name != "x-github-delivery") {
        let without: Vec<_> = headers.iter().filter(|(other, _)| other != name).copied().collect();
        let missing = verify(&[secret], &request(&without, body), now);
        assert_eq!(missing, Err(Unverified::Missing((*name).to_owned())), "without {name}");
        let doubled: Vec<_> = headers.iter().copied().chain([(*name, *value)]).collect();
        let doubled = verify(&[secret], &request(&doubled, body), now);
        assert_eq!(doubled, Err(Unverified::Repeated((*name).to_owned())), "{name} twice");
    }
    let garbled = headers.iter().map(|(name, value)| (*name, if *name == signature { "v1,!" } else { *value }));
    assert!(verify(&[secret], &request(&garbled.collect::<Vec<_>>(), body), now).is_err(), "a garbled signature");
    verified.delivery_id
}

#[test]
fn the_example_of_standard_webhooks_is_verified() {
    let headers = [
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ];
    let (verifier, secret) =
        (Verifier::StandardWebhooks { tolerance: TOLERANCE }, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let example = (&headers[..], "{\"test\": 2432232314}");
    let id = check_example(&verifier, secret, example, "webhook-signature", 1_614_265_330);
    assert_eq!(id.as_deref(), Some("msg_p5jXN8AQM9LWM0D4loKWxJek"));
    let several = [
        headers[0],
        headers[1],
        ("webhook-signature", "v1a,x v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ];
    assert!(verify(&verifier, &[secret], &request(&several, example.1), at(1_614_265_330)).is_ok());
    for (now, expired) in [(1_614_265_630, false), (1_614_265_631, true), (1_614_265_030, false), (1_614_265_029, true)]
    {
        let verified = verify(&verifier, &[secret], &request(&headers, example.1), at(now));
        assert_eq!(matches!(verified, Err(Unverified::Expired(_))), expired, "{now}: {verified:?}");
    }
}

#[test]
fn the_example_of_github_is_verified() {
    let headers = [
        ("x-hub-signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"),
        ("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958"),
    ];
    let example = (&headers[..], "Hello, World!");
    let id = check_example(&Verifier::Github, "It's a Secret to Everybody", example, "x-hub-signature-256", 0);
    assert_eq!(id.as_deref(), Some("72d3162e-cc78-11e3-81ab-4c9367dc0958"));
}

#[test]
fn the_example_of_slack_is_verified() {
    let headers = [
        ("x-slack-request-timestamp", "1531420618"),
        ("x-slack-signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
    ];
    let body = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&\
                channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&\
                response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&\
                trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    let verifier = Verifier::Slack { tolerance: TOLERANCE };
    let id = check_example(
        &verifier,
        "8f742231b10e8888abcd99yyyzzz85a5",
        (&headers[..], body),
        "x-slack-signature",
        1_531_420_618,
    );
    let digest = HEXLOWER.encode(&Sha256::digest(format!("v0:1531420618:{body}")));
    assert_eq!(id, Some(format!("1531420618 {digest}")), "a command has no id of its own");
    let late = verify(&verifier, &["8f742231b10e8888abcd99yyyzzz85a5"], &request(&headers, body), at(1_531_420_919));
    assert_eq!(late, Err(Unverified::Expired(Span(Duration::from_secs(301)))));
}

/// The form that Stripe documents; it publishes no secret with its examples.
#[test]
fn a_signature_in_the_form_of_stripe_is_verified() {
    let (secret, body) = ("whsec_5Ijgx9rz2lpBUZWB5vsd", "{\"id\": \"evt_1\", \"object\": \"event\"}");
    let sign = |secret: &str| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let tag = hmac::sign(&key, format!("1492774577.{body}").as_bytes());
        tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let verifier = Verifier::Stripe { tolerance: TOLERANCE };
    let with = |value: String| request(&[("stripe-signature", &value)], body);
    let now = at(1_492_774_577);
    let right =
        format!("t=1492774577,v1={},v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39", sign(secret));
    let id =
        check_example(&verifier, secret, (&[("stripe-signature", &right)], body), "stripe-signature", 1_492_774_577);
    assert_eq!(id.as_deref(), Some("evt_1"));
    let rolled = format!("t=1492774577,v1={},v1={}", sign("whsec_old"), sign(secret));
    assert!(verify(&verifier, &[secret], &with(rolled), now).is_ok(), "one of several signatures is enough");
    for (value, expected) in [
        (format!("v1={}", sign(secret)), Unverified::Malformed("Stripe-Signature".to_owned())),
        (
            format!("t=1492774577,t=1492774577,v1={}", sign(secret)),
            Unverified::Malformed("Stripe-Signature".to_owned()),
        ),
        (format!("t=-1,v1={}", sign(secret)), Unverified::Malformed("Stripe-Signature".to_owned())),
        (format!("t=1492774578,v1={}", sign(secret)), Unverified::Signature),
        (format!("t=1492774577,v0={}", sign(secret)), Unverified::Signature),
        ("t=1492774577".to_owned(), Unverified::Signature),
    ] {
        assert_eq!(verify(&verifier, &[secret], &with(value.clone()), now), Err(expected), "{value}");
    }
}

fn hex(secret: &str, text: &str) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), text.as_bytes());
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The delivery id of a request, which must be verified.
fn id(verifier: &Verifier, secrets: &[&str], headers: &[(&str, &str)], body: &'static str) -> Option<String> {
    verify(verifier, secrets, &request(headers, body), at(1_700_000_000)).unwrap().delivery_id
}

#[test]
fn a_signature_that_is_written_otherwise_is_the_same_delivery() {
    let (old, new, body) = ("an-old-secret", "a-new-secret", "command=%2Fdeploy");
    let signed = |secret: &str, text: &str| hex(secret, &text.replace("TIME", "1700000000").replace("BODY", body));
    let slack = |signature: &str| {
        let headers = [("x-slack-request-timestamp", "1700000000"), ("x-slack-signature", signature)];
        id(&Verifier::Slack { tolerance: TOLERANCE }, &[new], &headers, body)
    };
    let first = slack(&format!("v0={}", signed(new, "v0:TIME:BODY")));
    assert!(first.is_some());
    assert_eq!(slack(&format!("v0={}", signed(new, "v0:TIME:BODY").to_uppercase())), first);
    let stripe = |header: String| {
        id(&Verifier::Stripe { tolerance: TOLERANCE }, &[new, old], &[("stripe-signature", &header)], body)
    };
    let (by_old, by_new) = (signed(old, "TIME.BODY"), signed(new, "TIME.BODY"));
    let first = stripe(format!("t=1700000000,v1={by_old},v1={by_new}"));
    assert!(first.is_some());
    for header in [
        format!("t=1700000000,v1={by_new},v0=x"),
        format!("v1={}, t=1700000000", by_new.to_uppercase()),
        format!("t=1700000000,v1={by_old}"),
    ] {
        assert_eq!(stripe(header.clone()), first, "{header}");
    }
    let scheme = |encoding| HmacScheme {
        header: "x-sig".to_owned(),
        algorithm: HmacAlgorithm::Sha256,
        encoding,
        prefix: String::new(),
        signed: vec![SignedPart::Header("x-time".to_owned()), SignedPart::Body],
        timestamp: Some(("x-time".to_owned(), TOLERANCE)),
        id_header: Some("x-id".to_owned()),
    };
    let verifier = Verifier::Hmac(scheme(SignatureEncoding::Hex));
    let by_hmac = |signature: &str| id(&verifier, &[new], &[("x-time", "1700000000"), ("x-sig", signature)], body);
    let signature = signed(new, "TIMEBODY");
    assert!(by_hmac(&signature).is_some());
    assert_eq!(by_hmac(&signature.to_uppercase()), by_hmac(&signature));
    let other = [("x-time", "1700000001"), ("x-sig", &hex(new, &format!("1700000001{body}")))];
    assert_ne!(id(&verifier, &[new], &other, body), by_hmac(&signature), "another time is another delivery");
}

#[test]
fn an_id_that_cannot_be_used_is_replaced_by_the_fingerprint() {
    let secret = "s3cret-s3cret";
    let slack = |body: &'static str| {
        let signature = format!("v0={}", hex(secret, &format!("v0:1700000000:{body}")));
        let headers = [("x-slack-request-timestamp", "1700000000"), ("x-slack-signature", signature.as_str())];
        id(&Verifier::Slack { tolerance: TOLERANCE }, &[secret], &headers, body)
    };
    let stripe = |body: &'static str| {
        let signature = format!("t=1700000000,v1={}", hex(secret, &format!("1700000000.{body}")));
        id(&Verifier::Stripe { tolerance: TOLERANCE }, &[secret], &[("stripe-signature", &signature)], body)
    };
    assert_eq!(slack(r#"{"id": 7, "event_id": "Ev1"}"#).as_deref(), Some("Ev1"), "the other field is not looked at");
    assert_eq!(stripe(r#"{"id": "evt_1", "event_id": {}}"#).as_deref(), Some("evt_1"));
    let long: &'static str = Box::leak(format!("{{\"id\": \"{0}\", \"event_id\": \"{0}\"}}", "x".repeat(513)).into());
    for body in [long, r#"{"id": 7, "event_id": 7}"#, r#"{"id": "", "event_id": ""}"#, "no json"] {
        for id in [slack(body), stripe(body)] {
            assert!(id.is_some_and(|id| id.starts_with("1700000000 ")), "{body}");
        }
    }
    let key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let webhook_id = "x".repeat(513);
    let signed = format!("{webhook_id}.1700000000.{{}}");
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &encoded_key(key).unwrap()), signed.as_bytes());
    let signature = format!("v1,{}", STANDARD.encode(tag.as_ref()));
    let headers = [
        ("webhook-id", webhook_id.as_str()),
        ("webhook-timestamp", "1700000000"),
        ("webhook-signature", signature.as_str()),
    ];
    let id = id(&Verifier::StandardWebhooks { tolerance: TOLERANCE }, &[key], &headers, "{}");
    assert!(id.is_some_and(|id| id.starts_with("1700000000 ")));
}

#[test]
fn gitlab_sends_its_token_or_a_signature_and_the_secret_decides_which() {
    let verifier = Verifier::Gitlab { tolerance: TOLERANCE };
    let verify = |secrets: &[&str], headers: &[(&str, &str)]| {
        verify(&verifier, secrets, &request(headers, "{\"test\": 2432232314}"), at(1_614_265_330))
    };
    let token = [("x-gitlab-token", "gitlab-token"), ("idempotency-key", "f5e1"), ("x-gitlab-event-uuid", "13792a34")];
    assert_eq!(verify(&["gitlab-token"], &token).unwrap().delivery_id.as_deref(), Some("f5e1"));
    let older = [token[0], token[2]];
    assert_eq!(verify(&["gitlab-token"], &older).unwrap().delivery_id.as_deref(), Some("13792a34"));
    assert_eq!(verify(&["other-token"], &token), Err(Unverified::Credential));
    assert_eq!(verify(&["gitlab-token"], &token[1..]), Err(Unverified::Missing("x-gitlab-token".to_owned())));
    let twice = [token[0], token[0]];
    assert_eq!(verify(&["gitlab-token"], &twice), Err(Unverified::Repeated("x-gitlab-token".to_owned())));
    let signing = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let signed = [
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ];
    assert!(verify(&[signing], &signed).is_ok());
    let as_token = [("x-gitlab-token", signing)];
    assert!(verify(&[signing], &as_token).is_err(), "a signing token is not taken as a plain one");
    assert!(verify(&["gitlab-token", signing], &signed).is_ok(), "while one replaces the other both are taken");
}

#[test]
fn a_token_stands_in_a_header_or_in_the_query_once() {
    let place = TokenPlace::Header { name: "authorization".to_owned(), prefix: "Bearer ".to_owned() };
    let verifier = Verifier::Token { place, id_header: Some("x-id".to_owned()) };
    let check = |headers: &[(&str, &str)]| verify(&verifier, &["s3cret-s3cret"], &request(headers, ""), at(0));
    let right = ("authorization", "Bearer s3cret-s3cret");
    assert_eq!(check(&[right, ("x-id", "7")]).unwrap().delivery_id.as_deref(), Some("7"));
    assert_eq!(check(&[right]).unwrap().delivery_id, None);
    for wrong in ["s3cret-s3cret", "Bearer s3cret-s3cre", "Bearer ", "Bearer s3cret-s3cret "] {
        assert_eq!(check(&[("authorization", wrong)]), Err(Unverified::Credential), "{wrong}");
    }
    assert_eq!(check(&[]), Err(Unverified::Missing("authorization".to_owned())));
    assert_eq!(check(&[right, right]), Err(Unverified::Repeated("authorization".to_owned())));
    let verifier = Verifier::Token { place: TokenPlace::Query { name: "key".to_owned() }, id_header: None };
    for (query, is_right) in [
        ("key=s3cret%2Ds3cret&a=1", true),
        ("key=s3cret-s3cret&key=s3cret-s3cret", false),
        ("key=other", false),
        ("a=s3cret-s3cret", false),
        ("", false),
    ] {
        let request = InboundRequest { query: query.to_owned(), ..request(&[], "") };
        assert_eq!(verify(&verifier, &["s3cret-s3cret"], &request, at(0)).is_ok(), is_right, "{query}");
    }
}

#[test]
fn basic_authentication_needs_the_user_and_the_password() {
    let verifier = Verifier::Basic { username: "prometheus".to_owned(), id_header: None };
    let check = |value: &str| verify(&verifier, &["hunter22"], &request(&[("authorization", value)], ""), at(0));
    let encoded = |text: &str| format!("Basic {}", STANDARD.encode(text));
    assert!(check(&encoded("prometheus:hunter22")).is_ok());
    assert!(check(&encoded("prometheus:hunter22").replace("Basic", "basic")).is_ok());
    for wrong in ["prometheus:hunter2", "grafana:hunter22", "prometheus", ""] {
        assert_eq!(check(&encoded(wrong)), Err(Unverified::Credential), "{wrong}");
    }
    assert_eq!(check("Bearer hunter22"), Err(Unverified::Credential));
    assert_eq!(check("Basic !"), Err(Unverified::Credential));
}

/// Signed as Grafana does it: `TIMESTAMP:BODY`.
#[test]
fn a_scheme_of_its_own_signs_the_parts_that_it_names() {
    let scheme = HmacScheme {
        header: "x-grafana-alerting-signature".to_owned(),
        algorithm: HmacAlgorithm::Sha256,
        encoding: SignatureEncoding::Hex,
        prefix: String::new(),
        signed: vec![SignedPart::Header("x-time".to_owned()), SignedPart::Text(":".to_owned()), SignedPart::Body],
        timestamp: Some(("x-time".to_owned(), TOLERANCE)),
        id_header: None,
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"s3cret-s3cret");
    let tag = hmac::sign(&key, b"1700000000:{\"alerts\": []}");
    let hex = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let headers = [("x-time", "1700000000"), ("x-grafana-alerting-signature", hex.as_str())];
    let example = (&headers[..], "{\"alerts\": []}");
    let id = check_example(
        &Verifier::Hmac(scheme.clone()),
        "s3cret-s3cret",
        example,
        "x-grafana-alerting-signature",
        1_700_000_000,
    );
    let digest = HEXLOWER.encode(&Sha256::digest("1700000000:{\"alerts\": []}"));
    assert_eq!(id, Some(format!("1700000000 {digest}")), "the same text at the same time is the same delivery");
    let late = verify(&Verifier::Hmac(scheme), &["s3cret-s3cret"], &request(&headers, example.1), at(1_700_000_301));
    assert!(matches!(late, Err(Unverified::Expired(_))), "{late:?}");
}

#[test]
fn every_algorithm_and_encoding_is_checked() {
    for (algorithm, expected) in [
        (HmacAlgorithm::Sha1, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        (HmacAlgorithm::Sha256, hmac::HMAC_SHA256),
        (HmacAlgorithm::Sha384, hmac::HMAC_SHA384),
        (HmacAlgorithm::Sha512, hmac::HMAC_SHA512),
    ] {
        let tag = hmac::sign(&hmac::Key::new(expected, b"s3cret-s3cret"), b"body");
        for (encoding, text) in [
            (SignatureEncoding::Hex, tag.as_ref().iter().map(|byte| format!("{byte:02X}")).collect::<String>()),
            (SignatureEncoding::Base64, STANDARD.encode(tag.as_ref())),
        ] {
            let scheme = HmacScheme {
                header: "x-sig".to_owned(),
                algorithm,
                encoding,
                prefix: "v=".to_owned(),
                signed: vec![SignedPart::Body],
                timestamp: None,
                id_header: None,
            };
            let check = |value: &str| {
                verify(
                    &Verifier::Hmac(scheme.clone()),
                    &["s3cret-s3cret"],
                    &request(&[("x-sig", value)], "body"),
                    at(0),
                )
            };
            assert_eq!(check(&format!("v={text}")), Ok(Verified { delivery_id: None }), "{algorithm:?} {encoding:?}");
            assert_eq!(check(&text), Err(Unverified::Signature), "without its prefix");
            assert_eq!(check(&format!("v={}", &text[..text.len() - 4])), Err(Unverified::Signature), "cut off");
        }
    }
}

/// Every scheme, with a secret.
fn all_schemes() -> Vec<(Verifier, &'static str)> {
    let hmac = |encoding| {
        Verifier::Hmac(HmacScheme {
            header: "x-sig".to_owned(),
            algorithm: HmacAlgorithm::Sha256,
            encoding,
            prefix: String::new(),
            signed: vec![SignedPart::Header("x-time".to_owned()), SignedPart::Body],
            timestamp: Some(("x-time".to_owned(), TOLERANCE)),
            id_header: None,
        })
    };
    let token = |place| Verifier::Token { place, id_header: None };
    vec![
        (Verifier::StandardWebhooks { tolerance: TOLERANCE }, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        (Verifier::Github, "s3cret-s3cret"),
        (Verifier::Gitlab { tolerance: TOLERANCE }, "s3cret-s3cret"),
        (Verifier::Stripe { tolerance: TOLERANCE }, "s3cret-s3cret"),
        (Verifier::Slack { tolerance: TOLERANCE }, "s3cret-s3cret"),
        (token(TokenPlace::Header { name: "x-sig".to_owned(), prefix: String::new() }), "s3cret-s3cret"),
        (token(TokenPlace::Query { name: "key".to_owned() }), "s3cret-s3cret"),
        (Verifier::Basic { username: "ada".to_owned(), id_header: None }, "s3cret-s3cret"),
        (hmac(SignatureEncoding::Hex), "s3cret-s3cret"),
        (hmac(SignatureEncoding::Base64), "s3cret-s3cret"),
    ]
}

proptest::proptest! {
    #[test]
    fn nothing_that_was_not_signed_is_accepted(
        signature in "(v0=|v1,|sha256=|t=1700000000,v1=|Basic |)[ -~é]{0,80}",
        timestamp in "(1700000000|[0-9]{0,14}|[ -~]{0,8})",
        query in "(key=)?[ -~]{0,20}",
        body: Vec<u8>,
    ) {
        let names = [
            "webhook-signature", "x-hub-signature-256", "x-gitlab-token", "stripe-signature", "x-slack-signature", "x-sig",
            "authorization",
        ];
        let times = ["webhook-timestamp", "x-slack-request-timestamp", "x-time"];
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", HeaderValue::from_static("1"));
        for (names, value) in [(&names[..], &signature), (&times[..], &timestamp)] {
            for name in names {
                headers.insert(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
        }
        let request = InboundRequest { headers, query, body: body.into() };
        for (verifier, secret) in all_schemes() {
            let verified = verify(&verifier, &[secret], &request, at(1_700_000_000));
            proptest::prop_assert!(verified.is_err(), "{verifier:?}");
        }
    }
}

#[test]
fn a_signature_is_hexadecimal_digits_and_nothing_else() {
    assert_eq!(unhex("00ffAb"), Some(vec![0, 255, 171]));
    for text in ["+f", "f", " f", "0x", "fé"] {
        assert_eq!(unhex(text), None, "{text}");
    }
}
