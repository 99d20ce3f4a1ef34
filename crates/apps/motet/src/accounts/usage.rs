use clap::{Args, ValueEnum};
use futures_util::{StreamExt, pin_mut};
use motet_store::{CSV_HEADER, DailyUsage, Owner, Span, date_of, day_of};

use super::{now, open, org_or_hint, table, user};
use crate::{config::Config, failure::Failure, output::print};

/// `motet usage`.
#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    /// Only this user's
    #[arg(long, value_name = "LOGIN")]
    user: Option<String>,
    /// So many days, today included
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3660))]
    days: u32,
    /// Every request instead of sums
    #[arg(long, value_name = "FORMAT")]
    export: Option<Export>,
    /// Print JSON
    #[arg(long, conflicts_with = "export")]
    json: bool,
}

/// How requests are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Export {
    Csv,
    /// One JSON object a line.
    Jsonl,
}

/// Milliseconds of a day.
const DAY: i64 = 86_400_000;

pub(crate) async fn usage(args: &UsageArgs, config: &Config) -> Result<(), Failure> {
    let store = open(config).await?;
    let org = org_or_hint(&store).await?;
    let of = match &args.user {
        Some(login) => Some(user(&store, login).await?),
        None => None,
    };
    let owner = of.as_ref().map_or(Owner::Org(&org.id), |of| Owner::User(&of.org, &of.id));
    let days = day_of(now()) + 1 - i64::from(args.days)..day_of(now()) + 1;
    let Some(format) = args.export else {
        let daily = store.daily_usage(owner, days).await.map_err(Failure::runtime)?;
        return print(&if args.json { json(&daily) } else { sums(&daily) });
    };
    if format == Export::Csv {
        print(&format!("{}\n", CSV_HEADER.trim_end()))?;
    }
    let events = store.export_usage(owner, Span { from: days.start * DAY, until: days.end * DAY });
    pin_mut!(events);
    while let Some(event) = events.next().await {
        let event = event.map_err(Failure::runtime)?;
        let line = match format {
            Export::Csv => event.csv_row(),
            Export::Jsonl => serde_json::to_string(&event).map_err(Failure::runtime)?,
        };
        print(&format!("{}\n", line.trim_end()))?;
    }
    Ok(())
}

fn sums(daily: &[DailyUsage]) -> String {
    let heading = ["day", "model", "requests", "prompt", "cached", "output", "cost"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for DailyUsage { day, model, sum } in daily {
        let cost = format!("{:.4}", sum.cost_micros as f64 / 1e6);
        let counts = [sum.requests, sum.prompt_tokens, sum.cached_tokens, sum.output_tokens];
        let mut row = vec![date_of(*day), model.clone()];
        row.extend(counts.map(|count| count.to_string()));
        row.push(cost);
        rows.push(row);
    }
    table(&rows)
}

fn json(daily: &[DailyUsage]) -> String {
    let day = |usage: &DailyUsage| {
        let mut value = serde_json::json!(usage);
        value["day"] = date_of(usage.day).into();
        value
    };
    format!("{:#}\n", daily.iter().map(day).collect::<serde_json::Value>())
}
