//! Requests for vectors, and which of their inputs come next.
//!
//! # Invariants
//! - A job has a turn exactly while it has inputs that are in no batch.
//! - `waiting_tokens` counts the tokens of those inputs over all jobs, and never exceeds `max_waiting_tokens`.
//! - Every input of a job is in exactly one batch, unless the job is dropped before.

use std::collections::{HashMap, VecDeque};

use motet_types::TokenId;

/// Where a job's vectors go when they are complete.
pub(super) trait Reply {
    /// Whether nobody waits any more.
    fn has_left(&self) -> bool;
    /// The end of the job.
    fn send(self, vectors: Vec<Vec<f32>>);
}

/// Requests that are not answered yet.
pub(super) struct Queue<R> {
    jobs: HashMap<u64, Job<R>>,
    /// Jobs with inputs that are in no batch, in the order in which they give one.
    turns: VecDeque<u64>,
    next_id: u64,
    waiting_tokens: u64,
    max_waiting_tokens: u64,
}

struct Job<R> {
    /// Those that are in no batch yet, the next one last.
    inputs: Vec<(usize, Vec<TokenId>)>,
    vectors: Vec<Vec<f32>>,
    /// Vectors still to come.
    missing: usize,
    reply: R,
}

/// An input on its way through a batch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Taken {
    job: u64,
    index: usize,
    pub(super) tokens: Vec<TokenId>,
}

impl<R: Reply> Queue<R> {
    pub(super) fn new(max_waiting_tokens: u64) -> Self {
        Self {
            jobs: HashMap::new(),
            turns: VecDeque::new(),
            next_id: 0,
            waiting_tokens: 0,
            max_waiting_tokens,
        }
    }

    pub(super) fn waiting_tokens(&self) -> u64 {
        self.waiting_tokens
    }

    pub(super) fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Takes a job with at least one input, or says that the line is full.
    pub(super) fn push(&mut self, inputs: Vec<Vec<TokenId>>, reply: R) -> Result<(), R> {
        let tokens: u64 = inputs.iter().map(|input| input.len() as u64).sum();
        if self.waiting_tokens + tokens > self.max_waiting_tokens {
            return Err(reply);
        }
        self.waiting_tokens += tokens;
        let missing = inputs.len();
        let job = Job {
            vectors: vec![Vec::new(); missing],
            inputs: inputs.into_iter().enumerate().rev().collect(),
            missing,
            reply,
        };
        self.jobs.insert(self.next_id, job);
        self.turns.push_back(self.next_id);
        self.next_id += 1;
        Ok(())
    }

    /// The next inputs, of one job after the other, one each in turn, so that a long list doesn't keep a short one
    /// waiting: as many as have at most `budget` tokens together, and at least one where there is any.
    pub(super) fn batch(&mut self, budget: usize) -> Vec<Taken> {
        self.drop_left();
        let (mut batch, mut tokens) = (Vec::new(), 0);
        while let Some(&id) = self.turns.front() {
            let Some(job) = self.jobs.get_mut(&id) else { break };
            let next = job.inputs.last().map_or(0, |(_, input)| input.len());
            if !batch.is_empty() && tokens + next > budget {
                break;
            }
            self.turns.pop_front();
            let Some((index, input)) = job.inputs.pop() else { continue };
            if !job.inputs.is_empty() {
                self.turns.push_back(id);
            }
            tokens += next;
            self.waiting_tokens -= next as u64;
            batch.push(Taken { job: id, index, tokens: input });
        }
        batch
    }

    /// The vector of an input; the last one ends its job.
    pub(super) fn deliver(&mut self, taken: &Taken, vector: Vec<f32>) {
        let Some(job) = self.jobs.get_mut(&taken.job) else { return };
        job.vectors[taken.index] = vector;
        job.missing -= 1;
        if job.missing == 0
            && let Some(job) = self.jobs.remove(&taken.job)
        {
            job.reply.send(job.vectors);
        }
    }

    /// Ends the job of an input without vectors; where its reply goes, if it is still there.
    pub(super) fn fail(&mut self, taken: &Taken) -> Option<R> {
        self.remove(taken.job)
    }

    /// Ends all jobs without vectors.
    pub(super) fn clear(&mut self) {
        self.jobs.clear();
        self.turns.clear();
        self.waiting_tokens = 0;
    }

    fn drop_left(&mut self) {
        let left: Vec<u64> =
            self.jobs.iter().filter(|(_, job)| job.reply.has_left()).map(|(id, _)| *id).collect();
        left.into_iter().for_each(|id| drop(self.remove(id)));
    }

    fn remove(&mut self, id: u64) -> Option<R> {
        let job = self.jobs.remove(&id)?;
        self.turns.retain(|turn| *turn != id);
        self.waiting_tokens -= tokens(&job.inputs);
        Some(job.reply)
    }

    /// Panics where an invariant doesn't hold.
    #[cfg(test)]
    fn check(&self) {
        let mut turns: Vec<u64> = self.turns.iter().copied().collect();
        turns.sort_unstable();
        let mut with_inputs: Vec<u64> =
            self.jobs.iter().filter(|(_, job)| !job.inputs.is_empty()).map(|(id, _)| *id).collect();
        with_inputs.sort_unstable();
        assert_eq!(turns, with_inputs);
        let waiting: u64 = self.jobs.values().map(|job| tokens(&job.inputs)).sum();
        assert_eq!(self.waiting_tokens, waiting);
        assert!(waiting <= self.max_waiting_tokens);
        assert!(self.jobs.values().all(|job| job.missing >= job.inputs.len().max(1)));
    }
}

fn tokens(inputs: &[(usize, Vec<TokenId>)]) -> u64 {
    inputs.iter().map(|(_, input)| input.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    /// What became of a job.
    #[derive(Default)]
    struct Seen {
        has_left: bool,
        vectors: Option<Vec<Vec<f32>>>,
    }

    type Note = Rc<RefCell<Seen>>;

    impl Reply for Note {
        fn has_left(&self) -> bool {
            self.borrow().has_left
        }

        fn send(self, vectors: Vec<Vec<f32>>) {
            assert!(self.borrow_mut().vectors.replace(vectors).is_none());
        }
    }

    /// The input `index` of job `job` with `len` tokens; its tokens say which it is.
    fn input(job: usize, index: usize, len: usize) -> Vec<TokenId> {
        vec![(job * 100 + index) as TokenId; len]
    }

    fn job(job: usize, lengths: &[usize]) -> Vec<Vec<TokenId>> {
        lengths.iter().enumerate().map(|(index, len)| input(job, index, *len)).collect()
    }

    fn names(batch: &[Taken]) -> Vec<TokenId> {
        batch.iter().map(|taken| taken.tokens[0]).collect()
    }

    #[test]
    fn jobs_take_turns() {
        let mut queue = Queue::new(100);
        let notes: [Note; 3] = Default::default();
        assert!(queue.push(job(0, &[10, 10, 10, 10]), notes[0].clone()).is_ok());
        assert!(queue.push(job(1, &[5]), notes[1].clone()).is_ok());
        let batch = queue.batch(30);
        assert_eq!(names(&batch), [0, 100, 1], "{batch:?}");
        assert!(queue.push(job(2, &[1, 40]), notes[2].clone()).is_ok());
        assert_eq!(queue.waiting_tokens(), 61);
        assert!(queue.push(job(3, &[40]), Note::default()).is_err());
        let second = queue.batch(30);
        assert_eq!(names(&second), [2, 200, 3]);
        // One that is larger than a batch is one of its own.
        assert_eq!(names(&queue.batch(30)), [201]);
        assert_eq!(queue.batch(30), []);
        batch.iter().for_each(|taken| queue.deliver(taken, vec![taken.tokens[0] as f32]));
        assert_eq!(notes[1].borrow().vectors, Some(vec![vec![100.0]]));
        assert!(notes[0].borrow().vectors.is_none());
        assert!(queue.fail(&second[0]).is_some() && queue.fail(&second[2]).is_none());
        queue.deliver(&second[2], vec![0.0]);
        assert_eq!(queue.jobs(), 1);
    }

    #[derive(Debug, Clone)]
    enum Act {
        Push(Vec<usize>),
        Batch(usize),
        Deliver,
        Fail,
        Leave(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            3 => proptest::collection::vec(1..12usize, 1..6).prop_map(Act::Push),
            3 => (1..40usize).prop_map(Act::Batch),
            3 => Just(Act::Deliver),
            1 => Just(Act::Fail),
            1 => (0..8usize).prop_map(Act::Leave),
        ]
    }

    proptest! {
        /// Against a list of what should have become of each job.
        #[test]
        fn every_input_once(acts in proptest::collection::vec(act(), 1..60)) {
            let mut queue = Queue::new(60);
            let mut jobs: Vec<(Note, usize, Vec<TokenId>)> = Vec::new();
            let mut out: VecDeque<Vec<Taken>> = VecDeque::new();
            for act in acts {
                match act {
                    Act::Push(lengths) => {
                        let (note, id) = (Note::default(), jobs.len());
                        let fits = queue.waiting_tokens() + lengths.iter().sum::<usize>() as u64 <= 60;
                        prop_assert_eq!(queue.push(job(id, &lengths), note.clone()).is_ok(), fits);
                        jobs.push((note, if fits { lengths.len() } else { 0 }, Vec::new()));
                    }
                    Act::Batch(budget) => {
                        let batch = queue.batch(budget);
                        let tokens: usize = batch.iter().map(|taken| taken.tokens.len()).sum();
                        prop_assert!(tokens <= budget || batch.len() == 1);
                        for name in names(&batch) {
                            let (note, _, given) = &mut jobs[name as usize / 100];
                            prop_assert!(!note.borrow().has_left);
                            given.push(name % 100);
                        }
                        out.push_back(batch);
                    }
                    Act::Deliver => {
                        for taken in out.pop_front().unwrap_or_default() {
                            queue.deliver(&taken, vec![(taken.tokens[0] % 100) as f32]);
                        }
                    }
                    Act::Fail => {
                        if let Some(taken) = out.pop_front().unwrap_or_default().first()
                            && let Some(note) = queue.fail(taken)
                        {
                            note.borrow_mut().has_left = true;
                        }
                    }
                    Act::Leave(job) => {
                        if let Some((note, ..)) = jobs.get(job) {
                            note.borrow_mut().has_left = true;
                        }
                    }
                }
                queue.check();
                for (note, count, given) in &jobs {
                    prop_assert!(given.iter().enumerate().all(|(i, name)| i as TokenId == *name), "in order, once");
                    if let Some(vectors) = &note.borrow().vectors {
                        prop_assert_eq!(vectors.len(), *count);
                        prop_assert!(vectors.iter().enumerate().all(|(i, v)| *v == [i as f32]));
                    }
                }
            }
        }
    }
}
