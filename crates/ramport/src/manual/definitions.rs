//! ramport.toml(5), from the schema that definitions have in the OpenAPI document: keys, types,
//! defaults, allowed values and examples are those of the types.

use std::collections::{BTreeMap, BTreeSet};

use clap_mangen::roff::{Roff, bold, italic, roman};
use serde_json::Value;

use super::{add_list, add_verbatim, title};
use crate::cli::definitions_example;

/// The page's file.
pub(super) const FILE: &str = "ramport.toml.5";

/// Where schemas are in the OpenAPI document.
const SCHEMAS: &str = "#/components/schemas/";

/// The page.
pub(super) fn page() -> String {
    let document = serde_json::to_value(control::openapi()).expect("the document is JSON");
    let schemas = Schemas(&document["components"]["schemas"]);
    let mut roff = Roff::new();
    roff.control("SH", ["NAME"]);
    roff.text([roman("ramport.toml - definitions of a ramport daemon")]);
    add_description(&mut roff);
    for table in schemas.tables() {
        add_table(&mut roff, &schemas, &table);
    }
    roff.control("SH", ["EXAMPLES"]);
    add_verbatim(
        &mut roff,
        &definitions_example().lines().collect::<Vec<_>>(),
    );
    add_list(
        &mut roff,
        "FILES",
        vec![(
            "/var/lib/ramport/state",
            "Where the daemon keeps its definitions. It is not in this format; do not edit it.",
        )],
    );
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(
        "ramport(1), ramport-apply(1), ramport-export(1), ramport-serve(1)",
    )]);
    title("ramport.toml", 5) + &roff.to_roff()
}

fn add_description(roff: &mut Roff) {
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([
        roman("A file in TOML that "),
        bold("ramport apply"),
        roman(" makes the daemon's definitions, and that "),
        bold("ramport export"),
        roman(" prints. What the file does not define is removed from the daemon. JSON with the same keys is accepted, too."),
    ]);
    roff.control("PP", []);
    roff.text([roman(
        "A size is a number of bytes, or text such as \"50G\" or \"512MiB\", in powers of 1024. A time is text such as \
         \"250us\" or \"10ms\". Names with dots or colons are quoted. Unknown keys are errors.",
    )]);
}

/// A table of the file.
struct Table {
    /// As its heading is written: `[volumes.NAME.filters]`; empty for the top level.
    path: String,
    /// The name of its schema.
    schema: String,
}

/// A key of a table.
struct Key<'a> {
    name: &'a str,
    /// Of its value; those of variants may differ.
    schemas: Vec<&'a Value>,
    description: &'a str,
    is_required: bool,
}

impl<'a> Key<'a> {
    fn schema(&self) -> &'a Value {
        self.schemas[0]
    }
}

/// The schemas of the document, by name.
struct Schemas<'a>(&'a Value);

impl<'a> Schemas<'a> {
    /// All tables, from the top, each before those within it.
    fn tables(&self) -> Vec<Table> {
        let mut tables = Vec::new();
        let mut open = vec![Table {
            path: String::new(),
            schema: "Definitions".to_owned(),
        }];
        while let Some(table) = open.pop() {
            let keys = self.keys(&table.schema);
            let within = keys.iter().rev();
            open.extend(within.filter_map(|key| self.table_of(&table, key)));
            tables.push(table);
        }
        tables
    }

    /// The table that is the value of a key, or of each name in it.
    fn table_of(&self, table: &Table, key: &Key<'_>) -> Option<Table> {
        let dot = if table.path.is_empty() { "" } else { "." };
        let path = format!("{}{dot}{}", table.path, key.name);
        let value = key.schema();
        let (schema, path) = match reference(value) {
            Some(schema) => (schema, path),
            None => match reference(&value["additionalProperties"]) {
                Some(schema) => (schema, format!("{path}.NAME")),
                None => (reference(&value["items"])?, format!("{path}[]")),
            },
        };
        self.words(schema).is_none().then(|| Table {
            path,
            schema: schema.to_owned(),
        })
    }

    /// The keys of an object, or of one that is put together from several or has variants.
    fn keys(&self, name: &str) -> Vec<Key<'a>> {
        let mut keys = BTreeMap::new();
        self.collect_keys(&self.0[name], "", &mut keys);
        let mut keys: Vec<Key<'a>> = keys.into_values().collect();
        keys.sort_by_key(|key| (!key.is_required, key.name));
        keys
    }

    /// `otherwise` describes keys that have no description of their own: the one that names the
    /// variant.
    fn collect_keys(
        &self,
        schema: &'a Value,
        otherwise: &'a str,
        keys: &mut BTreeMap<&'a str, Key<'a>>,
    ) {
        let required: BTreeSet<&str> = texts(&schema["required"]).collect();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let key = keys.entry(name).or_insert_with(|| Key {
                name,
                schemas: Vec::new(),
                description: Some(description(property))
                    .filter(|text| !text.is_empty())
                    .unwrap_or(otherwise),
                // Keys of variants have defaults, or belong to one of them only.
                is_required: otherwise.is_empty() && required.contains(name.as_str()),
            });
            key.schemas.push(property);
        }
        for part in items(&schema["allOf"]) {
            match reference(part) {
                Some(name) => self.collect_keys(&self.0[name], otherwise, keys),
                None => self.collect_keys(part, otherwise, keys),
            }
        }
        for variant in items(&schema["oneOf"]) {
            self.collect_keys(variant, description(schema), keys);
        }
    }

    /// The words that a schema allows, if it is a list of words.
    fn words(&self, name: &str) -> Option<Vec<&'a str>> {
        let words: Vec<&str> = texts(&self.0[name]["enum"]).collect();
        (!words.is_empty()).then_some(words)
    }

    fn describe(&self, name: &str) -> &'a str {
        self.0[name]["description"].as_str().unwrap_or_default()
    }

    /// What a key's value is in each variant, in words.
    fn kinds(&self, key: &Key<'a>) -> String {
        let kinds: BTreeSet<String> = key.schemas.iter().map(|one| self.kind(one)).collect();
        kinds.into_iter().collect::<Vec<_>>().join(" | ")
    }

    fn kind(&self, schema: &'a Value) -> String {
        if let Some(name) = reference(schema) {
            return match self.words(name) {
                Some(words) => choice(&words),
                None => "table".to_owned(),
            };
        }
        let words: Vec<&str> = texts(&schema["enum"]).collect();
        if !words.is_empty() {
            return choice(&words);
        }
        let kinds = match &schema["type"] {
            Value::Array(kinds) => kinds.as_slice(),
            one => std::slice::from_ref(one),
        };
        let mut kinds = kinds.iter().filter_map(Value::as_str);
        match kinds.find(|kind| *kind != "null").unwrap_or("value") {
            "array" => format!("list of {}", plural(&self.kind(&schema["items"]))),
            "object" => match &schema["additionalProperties"] {
                Value::Object(_) => format!(
                    "table from names to {}",
                    plural(&self.kind(&schema["additionalProperties"]))
                ),
                _ => "table".to_owned(),
            },
            "string" => "text".to_owned(),
            "boolean" => "true or false".to_owned(),
            kind => kind.to_owned(),
        }
    }
}

fn add_table(roff: &mut Roff, schemas: &Schemas<'_>, table: &Table) {
    if table.path.is_empty() {
        roff.control("SH", ["TOP LEVEL"]);
    } else {
        let heading = format!("[{}]", table.path);
        roff.control("SH", [heading.as_str()]);
    }
    roff.text(inlines(schemas.describe(&table.schema)));
    for key in schemas.keys(&table.schema) {
        roff.control("TP", []);
        roff.text([
            bold(key.name),
            roman(" = "),
            italic(schemas.kinds(&key)),
            roman(if key.is_required { " (required)" } else { "" }),
        ]);
        roff.text(inlines(key.description));
        add_facts(roff, key.schema());
    }
}

/// Default and example.
fn add_facts(roff: &mut Roff, schema: &Value) {
    let facts = [("Default", "default"), ("Example", "example")];
    for (label, field) in facts {
        let Some(value) = schema.get(field).filter(|value| !is_nothing(value)) else {
            continue;
        };
        roff.control("br", []);
        roff.text([roman(format!("{label}: ")), bold(toml_of(value))]);
    }
}

/// Absent values and empty lists and tables are not worth a line.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// A value as it is written in the file.
fn toml_of(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(toml_of).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{name} = {}", toml_of(value));
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        plain => plain.to_string(),
    }
}

/// The name of the schema that `schema` refers to, also as one that may be absent.
fn reference(schema: &Value) -> Option<&str> {
    let direct = schema["$ref"].as_str();
    let optional = items(&schema["oneOf"]).find_map(|one| one["$ref"].as_str());
    direct.or(optional)?.strip_prefix(SCHEMAS)
}

/// The description of a key, which a reference that may be absent has within.
fn description(schema: &Value) -> &str {
    let within = items(&schema["oneOf"]).find_map(|one| one["description"].as_str());
    schema["description"]
        .as_str()
        .or(within)
        .unwrap_or_default()
}

/// Text whose words between back quotes are bold.
fn inlines(text: &str) -> Vec<clap_mangen::roff::Inline> {
    let text = text.replace('\n', " ");
    let parts = text.split('`').enumerate();
    let part = |(at, part): (usize, &str)| if at % 2 == 0 { roman(part) } else { bold(part) };
    parts.map(part).collect()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    items(value).filter_map(Value::as_str)
}

fn choice(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    words.join(" | ")
}

fn plural(kind: &str) -> String {
    match kind {
        "text" => "texts".to_owned(),
        kind if kind.starts_with('"') => format!("({kind})"),
        kind if kind.starts_with("table") => kind.replacen("table", "tables", 1),
        kind => format!("{kind}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Value {
        serde_json::to_value(control::openapi()).expect("JSON")
    }

    #[test]
    fn every_key_of_every_table_is_described_with_its_default() {
        let document = document();
        let schemas = Schemas(&document["components"]["schemas"]);
        let tables = schemas.tables();
        let paths: Vec<&str> = tables.iter().map(|table| table.path.as_str()).collect();
        for path in [
            "",
            "volumes.NAME",
            "volumes.NAME.filters.fault.rules[]",
            "hosts.NAME.chap.mutual",
        ] {
            assert!(paths.contains(&path), "{path} of {paths:?}");
        }
        for table in &tables {
            let keys = schemas.keys(&table.schema);
            assert!(!keys.is_empty(), "{}", table.path);
            for key in keys {
                let is_described = !key.description.is_empty();
                assert!(is_described, "{}.{} has no docstring", table.path, key.name);
            }
        }
    }

    #[test]
    fn a_key_of_a_volume_has_type_default_and_example() {
        let page = page();
        let entry = page
            .split(".TP")
            .find(|entry| entry.contains("block_size"))
            .expect("an entry");
        for words in ["\\fIinteger\\fR", "512 or 4096", "Default: \\fB512\\fR"] {
            assert!(entry.contains(words), "{words}: {entry}");
        }
    }

    #[test]
    fn defaults_in_the_schema_are_those_that_files_have() {
        const FILE: &str = "
            [volumes.a]
            size = \"1G\"
            filters = { fault = { rules = [{ status = \"busy\" }] }, delay = {}, rate_limit = {} }
            [targets.a]
            [hosts.a]";
        let definitions = control::Definitions::from_toml(FILE).expect("definitions");
        let written = serde_json::to_value(&definitions).expect("JSON");
        let document = document();
        let schemas = Schemas(&document["components"]["schemas"]);
        let rule = &written["volumes"]["a"]["filters"]["fault"]["rules"][0];
        let mut checked = 0;
        for (schema, value) in [
            ("Definitions", &written),
            ("Volume", &written["volumes"]["a"]),
            ("Target", &written["targets"]["a"]),
            ("Host", &written["hosts"]["a"]),
            ("FaultFilter", &written["volumes"]["a"]["filters"]["fault"]),
            ("FaultRule", rule),
        ] {
            for key in schemas.keys(schema) {
                let (Some(default), Some(actual)) =
                    (key.schema().get("default"), value.get(key.name))
                else {
                    continue;
                };
                if !is_nothing(default) {
                    assert_eq!(default, actual, "{schema}.{}", key.name);
                    checked += 1;
                }
            }
        }
        assert!(checked >= 4, "only {checked} defaults were checked");
    }
}
