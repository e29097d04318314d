//! The evidence for docs/capacity.md that a sound daemon never fails, on a machine that does
//! nothing else. The page has the command.

use crate::alone;
use crate::machine::{Neighbours, Noise};
use crate::support::{has_daemon, loadtest};

#[test]
#[ignore = "takes the cores from everything else for ten minutes"]
fn thirty_sound_runs_beside_noises_never_fail() {
    let _alone = alone();
    assert!(has_daemon(), "cargo build --release --workspace makes the daemon");
    let mut codes = [0; 3];
    for noise in [Noise::AsIs, Noise::BusyLoops, Noise::RealTimeBursts] {
        let _neighbours = Neighbours::begin(noise);
        for _ in 0..10 {
            let ran = loadtest(&["--for", "5s"]);
            eprintln!("{noise:?}: {}", ran.result());
            codes[usize::try_from(ran.code).expect("an exit code")] += 1;
        }
    }
    eprintln!("pass {}, fail {}, no verdict {}", codes[0], codes[1], codes[2]);
    assert_eq!(codes[1], 0);
}
