use proptest::prelude::*;

use super::*;
use crate::change::tests::definitions;
use crate::text::{Portal, Text};

proptest! {
    /// A model server takes the steps: it refuses what refers to something that does not exist, as
    /// the real one does.
    #[test]
    fn steps_make_what_was_asked_and_their_inverses_undo_them(a in definitions(), b in definitions()) {
        let steps = plan(&a, &a.changes_to(&b)).expect("block sizes are the same");
        let mut model = a.clone();
        let mut undo = Vec::new();
        for step in steps {
            take(&mut model, &step);
            undo.push(step.inverse());
        }
        prop_assert_eq!(&model, &b);
        while let Some(step) = undo.pop() {
            take(&mut model, &step);
        }
        prop_assert_eq!(model, a);
    }

    #[test]
    fn what_destroys_data_comes_last(a in definitions(), b in definitions()) {
        let steps = plan(&a, &a.changes_to(&b)).expect("block sizes are the same");
        let is_destroying = |step: &Step| match step {
            Step::RemoveVolume(..) | Step::Share(_, ShareStep::Remove(_)) => true,
            Step::Resize { from_bytes, to_bytes, .. } => to_bytes < from_bytes,
            _ => false,
        };
        let first = steps.iter().position(is_destroying).unwrap_or(steps.len());
        prop_assert!(steps[first..].iter().all(is_destroying));
        prop_assert!(steps[first..].iter().all(|step| step.phase() == Phase::Destroy));
    }
}

fn take(model: &mut Definitions, step: &Step) {
    match step {
        Step::CreateHost(name, host) => {
            assert!(
                model
                    .hosts
                    .insert(Text(name.clone()), host.clone())
                    .is_none()
            );
        }
        Step::ChangeHost { name, to, .. } => {
            assert!(model.hosts.insert(Text(name.clone()), to.clone()).is_some());
        }
        Step::RemoveHost(name, _) => {
            let key = Text(name.clone());
            let lists = |target: &Target| target.hosts.iter().any(|hosts| hosts.contains_key(&key));
            assert!(!model.targets.values().any(lists), "still listed");
            assert!(model.hosts.remove(&key).is_some());
        }
        Step::CreateTarget(name, target) => {
            model
                .check_target(name, target, |_| false)
                .expect("refers to what exists");
            assert!(
                model
                    .targets
                    .insert(Text(name.clone()), target.clone())
                    .is_none()
            );
        }
        Step::SetPolicy { name, to, .. } => {
            let target = model.targets.get_mut(&Text(name.clone())).expect("exists");
            target.any_host = to.any_host;
            target.hosts.clone_from(&to.hosts);
            let target = target.clone();
            model
                .check_target(name, &target, |_| false)
                .expect("refers to what exists");
        }
        Step::Attach(name, nsid, volume) => {
            let volume = Text(volume.clone());
            assert!(model.volumes.contains_key(&volume));
            let target = model.targets.get_mut(&Text(name.clone())).expect("exists");
            assert!(target.namespaces.insert(*nsid, volume).is_none());
        }
        Step::Detach(name, nsid, _) => {
            let target = model.targets.get_mut(&Text(name.clone())).expect("exists");
            assert!(target.namespaces.remove(nsid).is_some());
        }
        Step::RemoveTarget(name, _) => {
            assert!(model.targets.remove(&Text(name.clone())).is_some());
        }
        Step::AddPortal(portal) => assert!(model.portals.insert(Text(Portal(*portal)))),
        Step::RemovePortal(portal) => assert!(model.portals.remove(&Text(Portal(*portal)))),
        Step::AddReferral(to) => assert!(model.referrals.insert(Text(Portal(*to)))),
        Step::RemoveReferral(to) => assert!(model.referrals.remove(&Text(Portal(*to)))),
        Step::Share(name, step) => take_of_share(model, name, step),
        step => take_of_volume(model, step),
    }
}

fn take_of_share(model: &mut Definitions, name: &ShareName, step: &ShareStep) {
    let name = Text(name.clone());
    let (from, to) = match step {
        ShareStep::Create(to) => (None, Some(to)),
        ShareStep::Change { from, to } => (Some(from), Some(to)),
        ShareStep::Remove(from) => (Some(from), None),
    };
    assert_eq!(model.shares.remove(&name).as_ref(), from);
    model.shares.extend(to.map(|to| (name, to.clone())));
}

fn take_of_volume(model: &mut Definitions, step: &Step) {
    match step {
        Step::CreateVolume(name, volume) => {
            assert!(
                model
                    .volumes
                    .insert(Text(name.clone()), volume.clone())
                    .is_none()
            );
        }
        Step::Resize {
            name,
            from_bytes,
            to_bytes,
        } => {
            let volume = model.volumes.get_mut(&Text(name.clone())).expect("exists");
            assert_eq!(volume.size.0, *from_bytes);
            volume.size.0 = *to_bytes;
        }
        Step::SetLock { name, to, .. } => {
            let volume = model.volumes.get_mut(&Text(name.clone())).expect("exists");
            volume.read_only = to.read_only;
        }
        Step::SetFilters { name, to, .. } => {
            let volume = model.volumes.get_mut(&Text(name.clone())).expect("exists");
            volume.filters = to.filters.clone();
        }
        Step::RemoveVolume(name, _) | Step::ReleaseMembers(name, _) => {
            let key = Text(name.clone());
            let uses = |target: &Target| target.namespaces.values().any(|volume| *volume == key);
            assert!(!model.targets.values().any(uses), "still attached");
            assert!(model.volumes.remove(&key).is_some());
        }
        step => panic!("{step:?} is of no volume"),
    }
}

#[test]
fn block_size_and_provisioning_of_what_exists_stay() {
    let read = |text: &str| Definitions::from_toml(text).expect("definitions");
    let plan = |to: &str| {
        let (from, to) = (read("[volumes.a]\nsize = \"1M\""), read(to));
        plan(&from, &from.changes_to(&to))
    };
    let other_blocks = plan("[volumes.a]\nsize = \"1M\"\nblock_size = 4096");
    assert!(matches!(other_blocks, Err(PlanError::BlockSize(_))));
    let other_provisioning = plan("[volumes.a]\nsize = \"1M\"\nprovisioning = \"thick\"");
    assert!(matches!(other_provisioning, Err(PlanError::Kind(_))));
}

#[test]
fn a_member_is_replaced_before_it_is_used_otherwise_and_else_last() {
    let read = |text: &str| Definitions::from_toml(text).expect("definitions");
    let disks = ["a", "b", "c"].map(|name| format!("[volumes.{name}]\nsize = \"1M\"\n"));
    let disks = disks.concat();
    let m0 =
        |members: &str| format!("{disks}[volumes.m0]\nkind = \"mirror\"\nmembers = {members}\n");
    let before = read(&m0("[\"a\", \"b\"]"));
    let phases = |more: &str| {
        let after = read(&format!("{}{more}", m0("[\"a\", \"c\"]")));
        let steps = plan(&before, &before.changes_to(&after)).expect("possible");
        let phases = steps.iter().map(|step| (step.noun(), step.phase()));
        phases.collect::<Vec<_>>()
    };
    let m0 = |phase| ("volume m0".to_owned(), phase);
    assert_eq!(phases(""), [m0(Phase::Destroy)]);
    let l0 = "[volumes.l0]\nkind = \"linear\"\nmembers = [\"b\"]\n";
    let created = ("volume l0".to_owned(), Phase::Volumes);
    assert_eq!(phases(l0), [m0(Phase::Release), created]);
    let t0 = "[targets.t0]\nnamespaces = { 1 = \"b\" }\n";
    let offered = ("target t0".to_owned(), Phase::Targets);
    assert_eq!(phases(t0), [m0(Phase::Release), offered]);
}

#[test]
fn a_volume_is_removed_before_what_it_holds_is_used_otherwise() {
    let read = |text: &str| Definitions::from_toml(text).expect("definitions");
    let disks = "[volumes.a]\nsize = \"1M\"\n[volumes.b]\nsize = \"1M\"\n";
    let l0 = "[volumes.l0]\nkind = \"linear\"\nmembers = [\"a\"]\n";
    let c0 = "[volumes.c0]\nkind = \"cache\"\nof = \"l0\"\ncache_size = \"1M\"\n";
    let t0 = |volume: &str| format!("[targets.t0]\nnamespaces = {{ 1 = \"{volume}\" }}\n");
    let order = |from: &str, to: &str| -> Vec<String> {
        let steps = plan(
            &read(&format!("{disks}{from}")),
            &read(&format!("{disks}{from}")).changes_to(&read(&format!("{disks}{to}"))),
        );
        let shown = steps.expect("possible").into_iter().map(|step| match step {
            Step::ReleaseMembers(name, _) => format!("release {name}"),
            Step::CreateVolume(name, _) => format!("create {name}"),
            Step::RemoveVolume(name, _) => format!("remove {name}"),
            Step::Detach(_, _, volume) => format!("detach {volume}"),
            Step::Attach(_, _, volume) => format!("attach {volume}"),
            Step::CreateTarget(name, _) => format!("offer {name}"),
            Step::RemoveTarget(name, _) => format!("withdraw {name}"),
            step => panic!("{step:?}"),
        });
        shown.collect()
    };
    let m0 = "[volumes.m0]\nkind = \"mirror\"\nmembers = [\"a\", \"b\"]\n";
    assert_eq!(order(l0, m0), ["release l0", "create m0"]);
    assert_eq!(
        order(&format!("{l0}{c0}"), m0),
        ["release c0", "release l0", "create m0"]
    );
    assert_eq!(order(l0, &t0("a")), ["release l0", "offer t0"]);
    assert_eq!(
        order(&format!("{l0}{}", t0("l0")), &t0("a")),
        ["detach l0", "release l0", "attach a"]
    );
    // A volume that was offered is now held.
    assert_eq!(
        order(&t0("a"), &format!("{l0}{}", t0("l0"))),
        ["detach a", "create l0", "attach l0"]
    );
    assert_eq!(order(&t0("a"), l0), ["withdraw t0", "create l0"]);
    // What was held is not used.
    assert_eq!(order(l0, &t0("b")), ["offer t0", "remove l0"]);
}

#[test]
fn a_member_is_resized_only_if_its_holder_is_removed() {
    let read = |text: &str| Definitions::from_toml(text).expect("definitions");
    let l0 = "[volumes.l0]\nkind = \"linear\"\nmembers = [\"a\"]\n";
    let from = read(&format!("[volumes.a]\nsize = \"1M\"\n{l0}"));
    let kept = read(&format!("[volumes.a]\nsize = \"2M\"\n{l0}"));
    let refused = plan(&from, &from.changes_to(&kept));
    assert!(
        matches!(refused, Err(PlanError::HeldSize { .. })),
        "{refused:?}"
    );
    let removed = read("[volumes.a]\nsize = \"2M\"\n");
    let steps = plan(&from, &from.changes_to(&removed)).expect("it is free");
    assert!(matches!(
        steps[..],
        [Step::ReleaseMembers(..), Step::Resize { .. }]
    ));
}

#[test]
fn what_others_are_made_of_is_created_before_them_and_removed_after_them() {
    let text = r#"
        [volumes.a]
        size = "1G"
        kind = "clone"
        of = "b"
        [volumes.b]
        size = "1G"
        kind = "snapshot"
        of = "c"
        [volumes.c]
        size = "1G"
    "#;
    let (nothing, all) = (
        Definitions::default(),
        Definitions::from_toml(text).expect("they fit"),
    );
    let order = |from: &Definitions, to: &Definitions| -> Vec<_> {
        let steps = plan(from, &from.changes_to(to)).expect("possible");
        let names = steps.iter().filter_map(Step::volume);
        names.map(ToString::to_string).collect()
    };
    assert_eq!(order(&nothing, &all), ["c", "b", "a"]);
    assert_eq!(order(&all, &nothing), ["a", "b", "c"]);
    let longer = Definitions::from_toml(&text.replace("1G", "2G")).expect("they fit");
    let refused = plan(&all, &all.changes_to(&longer));
    assert_eq!(
        refused,
        Err(PlanError::SnapshotSize("b".parse().expect("a name")))
    );
}
