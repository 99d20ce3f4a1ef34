//! Those who are refused and come back as they were told (`motet_fleet::Returns`), over the scheduler's own estimates.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use motet_fleet::{Arrival, LaneView, Returns, ReturnsConfig, Terms};
use motet_kv::PoolConfig;
use motet_sched::{LaneConfig, Refusal, SchedConfig};

use crate::fairness::GPU;
use crate::memory::mix;
use crate::world::{Ask, World, p95};

const PAID: usize = 0;
const FREE: usize = 1;
const PAID_PROMISE: Duration = Duration::from_secs(2);
const FREE_PROMISE: Duration = Duration::from_secs(5);
/// Most that a client is late: it rounds to whole seconds, and then there is the network.
const NETWORK_MS: u64 = 200;

fn world() -> World {
    let lane = |name, weight, promise| LaneConfig {
        ttft_promise: Some(promise),
        waiting: 64,
        ..LaneConfig::interactive(name, weight)
    };
    let lanes = vec![lane("paid", 8, PAID_PROMISE), lane("free", 1, FREE_PROMISE)];
    let config = SchedConfig {
        lanes,
        max_running: 64,
        max_step_tokens: 1024,
        itl_target: Duration::from_millis(50),
        ..SchedConfig::default()
    };
    World::new(config, PoolConfig::single(8192, 16), GPU)
}

/// How refused clients behave.
#[derive(Debug, Clone, Copy)]
struct Crowd {
    /// Whether places are booked, or everyone is told what the engine estimates.
    is_booked: bool,
    /// Of a hundred who are refused, how many never come back.
    lost: u64,
    /// Paid requests a second: how much is left for the free lane.
    paid: f64,
}

/// A free request, and how often it was told to come back.
struct Client {
    ask: Ask,
    key: u64,
    told: u32,
}

#[derive(Debug, Default)]
struct Tally {
    /// Told times that were obeyed, and those of them after which the request was taken.
    obeyed: u64,
    taken: u64,
    /// First tries.
    newcomers: u64,
    newcomers_taken: u64,
    paid_refused: u64,
    longest: Duration,
}

struct Flood {
    world: World,
    returns: Returns,
    crowd: Crowd,
    /// Those who come back, by time and number.
    coming: BinaryHeap<Reverse<(Duration, u64)>>,
    clients: std::collections::BTreeMap<u64, Client>,
    tally: Tally,
    random: u64,
    next_paid: Duration,
    next_free: Duration,
}

impl Flood {
    fn new(crowd: Crowd) -> Self {
        Self {
            world: world(),
            returns: Returns::new(ReturnsConfig::default(), 2),
            crowd,
            coming: BinaryHeap::new(),
            clients: std::collections::BTreeMap::new(),
            tally: Tally::default(),
            random: 7,
            next_paid: Duration::ZERO,
            next_free: Duration::ZERO,
        }
    }

    fn random(&mut self) -> u64 {
        self.random = mix(self.random, 1);
        self.random
    }

    /// Time to the next of so many a second.
    fn pause(&mut self, rate: f64) -> Duration {
        let uniform = (self.random() % 1_000_000 + 1) as f64 / 1_000_001.0;
        Duration::from_secs_f64(-uniform.ln() / rate)
    }

    fn ask(&mut self, lane: usize) -> Ask {
        let (user, prompt) = (self.random(), 100 + self.random() as usize % 600);
        let output = 50 + self.random() as u32 % 200;
        self.world.ask(lane, user, prompt, output)
    }

    /// Lets everyone come whose time it is. Free newcomers come until `until`.
    fn arrive(&mut self, free: f64, until: Duration) {
        let now = self.world.now;
        while self.next_paid <= now {
            let ask = self.ask(PAID);
            self.tally.paid_refused += u64::from(self.world.submit(&ask).is_err());
            let pause = self.pause(self.crowd.paid);
            self.next_paid += pause;
        }
        while self.next_free <= now.min(until) {
            let (ask, key) = (self.ask(FREE), self.random());
            self.tally.newcomers += 1;
            self.try_one(Client { ask, key, told: 0 });
            let pause = self.pause(free);
            self.next_free += pause;
        }
        while let Some(&Reverse((time, key))) = self.coming.peek()
            && time <= now
        {
            self.coming.pop();
            let client = self.clients.remove(&key).unwrap();
            self.tally.obeyed += 1;
            self.try_one(client);
        }
    }

    /// What the gateway does with a request.
    fn try_one(&mut self, mut client: Client) {
        let (now, scheduler) = (self.world.now, &self.world.scheduler);
        let prompt = client.ask.prompt.len() as u32;
        let pace = scheduler.outlook(FREE).unwrap().pace;
        let view = LaneView {
            ttft: scheduler.estimate(FREE, prompt, 0),
            promise: Some(FREE_PROMISE),
            waiting: scheduler.counts().lanes[FREE].waiting as u32,
            bound: 64,
            pace,
        };
        let arrival = match self.crowd.is_booked {
            true => self.returns.arrive(now, FREE, client.key, &view),
            false => Arrival::Newcomer,
        };
        client.ask.is_patient = arrival == Arrival::Expected;
        let refused = match arrival {
            Arrival::Crowded => Some(Duration::ZERO),
            _ => match self.world.submit(&client.ask) {
                Ok(_) => None,
                Err(Refusal::PromiseBroken { retry_after, .. } | Refusal::QueueFull { retry_after, .. }) => {
                    Some(retry_after)
                }
                Err(refusal) => panic!("{refusal}"),
            },
        };
        let Some(earliest) = refused else {
            let taken = if client.told > 0 { &mut self.tally.taken } else { &mut self.tally.newcomers_taken };
            *taken += 1;
            return;
        };
        let wait = match self.crowd.is_booked {
            true => self.returns.refuse(now, FREE, client.key, Terms { earliest, pace }),
            false => earliest.max(Duration::from_secs(1)),
        };
        self.tally.longest = self.tally.longest.max(wait);
        client.told += 1;
        if self.random() % 100 >= self.crowd.lost {
            // Half of the clients know milliseconds.
            let told = if client.key.is_multiple_of(2) {
                wait
            } else {
                Duration::from_secs(wait.as_millis().div_ceil(1000) as u64)
            };
            let back = now + told + Duration::from_millis(self.random() % NETWORK_MS);
            self.coming.push(Reverse((back, client.key)));
            self.clients.insert(client.key, client);
        }
    }

    fn ended(&self, lane: usize) -> u64 {
        self.world.scheduler.counts().lanes[lane].totals.finished
    }

    /// 95th percentile of TTFT in a lane.
    fn ttft(&self, lane: usize) -> Duration {
        let replies = self.world.replies.values().filter(|reply| reply.lane == lane);
        p95(replies.filter_map(|reply| reply.ttft()).collect())
    }
}

/// Free requests a second that are served when there are always some.
fn capacity(paid: f64) -> f64 {
    let mut flood = Flood::new(Crowd { is_booked: false, lost: 100, paid });
    let (warm, end) = (Duration::from_secs(10), Duration::from_secs(30));
    let mut before = 0;
    while flood.world.now < end {
        if flood.world.now < warm {
            before = flood.ended(FREE);
        }
        flood.arrive(1000.0, end);
        flood.world.step();
    }
    (flood.ended(FREE) - before) as f64 / (end - warm).as_secs_f64()
}

fn flood(crowd: Crowd, rate: f64) -> Flood {
    let mut flood = Flood::new(crowd);
    // A server that has had ordinary traffic before, half of what it can do.
    let calm = Duration::from_secs(15);
    while flood.world.now < calm {
        flood.arrive(0.1 * rate, calm);
        flood.world.step();
    }
    let until = calm + Duration::from_secs(10);
    while flood.world.now < until || !flood.coming.is_empty() {
        flood.arrive(rate, until);
        flood.world.step();
        // Without places they come for ever.
        if flood.world.now > Duration::from_secs(120) {
            break;
        }
    }
    assert_eq!(flood.world.scheduler.check(), Ok(()));
    assert_eq!(flood.returns.check(), Ok(()));
    flood
}

#[test]
fn who_comes_back_as_told_is_taken() {
    for (paid, cases) in
        [(4.0, &[(0, 5.0, true), (0, 5.0, false), (50, 5.0, true)][..]), (12.0, &[(0, 5.0, true)])]
    {
        let capacity = capacity(paid);
        for &(lost, times, is_booked) in cases {
            let crowd = Crowd { is_booked, lost, paid };
            let flood = flood(crowd, times * capacity);
            let Tally { obeyed, taken, newcomers, newcomers_taken, paid_refused, longest } = flood.tally;
            let share = taken as f64 / obeyed.max(1) as f64;
            let (paid_ttft, free_ttft) = (flood.ttft(PAID), flood.ttft(FREE));
            println!(
                "{times} × capacity of {capacity:.1}/s, {crowd:?}: {:.1} % of {obeyed} who obeyed were taken, \
                 {newcomers_taken} of {newcomers} newcomers; told at most {longest:.1?}; p95 TTFT paid {paid_ttft:.2?}, \
                 free {free_ttft:.2?}; it took {:.0?}",
                share * 100.0,
                flood.world.now
            );
            if is_booked {
                assert!(obeyed > 20 && share >= 0.95, "{crowd:?}: {taken} of {obeyed}");
                assert!(
                    paid_ttft <= PAID_PROMISE && paid_refused == 0,
                    "{crowd:?}: {paid_ttft:?}, {paid_refused} refused"
                );
                assert!(free_ttft <= FREE_PROMISE * 2, "{crowd:?}: {free_ttft:?}");
            }
        }
    }
}
