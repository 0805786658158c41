//! Commands of open-iscsi.

use control::{ChapView, TargetView};
use server::Transport;

use super::{AtBoot, ConnectingHost, Steps, Way, quoted};

/// open-iscsi's interfaces for TCP and for iSER, which it has without a definition. Without this
/// option, it would use every interface that is defined on the host, under their initiator names.
const TCP: &str = " --interface=default";
const ISER: &str = " --interface=iser";

pub(super) fn steps(target: &TargetView, host: &ConnectingHost<'_>, way: &Way<'_>) -> Steps {
    let is_iser = way.portal.transport == Transport::Iser;
    let interface = if is_iser { ISER } else { TCP };
    let portal = quoted(&way.host_and_port());
    let node = format!(
        "iscsiadm --mode=node --targetname={} --portal={portal}{interface}",
        quoted(&target.name)
    );
    let module = is_iser.then(|| "modprobe ib_iser".to_owned());
    let mut connect: Vec<_> = module.clone().into_iter().collect();
    connect.push(format!("{node} --op=new"));
    if let Some(chap) = host.chap {
        connect.extend(ask_secrets(chap));
        let settings = settings("node.session.auth", chap);
        connect.push(format!("{node} --op=update{settings}"));
    }
    connect.push(format!("{node} --login"));
    let mut discover: Vec<_> = module.into_iter().collect();
    discover.extend(discovery(&portal, interface, host.chap));
    Steps {
        discover,
        connect,
        at_boot: AtBoot {
            file: None,
            commands: vec![
                format!("{node} --op=update --name=node.startup --value=automatic"),
                "systemctl enable open-iscsi.service || systemctl enable iscsi.service".to_owned(),
            ],
        },
    }
}

/// SendTargets; with the host's proof if it has one.
fn discovery(portal: &str, interface: &str, chap: Option<&ChapView>) -> Vec<String> {
    let Some(chap) = chap else {
        return vec![format!(
            "iscsiadm --mode=discovery --type=sendtargets --portal={portal}{interface}"
        )];
    };
    let database =
        format!("iscsiadm --mode=discoverydb --type=sendtargets --portal={portal}{interface}");
    let mut commands = vec![format!("{database} --op=new")];
    commands.extend(ask_secrets(chap));
    let settings = settings("discovery.sendtargets.auth", chap);
    commands.push(format!("{database} --op=update{settings}"));
    commands.push(format!("{database} --discover"));
    commands
}

/// Commands that read the secrets from the terminal, so that neither these lines nor the shell's
/// history contain them.
fn ask_secrets(chap: &ChapView) -> Vec<String> {
    let ask = |whose: &str, variable: &str| {
        let prompt = quoted(&format!("CHAP secret of {whose}: "));
        format!("read -rsp {prompt} {variable}; echo")
    };
    let mutual = chap.mutual_user.as_deref();
    std::iter::once(ask(&chap.user, "CHAP_SECRET"))
        .chain(mutual.map(|user| ask(user, "MUTUAL_CHAP_SECRET")))
        .collect()
}

/// The settings for CHAP below `prefix`.
fn settings(prefix: &str, chap: &ChapView) -> String {
    let user = quoted(&chap.user);
    let own = format!(
        " --name={prefix}.authmethod --value=CHAP --name={prefix}.username --value={user} --name={prefix}.password --value=\"$CHAP_SECRET\""
    );
    let mutual = chap.mutual_user.as_deref().map(|user| {
        let user = quoted(user);
        format!(
            " --name={prefix}.username_in --value={user} --name={prefix}.password_in --value=\"$MUTUAL_CHAP_SECRET\""
        )
    });
    own + mutual.as_deref().unwrap_or_default()
}

pub(super) fn disconnect(target: &TargetView) -> Vec<String> {
    let node = format!("iscsiadm --mode=node --targetname={}", quoted(&target.name));
    vec![format!("{node} --logout"), format!("{node} --op=delete")]
}
