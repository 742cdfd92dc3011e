//! Verification of a request by its raw bytes: signatures, tokens and the age of signed timestamps.
//!
//! Every comparison with something secret takes the same time whatever it compares. A header that a scheme reads must
//! stand in the request once. Nothing of the body is decoded before its signature is right, except where the scheme has
//! the id of the delivery in it.

use super::inbound_request::{HeaderFault, InboundRequest};
use crate::model::{
    timestamp::Timestamp,
    units::Span,
    verifier::{HmacAlgorithm, HmacScheme, SignatureEncoding, SignedPart, TokenPlace, Verifier, encoded_key},
};
use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use std::{borrow::Cow, time::Duration};
use subtle::{Choice, ConstantTimeEq as _};

/// The most signatures that one header may carry: each is compared with each secret.
const MAX_SIGNATURES: usize = 16;

/// The longest delivery id that is used, in bytes.
const MAX_DELIVERY_ID: usize = 512;

/// A request that was verified.
#[derive(Debug, PartialEq, Eq)]
pub struct Verified {
    /// The provider's id of the delivery, by which a repeated one is recognised.
    pub delivery_id: Option<String>,
}

/// The reason that a request was not verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    #[error("the header {0} is missing")]
    Missing(String),
    #[error("the header {0} stands in the request more than once")]
    Repeated(String),
    #[error("the header {0} cannot be read")]
    Malformed(String),
    #[error("the signature is wrong")]
    Signature,
    #[error("the token or password is wrong or missing")]
    Credential,
    #[error("the request was signed {0} ago or that far in the future, by its timestamp")]
    Expired(Span),
}

/// Checks a request that arrived at `now` against the secrets that are valid then.
pub fn verify(
    verifier: &Verifier,
    secrets: &[&str],
    request: &InboundRequest,
    now: Timestamp,
) -> Result<Verified, Unverified> {
    match verifier {
        Verifier::StandardWebhooks { tolerance } => standard_webhooks(secrets, request, *tolerance, now),
        Verifier::Github => {
            let given = header(request, "x-hub-signature-256")?;
            let given = given.strip_prefix("sha256=").and_then(unhex).ok_or(Unverified::Signature)?;
            check_signature(HmacAlgorithm::Sha256, &text_keys(secrets), &[&request.body], &[given])?;
            Ok(Verified { delivery_id: optional(request, "x-github-delivery")? })
        }
        Verifier::Gitlab { tolerance } => gitlab(secrets, request, *tolerance, now),
        Verifier::Stripe { tolerance } => stripe(secrets, request, *tolerance, now),
        Verifier::Slack { tolerance } => {
            let timestamp = header(request, "x-slack-request-timestamp")?;
            let given = header(request, "x-slack-signature")?;
            check_age("X-Slack-Request-Timestamp", timestamp, *tolerance, now)?;
            let bytes = given.strip_prefix("v0=").and_then(unhex).ok_or(Unverified::Signature)?;
            let signed: [&[u8]; 4] = [b"v0:", timestamp.as_bytes(), b":", &request.body];
            check_signature(HmacAlgorithm::Sha256, &text_keys(secrets), &signed, &[bytes])?;
            // Events have an id in their body; a slash command has none.
            let id = id_in_body(request, |ids| ids.event_id);
            Ok(Verified { delivery_id: id.or_else(|| Some(fingerprint(timestamp, &signed))) })
        }
        Verifier::Token { place, id_header } => {
            let (given, prefix) = match place {
                TokenPlace::Header { name, prefix } => (header(request, name)?.to_owned(), prefix.as_str()),
                TokenPlace::Query { name } => {
                    let mut values = request.query_pairs().filter(|(found, _)| found == name);
                    let given = values.next().ok_or(Unverified::Credential)?.1;
                    if values.next().is_some() {
                        return Err(Unverified::Credential);
                    }
                    (given, "")
                }
            };
            check_credential(secrets, given.strip_prefix(prefix).ok_or(Unverified::Credential)?)?;
            Ok(Verified { delivery_id: delivery_id(request, id_header.as_deref())? })
        }
        Verifier::Basic { username, id_header } => {
            let given = header(request, "authorization")?;
            let encoded = given.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic"));
            let decoded = encoded.and_then(|(_, encoded)| STANDARD.decode(encoded.trim()).ok());
            let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or(Unverified::Credential)?;
            let expected: Vec<_> = secrets.iter().map(|secret| format!("{username}:{secret}")).collect();
            check_credential(&expected.iter().map(String::as_str).collect::<Vec<_>>(), &decoded)?;
            Ok(Verified { delivery_id: delivery_id(request, id_header.as_deref())? })
        }
        Verifier::Hmac(scheme) => generic_hmac(scheme, secrets, request, now),
        Verifier::Insecure { id_header } => Ok(Verified { delivery_id: delivery_id(request, id_header.as_deref())? }),
    }
}

/// The header and the query parameter that carry a credential itself, which nothing after the verification needs.
pub fn credential_places(verifier: &Verifier) -> (Option<&str>, Option<&str>) {
    match verifier {
        Verifier::Gitlab { .. } => (Some("x-gitlab-token"), None),
        Verifier::Basic { .. } => (Some("authorization"), None),
        Verifier::Token { place: TokenPlace::Header { name, .. }, .. } => (Some(name), None),
        Verifier::Token { place: TokenPlace::Query { name }, .. } => (None, Some(name)),
        Verifier::StandardWebhooks { .. }
        | Verifier::Github
        | Verifier::Stripe { .. }
        | Verifier::Slack { .. }
        | Verifier::Hmac(_)
        | Verifier::Insecure { .. } => (None, None),
    }
}

/// `webhook-signature: v1,BASE64 v1,BASE64` over `ID.TIMESTAMP.BODY`.
fn standard_webhooks(
    secrets: &[&str],
    request: &InboundRequest,
    tolerance: Span,
    now: Timestamp,
) -> Result<Verified, Unverified> {
    let (id, timestamp) = (header(request, "webhook-id")?, header(request, "webhook-timestamp")?);
    let signatures = header(request, "webhook-signature")?;
    check_age("webhook-timestamp", timestamp, tolerance, now)?;
    let given = signatures.split(' ').filter_map(|signature| STANDARD.decode(signature.strip_prefix("v1,")?).ok());
    let given: Vec<_> = given.take(MAX_SIGNATURES).collect();
    let keys: Vec<_> = secrets.iter().filter_map(|secret| encoded_key(secret)).map(Cow::Owned).collect();
    let signed: [&[u8]; 5] = [id.as_bytes(), b".", timestamp.as_bytes(), b".", &request.body];
    check_signature(HmacAlgorithm::Sha256, &keys, &signed, &given)?;
    let id = bounded_id(id.to_owned());
    Ok(Verified { delivery_id: id.or_else(|| Some(fingerprint(timestamp, &signed))) })
}

/// The secret token as it is, or a signature if the secret is a signing token. The secret decides which of the two is
/// needed, not the sender.
fn gitlab(secrets: &[&str], request: &InboundRequest, tolerance: Span, now: Timestamp) -> Result<Verified, Unverified> {
    let (signing, plain): (Vec<&str>, Vec<&str>) = secrets.iter().partition(|secret| secret.starts_with("whsec_"));
    if plain.is_empty() || (!signing.is_empty() && request.header("x-gitlab-token").is_err()) {
        return standard_webhooks(&signing, request, tolerance, now);
    }
    check_credential(&plain, header(request, "x-gitlab-token")?)?;
    let id = optional(request, "idempotency-key")?;
    Ok(Verified { delivery_id: id.map_or_else(|| optional(request, "x-gitlab-event-uuid"), |id| Ok(Some(id)))? })
}

/// `Stripe-Signature: t=TIMESTAMP,v1=HEX,v1=HEX` over `TIMESTAMP.BODY`.
fn stripe(secrets: &[&str], request: &InboundRequest, tolerance: Span, now: Timestamp) -> Result<Verified, Unverified> {
    let parts = header(request, "stripe-signature")?;
    let pairs = || parts.split(',').filter_map(|part| part.trim().split_once('='));
    let mut timestamps = pairs().filter(|(name, _)| *name == "t").map(|(_, value)| value);
    let (Some(timestamp), None) = (timestamps.next(), timestamps.next()) else {
        return Err(Unverified::Malformed("Stripe-Signature".to_owned()));
    };
    check_age("Stripe-Signature", timestamp, tolerance, now)?;
    let given = pairs().filter(|(name, _)| *name == "v1").filter_map(|(_, value)| unhex(value));
    let given: Vec<_> = given.take(MAX_SIGNATURES).collect();
    let signed: [&[u8]; 3] = [timestamp.as_bytes(), b".", &request.body];
    check_signature(HmacAlgorithm::Sha256, &text_keys(secrets), &signed, &given)?;
    let id = id_in_body(request, |ids| ids.id);
    Ok(Verified { delivery_id: id.or_else(|| Some(fingerprint(timestamp, &signed))) })
}

fn generic_hmac(
    scheme: &HmacScheme,
    secrets: &[&str],
    request: &InboundRequest,
    now: Timestamp,
) -> Result<Verified, Unverified> {
    let given = header(request, &scheme.header)?;
    let timestamp = match &scheme.timestamp {
        Some((name, tolerance)) => {
            let timestamp = header(request, name)?;
            check_age(name, timestamp, *tolerance, now)?;
            Some(timestamp)
        }
        None => None,
    };
    let bytes = given.strip_prefix(scheme.prefix.as_str()).and_then(|encoded| match scheme.encoding {
        SignatureEncoding::Hex => unhex(encoded),
        SignatureEncoding::Base64 => STANDARD.decode(encoded).ok(),
    });
    let mut signed: Vec<&[u8]> = Vec::with_capacity(scheme.signed.len());
    for part in &scheme.signed {
        signed.push(match part {
            SignedPart::Body => &request.body,
            SignedPart::Header(name) => header(request, name)?.as_bytes(),
            SignedPart::Text(text) => text.as_bytes(),
        });
    }
    let bytes = bytes.ok_or(Unverified::Signature)?;
    check_signature(scheme.algorithm, &text_keys(secrets), &signed, &[bytes])?;
    let id = delivery_id(request, scheme.id_header.as_deref())?;
    Ok(Verified { delivery_id: id.or_else(|| Some(fingerprint(timestamp?, &signed))) })
}

/// Checks that one of the given signatures is that of the parts under one of the keys.
fn check_signature(
    algorithm: HmacAlgorithm,
    keys: &[Cow<'_, [u8]>],
    signed: &[&[u8]],
    given: &[Vec<u8>],
) -> Result<(), Unverified> {
    let algorithm = match algorithm {
        HmacAlgorithm::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        HmacAlgorithm::Sha256 => hmac::HMAC_SHA256,
        HmacAlgorithm::Sha384 => hmac::HMAC_SHA384,
        HmacAlgorithm::Sha512 => hmac::HMAC_SHA512,
    };
    let mut is_right = Choice::from(0);
    for key in keys {
        let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
        signed.iter().for_each(|part| context.update(part));
        let expected = context.sign();
        for given in given {
            is_right |= expected.as_ref().ct_eq(given);
        }
    }
    if is_right.into() { Ok(()) } else { Err(Unverified::Signature) }
}

/// Checks that a text is one of the expected ones. Their digests are compared, so that not even a length shows.
fn check_credential(expected: &[&str], given: &str) -> Result<(), Unverified> {
    let given = Sha256::digest(given);
    let mut is_right = Choice::from(0);
    for expected in expected {
        is_right |= Sha256::digest(expected).as_slice().ct_eq(given.as_slice());
    }
    if is_right.into() { Ok(()) } else { Err(Unverified::Credential) }
}

/// Checks that a time in seconds since 1970 is within the tolerance of now, in both directions.
fn check_age(name: &str, timestamp: &str, tolerance: Span, now: Timestamp) -> Result<(), Unverified> {
    let malformed = || Unverified::Malformed(name.to_owned());
    if timestamp.is_empty() || timestamp.len() > 12 || !timestamp.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed());
    }
    let at = timestamp.parse::<i64>().map_err(|_| malformed())?;
    let age = Duration::from_secs(now.seconds().abs_diff(at));
    if age <= tolerance.0 { Ok(()) } else { Err(Unverified::Expired(Span(age))) }
}

fn text_keys<'a>(secrets: &[&'a str]) -> Vec<Cow<'a, [u8]>> {
    secrets.iter().map(|secret| Cow::Borrowed(secret.as_bytes())).collect()
}

fn header<'a>(request: &'a InboundRequest, name: &str) -> Result<&'a str, Unverified> {
    request.header(name).map_err(|fault| match fault {
        HeaderFault::Missing => Unverified::Missing(name.to_owned()),
        HeaderFault::Repeated => Unverified::Repeated(name.to_owned()),
        HeaderFault::NotText => Unverified::Malformed(name.to_owned()),
    })
}

/// A header that may be absent, as a delivery id.
fn optional(request: &InboundRequest, name: &str) -> Result<Option<String>, Unverified> {
    match header(request, name) {
        Ok(value) => Ok(bounded_id(value.to_owned())),
        Err(Unverified::Missing(_)) => Ok(None),
        Err(fault) => Err(fault),
    }
}

fn delivery_id(request: &InboundRequest, name: Option<&str>) -> Result<Option<String>, Unverified> {
    name.map_or(Ok(None), |name| optional(request, name))
}

fn bounded_id(id: String) -> Option<String> {
    (!id.is_empty() && id.len() <= MAX_DELIVERY_ID).then_some(id)
}

/// The ids that providers put into their bodies. Each scheme reads its own; the other may be of any type.
#[derive(Deserialize)]
struct BodyIds<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    event_id: Option<&'a RawValue>,
}

/// The id in a field of the body, if it is a text that can be used.
fn id_in_body(
    request: &InboundRequest,
    field: impl for<'a> FnOnce(BodyIds<'a>) -> Option<&'a RawValue>,
) -> Option<String> {
    let id = field(serde_json::from_slice(&request.body).ok()?)?;
    bounded_id(serde_json::from_str(id.get()).ok()?)
}

/// The id of a delivery that has none: its signed time, and a digest of all that is signed. Neither the spelling of a
/// signature nor the secret that made it is in it, since whoever repeats a request can choose another.
fn fingerprint(timestamp: &str, signed: &[&[u8]]) -> String {
    let mut digest = Sha256::new();
    signed.iter().for_each(|part| digest.update(part));
    format!("{timestamp} {}", HEXLOWER.encode(&digest.finalize()))
}

/// The bytes that hexadecimal digits stand for.
fn unhex(text: &str) -> Option<Vec<u8>> {
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()
}

#[cfg(test)]
mod tests;
