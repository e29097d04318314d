//! Opens pages in a real browser that needs no screen.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The time after which a browser that hangs is killed. A browser that works needs a second or two.
const TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    /// The width in CSS pixels.
    pub(crate) width: u32,
    pub(crate) dark: bool,
}

/// A page as the browser loaded it.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The document after it was loaded.
    pub(crate) dom: String,
    pub(crate) console: Vec<String>,
}

pub(crate) fn open(page: &Path, view: View) -> Seen {
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name| std::fs::File::create(directory.path().join(name)).expect("a file");
    // 0 is dark, 1 is light.
    let preferred = format!("--blink-settings=preferredColorScheme={}", u8::from(!view.dark));
    let mut browser = Command::new("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--hide-scrollbars", "--enable-logging=stderr", "--v=0", "--dump-dom", &preferred])
        .arg(format!("--window-size={},900", view.width))
        .arg(format!("--user-data-dir={}", directory.path().join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .stdout(file("dom"))
        .stderr(file("log"))
        .spawn()
        .expect("chromium starts");
    let deadline = Instant::now() + TIMEOUT;
    while browser.try_wait().expect("a child").is_none() {
        if Instant::now() > deadline {
            let _ = browser.kill();
            let _ = browser.wait();
            panic!("chromium did not end within {TIMEOUT:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let read = |name| std::fs::read(directory.path().join(name)).expect("a file");
    let log = String::from_utf8_lossy(&read("log")).into_owned();
    let console = log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    Seen { dom: String::from_utf8_lossy(&read("dom")).into_owned(), console }
}
