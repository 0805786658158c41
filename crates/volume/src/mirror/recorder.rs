//! The record of a mirror, and what it means for the start.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::{Mutex, OnceLock, PoisonError};

use image::HostFiles;

use super::record::{Record, RecordFile};
use super::regions::{Division, Regions};
use super::standing::Start;
use crate::managed::Member;
use crate::members::bits;
use crate::mirror_info::RecordError;
use crate::{Origin, Platform};

/// The mode of the folder of records.
const FOLDER_MODE: u32 = 0o700;

/// The record of a mirror of which a member outlives the program.
#[derive(Debug)]
pub(super) struct Recorder {
    file: OnceLock<RecordFile<HostFiles>>,
    /// Why it could not be written.
    problem: Mutex<Option<String>>,
}

impl Recorder {
    pub(super) fn new(platform: &Platform, members: &[Member]) -> Self {
        let recorder = Self {
            file: OnceLock::new(),
            problem: Mutex::default(),
        };
        if members.iter().any(outlives_program) {
            recorder.open(platform);
        }
        recorder
    }

    /// The file in which is to be recorded, if there is one.
    fn open(&self, platform: &Platform) -> Option<&RecordFile<HostFiles>> {
        let path = platform.record.clone()?;
        Some(self.file.get_or_init(|| RecordFile::new(HostFiles, path)))
    }

    pub(super) fn has_file(&self) -> bool {
        self.file.get().is_some()
    }

    /// Begins a record of a mirror that had none.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn begin(&self, record: &Record, platform: &Platform) -> Result<(), RecordError> {
        if let Some(file) = self.open(platform) {
            create_folder(file)?;
        }
        self.write(record)
    }

    /// Finds which members are in sync, and writes the first record of this run.
    ///
    /// # Errors
    /// If the record of an earlier run cannot be used, or this one not be written.
    pub(super) fn start(
        &self,
        division: Division,
        members: &[Member],
        origin: Origin,
    ) -> Result<Start, RecordError> {
        let mut all = Regions::none(division);
        all.insert_all();
        let Some(file) = self.file.get() else {
            return Ok(Start {
                missing: all_but(members, 0, |_| all.clone()),
                noted: None,
                alternatives: 0,
            });
        };
        let (source, alternatives, differ, known) = match origin {
            Origin::New => {
                create_folder(file)?;
                (0, 0, all.clone(), Vec::new())
            }
            Origin::Restored => {
                let record = file.read(division)?;
                let (source, alternatives) = sources_of(&record, members)?;
                (source, alternatives, record.regions, record.members)
            }
        };
        let missing = all_but(members, source, |member| {
            // One that replaced another just before the end is not in the record.
            if outlives_program(member) && known.contains(&member.name) {
                differ.clone()
            } else {
                all.clone()
            }
        });
        let mut noted = Regions::none(division);
        missing
            .iter()
            .flatten()
            .for_each(|missing| noted.insert_set(missing));
        if alternatives == 0 {
            file.write(&Record {
                members: members.iter().map(|member| member.name.clone()).collect(),
                in_sync: vec![members[source].name.clone()],
                regions: noted.clone(),
            })?;
        }
        Ok(Start {
            missing,
            noted: Some(noted),
            alternatives,
        })
    }

    /// Why the record could not be written the last time.
    pub(super) fn problem(&self) -> Option<String> {
        let problem = self.problem.lock();
        problem.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Removes the record with its mirror.
    pub(super) fn remove(&self) {
        if let Some(file) = self.file.get() {
            file.remove();
        }
    }

    /// Writes a record.
    ///
    /// # Errors
    /// If the system refuses. That is its problem then.
    pub(super) fn write(&self, record: &Record) -> Result<(), RecordError> {
        let Some(file) = self.file.get() else {
            return Ok(());
        };
        let written = file.write(record);
        let problem = written.as_ref().err().map(ToString::to_string);
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
        written
    }
}

/// The member that has the contents: one that was in sync, and can be used at once if there is one.
/// If it cannot, also the others that were in sync.
fn sources_of(record: &Record, members: &[Member]) -> Result<(usize, u64), RecordError> {
    let was_in_sync =
        |member: &Member| record.in_sync.contains(&member.name) && outlives_program(member);
    let candidates = members.iter().enumerate();
    let candidates = candidates.filter(|(_, member)| was_in_sync(member));
    let places = candidates.fold(0, |set, (place, _)| set | 1 << place);
    let is_ready = |place: &usize| members[*place].volume.is_ready();
    if let Some(source) = bits(places).find(is_ready) {
        return Ok((source, 0));
    }
    let first = bits(places).next().ok_or_else(|| RecordError::Lost {
        members: record.in_sync.join(", "),
    })?;
    Ok((first, places & !(1 << first)))
}

/// What each member misses, except for one, which is in sync.
fn all_but(
    members: &[Member],
    source: usize,
    missing: impl Fn(&Member) -> Regions,
) -> Vec<Option<Regions>> {
    let members = members.iter().enumerate();
    let missing = |(place, member)| (place != source).then(|| missing(member));
    members.map(missing).collect()
}

fn create_folder(file: &RecordFile<HostFiles>) -> Result<(), RecordError> {
    file.create_folder(|folder| {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(FOLDER_MODE).create(folder)
    })
}

fn outlives_program(member: &Member) -> bool {
    member.volume.storage().outlives_program()
}
