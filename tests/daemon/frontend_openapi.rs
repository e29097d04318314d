//! openapi.json is as strict as the daemon: requests that it allows are accepted, all others are
//! refused, and it lists every answer. The requests are made from openapi.json alone.

use serde_json::Value;

use crate::support::frontend::FrontEndClient;
use crate::support::machine::Machine;

/// Values that a schema allows, and values that it forbids.
#[derive(Default)]
struct Values {
    allowed: Vec<String>,
    forbidden: Vec<String>,
}

fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(|&value| value.to_owned()).collect()
}

fn values(schema: &Value) -> Values {
    if let Some(any) = schema["anyOf"].as_array() {
        let allowed = any.iter().flat_map(|one| values(one).allowed).collect();
        return Values {
            allowed,
            forbidden: texts(&["", "yesterday", "2026-13-01", "2026-01-01T25:00:00Z"]),
        };
    }
    if let Some(all) = schema["enum"].as_array() {
        let allowed = all.iter().map(|one| one.as_str().expect("text").to_owned()).collect();
        return Values { allowed, forbidden: texts(&["", "no-such-value"]) };
    }
    if schema["type"] == "integer" {
        let [least, most] = ["minimum", "maximum"].map(|bound| schema[bound].as_i64().expect("a number"));
        let forbidden = [(least - 1).to_string(), (most + 1).to_string()];
        let forbidden = [&forbidden[..], &texts(&["", "1.5", "x", "1e3", "99999999999999999999"])].concat();
        return Values {
            allowed: [least, least + 1, most].map(|number| number.to_string()).into(),
            forbidden,
        };
    }
    let pattern = schema["pattern"].as_str().or(schema["format"].as_str()).expect("a pattern or a format");
    let (allowed, forbidden): (&[&str], &[&str]) = match pattern {
        "^[0-9]{1,9}(ms|s)?$" => {
            (&["0", "7", "250ms", "2s", "999999999", "000000001s"], &["", "-1", "2h", "1.5", " 1", "1 s"])
        }
        "^[0-9]{1,18}$" => {
            (&["0", "7", "123456789012345678", "999999999999999999"], &["x", "-1", "1.5", "0x1"])
        }
        "^[0-9]{1,14}$" => (&["0", "1700000000000", "99999999999999"], &[]),
        "date-time" => (&["2026-01-01T00:00:00Z", "2026-01-01t12:30:00.123456+05:30"], &[]),
        "date" => (&["2026-01-01", "1970-01-01"], &[]),
        other => panic!("no values of {other:?}"),
    };
    Values { allowed: texts(allowed), forbidden: texts(forbidden) }
}

/// Returns what a reference leads to.
fn resolved<'a>(api: &'a Value, value: &'a Value) -> &'a Value {
    value["$ref"]
        .as_str()
        .map_or(value, |to| api.pointer(&to[1..]).expect("the reference leads to something"))
}

fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// An operation of openapi.json, with its parameters.
struct Operation<'a> {
    api: &'a Value,
    path: &'a str,
    method: &'a str,
    operation: &'a Value,
    parameters: Vec<&'a Value>,
}

impl Operation<'_> {
    /// Sends a request with these parameters, and returns the status. Asserts that the answer is one
    /// that openapi.json lists.
    fn ask(&self, client: &mut FrontEndClient, method: &str, given: &[(&Value, &str)]) -> u16 {
        let mut target = self.path.to_owned();
        let mut separator = '?';
        for (parameter, value) in given {
            let name = parameter["name"].as_str().expect("a name");
            if parameter["in"] == "path" {
                target = target.replace(&format!("{{{name}}}"), &encoded(value));
            } else {
                target += &format!("{separator}{name}={}", encoded(value));
                separator = '&';
            }
        }
        client.send(format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"));
        let answer = client.answer(true);
        let what =
            format!("{method} {target}: {} {}", answer.code, &answer.body[..answer.body.len().min(300)]);
        let listed = resolved(self.api, &self.operation["responses"][answer.code.to_string()]);
        let media = answer.header("content-type").expect("a type").split(';').next().expect("a type");
        let schema = resolved(self.api, &listed["content"][media]["schema"]);
        assert!(schema.is_object(), "not listed: {what}");
        if media == "application/json" {
            let body = answer.json();
            for name in schema["required"].as_array().into_iter().flatten() {
                let value = &body[name.as_str().expect("a name")];
                let is_right = match schema["properties"][name.as_str().unwrap()]["type"].as_str() {
                    Some("string") => value.is_string(),
                    Some("integer") => value.is_i64(),
                    Some("array") => value.is_array(),
                    Some("object") => value.is_object(),
                    _ => !value.is_null(),
                };
                assert!(is_right, "{name}: {what}");
            }
        }
        answer.code
    }
}

#[test]
fn requests_made_from_openapi_are_answered_as_it_says() {
    let machine = Machine::new();
    for counter in ["tickets", "odd"] {
        machine.run(&["ticket", "set", counter, "5"]).printed();
    }
    // The first source once has a layout, and once is a counter.
    let tickets = "[[sources]]\nname = \"tickets\"\nkind = \"ticket\"\n";
    let layouts = "[[sources]]\nname = \"orders\"\n\
                   [[sources]]\nname = \"slow\"\nlayout = \"clearing-batch\"\nworker_ids = 7\n\
                   [[sources]]\nname = \"fixed\"\n\
                   layout = \"time:41,region:2:constant(1),worker:8,sequence:12;epoch=2024-01-01\"\n";
    let limits = "limits.max_count = 2000\nlimits.max_wait = \"100ms\"\n";
    for sources in [layouts.to_owned() + tickets, tickets.to_owned() + layouts, tickets.to_owned()] {
        let daemon = machine.setup(&format!("{limits}{sources}")).front_end("http").start();
        let client = || FrontEndClient::of(&daemon);
        let api = client().get("/v1/openapi.json", "").json();
        for (path, operations) in api["paths"].as_object().expect("paths") {
            let mut was_accepted = false;
            for (method, operation) in operations.as_object().expect("operations") {
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let parameters = parameters.map(|one| resolved(&api, one)).collect();
                let (method, api) = (&*method.to_uppercase(), &api);
                let operation = Operation { api, path, method, operation, parameters };
                was_accepted |= try_all(&operation, client);
                for other in ["PUT", "DELETE", "PATCH"] {
                    assert_eq!(operation.ask(&mut client(), other, &required(&operation, &[])), 405);
                }
            }
            let needs_layout = ["/v1/range", "/v1/decode/{id}"].contains(&path.as_str());
            assert!(was_accepted || needs_layout && sources == tickets, "{path}");
        }
    }
}

/// Returns `given`, and the first allowed value of each other parameter that is required.
fn required<'v>(operation: &Operation<'v>, given: &[(&'v Value, &'v str)]) -> Vec<(&'v Value, &'v str)> {
    let is_given = |one: &Value| given.iter().any(|(other, _)| other["name"] == one["name"]);
    let missing = operation.parameters.iter().filter(|one| one["required"] == true && !is_given(one));
    let missing = missing.map(|one| (*one, &*values(&one["schema"]).allowed[0].clone().leak()));
    missing.chain(given.iter().copied()).collect()
}

/// Sends a request for each pair of an allowed source and another allowed value, and for each
/// forbidden value. Returns whether any request was accepted.
fn try_all(operation: &Operation<'_>, client: impl Fn() -> FrontEndClient) -> bool {
    let mut was_accepted = false;
    let mut accepts = |given: &[(&Value, &str)]| {
        let code = operation.ask(&mut client(), operation.method, &required(operation, given));
        // A source may not have what is asked for: no time, no such ID, too few IDs.
        assert!([200, 404, 409, 503].contains(&code), "{} {given:?}: {code}", operation.path);
        was_accepted |= code == 200;
    };
    accepts(&[]);
    let source = operation.parameters.iter().find(|one| one["name"] == "source").copied();
    for parameter in &operation.parameters {
        for value in values(&parameter["schema"]).allowed {
            accepts(&[(parameter, &value)]);
            for name in source.map(|source| values(&source["schema"]).allowed).unwrap_or_default() {
                if parameter["name"] != "source" {
                    accepts(&[(parameter, &value), (source.expect("there is one"), &name)]);
                }
            }
        }
    }
    for parameter in &operation.parameters {
        let refused = |given: &[(&Value, &str)]| {
            let code = operation.ask(&mut client(), operation.method, given);
            assert!([400, 404, 409].contains(&code), "{} {given:?}: {code}", operation.path);
        };
        for value in values(&parameter["schema"]).forbidden {
            refused(&required(operation, &[(parameter, &value)]));
        }
        if parameter["required"] == true && parameter["in"] == "query" {
            let mut given = required(operation, &[]);
            given.retain(|(one, _)| one["name"] != parameter["name"]);
            refused(&given);
        }
        if parameter["in"] == "query" {
            let value = &values(&parameter["schema"]).allowed[0];
            let rest = required(operation, &[(parameter, value)]);
            refused(&[&rest[..], &[(*parameter, &**value)]].concat());
        }
        refused(&[&required(operation, &[])[..], &[(&serde_json::json!({"name": "unknown"}), "1")]].concat());
    }
    was_accepted
}
