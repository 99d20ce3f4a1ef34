use std::collections::BTreeMap;
use std::time::Duration;

use motet_kv::{CacheKey, Pool, PoolConfig, Scope, ScopeParts};
use motet_sched::{
    Admitted, Capacity, Chunk, Next, Outcome, Refusal, SchedConfig, Scheduler, StepPlan, Submission, UserKey,
};
use motet_types::{SequenceId, TokenId};

use crate::memory::{Memory, chain, mix};

/// Seconds of a step = a + b·tokens + c·context, ± `noise`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    pub(crate) a: f64,
    pub(crate) b: f64,
    pub(crate) c: f64,
    pub(crate) noise: f64,
}

/// About a 1-billion-parameter model on a 16-core CPU: 16 ms for the weights, 1 ms per token.
pub(crate) const MACHINE: Machine = Machine { a: 0.016, b: 0.001, c: 1e-7, noise: 0.05 };

/// A request and what it asked for.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) lane: usize,
    pub(crate) user: u64,
    pub(crate) prompt: Vec<TokenId>,
    /// Tokens after which it ends.
    pub(crate) output: u32,
    pub(crate) samples: u64,
    pub(crate) deadline: Option<Duration>,
    /// Whether it is taken beyond the lane's promise.
    pub(crate) is_patient: bool,
    /// Its logits are not numbers at this output token.
    pub(crate) fails_at: Option<u32>,
}

/// What became of a sequence.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) lane: usize,
    pub(crate) user: u64,
    pub(crate) asked: Duration,
    pub(crate) estimate: Duration,
    pub(crate) prompt: usize,
    pub(crate) tokens: Vec<TokenId>,
    /// When each of its tokens came.
    pub(crate) times: Vec<Duration>,
    pub(crate) is_over: bool,
    ask: Ask,
}

impl Reply {
    pub(crate) fn ttft(&self) -> Option<Duration> {
        Some(*self.times.first()? - self.asked)
    }

    /// Its engine does not notice when it has all it asked for.
    pub(crate) fn goes_on(&mut self) {
        self.ask.output = u32::MAX;
    }

    /// Time between its tokens.
    pub(crate) fn gaps(&self) -> Vec<Duration> {
        self.times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

/// A scheduler, a clock and everyone who ever asked.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) scheduler: Scheduler,
    pub(crate) now: Duration,
    pub(crate) replies: BTreeMap<SequenceId, Reply>,
    pub(crate) memory: Option<Memory>,
    /// Every how many fills one fails.
    pub(crate) fill_fails: Option<u64>,
    machine: Machine,
    scope: Scope,
    next_id: u64,
    random: u64,
    fills: u64,
}

impl World {
    pub(crate) fn new(config: SchedConfig, pool: PoolConfig, machine: Machine) -> Self {
        let capacity = Capacity {
            groups: pool.groups.clone(),
            block_tokens: pool.block_tokens,
            context_length: 1 << 20,
            vocab_size: 1000,
        };
        let key = CacheKey::new([7; 32]);
        let parts = ScopeParts { tenant: "t", model: "m", tokenizer: "k", adapter: None, namespace: None };
        Self {
            scheduler: Scheduler::new(config, Pool::new(pool), capacity),
            now: Duration::ZERO,
            replies: BTreeMap::new(),
            memory: None,
            fill_fails: None,
            machine,
            scope: Scope::new(&key, &parts),
            next_id: 0,
            random: 42,
            fills: 0,
        }
    }

    /// With every block's contents checked.
    pub(crate) fn with_memory(self) -> Self {
        let config = self.scheduler.pool().config();
        let memory = Memory::new(config.block_tokens, &config.groups);
        Self { memory: Some(memory), ..self }
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.random = mix(self.random, 1);
        self.random
    }

    pub(crate) fn scope(&self) -> Scope {
        self.scope.clone()
    }

    /// An ask with a prompt that nobody else has.
    pub(crate) fn ask(&mut self, lane: usize, user: u64, prompt: usize, output: u32) -> Ask {
        let seed = self.random();
        let prompt = (0..prompt as u64).map(|position| (mix(seed, position) % 1000) as TokenId).collect();
        Ask { lane, user, prompt, output, samples: 1, deadline: None, is_patient: false, fails_at: None }
    }

    pub(crate) fn submit(&mut self, ask: &Ask) -> Result<(SequenceId, Admitted), Refusal> {
        let first = self.next_id;
        self.next_id += ask.samples;
        let samples: Vec<_> = (first..first + ask.samples).map(SequenceId).collect();
        let submission = Submission {
            samples: samples.clone(),
            prompt: ask.prompt.clone(),
            max_tokens: ask.output,
            lane: ask.lane,
            user: UserKey(ask.user),
            scope: self.scope.clone(),
            deadline: ask.deadline,
            is_patient: ask.is_patient,
        };
        let admitted = self.scheduler.submit(submission, self.now)?;
        for id in samples {
            let reply = Reply {
                lane: ask.lane,
                user: ask.user,
                asked: self.now,
                estimate: admitted.estimated_ttft,
                prompt: ask.prompt.len(),
                tokens: ask.prompt.clone(),
                times: Vec::new(),
                is_over: false,
                ask: ask.clone(),
            };
            self.replies.insert(id, reply);
        }
        Ok((SequenceId(first), admitted))
    }

    pub(crate) fn cancel(&mut self, id: SequenceId) -> bool {
        let was_there = self.scheduler.cancel(id);
        assert!(!self.scheduler.cancel(id), "cancelling is idempotent");
        self.replies.entry(id).and_modify(|reply| reply.is_over = true);
        was_there
    }

    pub(crate) fn expire(&mut self) -> Vec<SequenceId> {
        let expired = self.scheduler.expired(self.now);
        for id in &expired {
            self.replies.entry(*id).and_modify(|reply| reply.is_over = true);
        }
        expired
    }

    /// Plans and runs a step. Returns its plan and who ended.
    pub(crate) fn step(&mut self) -> (StepPlan, Vec<SequenceId>) {
        self.step_with(|_| {})
    }

    /// `meanwhile` happens while the step is computed.
    pub(crate) fn step_with(&mut self, meanwhile: impl FnOnce(&mut Self)) -> (StepPlan, Vec<SequenceId>) {
        let mut plan = self.scheduler.plan(self.now);
        let failed_fills = self.move_blocks(&plan);
        plan.drop_dependents(&failed_fills);
        let mut results = Vec::new();
        for chunk in &plan.chunks {
            self.compute(chunk);
            if chunk.wants_logits {
                results.extend(std::iter::once(&chunk.sequence).chain(&chunk.siblings).copied());
            }
        }
        let elapsed = self.elapsed(&plan);
        meanwhile(self);
        self.now += elapsed;
        let results: Vec<_> = results.into_iter().filter_map(|id| Some((id, self.draw(id)?))).collect();
        let ended = results.iter().filter(|(_, next)| matches!(next, Next::Finish | Next::Fail));
        let ended = ended.map(|(id, _)| *id).collect();
        self.scheduler.commit(&plan, Outcome { elapsed, results, failed_fills }, self.now);
        (plan, ended)
    }

    /// Runs until everyone is done.
    pub(crate) fn finish(&mut self, most_steps: usize) {
        for _ in 0..most_steps {
            if self.scheduler.is_idle() {
                return;
            }
            self.step();
        }
        panic!("not done after {most_steps} steps: {:?}", self.scheduler.counts());
    }

    fn elapsed(&mut self, plan: &StepPlan) -> Duration {
        if plan.is_empty() {
            return Duration::from_millis(1);
        }
        let Machine { a, b, c, noise } = self.machine;
        let shape = plan.shape();
        let wobble = (self.random() % 2001) as f64 / 1000.0 - 1.0;
        Duration::from_secs_f64((a + b * shape.tokens + c * shape.context) * (1.0 + noise * wobble))
    }

    fn move_blocks(&mut self, plan: &StepPlan) -> Vec<motet_kv::Fill> {
        let Some(memory) = &mut self.memory else { return Vec::new() };
        let (fills, every) = (&mut self.fills, self.fill_fails);
        memory.move_blocks(plan, || {
            *fills += 1;
            every.is_some_and(|every| fills.is_multiple_of(every))
        })
    }

    fn compute(&mut self, chunk: &Chunk) {
        if let Some(memory) = &mut self.memory {
            memory.compute(chunk, &self.replies[&chunk.sequence].tokens);
        }
    }

    /// The token after what it has: a function of its own tokens and id alone.
    fn draw(&mut self, id: SequenceId) -> Option<Next> {
        let now = self.now;
        let reply = self.replies.get_mut(&id).filter(|reply| !reply.is_over)?;
        let output = (reply.tokens.len() - reply.prompt) as u32;
        if reply.ask.fails_at == Some(output) {
            reply.is_over = true;
            return Some(Next::Fail);
        }
        let hash = chain(&reply.tokens).pop().unwrap_or(0);
        let token = (mix(hash, id.0) % 1000) as TokenId;
        reply.tokens.push(token);
        reply.times.push(now);
        if output + 1 == reply.ask.output {
            reply.is_over = true;
            return Some(Next::Finish);
        }
        Some(Next::Append(token))
    }
}

/// The value below which 95 % are.
pub(crate) fn p95(mut values: Vec<Duration>) -> Duration {
    values.sort();
    values[(values.len() * 95 / 100).min(values.len() - 1)]
}

pub(crate) fn median(mut values: Vec<Duration>) -> Duration {
    values.sort();
    values[values.len() / 2]
}
