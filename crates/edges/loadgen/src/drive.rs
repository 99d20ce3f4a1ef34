//! Puts one row's load on one target.
//!
//! One loop owns every request in flight: it starts the next when one ends (closed loop) or when its time has come
//! (open loop), and dropping it cancels them all. At most [`Row::in_flight`] are in flight.

use std::{collections::VecDeque, future::pending, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until},
};

use crate::{
    client::{Client, Failure, Record},
    wire::History,
    words::TokenScale,
    workload::{Conversation, GivenText, Prompt},
};

/// What is sent and when.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) conversations: Vec<Conversation>,
    pub(crate) pace: Pace,
    /// Most requests at once; an arrival beyond it fails as `client full` instead of waiting unseen.
    pub(crate) in_flight: usize,
    /// Between a reply and the conversation's next turn.
    pub(crate) think: Duration,
}

/// When conversations start.
#[derive(Debug)]
pub(crate) enum Pace {
    /// When another has ended, [`Row::in_flight`] at a time.
    Closed,
    /// At these seconds from the beginning, one for each conversation.
    Open(Vec<f64>),
}

/// What all requests of a target have in common.
#[derive(Debug, Clone)]
pub(crate) struct Sender {
    pub(crate) client: Arc<Client>,
    pub(crate) model: Arc<str>,
    pub(crate) scale: TokenScale,
}

/// What came of a row.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// In the order in which the requests ended.
    pub(crate) records: Vec<Record>,
    /// From the first request to the end of the last, in seconds.
    pub(crate) wall_s: f64,
    /// How late the generator's own timer was, in seconds.
    pub(crate) timer_lag_s: Vec<f64>,
    /// Ended before everything was sent: by the user, or because the outcome was clear.
    pub(crate) is_cut: bool,
}

/// What the caller says after each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    /// Cancel what is in flight: the outcome is clear.
    Stop,
}

/// Between two looks at the generator's own lag.
const TICK: Duration = Duration::from_millis(20);
/// An hour of ticks.
const MAX_TICKS: usize = 180_000;

/// A conversation whose next turn is to be sent.
struct Talk {
    history: History,
    turns: VecDeque<crate::workload::Turn>,
    /// When the plan wants it, in seconds from the beginning.
    planned_s: Option<f64>,
    wait: Duration,
}

/// Runs a row to its end, to the user's stop or until `on_record` says so.
pub(crate) async fn drive(
    sender: &Sender,
    row: Row,
    stop: &mut watch::Receiver<bool>,
    mut on_record: impl FnMut(&Record) -> Flow,
) -> Run {
    let mut state = Driver::new(sender, row);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut run = Run::default();
    state.fill();
    while !state.is_done() {
        let arrival = state.next_arrival();
        tokio::select! {
            biased;
            () = stopped(stop) => { run.is_cut = true; break }
            () = due(arrival) => {
                if let Some(refused) = state.arrive() {
                    let flow = on_record(&refused);
                    run.records.push(refused);
                    if flow == Flow::Stop { run.is_cut = true; break }
                }
            }
            Some(ended) = state.flying.join_next(), if !state.flying.is_empty() => {
                // A task ends early only when it is cancelled with this loop.
                let Ok((talk, record)) = ended else { continue };
                state.ended(talk, &record);
                let flow = on_record(&record);
                run.records.push(record);
                if flow == Flow::Stop { run.is_cut = true; break }
            }
            tick = ticks.tick() => {
                if run.timer_lag_s.len() < MAX_TICKS {
                    run.timer_lag_s.push(tick.elapsed().as_secs_f64());
                }
            }
        }
    }
    run.wall_s = state.epoch.elapsed().as_secs_f64();
    run
}

/// Completes when the user stops the run; never when nobody can.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|is_stopped| *is_stopped).await.is_err() {
        pending::<()>().await;
    }
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

struct Driver<'a> {
    sender: &'a Sender,
    epoch: Instant,
    waiting: VecDeque<(Option<f64>, Conversation)>,
    is_open: bool,
    in_flight: usize,
    think: Duration,
    flying: JoinSet<(Talk, Record)>,
}

impl<'a> Driver<'a> {
    fn new(sender: &'a Sender, row: Row) -> Self {
        let is_open = matches!(row.pace, Pace::Open(_));
        let times: Vec<Option<f64>> = match row.pace {
            Pace::Closed => vec![None; row.conversations.len()],
            Pace::Open(times) => times.into_iter().map(Some).collect(),
        };
        Self {
            sender,
            epoch: Instant::now(),
            waiting: times.into_iter().zip(row.conversations).collect(),
            is_open,
            in_flight: row.in_flight.max(1),
            think: row.think,
            flying: JoinSet::new(),
        }
    }

    fn is_done(&self) -> bool {
        self.flying.is_empty() && self.waiting.is_empty()
    }

    /// Closed loop: starts conversations as long as there is room.
    fn fill(&mut self) {
        while !self.is_open && self.flying.len() < self.in_flight {
            let Some((_, conversation)) = self.waiting.pop_front() else { break };
            self.start(conversation, None);
        }
    }

    fn next_arrival(&self) -> Option<Instant> {
        let (planned, _) = self.waiting.front()?;
        planned.map(|at| self.epoch + Duration::from_secs_f64(at.max(0.0)))
    }

    /// Open loop: starts the conversation whose time has come, or says that there is no room for it.
    fn arrive(&mut self) -> Option<Record> {
        let (planned, conversation) = self.waiting.pop_front()?;
        if self.flying.len() >= self.in_flight {
            let what = format!("{} requests were in flight; see --max-in-flight", self.in_flight);
            return Some(Record::unsent(planned.unwrap_or_default(), Failure::new("client full", what)));
        }
        self.start(conversation, planned);
        None
    }

    fn start(&mut self, conversation: Conversation, planned_s: Option<f64>) {
        let talk = Talk {
            history: History::default(),
            turns: conversation.turns.into(),
            planned_s,
            wait: Duration::ZERO,
        };
        self.send(talk);
    }

    fn send(&mut self, mut talk: Talk) {
        let Some(turn) = talk.turns.pop_front() else { return };
        let (sender, epoch) = (self.sender.clone(), self.epoch);
        self.flying.spawn(async move {
            if !talk.wait.is_zero() {
                sleep(talk.wait).await;
            }
            talk.history.ask(match turn.prompt {
                Prompt::Given(GivenText::Tokens(tokens)) => GivenText::Tokens(tokens),
                prompt => GivenText::Text(prompt.text(&sender.scale)),
            });
            let body = talk.history.body(&sender.model, turn.output, &sender.client.options);
            let mut record = sender.client.complete(body, epoch).await;
            record.asked_tokens = turn.output;
            record.lag_s = talk.planned_s.take().map(|planned| (record.start_s - planned).max(0.0));
            (talk, record)
        });
    }

    /// Goes on with the conversation; after a failure it is over, and so are its other turns.
    fn ended(&mut self, mut talk: Talk, record: &Record) {
        if record.failure.is_none() && !talk.turns.is_empty() {
            talk.history.texts.push(record.reply.clone());
            talk.wait = self.think;
            self.send(talk);
        }
        self.fill();
    }
}
