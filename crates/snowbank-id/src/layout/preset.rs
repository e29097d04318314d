//! The presets, which are layouts with a name, one row each. A new preset needs only a new row.

use super::{Layout, Role};

/// A layout with a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Preset {
    /// The name on the command line and in a configuration.
    pub name: &'static str,
    /// The text form.
    pub spec: &'static str,
    /// The origin, in one line.
    pub about: &'static str,
}

/// Every preset, Twitter's first.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "twitter",
        spec: "time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=1288834974657",
        about: "Twitter's Snowflake of 2010, the one that most others follow",
    },
    Preset {
        name: "simple-2020",
        spec: "time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=1596211200000",
        about: "Twitter's bits from 2020-08-01 (+08:00): a widely copied simplified form",
    },
    Preset {
        name: "clearing",
        spec: "time:13d,sequence:1d,machine:2d,table:3d:random;tick=1ms;epoch=-134540000000",
        about: "A clearing house's trade IDs: decimal digits, so that people can read them",
    },
    Preset {
        // The clearing house's code divides the Unix milliseconds by 10, and then adds the offset
        // 136040000000. So the time has 12 digits, and the epoch is −136040000000 × 10 ms.
        name: "clearing-code",
        spec: "time:12d,machine:2d,sequence:1d,table:3d:random;tick=10ms;epoch=-1360400000000",
        about: "The clearing house's trade IDs as its code makes them: machine above sequence",
    },
    Preset {
        name: "clearing-batch",
        spec: "time:13d,sequence:1d,machine:2d;tick=1ms;epoch=0",
        about: "The clearing house's batch IDs: 16 digits, no table suffix",
    },
    Preset {
        name: "clearing-bits",
        spec: "time:43,datacenter:3,worker:5,sequence:12;tick=1ms;epoch=-136040000000",
        about: "The clearing house's binary layout: 43 bits of time, 278 years",
    },
    Preset {
        // The epoch is recent, because every year between the epoch and the first ID shortens the
        // layout's life. The epoch is the start of a year, because people remember such a date.
        name: "game",
        spec: "time:37,server:20,sequence:6;tick=20ms;epoch=1735689600000",
        about: "Game servers that are merged later: a million servers, ticks of 20 ms",
    },
    Preset {
        name: "kubernetes",
        spec: "time:28,node:24,sequence:11;tick=1s;epoch=1631780048000",
        about: "Kubernetes pods: the node is the low 24 bits of the IPv4 address",
    },
    Preset {
        name: "discord",
        spec: "time:41,worker:5,process:5,sequence:12;tick=1ms;epoch=1420070400000",
        about: "Discord's, with 41 of its 42 bits of time, so that IDs stay positive",
    },
    Preset {
        name: "instagram",
        spec: "time:40,shard:13,sequence:10;tick=1ms;epoch=1314220021721",
        about: "Instagram's, with 40 of its 41 bits of time, so that IDs stay positive",
    },
    Preset {
        name: "sonyflake",
        spec: "time:39,sequence:8,machine:16;tick=10ms;epoch=1409529600000",
        about: "Sony's Sonyflake: 65,536 machines, 174 years",
    },
    Preset {
        // 2016-05-20T00:00:00+08:00, as published.
        name: "baidu",
        spec: "time:28,worker:22,sequence:13;tick=1s;epoch=1463673600000",
        about: "Baidu's uid-generator with its default epoch; its life ended in 2024",
    },
    Preset {
        name: "js53",
        spec: "time:41,worker:4,sequence:8;tick=1ms;epoch=1735689600000",
        about: "IDs below 2^53, which JavaScript and JSON readers keep whole",
    },
];

impl Preset {
    /// Builds the preset's layout.
    ///
    /// # Errors
    /// Never returns an error: the tests build every preset.
    pub fn layout(&self) -> Result<Layout, super::LayoutError> {
        self.spec.parse()
    }
}

/// Returns the preset with this name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// Returns the text form of the preset with this name.
pub(super) fn spec(name: &str) -> &'static str {
    find(name).map_or("", |preset| preset.spec)
}

/// Returns the names of all presets, separated by commas.
pub(super) fn names() -> String {
    PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ")
}

/// Returns a preset that has this number of time values and this number of workers. The error for a
/// layout that does not fit recommends this preset.
pub(super) fn like(time_values: u64, workers: u128) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| {
        preset.layout().is_ok_and(|layout| {
            let time = layout.fields().iter().find(|field| field.role() == Role::Time);
            time.is_some_and(|time| time.values() == time_values) && u128::from(layout.workers()) == workers
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_built_and_written_in_its_canonical_form() {
        for preset in PRESETS {
            let layout = preset.layout().unwrap_or_else(|error| panic!("{}: {error}", preset.name));
            assert_eq!(layout.to_string(), preset.spec);
            assert_eq!(find(preset.name), Some(preset));
        }
    }
}
