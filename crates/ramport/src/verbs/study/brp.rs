//! `ramport study brp`: what each step of BRP gains, and what SRP, NVMe and iSCSI cost beside it.

mod fixture;
mod measure;
mod tables;
mod ways;

use std::process::ExitCode;

use bench::{ProgressBar, Stop};
use indicatif::ProgressStyle;

use self::fixture::Fixture;
use self::measure::{Device, Measured, Series, all_series};
use self::ways::Network;
use super::{Machine, StudyReport};
use crate::cli::StudyBrpArgs;
use crate::failure::Failure;
use crate::verbs::{Daemon, INTERRUPTED_STATUS, stop_on_interrupt};

/// Measures, reports, and removes what was created for that.
pub(super) fn run(daemon: &Daemon, args: &StudyBrpArgs) -> Result<ExitCode, Failure> {
    let stop = Stop::default();
    let mut fixture = Fixture::create(daemon, args)?;
    stop_on_interrupt(&stop);
    let measured = measure_all(&mut fixture, args, &stop);
    let removed = fixture.remove();
    let measured = measured?;
    removed?;
    let Some((report, measured)) = measured else {
        return Ok(ExitCode::from(INTERRUPTED_STATUS));
    };
    let report = tables::fill(report, &measured);
    report.publish(daemon.form, args.output.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// The report without figures, and the figures; nothing if the study was interrupted.
fn measure_all(
    fixture: &mut Fixture<'_>,
    args: &StudyBrpArgs,
    stop: &Stop,
) -> Result<Option<(StudyReport, Vec<Measured>)>, Failure> {
    let mut remarks = Vec::new();
    let mut portals = Vec::new();
    let mut measured = Vec::new();
    let bar = progress_bar();
    for network in Network::ALL {
        let urls = match fixture.open(network) {
            Ok(opened) => opened,
            // Many machines have no adapter.
            Err(error) if network == Network::Adapter => {
                remarks.push(format!("no RDMA adapter was measured: {error}"));
                continue;
            }
            Err(error) => {
                remarks.push(format!("{network} was not measured: {error}"));
                continue;
            }
        };
        portals.extend(urls);
        let filled = fixture.fill(network, stop);
        if stop.is_requested() {
            return Ok(None);
        }
        filled?;
        for device in Device::ALL {
            fixture.set_device(device)?;
            for series in all_series(args, network, device) {
                let outcome = series.run(args, stop, &bar, &mut remarks);
                let Some(outcome) = outcome else {
                    bar.finish_and_clear();
                    return Ok(None);
                };
                measured.push(outcome);
            }
        }
        fixture.close()?;
    }
    bar.finish_and_clear();
    let report = StudyReport {
        name: "brp",
        title: "BRP's steps beside SRP, NVMe and iSCSI".to_owned(),
        machine: Machine::this(&portals)?,
        method: method(args),
        sections: Vec::new(),
        remarks,
    };
    Ok(Some((report, measured)))
}

fn method(args: &StudyBrpArgs) -> Vec<String> {
    vec![
        format!(
            "Each figure is the median of {} measurements of {} s, with the lowest and the \
             highest in tables of their own; the ways take turns, in reverse order every other \
             time.",
            args.repeats,
            args.runtime().as_secs_f64()
        ),
        "The same load generator drives all ways from this machine, by ramport's own hosts."
            .to_owned(),
        format!(
            "The volume is in RAM and was written before; the emulated device adds {} to each \
             command and passes {} MB/s.",
            Device::DELAY,
            Device::BYTES_PER_SECOND / 1_000_000
        ),
        "BRP-1 answers in order, BRP-2 in any order, BRP-3 joins replies under load; SRP sends \
         writes of up to 8 KiB inside its messages (immediate data)."
            .to_owned(),
    ]
}

/// A bar on the terminal; hidden where standard error is none.
fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {eta} {msg}")
        .expect("the template is well-formed");
    ProgressBar::new(0).with_style(style)
}

impl Series {
    /// Measures the series; nothing if the study was interrupted.
    fn run(
        self,
        args: &StudyBrpArgs,
        stop: &Stop,
        bar: &ProgressBar,
        remarks: &mut Vec<String>,
    ) -> Option<Measured> {
        bar.inc_length(self.measurements(args));
        bar.set_message(self.title());
        measure::run(self, args, stop, bar, remarks)
    }
}
