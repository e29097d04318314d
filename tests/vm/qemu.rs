//! A virtual machine of qemu, and qemu's monitor.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::guest::fault;

const LIMIT: Duration = Duration::from_secs(60);

/// The parts of a machine.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) kernel: PathBuf,
    /// The file system from which the machine boots, and on which it runs.
    pub(crate) initrd: PathBuf,
    pub(crate) memory_mib: u32,
    /// True if the virtual machine can reach the host's loopback, as 10.0.2.2.
    pub(crate) has_network: bool,
    pub(crate) arguments: &'static str,
    /// The lines that the machine must print once it is up.
    pub(crate) facts: &'static [&'static str],
}

/// A machine that runs, or that waits with a saved state. Dropping this value ends the machine's
/// process.
pub(crate) struct Vm {
    process: Child,
    console: PathBuf,
    monitor: BufReader<UnixStream>,
}

impl Vm {
    /// Starts a machine. With a saved state, the machine reads that state and waits for
    /// [`resume`](Vm::resume). Without one, it boots.
    pub(crate) fn start(
        machine: &Machine,
        directory: &Path,
        generation: &str,
        saved: Option<&Path>,
    ) -> Result<Vm, String> {
        std::fs::create_dir(directory).map_err(fault(directory))?;
        let console = directory.join("console");
        let monitor = directory.join("monitor");
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-display", "none", "-no-reboot"]);
        command.args(["-append", machine.arguments, "-m", &machine.memory_mib.to_string()]);
        if machine.has_network {
            command.args(["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="]);
        } else {
            command.args(["-nic", "none"]);
        }
        command.arg("-kernel").arg(&machine.kernel).arg("-initrd").arg(&machine.initrd);
        command.arg("-serial").arg(format!("file:{}", console.display()));
        command.arg("-qmp").arg(format!("unix:{},server,nowait", monitor.display()));
        command.arg("-device").arg(format!("vmgenid,guid={generation}"));
        if let Some(saved) = saved {
            command.arg("-incoming").arg(format!("exec:cat '{}'", saved.display()));
        }
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let mut process = process.map_err(|error| format!("qemu-system-x86_64: {error}"))?;
        let connected = await_until("qemu's monitor", || UnixStream::connect(&monitor).ok());
        let stream = connected.inspect_err(|_| {
            let _ = process.kill();
            let _ = process.wait();
        })?;
        stream.set_read_timeout(Some(LIMIT)).map_err(|error| error.to_string())?;
        let mut vm = Vm { process, console, monitor: BufReader::new(stream) };
        vm.call("qmp_capabilities", json!({}))?;
        Ok(vm)
    }

    pub(crate) fn console(&self) -> Result<String, String> {
        let bytes = std::fs::read(&self.console).map_err(fault(&self.console))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Stops the machine, saves its state, and ends its process.
    pub(crate) fn save(&mut self, to: &Path) -> Result<(), String> {
        self.call("stop", json!({}))?;
        self.call("migrate", json!({ "uri": format!("exec:cat > '{}'", to.display()) }))?;
        await_until("the end of the save", || {
            let answer = self.call("query-migrate", json!({})).ok()?;
            (answer["status"] == "completed").then_some(())
        })?;
        self.quit();
        Ok(())
    }

    /// Waits until the machine has read its saved state.
    pub(crate) fn await_read(&mut self) -> Result<(), String> {
        await_until("the end of the read of the saved state", || {
            let answer = self.call("query-status", json!({})).ok()?;
            (answer["status"] != "inmigrate").then_some(())
        })
    }

    /// Lets a machine continue from its saved state.
    pub(crate) fn resume(&mut self) -> Result<(), String> {
        self.call("cont", json!({})).map(drop)
    }

    pub(crate) fn quit(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    fn call(&mut self, name: &str, arguments: Value) -> Result<Value, String> {
        let fault = |error: std::io::Error| format!("qemu's monitor, {name}: {error}");
        let request = json!({ "execute": name, "arguments": arguments });
        writeln!(self.monitor.get_mut(), "{request}").map_err(fault)?;
        loop {
            let mut line = String::new();
            if self.monitor.read_line(&mut line).map_err(fault)? == 0 {
                return Err(format!("qemu's monitor, {name}: qemu has ended"));
            }
            // Events and a greeting may come first.
            let mut answer: Value =
                serde_json::from_str(&line).map_err(|error| format!("{line}: {error}"))?;
            if answer.get("error").is_some() {
                return Err(format!("qemu's monitor, {name}: {line}"));
            }
            if answer.get("return").is_some() {
                return Ok(answer["return"].take());
            }
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.quit();
    }
}

fn await_until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> Result<T, String> {
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        if let Some(answer) = probe() {
            return Ok(answer);
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err(format!("waited {} s in vain for {what}", LIMIT.as_secs()))
}
