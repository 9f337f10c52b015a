//! The rows of the command table: what the specification says of each.

use seendb::commands::table::{Command, all};

use crate::FAMILIES;
use crate::world::World;

/// Name, arity, flags in the table's order, flags of its key, whether it is fast.
const ROWS: &[(&str, i32, &str, &str)] = &[
    ("reserve", -4, "write denyoom fast", "RW insert"),
    ("add", 3, "write denyoom fast", "RW insert"),
    ("madd", -3, "write denyoom", "RW insert"),
    ("insert", -4, "write denyoom", "RW insert"),
    ("exists", 3, "readonly fast", "RO access"),
    ("mexists", -3, "readonly", "RO access"),
    ("del", 3, "write fast", "RW delete"),
    ("mdel", -3, "write", "RW delete"),
    ("count", 3, "readonly fast", "RO access"),
    ("mcount", -3, "readonly", "RO access"),
    ("card", 2, "readonly fast", "RO access"),
    ("info", 2, "readonly fast", "RO access"),
    ("stats", 2, "readonly", "RO access"),
    ("scandump", 3, "readonly", "RO access"),
    ("loadchunk", 4, "write denyoom", "RW insert"),
];
/// Those that one family alone has.
const MORE: &[(&str, i32, &str, &str)] =
    &[("cbf.decay", 2, "write", "RW update"), ("cbf.export", -2, "readonly", "RO access")];

fn row(name: &str) -> &'static Command {
    all().find(|command| command.name == name).unwrap_or_else(|| panic!("no row {name}"))
}

fn check(name: &str, (arity, flags, key): (i32, &str, &str), category: &str) {
    let row = row(name);
    assert_eq!((row.arity, row.flags.names().collect::<Vec<_>>().join(" ").as_str()), (arity, flags), "{name}");
    assert_eq!(row.keys[0].flags.join(" "), key, "{name}");
    assert_eq!((row.keys[0].first, row.keys[0].last, row.keys[0].step), (1, 1, 1), "{name}");
    let does = if flags.contains("write") { "@write" } else { "@read" };
    let speed = if flags.contains("fast") { "@fast" } else { "@slow" };
    assert_eq!(row.categories(), [category, does, speed], "{name}");
}

#[test]
fn rows_are_those_of_the_specification() {
    for (family, category) in FAMILIES.into_iter().zip(["@cbf", "@dlcbf"]) {
        for (verb, arity, flags, key) in ROWS {
            check(&format!("{}.{verb}", family.to_lowercase()), (*arity, flags, key), category);
        }
    }
    for (name, arity, flags, key) in MORE {
        check(name, (*arity, flags, key), "@cbf");
    }
}

#[test]
fn merge() {
    let row = row("cbf.merge");
    assert_eq!(row.flags.names().collect::<Vec<_>>().join(" "), "write denyoom movablekeys");
    let specs: Vec<_> = row.keys.iter().map(|spec| (spec.first, spec.last, spec.flags.join(" "))).collect();
    assert_eq!(specs, [(1, 1, "RW access insert".into()), (2, -1, "RO access".into())]);
}

#[test]
fn arity() {
    let mut client = World::new().client();
    for command in all().filter(|command| FAMILIES.iter().any(|f| command.name.starts_with(&f.to_lowercase()))) {
        let least = command.arity.unsigned_abs() as usize;
        let text = format!("ERR wrong number of arguments for '{}' command", command.name);
        let mut words = vec!["x"; least - 1];
        words[0] = command.name;
        assert_eq!(client.call(&words).error(), text);
        if command.arity > 0 {
            words.extend(["x", "x"]);
            assert_eq!(client.call(&words).error(), text);
        }
    }
    for line in ["CBF.INSERT k STRICT ITEMS", "CBF.INSERT k STRICT KEYED", "CBF.INSERT k NOCREATE ITEMS"] {
        assert_eq!(client.refused(line), "ERR wrong number of arguments for 'cbf.insert' command");
    }
}
