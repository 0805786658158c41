//! The line editor: history, and completion by the command line's own candidates.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Helper};

use super::{Context, statement};
use crate::failure::Failure;
use crate::paths;

/// How many lines the history has.
const HISTORY_LINES_MAX: usize = 1000;
/// The mode of the history.
const HISTORY_MODE: u32 = 0o600;

pub(super) struct Editor {
    inner: rustyline::Editor<ShellHelper, FileHistory>,
    /// None if it cannot be written.
    history: Option<PathBuf>,
}

impl Editor {
    pub(super) fn new(context: Context) -> Result<Self, Failure> {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .max_history_size(HISTORY_LINES_MAX)
            .map_err(broken)?
            .build();
        let mut inner = rustyline::Editor::with_config(config).map_err(broken)?;
        inner.set_helper(Some(ShellHelper { context }));
        let path = paths::shell_history();
        let history = match prepare(&path) {
            Ok(()) => Some(path),
            Err(error) => {
                eprintln!("ramport: no history is kept: {}: {error}", path.display());
                None
            }
        };
        if let Some(path) = &history {
            // A history of another form is replaced.
            let _ = inner.load_history(path);
        }
        Ok(Self { inner, history })
    }

    /// The next line; none if the person ends the shell with Ctrl-D. Ctrl-C discards a line.
    pub(super) fn read(&mut self, context: &Context) -> Result<Option<String>, Failure> {
        if let Some(assistant) = self.inner.helper_mut() {
            assistant.context = context.clone();
        }
        let prompt = format!("{}> ", context.place);
        loop {
            match self.inner.readline(&prompt) {
                Ok(line) => {
                    self.keep(&line);
                    return Ok(Some(line));
                }
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(broken(error)),
            }
        }
    }

    /// Adds a line to the history.
    fn keep(&mut self, line: &str) {
        if line.trim().is_empty() || has_secret(line) {
            return;
        }
        let is_new = self.inner.add_history_entry(line).unwrap_or(false);
        if let (true, Some(path)) = (is_new, &self.history) {
            // Without the history, the shell still works.
            let _ = self.inner.append_history(path);
        }
    }
}

/// Whether a URL in the line has a CHAP secret: `iscsi://USER%SECRET@HOST`.
fn has_secret(line: &str) -> bool {
    line.split_whitespace().any(|word| {
        let url = word.split_once("://").map(|(_, rest)| rest);
        let user = url.and_then(|rest| rest.rsplit_once('@'));
        user.is_some_and(|(user, _)| user.contains('%'))
    })
}

/// Creates the history if there is none, and makes it readable by its owner only.
fn prepare(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(HISTORY_MODE)
        .open(path)?;
    file.set_permissions(fs::Permissions::from_mode(HISTORY_MODE))
}

fn broken(error: ReadlineError) -> Failure {
    Failure::Broken(error.into())
}

/// Completes.
struct ShellHelper {
    context: Context,
}

impl Completer for ShellHelper {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let Some((words, begin)) = line.get(..at).and_then(statement::typed) else {
            return Ok((at, Vec::new()));
        };
        let mut found = self.context.candidates(&words);
        if let [only] = found.as_mut_slice()
            && !only.ends_with(['/', '='])
        {
            only.push(' ');
        }
        Ok((begin, found))
    }
}

impl Hinter for ShellHelper {
    type Hint = String;
}

impl Highlighter for ShellHelper {}
impl Validator for ShellHelper {}
impl Helper for ShellHelper {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_secrets_are_not_kept() {
        assert!(has_secret(
            "discover iscsi://other%twelve-bytes@192.0.2.1 --json"
        ));
        assert!(!has_secret("discover iscsi://other@192.0.2.1"));
        assert!(!has_secret("serve --memory 80%"));
        assert!(!has_secret("portal create nvme+tcp://192.0.2.1"));
    }

    #[test]
    fn the_history_is_for_its_owner_only() {
        let folder = std::env::temp_dir().join(format!("ramport-history-{}", std::process::id()));
        let path = folder.join("below/shell-history");
        prepare(&path).expect("a history");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a mode");
        prepare(&path).expect("the same history");
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::remove_dir_all(&folder).expect("removed");
    }
}
