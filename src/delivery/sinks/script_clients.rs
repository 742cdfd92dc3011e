//! The HTTP client and the method caller of Lua scripts: HTTP through the same guarded egress as webhooks, methods
//! through the same calls as every other caller.

use crate::{
    calls::{call::Calls, registry::Viewer},
    model::{
        jsonrpc::RpcResponse,
        outbound_http::{check_url, is_framing},
        owner::Owner,
    },
    platform::egress::{self, Completeness, Egress, Tls},
    scripting::lua::{HttpClient, HttpRequest, HttpResponse, MAX_BODY, MethodCaller},
};
use futures_util::{FutureExt, future::BoxFuture};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::RawValue;
use std::time::Duration;

/// The timeout of an HTTP request that sets none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

impl MethodCaller for Calls {
    fn call(
        &self,
        owner: Owner,
        method: &str,
        params: Box<RawValue>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, String>> {
        let (calls, method) = (self.clone(), method.to_owned());
        async move {
            let viewer = Viewer::of_owner(owner, calls.identity());
            match Self::call(&calls, &viewer, &method, Some(&params)).await {
                Ok(RpcResponse::Result(value)) => Ok(value),
                Ok(error) => Err(format!("`{method}` failed: {error}")),
                Err(error) => Err(error.to_string()),
            }
        }
        .boxed()
    }
}

impl HttpClient for Egress {
    fn send(&self, owner: Owner, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, String>> {
        let egress = self.clone();
        async move {
            let request = checked(request)?;
            let response = Egress::send(&egress, owner, request).await.map_err(|error| error.to_string())?;
            if response.completeness == Completeness::Cut {
                return Err(format!("the response has more than {MAX_BODY} bytes"));
            }
            let headers = response
                .headers
                .iter()
                .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
            Ok(HttpResponse { status: response.status.as_u16(), headers: headers.collect(), body: response.body })
        }
        .boxed()
    }
}

/// Headers of a request that a script sends.
const MAX_HEADERS: usize = 200;

fn checked(request: HttpRequest) -> Result<egress::OutboundRequest, String> {
    if request.headers.len() > MAX_HEADERS {
        return Err(format!("the request has more than {MAX_HEADERS} headers"));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let illegal = || format!("the header `{name}` is not legal");
        let parsed: HeaderName = name.parse().map_err(|_| illegal())?;
        if is_framing(&parsed) {
            return Err(format!("the header `{name}` belongs to the connection: leave it out"));
        }
        headers.append(parsed, HeaderValue::from_str(value).map_err(|_| illegal())?);
    }
    Ok(egress::OutboundRequest {
        method: request.method.parse().map_err(|_| format!("`{}` is no HTTP method", request.method))?,
        url: check_url(&request.url).map_err(|error| error.to_string())?,
        headers,
        body: request.body,
        timeout: request.timeout.unwrap_or(DEFAULT_TIMEOUT),
        tls: Tls::Verify,
        keep: MAX_BODY,
        resend: egress::Resend::IfIdempotent,
    })
}

#[cfg(test)]
mod tests {
    use crate::{
        delivery::{
            CompletedAttempt,
            sinks::test_support::{SinkFixture, sink},
        },
        platform::egress::receiver::{Behaviour, Receiver},
        routing::queue::AttemptOutcome,
    };
    use serde_json::json;

    async fn run(owner: &str, source: String) -> CompletedAttempt {
        SinkFixture::new().attempt(&sink(json!({"type": "script", "owner": owner, "script": {"source": source}}))).await
    }

    #[tokio::test]
    async fn a_script_sends_a_request_and_reads_the_response() {
        let answer = "HTTP/1.1 201 Made\r\nX-Kind: tea\r\nContent-Length: 2\r\n\r\nhi";
        let receiver = Receiver::start(Behaviour::Answer(answer)).await;
        let source = format!(
            "local r = http.request{{url = '{}', json = {{a = 1}}, headers = {{['X-A'] = 'b'}}}}\n\
             print(r.status, r.headers['x-kind'], r.body)",
            receiver.url()
        );
        let attempted = run("global", source).await;
        assert_eq!((attempted.outcome, attempted.log), (AttemptOutcome::Delivered, vec!["201\ttea\thi".to_owned()]));
        let request = receiver.request(0);
        assert!(request.starts_with("POST / ") && request.contains("x-a: b") && request.ends_with(r#"{"a":1}"#));
    }

    #[tokio::test]
    async fn a_short_form_sends_the_request_that_it_names() {
        for (call, line, end) in [
            ("http.get(url)", "GET / ", "\r\n\r\n"),
            ("http.delete(url)", "DELETE / ", "\r\n\r\n"),
            ("http.post(url, {a = 1})", "POST / ", r#"{"a":1}"#),
            ("http.put(url, 'text')", "PUT / ", "text"),
            ("http.patch(url, nil, {json = 1})", "PATCH / ", "1"),
        ] {
            let receiver = Receiver::start(Behaviour::Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await;
            let attempted = run("global", format!("local url = '{}' print({call}.status)", receiver.url())).await;
            assert_eq!(
                (attempted.outcome, attempted.log),
                (AttemptOutcome::Delivered, vec!["200".to_owned()]),
                "{call}"
            );
            let request = receiver.request(0);
            assert!(request.starts_with(line) && request.ends_with(end), "{call}: {request}");
        }
    }

    #[tokio::test]
    async fn a_users_script_is_subject_to_the_same_egress_policy_as_a_webhook() {
        let receiver = Receiver::start(Behaviour::Silence).await;
        for call in ["request{url = url}", "get(url)", "delete(url)", "post(url)", "put(url, 'x')", "patch(url, {})"] {
            let attempted = run("me", format!("local url = '{}' http.{call}", receiver.url())).await;
            let error = attempted.error.unwrap();
            assert!(error.contains("not allowed"), "{call}: {error}");
        }
        assert_eq!(receiver.connections(), 0);
    }

    #[tokio::test]
    async fn headers_of_the_connection_are_refused() {
        for name in ["Content-Length", "Host", "Transfer-Encoding", "Proxy-Authorization"] {
            let source = format!("http.request{{url = 'http://127.0.0.1:1/', headers = {{['{name}'] = '1'}}}}");
            let error = run("global", source).await.error.unwrap();
            assert!(error.contains(name) && error.contains("belongs to the connection"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_response_over_the_size_limit_is_an_error() {
        let receiver = Receiver::start(Behaviour::Endless("HTTP/1.1 200 OK\r\n\r\n")).await;
        for call in [format!("http.request{{url = '{}'}}", receiver.url()), format!("http.get('{}')", receiver.url())] {
            let error = run("global", call).await.error.unwrap();
            assert!(error.contains("more than 1048576 bytes"), "{error}");
        }
    }
}
