//! Which pages of the store hold which pages of a file.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::pages::Run;

/// What the first entry of a map is charged, in bytes: a leaf of the tree.
const FIRST_BYTES: u64 = 288;
/// What each further entry is charged, in bytes: nodes are at least five elevenths full.
const ENTRY_BYTES: u64 = 80;

/// Runs of pages by the file's page at which they start; neighbours are merged.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    runs: BTreeMap<u64, Run>,
    pages: u64,
}

/// What is at a page of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// These pages.
    Mapped(Run),
    /// Nothing, for this many pages.
    Hole(u64),
}

impl Extents {
    /// The pages of the file that are mapped.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// The memory of the map in bytes, as charged.
    pub(crate) fn map_bytes(&self) -> u64 {
        map_bytes(self.runs.len())
    }

    /// What another entry costs at most, in bytes.
    pub(crate) fn entry_bytes(&self) -> u64 {
        map_bytes(self.runs.len() + 1) - self.map_bytes()
    }

    /// What is at `page` and behind it.
    pub(crate) fn at(&self, page: u64) -> Segment {
        if let Some((&start, &run)) = self.runs.range(..=page).next_back() {
            let skip = page - start;
            if skip < run.count {
                return Segment::Mapped(Run {
                    first: run.first + skip,
                    count: run.count - skip,
                });
            }
        }
        let next = self.runs.range(page..).next();
        Segment::Hole(next.map_or(u64::MAX - page, |(&start, _)| start - page))
    }

    /// The store's page behind the one that holds the page before `page`.
    pub(crate) fn hint(&self, page: u64) -> Option<u64> {
        let (&start, &run) = self.runs.range(..page).next_back()?;
        (start + run.count == page).then_some(run.end())
    }

    /// Maps pages from `page` on, where there is a hole.
    pub(crate) fn insert(&mut self, page: u64, run: Run) {
        self.pages += run.count;
        let mut start = page;
        let mut merged = run;
        if let Some((&before, &left)) = self.runs.range(..page).next_back() {
            assert!(before + left.count <= page, "the page is mapped already");
            if before + left.count == page && left.end() == run.first {
                start = before;
                merged = Run {
                    first: left.first,
                    count: left.count + run.count,
                };
            }
        }
        let end = page + run.count;
        if let Some((&after, &right)) = self.runs.range(page..).next() {
            assert!(after >= end, "the page is mapped already");
            if after == end && merged.end() == right.first {
                merged.count += right.count;
                self.runs.remove(&after);
            }
        }
        self.runs.insert(start, merged);
    }

    /// Unmaps pages and returns a map of them, which has other keys.
    pub(crate) fn cut(&mut self, pages: Range<u64>) -> Self {
        let mut cut = Self::default();
        let last = self.runs.last_key_value();
        if last.is_some_and(|(&start, run)| start + run.count > pages.end) {
            self.remove(pages, |run| cut.insert(cut.pages, run));
            return cut;
        }
        // Everything behind a page, in far fewer steps than there are runs.
        if let Some((&start, &run)) = self.runs.range(..pages.start).next_back()
            && start + run.count > pages.start
        {
            let kept = pages.start - start;
            let (front, behind) = run.split(kept);
            self.runs.insert(start, front);
            self.runs.insert(pages.start, behind);
        }
        cut.runs = self.runs.split_off(&pages.start);
        cut.pages = cut.runs.values().map(|run| run.count).sum();
        self.pages -= cut.pages;
        cut
    }

    /// Maps what `other` maps, of pages that are not mapped here.
    pub(crate) fn absorb(&mut self, other: Self) {
        for (page, run) in other.runs {
            self.insert(page, run);
        }
    }

    /// Unmaps and returns up to `count` pages, the first ones.
    pub(crate) fn take_first(&mut self, count: u64) -> Option<Run> {
        let (start, run) = self.runs.pop_first()?;
        let taken = run.count.min(count);
        let (run, rest) = run.split(taken);
        if rest.count > 0 {
            self.runs.insert(start + taken, rest);
        }
        self.pages -= taken;
        Some(run)
    }

    /// Whether [`remove`](Self::remove) would leave one entry more than before.
    pub(crate) fn would_split(&self, pages: &Range<u64>) -> bool {
        let before = self.runs.range(..pages.start).next_back();
        before.is_some_and(|(&start, run)| start + run.count > pages.end)
    }

    /// Unmaps pages and calls `freed` with what held them.
    pub(crate) fn remove(&mut self, pages: Range<u64>, mut freed: impl FnMut(Run)) {
        let mut free = |run: Run, total: &mut u64| {
            *total -= run.count;
            freed(run);
        };
        if let Some((&start, &run)) = self.runs.range(..pages.start).next_back() {
            let end = start + run.count;
            if end > pages.start {
                let kept = pages.start - start;
                self.runs.get_mut(&start).expect("found above").count = kept;
                let cut = end.min(pages.end) - pages.start;
                let part = |skip, count| Run {
                    first: run.first + skip,
                    count,
                };
                free(part(kept, cut), &mut self.pages);
                if end > pages.end {
                    self.runs
                        .insert(pages.end, part(kept + cut, end - pages.end));
                }
            }
        }
        while let Some((&start, &run)) = self.runs.range(pages.clone()).next() {
            self.runs.remove(&start);
            let cut = run.count.min(pages.end - start);
            if cut < run.count {
                let rest = Run {
                    first: run.first + cut,
                    count: run.count - cut,
                };
                self.runs.insert(start + cut, rest);
            }
            let run = Run {
                first: run.first,
                count: cut,
            };
            free(run, &mut self.pages);
        }
    }
}

fn map_bytes(entries: usize) -> u64 {
    match entries as u64 {
        0 => 0,
        more => FIRST_BYTES + (more - 1) * ENTRY_BYTES,
    }
}
