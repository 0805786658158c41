//! `cargo xtask bench --tls on`: TLS beside plain NVMe/TCP and, if `SPDK_DIR` names a build, beside
//! SPDK's TLS, with the same key.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use super::contenders::{Figures, Ramport, Spdk};
use super::{Options, Shape, VOLUME_MIB, all, best, cell, iops, median, over, shape, start_spdk};

const SHAPES: [Shape; 6] = [
    shape("randread", 4096, 1),
    shape("randwrite", 4096, 1),
    shape("randread", 4096, 32),
    shape("randwrite", 4096, 32),
    shape("read", 131_072, 8),
    shape("write", 131_072, 8),
];

/// What was measured of one shape, run by run.
#[derive(Default)]
struct Row {
    plain: Vec<Figures>,
    tls: Vec<Figures>,
    tls_perf: Vec<Figures>,
    spdk: Vec<Figures>,
    spdk_perf: Vec<Figures>,
}

/// Measures and prints the table.
pub fn run(root: &Path, options: &Options) -> io::Result<()> {
    let ramport = Ramport::start(root, VOLUME_MIB)?;
    let key = ramport.secure()?;
    let spdk = start_spdk()?;
    ramport.fill()?;
    if let Some(spdk) = &spdk {
        spdk.while_running(|| {
            ramport.fill_other(Spdk::URL)?;
            spdk.secure(&key)
        })?;
    }
    let ours = Ramport::secured_url(&key);
    let theirs = Spdk::secured_url(&key);
    let mut rows: Vec<(Shape, Row)> = SHAPES
        .into_iter()
        .filter(|shape| shape.to_string().contains(&options.only))
        .map(|shape| (shape, Row::default()))
        .collect();
    for run in 1..=options.runs {
        for (shape, row) in &mut rows {
            eprintln!("run {run}: {shape}");
            let measure = |url: &str| ramport.measure(url, *shape, &options.seconds);
            row.plain.push(measure(Ramport::URL)?);
            row.tls.push(measure(&ours)?);
            let Some(spdk) = &spdk else { continue };
            let perf = |transport: &str| spdk.secured_perf(transport, *shape, &key);
            row.tls_perf.push(perf(Ramport::SECURED_PERF)?);
            spdk.while_running(|| {
                row.spdk.push(measure(&theirs)?);
                row.spdk_perf.push(perf(Spdk::SECURED_PERF)?);
                Ok(())
            })?;
        }
    }
    print(&rows);
    if let Some(path) = &options.json {
        fs::write(path, to_json(&rows).to_string())?;
    }
    Ok(())
}

fn print(rows: &[(Shape, Row)]) {
    println!("medians; IOPS by client and target (ours: ramport bench, perf: spdk_nvme_perf)");
    println!(
        "{:<20}{:>10}{:>10}{:>7}{:>10}{:>10}{:>10}{:>7}{:>9}{:>8}{:>8}{:>9}{:>9}",
        "shape",
        "plain",
        "TLS",
        "%plain",
        "TLS/perf",
        "SPDK",
        "SPDK/perf",
        "xSPDK",
        "plain us",
        "TLS us",
        "SPDK us",
        "TLS p99",
        "SPDK p99",
    );
    for (shape, row) in rows {
        let ours = best(iops(&row.tls), iops(&row.tls_perf));
        let spdk = best(iops(&row.spdk), iops(&row.spdk_perf));
        println!(
            "{:<20}{}{}{}{}{}{}{}{}{}{}{}{}",
            shape.to_string(),
            cell(iops(&row.plain), 10, 0),
            cell(iops(&row.tls), 10, 0),
            cell(over(iops(&row.tls), iops(&row.plain), 100.0), 7, 0),
            cell(iops(&row.tls_perf), 10, 0),
            cell(iops(&row.spdk), 10, 0),
            cell(iops(&row.spdk_perf), 10, 0),
            cell(over(ours, spdk, 1.0), 7, 2),
            cell(median(&row.plain, |figures| figures.target_us), 9, 2),
            cell(median(&row.tls, |figures| figures.target_us), 8, 2),
            cell(median(&row.spdk, |figures| figures.target_us), 8, 2),
            cell(median(&row.tls, |figures| figures.p99_us), 9, 1),
            cell(median(&row.spdk, |figures| figures.p99_us), 9, 1),
        );
    }
}

fn to_json(rows: &[(Shape, Row)]) -> Value {
    let shapes: Vec<Value> = rows
        .iter()
        .map(|(shape, row)| {
            json!({
                "rw": shape.rw, "bs": shape.bs, "iodepth": shape.depth,
                "plain": all(&row.plain),
                "tls": all(&row.tls),
                "tls_perf": all(&row.tls_perf),
                "spdk": all(&row.spdk),
                "spdk_perf": all(&row.spdk_perf),
            })
        })
        .collect();
    json!({ "shapes": shapes })
}
