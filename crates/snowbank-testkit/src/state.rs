//! The state of a machine: its file, its disk, its copies, and what `snowbank state` shows.

use std::fs;
use std::path::PathBuf;

use hmac_sha256::Hash;

use crate::failing_disk::FailingDisk;
use crate::machine::Machine;
use crate::{Daemon, poll};

/// A source in the output of `snowbank state show --json`.
#[derive(Debug)]
pub struct Shown {
    /// The ID bound: all IDs handed out so far are below it.
    pub bound: u64,
    /// True if the source's daemon stopped cleanly.
    pub clean: bool,
    /// True if `state export` moved the source's worker IDs away.
    pub released: bool,
}

impl Machine {
    /// Returns the state directory.
    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Returns the state file.
    pub fn file(&self) -> PathBuf {
        self.state().join("ceilings")
    }

    /// Returns the disk under the state directory. The disk works until it gets an order.
    pub fn disk(&self) -> FailingDisk {
        FailingDisk::new(&self.state(), self.path("orders"))
    }

    /// Returns the sources of `state show --json` for this state directory.
    pub fn shown_sources(&self, state: &str) -> Vec<serde_json::Value> {
        let path = self.path(state).display().to_string();
        let text = self.run(&["state", "show", "--json", "--state-dir", &path]).printed();
        let answer: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        answer["sources"].as_array().expect("a list").clone()
    }

    /// Returns the only source of this machine's state.
    pub fn shown(&self) -> Shown {
        let [source] = &self.shown_sources("state")[..] else { panic!("expected one source") };
        Shown {
            bound: source["id_bound"].as_str().and_then(|id| id.parse().ok()).expect("an ID"),
            clean: source["clean"].as_bool().expect("a flag"),
            released: source["released"].as_bool().expect("a flag"),
        }
    }

    /// Draws until an ID is above the ID bound that is stored at the time of the call. Returns that
    /// ID. On a busy machine a raise may be late.
    pub fn draw_past_a_raise(&self, daemon: &Daemon) -> u64 {
        let bound = self.shown().bound;
        poll("an ID above the earlier bound", || Some(daemon.draw_one()).filter(|&id| id > bound))
    }

    /// Changes every record of the state file, and makes both copies in the file valid again. No
    /// daemon may run on the state meanwhile.
    pub fn edit(&self, change: impl Fn(&mut serde_json::Value)) {
        let bytes = fs::read(self.file()).expect("the file is there");
        let slot_bytes = bytes.len() / 2;
        let text = std::str::from_utf8(&bytes[..slot_bytes]).expect("it is text");
        let (header, rest) = text.split_once('\n').expect("a header line");
        let end = rest.rfind('}').expect("a document") + 1;
        let mut document: serde_json::Value =
            serde_json::from_str(&rest[..end]).expect("the document is JSON");
        document["records"].as_array_mut().expect("it has records").iter_mut().for_each(change);
        let number = header.split(&[' ', ',']).skip_while(|word| *word != "number").nth(1);
        let number: u64 = number.and_then(|number| number.parse().ok()).expect("a number");

        let document = document.to_string();
        let fields = format!("snowbank ceilings: format 1, number {}, length {}", number + 1, document.len());
        let checksum = Hash::hash(format!("{fields}\n{document}").as_bytes());
        let checksum = checksum.map(|byte| format!("{byte:02x}")).concat();
        let mut slot = format!("{fields}, sha256 {checksum}\n{document}").into_bytes();
        slot.resize(slot_bytes, b' ');
        fs::write(self.file(), slot.repeat(2)).expect("written");
    }

    /// Returns the contents of the state file. A daemon may be writing the file, so the file is
    /// read until two readings are equal.
    pub fn back_up(&self) -> Vec<u8> {
        poll("a whole copy", || {
            let bytes = fs::read(self.file()).expect("the state is there");
            (fs::read(self.file()).expect("read again") == bytes).then_some(bytes)
        })
    }

    /// Replaces the state by a copy.
    pub fn restore(&self, copy: &[u8]) {
        fs::write(self.file(), copy).expect("written");
    }

    /// Returns the mark of the only worker ID, from its lock file. The daemon may have been killed
    /// after it wrote its state and before it wrote its mark. Then the state is one raise ahead of
    /// the mark.
    pub fn marked(&self) -> u64 {
        let lock = fs::read_dir(self.path("locks")).expect("read").next().expect("a lock").expect("read");
        let text = fs::read_to_string(lock.path()).expect("text");
        let mark = text.lines().nth(1).expect("a mark");
        mark.split(' ').find_map(|word| word.parse().ok().filter(|_| word.len() == 20)).expect("an ID")
    }

    /// Checks that two starts, one after the other, refuse the state as an older copy.
    #[track_caller]
    pub fn assert_older_is_refused(&self) {
        let refusal = ["is older than the one that served", "newest state directory", "--adopt-state once"];
        self.setup("").end().assert_refusal(&refusal);
        self.setup("").end().assert_refusal(&[&self.state().display().to_string(), "\"default\""]);
    }
}
