//! `[ladder]`: what is given up when there is too much to do.

use motet_engine::LaneKind;
use motet_fleet::{LadderConfig, Standing};
use motet_gateway::OverloadConfig;

use super::{ConfigError, lanes::Lane, resolved::Reader, values};

/// Most pressure that a threshold can be: lanes refuse what would break their promise, so more is never there for long.
const MOST_PRESSURE: f32 = 2.0;

/// Reads the keys of `[ladder]`.
pub(super) fn resolve(reader: &mut Reader<'_>, lanes: &[Lane]) -> Result<OverloadConfig, ConfigError> {
    let is_on = reader.read("ladder.enabled", values::switch)?;
    let up = reader.read("ladder.up", |text| values::number(text, 0.05, MOST_PRESSURE))?;
    let down = reader.read("ladder.down", |text| match values::number(text, 0.01, MOST_PRESSURE)? {
        down if down < up => Ok(down),
        _ => Err(format!("not below ladder.up, which is {up}; lower this, or raise that")),
    })?;
    let hold = |text: &str| values::duration(text, "250ms", "1h");
    let climb_after = reader.read("ladder.climb_after", hold)?;
    let descend_after = reader.read("ladder.descend_after", |text| match hold(text)? {
        after if after >= climb_after => Ok(after),
        _ => Err(format!(
            "shorter than ladder.climb_after, which is {climb_after:?}; what is given up at once must not come back at once"
        )),
    })?;
    let short_output = reader.read("ladder.short_output", |text| values::count(text, 16))?;
    let (up, down) = (f64::from(up), f64::from(down));
    let usual = LadderConfig::default();
    let ladder = LadderConfig { up, down, climb_after, descend_after, lanes: standings(lanes), ..usual };
    Ok(OverloadConfig { ladder: is_on.then_some(ladder), short_output, ..OverloadConfig::default() })
}

/// What each lane is worth: those of the highest weight, free ones and background ones aside, are the paid ones.
fn standings(lanes: &[Lane]) -> Vec<Standing> {
    let pays = |lane: &&Lane| !lane.is_free && lane.config.kind == LaneKind::Interactive;
    let most = lanes.iter().filter(pays).map(|lane| lane.config.weight).max().unwrap_or(0);
    let standing = |lane: &Lane| match lane.config.kind {
        LaneKind::Background => Standing::Background,
        LaneKind::Interactive if lane.is_free => Standing::Free,
        LaneKind::Interactive if lane.config.weight == most => Standing::Paid,
        LaneKind::Interactive => Standing::Ordinary,
    };
    lanes.iter().map(standing).collect()
}
