//! Stock tools: the command-line client at its start, and its mass load.

use crate::support::{Server, Value};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// RedisBloom's commands with their arity.
const FAMILY: [(&str, i64, &str); 11] = [
    ("bf.add", 3, "write"),
    ("bf.card", 2, "readonly"),
    ("bf.debug", 2, "readonly"),
    ("bf.exists", 3, "readonly"),
    ("bf.info", -2, "readonly"),
    ("bf.insert", -4, "write"),
    ("bf.loadchunk", 4, "write"),
    ("bf.madd", -3, "write"),
    ("bf.mexists", -3, "readonly"),
    ("bf.reserve", -4, "write"),
    ("bf.scandump", 3, "readonly"),
];

#[test]
fn c056_command_line_client_at_start() {
    let server = Server::start();
    let mut client = server.client();
    let all = client.cmd("COMMAND");
    assert_eq!(client.cmd("COMMAND COUNT"), Value::Int(all.array().len() as i64));
    let docs = client.cmd("COMMAND DOCS");
    for (name, arity, kind) in FAMILY {
        let info = client.cmd(&format!("COMMAND INFO {name}"));
        let row = info.array()[0].array();
        assert!(row[0] == name && row[1] == arity, "{name}: {row:?}");
        let flags: Vec<String> = row[2].array().iter().map(Value::text).collect();
        assert!(flags.iter().any(|flag| flag == kind), "{name}: {flags:?}");
        // A load must not be refused a header once memory is full without being counted as a write that takes memory.
        assert_eq!(flags.iter().any(|flag| flag == "denyoom"), kind == "write", "{name}: {flags:?}");
        assert_eq!(row[3..6], [Value::Int(1), Value::Int(1), Value::Int(1)], "{name}: key position");
        assert!(all.array().iter().any(|listed| listed.array()[0] == name), "{name} is not in COMMAND");
        let doc = docs.field(name);
        assert!(!doc.field("summary").text().is_empty() && !doc.field("arguments").array().is_empty(), "{name}");
    }
    let keys = client.cmd("COMMAND GETKEYS BF.INSERT k ITEMS a");
    assert_eq!(keys, Value::Array(vec![Value::Bulk(b"k".to_vec())]));
    assert!(client.cmd("COMMAND INFO nosuch").array()[0] == Value::Null);
}

/// Runs redis-cli with the input given and returns what it printed.
fn redis_cli(server: &Server, args: &[&str], input: &[u8]) -> String {
    let mut child = Command::new("redis-cli")
        .args(["-p", &server.port().to_string()])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("redis-cli is installed (scripts/peer installs it)");
    child.stdin.take().expect("a pipe").write_all(input).expect("redis-cli reads its input");
    let output = child.wait_with_output().expect("redis-cli ends");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn c056_redis_cli_answers_as_printed() {
    let server = Server::start();
    let script = b"BF.RESERVE k 0.01 1000\nBF.ADD k a\nBF.EXISTS k a\nBF.MEXISTS k a b\nDEL k\n";
    assert_eq!(redis_cli(&server, &[], script), "OK\n1\n1\n1\n0\n1\n");
    // Releases of redis-cli differ in the brackets.
    let said = redis_cli(&server, &["-3", "BF.ADD", "k", "a"], b"");
    assert!(["true\n", "(true)\n"].contains(&&*said), "{said:?}");
}

#[test]
fn c064_mass_load_with_the_stock_client() {
    const LINES: usize = 100_000;
    let server = Server::start();
    let mut client = server.client();
    assert!(client.cmd(&format!("BF.RESERVE k 0.0001 {LINES}")) == "OK");
    let mut input = String::new();
    for n in 0..LINES {
        input.push_str(&if n == 31_337 { "BF.ADD k\r\n".to_string() } else { format!("BF.ADD k i{n}\r\n") });
    }
    let said = redis_cli(&server, &["--pipe"], input.as_bytes());
    assert!(said.contains(&format!("errors: 1, replies: {LINES}")), "redis-cli --pipe said: {said}");
    let card = client.cmd("BF.CARD k").int();
    // The rate of the first sub-filter is half of 0.0001, and mostly it is far from full.
    assert!((LINES as i64 - 10..LINES as i64).contains(&card), "{card} items of {} were counted", LINES - 1);
}
