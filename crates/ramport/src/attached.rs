//! `ramport attach` and `ramport detach`: disks of other machines as block devices of this one.

use std::fs::File;
use std::io::{self, Read};
use std::process::{Command, ExitCode, Stdio};

use attach::{AttachError, Attachment, LinkEvent, Options, Record};
use clap::ValueEnum as _;
use rustix::stdio::{dup2_stderr, dup2_stdout};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{AttachArgs, Connection, DetachDiskArgs, URL_VARIABLE};
use crate::failure::Failure;
use crate::form::Form;
use crate::units::bytes;
use crate::{notify, output};

/// The most bytes that are read of what the process in the background prints.
const ANSWER_BYTES_MAX: u64 = 1 << 16;

/// Attaches a disk.
pub(crate) fn attach(connection: &Connection, args: &AttachArgs) -> Result<ExitCode, Failure> {
    let form = Form::when(connection.json);
    if args.foreground || args.background_child {
        return serve(form, args).map(|()| ExitCode::SUCCESS);
    }
    start_in_background(form, args)
}

/// Starts a process that serves the disk, and waits until the device is there.
fn start_in_background(form: Form, args: &AttachArgs) -> Result<ExitCode, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["attach", "--background-child", "--give-up-after"])
        .arg(args.give_up_after.to_string())
        .env(URL_VARIABLE, args.url.with_secrets())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(name) = &args.name {
        command.arg("--name").arg(name);
    }
    if args.read_only {
        command.arg("--read-only");
    }
    if let Some(via) = args.via.and_then(|via| via.to_possible_value()) {
        command.arg("--via").arg(via.get_name());
    }
    if form == Form::Json {
        command.arg("--json");
    }
    let mut child = command.spawn()?;
    // Both ends are closed when the device is there, or when the process has failed.
    let answer = read_all(child.stdout.take())?;
    let problem = read_all(child.stderr.take())?;
    if let Ok(record) = serde_json::from_str(&answer) {
        show(form, &record)?;
        return Ok(ExitCode::SUCCESS);
    }
    eprint!("{problem}");
    let code = child
        .wait()?
        .code()
        .and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn read_all(pipe: Option<impl Read>) -> io::Result<String> {
    let mut text = String::new();
    if let Some(pipe) = pipe {
        pipe.take(ANSWER_BYTES_MAX).read_to_string(&mut text)?;
    }
    Ok(text)
}

/// Attaches a disk and serves it until a signal ends that.
fn serve(form: Form, args: &AttachArgs) -> Result<(), Failure> {
    let options = Options {
        name: args.name.clone(),
        give_up_after: args.give_up_after.0,
        is_read_only: args.read_only,
        via: args.via.map(Into::into),
    };
    if args.background_child {
        // The end of the terminal does not end the disk. It fails only for the leader of a session.
        let _ = rustix::process::setsid();
    }
    let mut attachment = Attachment::new(&args.url.url, &options, tell).map_err(failure)?;
    if args.background_child {
        let log = File::create(attachment.log())?;
        output::json(attachment.record())?;
        dup2_stdout(&log).map_err(io::Error::from)?;
        dup2_stderr(&log).map_err(io::Error::from)?;
    } else {
        show(form, attachment.record())?;
        notify::tell("READY=1");
    }
    wait_until_unused(&mut attachment)?;
    notify::tell("STOPPING=1");
    attachment.disconnect();
    Ok(())
}

/// Waits for signals until one arrives while the device is not in use, and removes the device.
fn wait_until_unused(attachment: &mut Attachment) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            match attachment.remove_device() {
                Ok(()) => return Ok(()),
                Err(error @ AttachError::InUse { .. }) => eprintln!("ramport: {error}"),
                Err(error) => return Err(failure(error)),
            }
        }
    })
}

/// Logs what happens to the disk.
fn tell(event: LinkEvent) {
    match event {
        LinkEvent::Lost => eprintln!("ramport: the connection was lost; requests wait for it"),
        LinkEvent::Restored => eprintln!("ramport: there is a connection again"),
        LinkEvent::GaveUp(error) => {
            eprintln!(
                "ramport: {error}; requests fail until the disk is detached and attached again"
            );
        }
        LinkEvent::Resized {
            bytes: size,
            is_passed_on,
        } => {
            let rest = if is_passed_on {
                ""
            } else {
                "; to use that, detach it and attach it again"
            };
            eprintln!("ramport: the disk has {} now{rest}", bytes(size));
        }
    }
}

/// Detaches a disk, or lists all.
pub(crate) fn detach(connection: &Connection, args: &DetachDiskArgs) -> Result<(), Failure> {
    let form = Form::when(connection.json);
    let Some(disk) = &args.disk else {
        return list(form);
    };
    let record = ::attach::detach(disk).map_err(failure)?;
    match form {
        Form::Json => output::json(&record),
        Form::Text => output::line(format_args!(
            "detached {} ({})",
            record.name,
            record.device.display()
        )),
    }
}

fn list(form: Form) -> Result<(), Failure> {
    let disks = ::attach::list();
    if form == Form::Json {
        return output::json(&disks);
    }
    if disks.is_empty() {
        return output::line("no disk is attached");
    }
    let rows = disks.into_iter().map(|disk| {
        vec![
            disk.name,
            disk.device.display().to_string(),
            bytes(disk.size_bytes),
            disk.url,
        ]
    });
    output::table(&["NAME", "DEVICE", "SIZE", "URL"], &["SIZE"], rows)
}

fn show(form: Form, record: &Record) -> Result<(), Failure> {
    match form {
        Form::Json => output::json(record),
        Form::Text => output::line(format_args!(
            "{} is {} ({}); `ramport detach {}` removes it",
            record.device.display(),
            record.url,
            bytes(record.size_bytes),
            record.name
        )),
    }
}

fn failure(error: AttachError) -> Failure {
    if error.is_mistake() {
        Failure::mistake(error)
    } else {
        Failure::Broken(error.into())
    }
}
