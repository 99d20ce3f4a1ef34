//! Python-style arguments of filters and methods: by position or by name.

use minijinja::value::{Kwargs, Rest, ValueOrKwargs, from_args};
use minijinja::{Error, ErrorKind, Value};

/// The arguments of one call, without the value that it is called on.
pub(super) struct Args {
    function: &'static str,
    positional: Vec<Value>,
    kwargs: Kwargs,
}

impl Args {
    pub(super) fn new(function: &'static str, rest: Rest<ValueOrKwargs>) -> Result<Self, Error> {
        Self::of_slice(function, &rest.into_values())
    }

    pub(super) fn of_slice(function: &'static str, values: &[Value]) -> Result<Self, Error> {
        let (positional, kwargs): (&[Value], Kwargs) = from_args(values)?;
        Ok(Self { function, positional: positional.to_vec(), kwargs })
    }

    /// The argument at `index` or called `name`, if it was given.
    pub(super) fn get(&self, index: usize, name: &str) -> Result<Option<Value>, Error> {
        match self.positional.get(index) {
            Some(value) => Ok(Some(value.clone())),
            None => self.kwargs.get::<Option<Value>>(name),
        }
    }

    pub(super) fn required(&self, index: usize, name: &str) -> Result<Value, Error> {
        self.get(index, name)?.ok_or_else(|| {
            Error::new(ErrorKind::MissingArgument, format!("{}: missing argument {name}", self.function))
        })
    }

    /// An argument's truth value.
    pub(super) fn flag(&self, index: usize, name: &str, default: bool) -> Result<bool, Error> {
        Ok(self.get(index, name)?.map_or(default, |value| value.is_true()))
    }

    pub(super) fn int(&self, index: usize, name: &str, default: i64) -> Result<i64, Error> {
        match self.get(index, name)? {
            Some(value) if !value.is_none() => {
                i64::try_from(value).map_err(|_| self.wrong(name, "an integer"))
            }
            _ => Ok(default),
        }
    }

    /// An argument that must be a string; `None` counts as not given.
    pub(super) fn text(&self, index: usize, name: &str) -> Result<Option<String>, Error> {
        match self.get(index, name)? {
            Some(value) if !value.is_none() => {
                value.as_str().map(|s| Some(s.to_owned())).ok_or_else(|| self.wrong(name, "a string"))
            }
            _ => Ok(None),
        }
    }

    pub(super) fn required_text(&self, index: usize, name: &str) -> Result<String, Error> {
        let value = self.required(index, name)?;
        value.as_str().map(str::to_owned).ok_or_else(|| self.wrong(name, "a string"))
    }

    /// Refuses what was not asked for: more than `most` positional arguments or unknown names.
    pub(super) fn finish(&self, most: usize) -> Result<(), Error> {
        if self.positional.len() > most {
            return Err(Error::new(
                ErrorKind::TooManyArguments,
                format!("{}: too many arguments", self.function),
            ));
        }
        self.kwargs.assert_all_used()
    }

    fn wrong(&self, name: &str, what: &str) -> Error {
        Error::new(ErrorKind::InvalidOperation, format!("{}: {name} must be {what}", self.function))
    }
}
