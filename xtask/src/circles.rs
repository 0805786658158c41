//! Modules of a crate that import each other in a circle.
//!
//! A module is a source file; a file and the files in its folder are one module for everything
//! outside of them. Below each module, its child modules must not import each other in a circle. A
//! child may import its ancestors and an ancestor its descendants. An import of a re-exported item
//! counts as an import of the module that defines the item. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module's path inside its crate; empty for the crate's root.
type ModulePath = Vec<String>;

/// The imports of one crate.
#[derive(Debug, Default)]
struct Modules(BTreeMap<ModulePath, Module>);

/// The imports of one source file.
#[derive(Debug, Default)]
struct Module {
    /// Paths in the form of `use`, as written.
    imports: Vec<Vec<String>>,
    /// Re-exported names, with the paths that they stand for.
    exports: BTreeMap<String, Vec<String>>,
}

/// Checks every crate of the workspace.
pub fn check(root: &Path) -> Vec<String> {
    let mut folders: Vec<_> = fs::read_dir(root.join("crates"))
        .expect("the workspace has crates/")
        .map(|entry| entry.expect("crates/ can be listed").path().join("src"))
        .collect();
    folders.push(root.join("xtask/src"));
    folders.sort();
    let mut circles = Vec::new();
    for folder in folders {
        let place = folder.strip_prefix(root).unwrap_or(&folder);
        let modules = Modules::read(&folder);
        circles.extend(modules.circles(&place.display().to_string()));
    }
    circles
}

impl Modules {
    fn read(source: &Path) -> Self {
        let mut modules = Self::default();
        modules.collect(source, &mut Vec::new());
        modules
    }

    fn collect(&mut self, folder: &Path, path: &mut ModulePath) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let file = entry.path();
            let name = file
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if matches!(name.as_str(), "tests" | "testing") {
                continue;
            }
            let is_root = path.is_empty() && matches!(name.as_str(), "lib" | "main");
            if !is_root {
                path.push(name);
            }
            if file.is_dir() {
                self.collect(&file, path);
            } else if file.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&file).unwrap_or_default();
                self.0.insert(path.clone(), Module::parse(&text));
            }
            if !is_root {
                path.pop();
            }
        }
    }

    /// The largest circle below each module. `place` is the folder of the crate's root.
    fn circles(&self, place: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (parent, imports) in self.imports_between_siblings() {
            let Some(circle) = largest_circle(&imports) else {
                continue;
            };
            let place = std::iter::once(place)
                .chain(parent.iter().map(String::as_str))
                .collect::<Vec<_>>()
                .join("/");
            let names: Vec<_> = circle.iter().map(String::as_str).collect();
            found.push(format!(
                "{place}: {} modules import each other in a circle: {}",
                names.len(),
                names.join(", ")
            ));
        }
        found
    }

    /// For each parent module, which of its child modules import which others.
    fn imports_between_siblings(&self) -> BTreeMap<ModulePath, BTreeMap<String, BTreeSet<String>>> {
        let mut siblings = BTreeMap::<_, BTreeMap<_, BTreeSet<_>>>::new();
        for (importer, module) in &self.0 {
            for import in &module.imports {
                let Some(imported) = self.resolve(importer, import, REEXPORTS_MAX) else {
                    continue;
                };
                let common = importer
                    .iter()
                    .zip(&imported)
                    .take_while(|(a, b)| a == b)
                    .count();
                // One of the two is the other's ancestor, or they are the same.
                if common == importer.len() || common == imported.len() {
                    continue;
                }
                siblings
                    .entry(importer[..common].to_vec())
                    .or_default()
                    .entry(importer[common].clone())
                    .or_default()
                    .insert(imported[common].clone());
            }
        }
        siblings
    }

    /// The module that an import refers to. `None` if it is outside of the crate.
    fn resolve(&self, importer: &[String], import: &[String], left: usize) -> Option<ModulePath> {
        let path = self.absolute(importer, import)?;
        let depth = (0..=path.len())
            .rev()
            .find(|&depth| self.0.contains_key(&path[..depth]))?;
        let (module, item) = path.split_at(depth);
        let reexport = item
            .first()
            .and_then(|name| self.0[module].exports.get(name));
        let through = reexport
            .filter(|_| left > 0)
            .and_then(|reexport| self.resolve(module, reexport, left - 1));
        Some(through.unwrap_or_else(|| module.to_vec()))
    }

    /// The path from the crate's root. `None` if the import is of another crate.
    fn absolute(&self, importer: &[String], import: &[String]) -> Option<ModulePath> {
        let supers = import.iter().take_while(|part| *part == "super").count();
        let (base, rest) = match import.first()?.as_str() {
            "crate" => (&[][..], &import[1..]),
            "self" => (importer, &import[1..]),
            "super" => (
                importer.get(..importer.len().checked_sub(supers)?)?,
                &import[supers..],
            ),
            child => {
                let path = [importer, &[child.to_owned()]].concat();
                self.0.contains_key(&path).then_some(())?;
                (importer, import)
            }
        };
        Some([base, rest].concat())
    }
}

impl Module {
    /// Parses a file as rustfmt writes it, without its tests.
    fn parse(text: &str) -> Self {
        let mut module = Self::default();
        let mut code = String::new();
        let mut is_test = false;
        for line in text.lines() {
            is_test |= line == "#[cfg(test)]";
            if is_test && line.ends_with('{') {
                break;
            }
            if is_test {
                is_test = !line.ends_with(';');
                continue;
            }
            code.push_str(line.split("//").next().unwrap_or_default().trim());
            code.push(' ');
        }
        for statement in code.split(';') {
            module.add(statement);
        }
        module
    }

    fn add(&mut self, statement: &str) {
        let is_use = |text: &str| text.starts_with("use ");
        // A statement may follow attributes, or the block before it.
        let start = statement.rfind("use ").unwrap_or(statement.len());
        let before = &statement[..start];
        let is_start = before.is_empty() || before.ends_with(' ');
        if is_use(&statement[start..]) && is_start {
            let mut names = Vec::new();
            expand(&[], &statement[start + "use ".len()..], &mut names);
            let is_reexport = before
                .trim_end()
                .rsplit(' ')
                .next()
                .is_some_and(|word| word.starts_with("pub") || word.ends_with(')'));
            for (name, path) in names {
                if is_reexport {
                    self.exports.insert(name, path.clone());
                }
                self.imports.push(path);
            }
            self.add_paths(before);
        } else {
            self.add_paths(statement);
        }
    }

    /// Adds paths inside of expressions and types: `crate::mailbox::Mailbox`.
    fn add_paths(&mut self, code: &str) {
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        for path in code.split(|c| !is_path(c)) {
            if path.starts_with("crate::") || path.starts_with("super::") {
                let parts = path.split("::").filter(|part| !part.is_empty());
                self.imports.push(parts.map(str::to_owned).collect());
            }
        }
    }
}

/// Expands the tree of a `use` into the names that it declares, with their paths.
fn expand(prefix: &[String], tree: &str, names: &mut Vec<(String, Vec<String>)>) {
    let tree = tree.trim();
    let (head, members) = match tree.split_once('{') {
        Some((head, members)) => (head, members.trim_end().strip_suffix('}')),
        None => (tree, None),
    };
    let (head, alias) = match head.split_once(" as ") {
        Some((head, alias)) => (head, Some(alias.trim())),
        None => (head, None),
    };
    let parts = head.split("::").map(str::trim).filter(|p| !p.is_empty());
    let mut path: Vec<String> = prefix
        .iter()
        .cloned()
        .chain(parts.map(str::to_owned))
        .collect();
    let Some(members) = members else {
        // `module::{self}` declares the module.
        if !prefix.is_empty() && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = alias.or(path.last().map(String::as_str));
        names.push((name.unwrap_or_default().to_owned(), path));
        return;
    };
    let mut depth = 0;
    for member in members.split(|c| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    }) {
        if !member.trim().is_empty() {
            expand(&path, member, names);
        }
    }
}

/// The largest set of modules that all import each other, directly or through others.
fn largest_circle(imports: &BTreeMap<String, BTreeSet<String>>) -> Option<BTreeSet<String>> {
    let reachable: BTreeMap<_, _> = imports
        .keys()
        .map(|module| (module, reachable_from(module, imports)))
        .collect();
    let circle_of = |module: &String| -> BTreeSet<String> {
        let others = reachable[module].iter();
        others
            .filter(|other| reachable.get(other).is_some_and(|set| set.contains(module)))
            .cloned()
            .collect()
    };
    imports
        .keys()
        .map(circle_of)
        .max_by_key(BTreeSet::len)
        .filter(|circle| !circle.is_empty())
}

fn reachable_from(
    module: &String,
    imports: &BTreeMap<String, BTreeSet<String>>,
) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut left = vec![module];
    while let Some(module) = left.pop() {
        for imported in imports.get(module).into_iter().flatten() {
            if reached.insert(imported.clone()) {
                left.push(imported);
            }
        }
    }
    reached
}

/// Re-exports of re-exports that are followed.
const REEXPORTS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings in a crate whose files have these paths and texts.
    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let modules = files.iter().map(|(path, text)| {
            let path = path.split('/').filter(|part| !part.is_empty());
            (path.map(str::to_owned).collect(), Module::parse(text))
        });
        Modules(modules.collect()).circles("src")
    }

    #[test]
    fn modules_that_import_each_other_are_found() {
        let found = circles(&[
            ("", "mod a;\nmod b;\nmod c;\n"),
            ("a", "use std::io;\nuse crate::b::{self, B};\n"),
            (
                "b",
                "/// Text.\npub struct B;\n\nfn f() -> super::c::C {}\n",
            ),
            (
                "c",
                "#[rustfmt::skip]\nuse super::{\n    a::A,\n    d::{D, E},\n};\n",
            ),
            ("d", ""),
        ]);
        assert_eq!(
            found,
            ["src: 3 modules import each other in a circle: a, b, c"]
        );
    }

    #[test]
    fn an_import_of_a_reexport_counts_as_one_of_its_module() {
        let found = circles(&[
            ("", "mod a;\nmod b;\npub use a::A;\npub use b::B;\n"),
            ("a", "use crate::B;\n"),
            ("b", "use crate::A;\n"),
        ]);
        assert_eq!(
            found,
            ["src: 2 modules import each other in a circle: a, b"]
        );
    }

    #[test]
    fn a_reexport_has_the_name_that_it_is_given() {
        let found = circles(&[
            (
                "",
                "mod a;\nmod b;\npub use a::A as First;\npub use b::{self as c, B as Second};\n",
            ),
            ("a", "use crate::Second;\n"),
            ("b", "use crate::First;\n"),
        ]);
        assert_eq!(
            found,
            ["src: 2 modules import each other in a circle: a, b"]
        );
        // The name in the defining module is not one of the root.
        let found = circles(&[
            (
                "",
                "mod a;\nmod b;\nmod c;\npub use a::A as C;\npub use c::C as A;\n",
            ),
            ("a", "use crate::b::B;\n"),
            ("b", "use crate::A;\n"),
            ("c", ""),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn a_module_and_its_children_are_one() {
        let found = circles(&[
            ("", "mod a;\nmod b;\n"),
            ("a", "mod x;\nuse x::X;\n"),
            ("a/x", "use super::A;\nuse crate::b::B;\n"),
            ("b", ""),
        ]);
        assert_eq!(found, [""; 0]);
        let found = circles(&[
            ("", "mod a;\nmod b;\n"),
            ("a", "mod x;\n"),
            ("a/x", "use crate::b::B;\n"),
            ("b", "use crate::a::A;\n"),
        ]);
        assert_eq!(
            found,
            ["src: 2 modules import each other in a circle: a, b"]
        );
    }

    #[test]
    fn imports_in_tests_do_not_count() {
        let found = circles(&[
            ("", ""),
            ("a", "use crate::b::B;\n"),
            (
                "b",
                "// use crate::a::A;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
            ),
        ]);
        assert_eq!(found, [""; 0]);
        let found = circles(&[
            ("", "#[cfg(test)]\nmod tests;\npub use a::A;\n"),
            ("a", "use crate::b::B;\n"),
            ("b", "use crate::A;\n"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
