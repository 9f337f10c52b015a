//! `CHAIN.PROFILE`: what keys get that a command makes by itself, by the beginning of their names.

use super::options::{NewRing, Options};
use crate::commands::context::Context;
use crate::commands::dispatch::Outcome;
use crate::commands::error::CommandError;
use crate::commands::options::Place;
use crate::commands::words::Words;
use crate::filters::ring::{Mode, Window};
use crate::keyspace::effect::Profile;
use crate::resp::{Args, Reply};

/// Most profiles, and the longest prefix: each of them is looked for with every new key.
const MOST_PROFILES: usize = 1024;
const LONGEST_PREFIX: usize = 1024;

/// `CHAIN.PROFILE SET prefix [CAPACITY n] [ERROR r] [options]`
pub(super) fn set(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let prefix = &args[2];
    if prefix.len() > LONGEST_PREFIX {
        return Err(CommandError::text("ERR prefix is longer than 1024 bytes").into());
    }
    let place = Place { takes_life: false, ..Place::with_sizes(context, "chain.profile|set") };
    let (mut options, mut words) = (Options::default(), Words::from(args, 3));
    while let Some(word) = words.next() {
        if !options.take(word, &mut words, &place)? {
            return Err(CommandError::Unexpected(word.into()).into());
        }
    }
    let NewRing { settings, keyed, .. } = options.over(NewRing::by_settings(place.directives))?;
    settings.full_bytes().map_err(CommandError::from)?;
    let profiles = context.keyspace.profiles();
    if profiles.get(prefix).is_none() && profiles.all().len() >= MOST_PROFILES {
        return Err(CommandError::text("ERR there are 1024 profiles, delete one first").into());
    }
    context.keyspace.set_profile(prefix, Some(Profile { settings, keyed }), context.held.is_some());
    Ok(Reply::Ok)
}

/// `CHAIN.PROFILE DEL prefix`
pub(super) fn delete(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    Ok(Reply::Bool(context.keyspace.set_profile(&args[2], None, context.held.is_some())))
}

/// `CHAIN.PROFILE GET prefix`
pub(super) fn get(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    Ok(context.keyspace.profiles().get(&args[2]).map_or(Reply::Null, |profile| shown(&profile)))
}

/// `CHAIN.PROFILE LIST`
pub(super) fn list(context: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let all = context.keyspace.profiles().all();
    Ok(Reply::Map(all.iter().map(|(prefix, profile)| (Reply::bulk(prefix), shown(profile))).collect()))
}

/// A profile as the words that set it.
fn shown(profile: &Profile) -> Reply {
    let settings = &profile.settings;
    let mut pairs = vec![
        ("capacity", Reply::Integer(i64::try_from(settings.capacity).unwrap_or(i64::MAX))),
        ("error", Reply::Double(settings.error)),
        ("linkerror", Reply::Bool(settings.link_error)),
    ];
    match settings.mode {
        Mode::Count => pairs.push(("links", Reply::Integer(i64::from(settings.links)))),
        Mode::Dual { threshold } => pairs.push(("threshold", Reply::Double(threshold))),
        Mode::Window(Window { span_ms, bounded, by_events }) => pairs.extend([
            ("links", Reply::Integer(i64::from(settings.links))),
            ("pwindow", Reply::Integer(i64::try_from(span_ms).unwrap_or(i64::MAX))),
            ("bounded", Reply::Bool(bounded)),
            ("clock", Reply::text(if by_events { "event" } else { "server" })),
        ]),
    }
    pairs.push(("idle", settings.idle.map_or(Reply::Null, |idle| Reply::Integer(i64::from(idle)))));
    pairs.push(("keyed", Reply::Bool(profile.keyed || settings.key.is_some())));
    Reply::Map(pairs.into_iter().map(|(name, value)| (Reply::simple(name), value)).collect())
}
