//! The checked-in list of exceptions from STYLE.md's limits. It only shrinks: an entry holds the
//! present size, so that growth is a finding, and so is an entry that is higher than needed.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// A file or function that exceeds its limit.
#[derive(Debug, PartialEq)]
pub struct Excess {
    /// The file, and after `:` the function.
    pub place: String,
    /// Lines of the file or function.
    pub size: usize,
    /// The finding, if no exception covers it.
    pub finding: String,
}

/// Permitted sizes by place.
#[derive(Debug, Default, PartialEq)]
pub struct Exceptions(BTreeMap<String, usize>);

impl Exceptions {
    /// Reads the list in `root`. Adds a finding for each line that has no valid form.
    pub fn read(root: &Path, findings: &mut Vec<String>) -> Self {
        match fs::read_to_string(root.join(LIST)) {
            Ok(text) => Self::parse(&text, findings),
            Err(error) => {
                findings.push(format!("{LIST}: {error}"));
                Self::default()
            }
        }
    }

    fn parse(text: &str, findings: &mut Vec<String>) -> Self {
        let mut exceptions = Self::default();
        let is_entry = |line: &&str| !line.is_empty() && !line.starts_with('#');
        for line in text.lines().filter(is_entry) {
            let entry = line
                .split_once(' ')
                .and_then(|(place, size)| Some((place, size.parse().ok()?)));
            match entry {
                Some((place, size)) => {
                    exceptions.0.insert(place.to_owned(), size);
                }
                None => findings.push(format!("{LIST}: \"{line}\" is not a place and a size")),
            }
        }
        exceptions
    }

    /// Returns the findings: excesses that are not listed or have grown, and entries that are
    /// higher than the present size.
    pub fn apply(&self, excesses: Vec<Excess>) -> Vec<String> {
        let mut findings = self.stale(&excesses);
        for excess in excesses {
            match self.0.get(&excess.place) {
                None => findings.push(excess.finding),
                Some(&listed) if listed < excess.size => {
                    let finding = excess.finding;
                    findings.push(format!("{finding} (it was {listed} before)"));
                }
                Some(_) => {}
            }
        }
        findings
    }

    fn stale(&self, excesses: &[Excess]) -> Vec<String> {
        let present = sizes(excesses);
        let is_stale = |(place, listed): &(&String, &usize)| {
            present.get(place.as_str()).is_none_or(|size| size < listed)
        };
        let stale = self.0.iter().filter(is_stale);
        stale
            .map(|(place, listed)| {
                format!("{LIST}: {place} {listed} is stale: run `cargo xtask tidy --shrink`")
            })
            .collect()
    }

    /// The list with each entry lowered to its present size, without those that are not needed.
    pub fn shrunk(&self, excesses: &[Excess]) -> Self {
        let present = sizes(excesses);
        let lowered = self.0.iter().filter_map(|(place, &listed)| {
            let size = *present.get(place.as_str())?;
            Some((place.clone(), listed.min(size)))
        });
        Self(lowered.collect())
    }

    /// Writes the list to `root`.
    pub fn write(&self, root: &Path) -> io::Result<()> {
        let mut lines: Vec<_> = HEAD.lines().map(str::to_owned).collect();
        lines.extend(self.0.iter().map(|(place, size)| format!("{place} {size}")));
        fs::write(root.join(LIST), lines.join("\n") + "\n")
    }
}

fn sizes(excesses: &[Excess]) -> BTreeMap<&str, usize> {
    let sizes = excesses.iter();
    sizes.map(|e| (e.place.as_str(), e.size)).collect()
}

const LIST: &str = "xtask/tidy-exceptions.txt";
const HEAD: &str = "\
# Files and functions that exceed the limits of STYLE.md, with their present lines. This list only
# shrinks: `cargo xtask tidy --shrink` lowers it.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn excess(place: &str, size: usize) -> Excess {
        Excess {
            place: place.to_owned(),
            size,
            finding: format!("{place} is long"),
        }
    }

    fn list() -> Exceptions {
        let mut findings = Vec::new();
        let list = Exceptions::parse("# Why.\na.rs 900\na.rs:f 70\n", &mut findings);
        assert_eq!(findings, [""; 0]);
        list
    }

    #[test]
    fn what_is_listed_with_its_present_size_passes() {
        let found = list().apply(vec![excess("a.rs", 900), excess("a.rs:f", 70)]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn what_is_not_listed_or_has_grown_is_found() {
        let found = list().apply(vec![
            excess("a.rs", 901),
            excess("a.rs:f", 70),
            excess("b.rs", 801),
        ]);
        assert_eq!(found, ["a.rs is long (it was 900 before)", "b.rs is long"]);
    }

    #[test]
    fn entries_that_are_higher_than_needed_are_found_and_shrink() {
        let present = [excess("a.rs", 850)];
        let found = list().stale(&present);
        assert_eq!(found.len(), 2, "{found:?}");
        let shrunk = list().shrunk(&present);
        assert_eq!(shrunk.stale(&present), [""; 0]);
        assert_eq!(shrunk.0, BTreeMap::from([("a.rs".to_owned(), 850)]));
    }

    #[test]
    fn shrinking_never_raises_an_entry() {
        assert_eq!(list().shrunk(&[excess("a.rs", 950)]).0["a.rs"], 900);
    }

    #[test]
    fn a_line_without_a_size_is_found() {
        let mut findings = Vec::new();
        Exceptions::parse("a.rs\n", &mut findings);
        assert_eq!(findings.len(), 1, "{findings:?}");
    }
}
