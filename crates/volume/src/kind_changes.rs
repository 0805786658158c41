//! What can change of a kind of volume while it is in use.

use crate::VolumeKind;

impl VolumeKind {
    /// A linear volume with one more member; other kinds stay as they are.
    #[must_use]
    pub fn with_member(&self, name: &str) -> Self {
        let mut kind = self.clone();
        if let Self::Linear { members } = &mut kind {
            members.push(name.to_owned());
        }
        kind
    }

    /// The members that `longer` has besides those of this linear volume, if it has these first.
    pub fn added_members<'a>(&self, longer: &'a Self) -> Option<&'a [String]> {
        let (Self::Linear { members }, Self::Linear { members: all }) = (self, longer) else {
            return None;
        };
        let added = all.strip_prefix(&members[..])?;
        (!added.is_empty()).then_some(added)
    }

    /// The member of this mirror that `other`, which is the same mirror otherwise, has another
    /// volume for, and that volume.
    pub fn replaced_member<'a>(&'a self, other: &'a Self) -> Option<(&'a str, &'a str)> {
        let (
            Self::Mirror {
                members,
                resync_rate,
            },
            Self::Mirror {
                members: others,
                resync_rate: other_rate,
            },
        ) = (self, other)
        else {
            return None;
        };
        let mut differing = members.iter().zip(others).filter(|(old, new)| old != new);
        let (old, new) = differing.next()?;
        let is_one = differing.next().is_none() && members.len() == others.len();
        (is_one && resync_rate == other_rate).then_some((old, new))
    }

    /// A mirror with another volume for a member; other kinds stay as they are.
    #[must_use]
    pub fn with_replacement(&self, old: &str, new: &str) -> Self {
        let mut kind = self.clone();
        if let Self::Mirror { members, .. } = &mut kind {
            let places = members.iter_mut().filter(|member| *member == old);
            places.for_each(|member| new.clone_into(member));
        }
        kind
    }

    /// Whether `other` is the same cache or mirror with other settings that can change while it is
    /// in use.
    pub fn differs_in_settings(&self, other: &Self) -> bool {
        self != other
            && match (self, other) {
                (
                    Self::Cache { of, settings },
                    Self::Cache {
                        of: other_of,
                        settings: others,
                    },
                ) => of == other_of && settings.block == others.block,
                (
                    Self::Mirror { members, .. },
                    Self::Mirror {
                        members: others, ..
                    },
                ) => members == others,
                _ => false,
            }
    }
}
