use redis::Script;

/// One for every operation, each with the same head.
pub(super) struct Scripts {
    pub(super) reserve: Script,
    pub(super) renew: Script,
    pub(super) settle: Script,
    pub(super) status: Script,
}

macro_rules! script {
    ($file:literal) => {
        Script::new(concat!(include_str!("lua/common.lua"), include_str!($file)))
    };
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            reserve: script!("lua/reserve.lua"),
            renew: script!("lua/renew.lua"),
            settle: script!("lua/settle.lua"),
            status: script!("lua/status.lua"),
        }
    }
}
