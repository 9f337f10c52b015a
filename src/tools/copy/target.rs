//! The server that filters go to, or the cluster.
//!
//! In a cluster a key lives on the node that serves its slot. Requests of a batch are sent to their nodes first and then the
//! replies are read, so that the nodes work side by side. `MOVED` corrects the table of slots, `ASK` is followed for the one request.

use std::thread::sleep;
use std::time::Duration;

use bytes::Bytes;

use super::source::{Life, PROBE};
use super::stop::{End, Stop, concerns_all, is_unknown_command};
use crate::tools::address::Address;
use crate::tools::client::{Client, ClientError, Reply, key_slot};
use crate::tools::families::Family;

/// Slots of a cluster.
const SLOTS: usize = 16_384;
/// A request that is sent on more often goes in a circle.
const MAX_REDIRECTS: usize = 16;
/// Between two tries at a slot that is just being moved.
const PATIENCE: Duration = Duration::from_millis(100);
/// Words longer than this end the connection, unless the server says otherwise.
const DEFAULT_WORD_BYTES: u64 = 512 << 20;

/// A request about one key.
#[derive(Clone, Debug)]
pub struct Request {
    slot: u16,
    words: Vec<Bytes>,
}

impl Request {
    /// A request about `key`, which is one of the words.
    pub fn new(key: &[u8], words: impl IntoIterator<Item = Bytes>) -> Request {
        Request { slot: key_slot(key), words: words.into_iter().collect() }
    }

    /// The command `name` with the key and more words.
    pub fn of(name: &'static str, key: &Bytes, more: impl IntoIterator<Item = Bytes>) -> Request {
        Request::new(key, [Bytes::from_static(name.as_bytes()), key.clone()].into_iter().chain(more))
    }

    /// The command that makes a key from a payload.
    pub fn restore(key: &Bytes, payload: Bytes, life: Life, replace: bool) -> Request {
        let (end, absolute) = match life {
            Life::Endless => (0, None),
            Life::Until(end) => (end, Some(Bytes::from_static(b"ABSTTL"))),
        };
        let replace = replace.then_some(Bytes::from_static(b"REPLACE"));
        let end = Bytes::from(end.to_string());
        Request::of("RESTORE", key, [end, payload].into_iter().chain(replace).chain(absolute))
    }

    /// The command that gives a key its life.
    pub fn live(key: &Bytes, life: Life) -> Request {
        match life {
            Life::Endless => Request::of("PERSIST", key, []),
            Life::Until(end) => Request::of("PEXPIREAT", key, [Bytes::from(end.to_string())]),
        }
    }
}

struct Node {
    address: Address,
    client: Option<Client>,
}

impl Node {
    fn client(&mut self) -> Result<&mut Client, ClientError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&self.address)?,
        };
        Ok(self.client.insert(client))
    }
}

/// The target.
pub struct Target {
    /// The first is the one that was named.
    nodes: Vec<Node>,
    /// The node of each slot, if it is a cluster.
    slots: Option<Vec<usize>>,
    /// Families of filters that it takes.
    families: Vec<Family>,
    word_bytes: u64,
}

impl Target {
    /// Connects, and sees what it can take.
    ///
    /// # Errors
    ///
    /// [`Stop`].
    pub fn connect(address: &Address, cluster: bool) -> Result<Target, Stop> {
        let mut client = Client::connect(address).map_err(lost)?;
        let mut families = Vec::new();
        for family in Family::ALL {
            if knows(&mut client, &[family.row().load_chunk.as_bytes(), PROBE])? {
                families.push(family);
            }
        }
        if families.is_empty() {
            let valkey = knows(&mut client, &[b"BF.EXISTS", PROBE])?;
            return Err(if valkey { Stop::Valkey } else { Stop::NoFilters(End::Target) });
        }
        let word_bytes = setting(&mut client, b"proto-max-bulk-len")?.unwrap_or(DEFAULT_WORD_BYTES);
        let info = client.call(&[b"INFO", b"cluster"]).map_err(lost)?;
        let told = info.bytes().is_some_and(|text| text.windows(17).any(|line| line == b"cluster_enabled:1"));
        let node = Node { address: address.clone(), client: Some(client) };
        let mut target = Target { nodes: vec![node], slots: None, families, word_bytes };
        if cluster || told {
            target.ask_slots()?;
        }
        Ok(target)
    }

    /// Whether keys are on several nodes.
    pub fn is_cluster(&self) -> bool {
        self.slots.is_some()
    }

    /// Whether it has filters of this family.
    pub fn takes(&self, family: Family) -> bool {
        self.families.contains(&family)
    }

    /// Why it has no filters of this family, if it has none.
    pub fn lacks(&self, family: Family) -> Option<String> {
        (!self.takes(family)).then(|| format!("the target has no {}", family.row().name))
    }

    /// Longest word of a request that it takes.
    pub fn word_bytes(&self) -> u64 {
        self.word_bytes
    }

    /// Sends requests and returns their replies in the same order. Each went to its node.
    ///
    /// # Errors
    ///
    /// [`Stop`].
    pub fn run(&mut self, requests: &[Request]) -> Result<Vec<Reply>, Stop> {
        let place = |slots: &Option<Vec<usize>>, slot: u16| slots.as_ref().map_or(0, |slots| slots[usize::from(slot)]);
        let mut replies = vec![Reply::Null; requests.len()];
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let mut own = requests.iter().filter(|request| place(&self.slots, request.slot) == at).peekable();
            if own.peek().is_some() {
                let client = node.client().map_err(lost)?;
                own.try_for_each(|request| push(client, request)).and_then(|()| client.flush()).map_err(lost)?;
            }
        }
        for (at, node) in self.nodes.iter_mut().enumerate() {
            for (request, reply) in requests.iter().zip(&mut replies) {
                if place(&self.slots, request.slot) == at {
                    *reply = node.client().and_then(Client::read).map_err(lost)?;
                }
            }
        }
        for (request, reply) in requests.iter().zip(&mut replies) {
            self.follow(request, reply)?;
        }
        Ok(replies)
    }

    /// Sends a request and returns its reply.
    ///
    /// # Errors
    ///
    /// [`Stop`].
    pub fn call(&mut self, request: Request) -> Result<Reply, Stop> {
        Ok(self.run(&[request])?.pop().unwrap_or(Reply::Null))
    }

    /// Which of the keys are there.
    ///
    /// # Errors
    ///
    /// [`Stop`].
    pub fn has(&mut self, keys: &[Bytes]) -> Result<Vec<bool>, Stop> {
        let requests: Vec<_> = keys.iter().map(|key| Request::of("EXISTS", key, [])).collect();
        self.run(&requests)?
            .into_iter()
            .map(|reply| match reply {
                Reply::Error(text) => Err(Stop::Refused { end: End::Target, text }),
                reply => Ok(reply.integer() == Some(1)),
            })
            .collect()
    }

    /// A name for a filter that is not yet whole, in the same slot as its key.
    pub fn temporary(&self, key: &[u8]) -> Bytes {
        let names = (0..u32::MAX).map(|n| [key, b".seendb-copy.", n.to_string().as_bytes()].concat());
        // One in 16,384 fits, and the first if the key has a tag.
        let mut fitting = names.filter(|name| !self.is_cluster() || key_slot(name) == key_slot(key));
        fitting.next().unwrap_or_default().into()
    }

    /// Goes where the reply sends, until it sends no further.
    fn follow(&mut self, request: &Request, reply: &mut Reply) -> Result<(), Stop> {
        for _ in 0..MAX_REDIRECTS {
            let Some(text) = reply.error() else { return Ok(()) };
            let mut words = text.split(' ');
            let (word, place) = (words.next(), words.nth(1));
            let (node, asking) = match (word, place) {
                (Some("MOVED"), Some(place)) => {
                    let node = self.node(place)?;
                    self.slots.get_or_insert_with(|| vec![0; SLOTS])[usize::from(request.slot)] = node;
                    (node, false)
                }
                (Some("ASK"), Some(place)) => (self.node(place)?, true),
                (Some("TRYAGAIN"), _) => {
                    sleep(PATIENCE);
                    (self.slots.as_ref().map_or(0, |slots| slots[usize::from(request.slot)]), false)
                }
                _ => return Ok(()),
            };
            *reply = send(self.nodes[node].client().map_err(lost)?, request, asking).map_err(lost)?;
        }
        Ok(())
    }

    /// The node at `host:port`, which may be new.
    fn node(&mut self, place: &str) -> Result<usize, Stop> {
        let (host, port) = place.rsplit_once(':').ok_or(Stop::Reply(End::Target, "with a place in the cluster"))?;
        let port = port.parse().map_err(|_| Stop::Reply(End::Target, "with a place in the cluster"))?;
        let first = &self.nodes[0].address;
        // A node that does not know its own name leaves it empty: it is where we asked.
        let host = if host.is_empty() || host == "?" { first.host.clone() } else { host.to_owned() };
        if let Some(at) = self.nodes.iter().position(|node| node.address.port == port && node.address.host == host) {
            return Ok(at);
        }
        self.nodes.push(Node { address: Address { host, port, ..first.clone() }, client: None });
        Ok(self.nodes.len() - 1)
    }

    fn ask_slots(&mut self) -> Result<(), Stop> {
        let reply = self.nodes[0].client().and_then(|client| client.call(&[b"CLUSTER", b"SLOTS"])).map_err(lost)?;
        if let Reply::Error(text) = reply {
            return Err(Stop::Refused { end: End::Target, text });
        }
        let mut slots = vec![0; SLOTS];
        for range in reply.array().unwrap_or_default() {
            let (first, last, place) = parse_range(range).ok_or(Stop::Reply(End::Target, "CLUSTER SLOTS"))?;
            let node = self.node(&place)?;
            slots.get_mut(first..=last).ok_or(Stop::Reply(End::Target, "CLUSTER SLOTS"))?.fill(node);
        }
        self.slots = Some(slots);
        Ok(())
    }
}

/// First and last slot of a range, and the place of its master.
fn parse_range(range: &Reply) -> Option<(usize, usize, String)> {
    let [first, last, master, ..] = range.array()? else { return None };
    let slot = |reply: &Reply| usize::try_from(reply.integer()?).ok();
    let [host, port, ..] = master.array()? else { return None };
    let host = host.bytes().map_or(Some(""), |host| std::str::from_utf8(host).ok())?;
    Some((slot(first)?, slot(last)?, format!("{host}:{}", port.integer()?)))
}

fn push(client: &mut Client, request: &Request) -> Result<(), ClientError> {
    let words: Vec<&[u8]> = request.words.iter().map(|word| &**word).collect();
    client.push(&words)
}

fn send(client: &mut Client, request: &Request, asking: bool) -> Result<Reply, ClientError> {
    if asking {
        client.push(&[b"ASKING"])?;
    }
    push(client, request)?;
    client.flush()?;
    if asking {
        client.read()?;
    }
    client.read()
}

/// Whether there is such a command. The words are too few for it, so that nothing happens.
fn knows(client: &mut Client, words: &[&[u8]]) -> Result<bool, Stop> {
    match client.call(words).map_err(lost)? {
        Reply::Error(text) if concerns_all(&text) => Err(Stop::Refused { end: End::Target, text }),
        Reply::Error(text) => Ok(!is_unknown_command(&text)),
        _ => Ok(true),
    }
}

/// A number among the settings, if we may see it.
fn setting(client: &mut Client, name: &[u8]) -> Result<Option<u64>, Stop> {
    let reply = client.call(&[b"CONFIG", b"GET", name]).map_err(lost)?;
    let value = reply.array().and_then(|pair| pair.get(1)).and_then(Reply::bytes);
    Ok(value.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok()))
}

fn lost(error: ClientError) -> Stop {
    Stop::Client(End::Target, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(slots: Option<Vec<usize>>) -> Target {
        let node = Node { address: "redis://first:1".parse().unwrap(), client: None };
        Target { nodes: vec![node], slots, families: vec![Family::Bf], word_bytes: DEFAULT_WORD_BYTES }
    }

    #[test]
    fn a_temporary_name_is_in_the_slot_of_its_key() {
        let alone = target(None).temporary(b"key");
        assert_eq!(alone, &b"key.seendb-copy.0"[..]);
        for key in [&b"key"[..], b"", b"{tag}.x", b"}a{b", b"{}", b"a}b"] {
            let name = target(Some(vec![0; SLOTS])).temporary(key);
            assert_eq!(key_slot(&name), key_slot(key), "{key:?}");
            assert!(name.starts_with(key) && name.len() > key.len());
        }
    }

    #[test]
    fn nodes_are_known_by_their_place() {
        let mut target = target(None);
        assert_eq!(target.node("first:1").unwrap(), 0);
        assert_eq!(target.node("second:1").unwrap(), 1);
        assert_eq!(target.node("::1:7000").unwrap(), 2);
        assert_eq!((target.nodes[2].address.host.as_str(), target.nodes[2].address.port), ("::1", 7000));
        assert_eq!(target.node(":1").unwrap(), 0);
        assert!(target.node("nowhere").is_err());
    }

    #[test]
    fn restore_has_the_words_of_its_life() {
        let words = |life, replace| {
            let request = Request::restore(&Bytes::from_static(b"k"), Bytes::from_static(b"p"), life, replace);
            request.words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(Life::Endless, false), "RESTORE k 0 p");
        assert_eq!(words(Life::Until(17), true), "RESTORE k 17 p REPLACE ABSTTL");
    }
}
