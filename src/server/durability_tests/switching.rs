//! `CONFIG SET appendonly` that fails leaves all as it was; an end that fails is tried again.

use std::sync::Arc;

use super::world::{Machine, digest};
use crate::commands::context::ShutDown;
use crate::persist::live::Pace;
use crate::persist::simulated::{Failure, Fault, SimulatedFiles};

fn start(disk: &SimulatedFiles, appendonly: &str) -> Machine {
    let settings = [("appendonly", appendonly), ("appendfsync", "always"), ("save", "")];
    Machine::start(Arc::new(disk.clone()), &settings, Pace::default()).expect("it starts")
}

fn setting(machine: &mut Machine, name: &str) -> String {
    machine.call(&format!("CONFIG GET {name}"), name).lines().last().unwrap_or_default().to_owned()
}

/// Each call of switching the log off fails in turn: it is off, and the other setting is changed, or neither.
#[test]
fn a_log_that_cannot_be_ended_goes_on() {
    for once in [true, false] {
        for after in 0.. {
            let context = format!("once {once}, after {after}");
            let disk = SimulatedFiles::new(after);
            let mut machine = start(&disk, "yes");
            assert_eq!(machine.ask("BF.ADD k before", &context).expect("the disk works"), ":1\r\n");
            disk.fail(Some(Failure { fault: Fault::Device, after, once, short: false }));
            let reply = machine.call("CONFIG SET timeout 77 appendonly no", &context);
            let done = reply == "+OK\r\n";
            assert!(done || reply.contains("CONFIG SET failed"), "{context}: {reply}");
            let expected = if done { ("no", "77", false) } else { ("yes", "0", true) };
            let found = (setting(&mut machine, "appendonly"), setting(&mut machine, "timeout"));
            assert_eq!((&*found.0, &*found.1, machine.durability.live.is_on()), expected, "{context}: {reply}");
            disk.fail(None);
            if done && after > 3 {
                break;
            }
            if !done {
                machine.await_open(&context);
                while machine.ask("BF.ADD k after", &context).is_err() {
                    machine.await_open(&context);
                }
                let again = start(&disk.after_power_loss(after), "yes");
                assert_eq!(digest(&again.contents()), digest(&machine.contents()), "{context}: it was logged");
            }
        }
    }
}

/// Each call of switching the log on fails in turn, where another log lies that was not loaded: that one is where it was.
#[test]
fn a_log_that_cannot_be_begun_leaves_the_other_where_it_was() {
    for (fault, once) in [(Fault::NoSpace, false), (Fault::Device, true)] {
        for after in 0.. {
            let context = format!("{fault:?}, after {after}");
            let disk = SimulatedFiles::new(after);
            let mut first = start(&disk, "yes");
            assert_eq!(first.ask("BF.ADD k logged", &context).expect("the disk works"), ":1\r\n");
            let logged = digest(&first.contents());
            drop(first);
            let mut machine = start(&disk, "no");
            disk.fail(Some(Failure { fault, after, once, short: false }));
            let reply = machine.call("CONFIG SET timeout 77 appendonly yes", &context);
            disk.fail(None);
            let paths = disk.paths();
            let besides = |rest: &str| paths.iter().filter(|path| path.to_string_lossy().contains(rest)).count();
            if reply == "+OK\r\n" {
                assert!(besides("appendonlydir.replaced-") > 0, "{context}: {paths:?}");
                assert_eq!(setting(&mut machine, "timeout"), "77");
                // Some calls may fail and nothing depends on them.
                if after > 60 {
                    break;
                }
                continue;
            }
            assert!(fault != Fault::NoSpace || reply.contains("free some space"), "{context}: {reply}");
            assert_eq!((&*setting(&mut machine, "appendonly"), &*setting(&mut machine, "timeout")), ("no", "0"));
            machine.await_that(&context, |_| {
                disk.paths().iter().all(|path| !path.to_string_lossy().contains("appendonlydir."))
            });
            let again = start(&disk.copy(), "yes");
            assert_eq!(digest(&again.contents()), logged, "{context}: {reply}");
        }
    }
}

/// A disk that has an error for a moment does not keep the server from ending, whatever the error was.
#[test]
fn an_end_is_tried_again_while_the_disk_fails() {
    for (fault, once) in [(Fault::NoSpace, false), (Fault::Device, false), (Fault::Device, true)] {
        for saves in [false, true] {
            let context = format!("{fault:?}, once {once}, saves {saves}");
            let disk = SimulatedFiles::new(1);
            let mut machine = start(&disk, "yes");
            assert_eq!(machine.ask("BF.ADD k before", &context).expect("the disk works"), ":1\r\n");
            disk.fail(Some(Failure { fault, after: 0, once, short: false }));
            let _refused = machine.ask("BF.ADD k after", &context);
            let healing = disk.clone();
            let healer = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(300));
                healing.fail(None);
            });
            let how = ShutDown { save: Some(saves), ..ShutDown::default() };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
            let ended = runtime.block_on(async {
                let mut ended = std::pin::pin!(machine.durability.prepare_end(how));
                loop {
                    machine.durability.tick();
                    if let Ok(ended) = tokio::time::timeout(std::time::Duration::from_millis(5), &mut ended).await {
                        break ended;
                    }
                }
            });
            healer.join().expect("it only waits");
            assert_eq!(ended, Ok(()), "{context}");
            let again = start(&disk.after_power_loss(1), "yes");
            assert_eq!(digest(&again.contents()), digest(&machine.contents()), "{context}");
        }
    }
}
