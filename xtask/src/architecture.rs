//! Reads the tables of ARCHITECTURE.md that `tidy` enforces: "Crates" and "Dependencies".

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The tables of ARCHITECTURE.md.
#[derive(Debug, Default)]
pub struct Architecture {
    /// One rule for each row of the table "Crates".
    pub crates: Vec<Rule>,
    /// The external crates in the table "Dependencies" that have a reason.
    pub dependencies: BTreeSet<String>,
}

/// What one crate may import and whether it may contain unsafe code.
#[derive(Debug, PartialEq)]
pub struct Rule {
    pub name: String,
    /// The workspace crates that it may depend on outside of its tests.
    pub imports: Vec<String>,
    pub unsafe_code: Unsafe,
}

/// Where a crate may contain unsafe code.
#[derive(Debug, PartialEq)]
pub enum Unsafe {
    Forbidden,
    /// In this module only.
    ArguedIn(String),
    Argued,
}

impl Architecture {
    /// Reads ARCHITECTURE.md in `root`. Adds a finding for each row that has no valid form.
    pub fn read(root: &Path, findings: &mut Vec<String>) -> Self {
        match fs::read_to_string(root.join(DOCUMENT)) {
            Ok(text) => Self::parse(&text, findings),
            Err(error) => {
                findings.push(format!("{DOCUMENT}: {error}"));
                Self::default()
            }
        }
    }

    /// Parses the document's text.
    pub fn parse(text: &str, findings: &mut Vec<String>) -> Self {
        let mut architecture = Self::default();
        for row in table(text, "Crates", findings) {
            match Rule::parse(&row) {
                Ok(rule) => architecture.crates.push(rule),
                Err(mistake) => findings.push(format!("{DOCUMENT}: table \"Crates\": {mistake}")),
            }
        }
        for row in table(text, "Dependencies", findings) {
            let [names, reason] = &row[..] else {
                let row = row.join(" | ");
                findings.push(format!(
                    "{DOCUMENT}: table \"Dependencies\": row \"{row}\" does not have 2 columns"
                ));
                continue;
            };
            if reason.is_empty() {
                findings.push(format!("{DOCUMENT}: {names} has no reason"));
            } else {
                architecture.dependencies.extend(list(names));
            }
        }
        architecture
    }

    /// The rule of the crate `name`.
    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.crates.iter().find(|rule| rule.name == name)
    }
}

impl Rule {
    /// Parses a row: name, contents, imports, unsafe code.
    fn parse(row: &[String]) -> Result<Self, String> {
        let [name, _, imports, unsafe_code] = row else {
            return Err(format!(
                "row \"{}\" does not have 4 columns",
                row.join(" | ")
            ));
        };
        let unsafe_code = match unsafe_code.as_str() {
            "no" => Unsafe::Forbidden,
            "argued" => Unsafe::Argued,
            other => match other.strip_prefix("argued, in ") {
                Some(module) => Unsafe::ArguedIn(unquoted(module)),
                None => {
                    return Err(format!(
                        "{name}: \"{other}\" is not one of no, argued, argued in a module"
                    ));
                }
            },
        };
        Ok(Self {
            name: unquoted(name),
            imports: match imports.as_str() {
                "none" => Vec::new(),
                names => list(names),
            },
            unsafe_code,
        })
    }
}

/// The rows of the first table below the heading `## heading`, without its head. A missing table is
/// a finding.
fn table(text: &str, heading: &str, findings: &mut Vec<String>) -> Vec<Vec<String>> {
    let title = format!("## {heading}");
    let rows: Vec<_> = text
        .lines()
        .skip_while(|line| *line != title)
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(HEAD_LINES)
        .map(cells)
        .collect();
    if rows.is_empty() {
        findings.push(format!("{DOCUMENT}: table \"{heading}\" is missing"));
    }
    rows
}

fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_matches('|');
    inner
        .split('|')
        .map(|cell| cell.trim().to_owned())
        .collect()
}

fn list(names: &str) -> Vec<String> {
    names.split(',').map(|name| unquoted(name.trim())).collect()
}

fn unquoted(text: &str) -> String {
    text.trim_matches('`').to_owned()
}

const DOCUMENT: &str = "ARCHITECTURE.md";
/// A table's head: the titles and the line below them.
const HEAD_LINES: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A\n\n## Crates\n\nWords.\n\n| crate | contents | imports | unsafe |\n|---|---|---|---|\n\
        | `block` | waist | none | no |\n| `net` | I/O | block, session | argued |\n\
        | `fabric` | RDMA | block | argued, in `hw` |\n\n## Dependencies\n\n| crate | why |\n|---|---|\n\
        | md-5, sha1 | CHAP |\n";

    #[test]
    fn tables_are_read() {
        let mut findings = Vec::new();
        let architecture = Architecture::parse(TEXT, &mut findings);
        assert_eq!(findings, [""; 0]);
        let rule = |name: &str, imports: &[&str], unsafe_code| Rule {
            name: name.to_owned(),
            imports: imports.iter().map(|&name| name.to_owned()).collect(),
            unsafe_code,
        };
        let expected = [
            rule("block", &[], Unsafe::Forbidden),
            rule("net", &["block", "session"], Unsafe::Argued),
            rule("fabric", &["block"], Unsafe::ArguedIn("hw".to_owned())),
        ];
        assert_eq!(architecture.crates, expected);
        let names: Vec<_> = architecture.dependencies.iter().collect();
        assert_eq!(names, ["md-5", "sha1"]);
    }

    #[test]
    fn rows_without_a_valid_form_are_found() {
        let text = TEXT
            .replace("| none | no |", "| none | perhaps |")
            .replace("| argued |", "|")
            .replace("| CHAP |", "| |");
        let mut findings = Vec::new();
        Architecture::parse(&text, &mut findings);
        assert_eq!(
            findings,
            [
                "ARCHITECTURE.md: table \"Crates\": `block`: \"perhaps\" is not one of no, argued, argued in a module",
                "ARCHITECTURE.md: table \"Crates\": row \"`net` | I/O | block, session\" does not have 4 columns",
                "ARCHITECTURE.md: md-5, sha1 has no reason",
            ]
        );
    }

    #[test]
    fn a_missing_table_is_found() {
        let mut findings = Vec::new();
        Architecture::parse("# A\n", &mut findings);
        assert_eq!(findings.len(), 2, "{findings:?}");
    }
}
