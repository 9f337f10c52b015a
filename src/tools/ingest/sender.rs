//! Events to the server, many on their way at once.
//!
//! Events are gathered to commands and these to batches. The replies of a batch are read when the next one is sent, or when there
//! are no more events for now. What is confirmed moves on command by command.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::event::Event;
use super::input::{Input, MAX_LINE_BYTES, Next};
use super::options::Chain;
use super::place::{Answered, Place, PlaceFile};
use super::stop::Stop;
use super::tally::{BadLine, Progress, Tally};
use crate::tools::client::{Client, Reply};
use crate::tools::copy::stop::{concerns_all, is_unknown_command};

/// Events of a batch, and about so many bytes.
const BATCH_EVENTS: u64 = 1000;
const BATCH_BYTES: u64 = 1 << 20;
/// Batches whose replies are not read yet.
const FLYING: usize = 1;
/// A signal is noticed within this time.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// At a bounded rate there are so many batches a second, or one for each event.
const BATCHES_A_SECOND: u64 = 20;
/// Behind the prefix: a name that no user has, to ask whether the options are sound.
const NO_USER: &[u8] = b"\0seendb-ingest";

/// Events that go together.
struct Group {
    key: Vec<u8>,
    time: Option<u64>,
    items: Vec<Vec<u8>>,
    /// The number of each one's line.
    lines: Vec<u64>,
    /// Behind the last.
    place: Place,
}

/// A command on its way.
struct Sent {
    key: Vec<u8>,
    lines: Vec<u64>,
    place: Place,
}

/// A run.
pub struct Sender<'a> {
    options: &'a Chain,
    client: Client,
    input: Input,
    place_file: Option<PlaceFile>,
    stop: Arc<AtomicBool>,
    creation: Vec<Vec<u8>>,
    group: Option<Group>,
    /// Sent or gathered since the last batch.
    batch: Vec<Sent>,
    batch_events: u64,
    batch_began: u64,
    flying: VecDeque<Vec<Sent>>,
    /// Behind the last line that was read.
    read: Place,
    /// How far a later run need not go back.
    confirmed: Answered,
    events: u64,
    began: Instant,
    /// What came of the events so far.
    pub tally: Tally,
}

impl<'a> Sender<'a> {
    /// Connects, opens the events, and goes to where an earlier run ended.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn new(options: &'a Chain, stop: Arc<AtomicBool>, progress: &Progress) -> Result<Sender<'a>, Stop> {
        let opened = options.resume.as_deref().map(|path| PlaceFile::open(path, &options.into, &options.key_prefix));
        let (place_file, confirmed) =
            opened.transpose()?.map_or((None, Answered::default()), |(file, answered)| (Some(file), answered));
        let place = confirmed.place;
        let input = Input::open(options.file.as_deref(), place)?;
        progress.bytes.store(place.byte, Ordering::Relaxed);
        progress.all_bytes.store(input.all_bytes.unwrap_or(0), Ordering::Relaxed);
        let mut sender = Sender {
            options,
            client: Client::connect(&options.into)?,
            input,
            place_file,
            stop,
            creation: options.creation.words(),
            group: None,
            batch: Vec::new(),
            batch_events: 0,
            batch_began: place.byte,
            flying: VecDeque::new(),
            read: place,
            confirmed,
            events: 0,
            began: Instant::now(),
            tally: Tally { before: place.line, refused_before: confirmed.refused, ..Tally::default() },
        };
        sender.ask()?;
        Ok(sender)
    }

    /// Whether the server has the command, and the options are sound: better told at once than with every event.
    fn ask(&mut self) -> Result<(), Stop> {
        let key = [self.options.key_prefix.as_bytes(), NO_USER].concat();
        let mut words: Vec<&[u8]> = vec![b"CHAIN.INSERT", &key];
        words.extend(self.creation.iter().map(Vec::as_slice));
        if !self.options.creation.no_create {
            words.push(b"NOCREATE");
        }
        words.extend([&b"ITEMS"[..], b"x"]);
        match self.client.call(&words)? {
            Reply::Error(text) if is_unknown_command(&text) => Err(Stop::NoRings),
            Reply::Error(text) if text == "ERR not found" => Ok(()),
            Reply::Error(text) => Err(Stop::Refused { text }),
            _ => Ok(()),
        }
    }

    /// Sends all events. However it ends, the file of `--resume` says what was confirmed.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn run(&mut self, progress: &Progress) -> Result<(), Stop> {
        let ended = self.send_all(progress);
        let kept = self.place_file.as_mut().map_or(Ok(()), |file| file.finish(self.confirmed));
        ended.and(kept)
    }

    fn send_all(&mut self, progress: &Progress) -> Result<(), Stop> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                self.drain(progress)?;
                return Err(Stop::Interrupted);
            }
            let idle = self.is_idle();
            let bad = match self.input.next(if idle { LOOK_EVERY } else { Duration::ZERO })? {
                Next::Line(line, place) => {
                    self.read = place;
                    let (whole, text) = (line.ends_with(b"\n"), line.trim_ascii());
                    if text.is_empty() {
                        self.pass();
                        continue;
                    }
                    let event = Event::parse(text).and_then(|event| owned(&event, self.options));
                    match event {
                        Ok((user, item, time)) => {
                            self.take(&user, item, time)?;
                            self.send_if_full(progress)?;
                            continue;
                        }
                        Err(reason) => (BadLine { line: place.line, reason }, whole),
                    }
                }
                Next::TooLong(place) => {
                    self.read = place;
                    let reason = format!("longer than {MAX_LINE_BYTES} bytes");
                    (BadLine { line: place.line, reason }, true)
                }
                Next::Nothing if idle => continue,
                Next::Nothing => {
                    self.drain(progress)?;
                    continue;
                }
                Next::End => return self.drain(progress),
            };
            self.bad(bad, progress)?;
        }
    }

    /// Whether there is nothing to be done before the next line.
    fn is_idle(&self) -> bool {
        self.group.is_none() && self.batch.is_empty() && self.flying.is_empty()
    }

    /// A line was passed over. It is confirmed with what is before it.
    fn pass(&mut self) {
        if let Some(group) = &mut self.group {
            group.place = self.read;
        } else if let Some(sent) = self.batch.last_mut().or(self.flying.back_mut().and_then(|batch| batch.last_mut())) {
            sent.place = self.read;
        } else {
            self.confirm(self.read);
        }
    }

    /// All before this place is answered. As long as the server has taken nothing, the command is wrong rather than the events: it is
    /// left to the next run to send them again.
    fn confirm(&mut self, place: Place) {
        if self.tally.refused == 0 || self.tally.taken() > 0 {
            self.confirmed = Answered { place, refused: self.tally.refused_before + self.tally.refused };
        }
    }

    fn bad(&mut self, (bad, whole): (BadLine, bool), progress: &Progress) -> Result<(), Stop> {
        if !self.options.skip_bad {
            self.drain(progress)?;
            return Err(Stop::Bad(bad));
        }
        self.tally.pass_over(bad);
        // One without an end may be being written: the next run looks at it again.
        if whole {
            self.pass();
        }
        Ok(())
    }

    fn take(&mut self, user: &[u8], item: Vec<u8>, time: Option<u64>) -> Result<(), Stop> {
        let prefix = self.options.key_prefix.as_bytes();
        let place = self.read;
        self.events += 1;
        self.batch_events += 1;
        if let Some(group) = &mut self.group
            && group.time == time
            && group.key.strip_prefix(prefix) == Some(user)
        {
            group.items.push(item);
            group.lines.push(place.line);
            group.place = place;
            return Ok(());
        }
        self.close_group()?;
        let key = [prefix, user].concat();
        self.group = Some(Group { key, time, items: vec![item], lines: vec![place.line], place });
        Ok(())
    }

    fn close_group(&mut self) -> Result<(), Stop> {
        let Some(Group { key, time, items, lines, place }) = self.group.take() else { return Ok(()) };
        let time = time.map(|time| time.to_string());
        let mut words: Vec<&[u8]> = vec![b"CHAIN.INSERT", &key];
        words.extend(self.creation.iter().map(Vec::as_slice));
        if let Some(time) = &time {
            words.extend([&b"AT"[..], time.as_bytes()]);
        }
        words.push(b"ITEMS");
        words.extend(items.iter().map(Vec::as_slice));
        self.client.push(&words)?;
        self.batch.push(Sent { key, lines, place });
        Ok(())
    }

    fn send_if_full(&mut self, progress: &Progress) -> Result<(), Stop> {
        let most = self.options.rate.map_or(BATCH_EVENTS, |rate| (rate / BATCHES_A_SECOND).clamp(1, BATCH_EVENTS));
        if self.batch_events < most && self.read.byte - self.batch_began < BATCH_BYTES {
            return Ok(());
        }
        self.send(progress)?;
        if let Some(rate) = self.options.rate {
            let due = self.began + Duration::from_secs_f64(self.events as f64 / rate as f64);
            if due > Instant::now() {
                self.drain(progress)?;
            }
            while let Some(left) = due.checked_duration_since(Instant::now())
                && !self.stop.load(Ordering::Relaxed)
            {
                std::thread::sleep(left.min(LOOK_EVERY));
            }
        }
        Ok(())
    }

    /// Sends what was gathered, and reads the replies of the batch before it.
    fn send(&mut self, progress: &Progress) -> Result<(), Stop> {
        self.close_group()?;
        self.client.flush()?;
        if !self.batch.is_empty() {
            self.flying.push_back(std::mem::take(&mut self.batch));
        }
        (self.batch_events, self.batch_began) = (0, self.read.byte);
        self.hear(FLYING, progress)
    }

    /// Sends what was gathered, and reads all replies.
    fn drain(&mut self, progress: &Progress) -> Result<(), Stop> {
        self.send(progress)?;
        self.hear(0, progress)
    }

    /// Reads replies until only so many batches are on their way.
    fn hear(&mut self, most: usize, progress: &Progress) -> Result<(), Stop> {
        while self.flying.len() > most {
            for sent in self.flying.pop_front().unwrap_or_default() {
                let reply = self.client.read()?;
                self.judge(&sent, reply)?;
                self.confirm(sent.place);
            }
            progress.events.store(self.tally.events(), Ordering::Relaxed);
            progress.bytes.store(self.confirmed.place.byte, Ordering::Relaxed);
            if let Some(file) = &mut self.place_file {
                file.confirm(self.confirmed)?;
            }
        }
        Ok(())
    }

    /// Counts the events of a command by what the server said to them.
    fn judge(&mut self, sent: &Sent, reply: Reply) -> Result<(), Stop> {
        match reply {
            Reply::Error(text) if is_unknown_command(&text) => return Err(Stop::NoRings),
            Reply::Error(text) if concerns_all(&text) => return Err(Stop::Refused { text }),
            Reply::Error(text) => sent.lines.iter().for_each(|line| self.tally.refuse(*line, &sent.key, &text)),
            Reply::Array(replies) if replies.len() == sent.lines.len() => {
                for (line, reply) in sent.lines.iter().zip(replies) {
                    match reply {
                        Reply::Integer(1) => self.tally.new += 1,
                        Reply::Integer(0) => self.tally.known += 1,
                        Reply::Error(text) if concerns_all(&text) => return Err(Stop::Refused { text }),
                        Reply::Error(text) => self.tally.refuse(*line, &sent.key, &text),
                        _ => return Err(Stop::Reply),
                    }
                }
            }
            _ => return Err(Stop::Reply),
        }
        Ok(())
    }
}

/// User, item and time, as they are sent.
type Words = (Vec<u8>, Vec<u8>, Option<u64>);

fn owned(event: &Event<'_>, options: &Chain) -> Result<Words, String> {
    let time = match event.time {
        _ if options.no_time => None,
        None => return Err("missing field `time`".to_owned()),
        time => time,
    };
    Ok((event.user.0.as_bytes().to_vec(), event.item.0.as_bytes().to_vec(), time))
}
