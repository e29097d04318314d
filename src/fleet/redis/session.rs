//! A connection to a Redis master: the endpoint itself, or the master that a sentinel names.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::resp::{self, Garbled, Reply};
use crate::fleet::endpoint::Endpoint;
use crate::fleet::line::{self, ANSWER_TIMEOUT, Access, Fault, Stream, in_time};

/// The time that a replica has to take over a write.
const REPLICA_TIMEOUT_MS: &str = "1000";
/// The least time for the answer to that wait.
const REPLICA_PATIENCE: Duration = Duration::from_secs(2);

/// The errors that only an operator can change, by their first words.
const LASTING_ERRORS: [&str; 7] =
    ["NOAUTH", "WRONGPASS", "NOPERM", "MOVED", "CROSSSLOT", "WRONGTYPE", "ERR AUTH"];

/// A connection to a master.
pub(super) struct Session {
    stream: Box<dyn Stream>,
    /// Bytes of the next replies.
    read: Vec<u8>,
    /// The time for each part of an answer.
    patience: Duration,
}

/// The role of a Redis, as it reports itself.
enum Role {
    /// The number of its replicas.
    Master(usize),
    /// The names of the masters that it watches.
    Sentinel(Vec<String>),
    Other(String),
}

impl line::Session for Session {
    async fn open(access: &Access, endpoint: &Endpoint) -> Result<Self, Fault> {
        let mut session = Session::connect(access, endpoint).await?;
        let names = match session.role().await? {
            Role::Master(_) => return Ok(session),
            Role::Sentinel(names) => names,
            Role::Other(role) => return Err(no_master(&role)),
        };
        let name = master_name(&names)?;
        let reply = session.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name]).await?;
        let master =
            place(&reply).ok_or_else(|| Fault::Endpoint(String::from("the sentinel knows no master")))?;
        let master = endpoint.beside(master.0, master.1);
        let at_master = |fault| match fault {
            Fault::Endpoint(reason) => Fault::Endpoint(format!("its master {master}: {reason}")),
            Fault::Lasting(reason) => Fault::Lasting(format!("its master {master}: {reason}")),
            Fault::Foreign(reason) => Fault::Foreign(format!("its master {master}: {reason}")),
        };
        let mut session = Session::connect(access, &master).await.map_err(at_master)?;
        match session.role().await.map_err(at_master)? {
            Role::Master(_) => Ok(session),
            Role::Sentinel(_) => Err(at_master(no_master("sentinel"))),
            Role::Other(role) => Err(at_master(no_master(&role))),
        }
    }

    async fn text_of(&mut self, key: &str) -> Result<Option<String>, Fault> {
        let found = super::read(self, &[key]).await?;
        Ok(found.into_iter().next().flatten().map(|stored| stored.text))
    }

    fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }
}

fn no_master(role: &str) -> Fault {
    Fault::Endpoint(format!("found a {role}, allowed: a master or a sentinel"))
}

/// Returns the only master of a sentinel.
fn master_name(names: &[String]) -> Result<&String, Fault> {
    match names {
        [name] => Ok(name),
        _ => Err(Fault::Lasting(format!(
            "the sentinel watches {} masters ({}), allowed: one; give the fleet sentinels of its own",
            names.len(),
            names.join(", ")
        ))),
    }
}

/// Reads the host and the port that a sentinel names.
fn place(reply: &Reply) -> Option<(&str, u16)> {
    let [host, port] = reply.list()? else { return None };
    Some((host.text()?, port.text()?.parse().ok()?))
}

/// Reads the answer to ROLE.
fn role_of(reply: &Reply) -> Option<Role> {
    let items = reply.list()?;
    Some(match (items.first()?.text()?, items) {
        ("master", [_, _, replicas]) => Role::Master(replicas.list()?.len()),
        ("sentinel", [_, names]) => {
            Role::Sentinel(names.list()?.iter().filter_map(Reply::text).map(str::to_owned).collect())
        }
        ("slave", _) => Role::Other(String::from("replica")),
        (other, _) => Role::Other(other.to_owned()),
    })
}

impl Session {
    /// Connects and logs in.
    async fn connect(access: &Access, endpoint: &Endpoint) -> Result<Self, Fault> {
        let stream = line::connect(endpoint, &access.tls).await.map_err(Fault::Endpoint)?;
        let mut session = Session { stream, read: Vec::new(), patience: ANSWER_TIMEOUT };
        if let Some((user, password)) = &access.user {
            match session.ask(&["AUTH", user, password]).await {
                // It requires no password, like many sentinels.
                Err(Fault::Lasting(reason)) if reason.contains("without any password configured") => {}
                answered => _ = answered?,
            }
        }
        Ok(session)
    }

    async fn role(&mut self) -> Result<Role, Fault> {
        let reply = self.ask(&["ROLE"]).await?;
        role_of(&reply).ok_or_else(|| Fault::Endpoint(String::from("its answer to ROLE cannot be read")))
    }

    /// Returns whether a replica has all that was written on this connection, or none is connected.
    pub(super) async fn is_replicated(&mut self) -> Result<bool, Fault> {
        match self.role().await? {
            Role::Master(0) => Ok(true),
            Role::Master(_) => {
                self.patience = self.patience.max(REPLICA_PATIENCE);
                Ok(self.ask(&["WAIT", "1", REPLICA_TIMEOUT_MS]).await? != Reply::Number(0))
            }
            // It was demoted: the write may be lost.
            Role::Sentinel(_) | Role::Other(_) => Ok(false),
        }
    }

    /// Makes one request. An error is a fault.
    pub(super) async fn ask(&mut self, arguments: &[&str]) -> Result<Reply, Fault> {
        in_time(self.patience, self.stream.write_all(&resp::request(arguments))).await?;
        loop {
            if let Some((reply, size)) = resp::reply(&self.read).map_err(|Garbled| no_redis())? {
                self.read.drain(..size);
                return if let Reply::Error(reason) = reply { Err(fault_of(reason)) } else { Ok(reply) };
            }
            if in_time(self.patience, self.stream.read_buf(&mut self.read)).await? == 0 {
                return Err(Fault::Endpoint(String::from("closed the connection")));
            }
        }
    }
}

fn no_redis() -> Fault {
    Fault::Endpoint(String::from("found an answer of another protocol, allowed: Redis's"))
}

fn fault_of(reason: String) -> Fault {
    let is_lasting = LASTING_ERRORS.iter().any(|error| reason.starts_with(error));
    if is_lasting { Fault::Lasting(reason) } else { Fault::Endpoint(reason) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operators_mistakes_differ_from_what_passes() {
        for lasting in ["NOAUTH Authentication required.", "WRONGPASS invalid", "NOPERM this user"] {
            assert!(matches!(fault_of(lasting.to_owned()), Fault::Lasting(_)), "{lasting}");
        }
        for passing in ["READONLY You can't", "LOADING Redis is", "NOREPLICAS Not enough", "MASTERDOWN Link"]
        {
            assert!(matches!(fault_of(passing.to_owned()), Fault::Endpoint(_)), "{passing}");
        }
    }

    #[test]
    fn roles_are_read() {
        let role = |bytes: &str| role_of(&resp::reply(bytes.as_bytes()).unwrap().unwrap().0);
        let master = "*3\r\n$6\r\nmaster\r\n:9\r\n*1\r\n*3\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\n9\r\n";
        assert!(matches!(role(master), Some(Role::Master(1))));
        assert!(
            matches!(role("*2\r\n$8\r\nsentinel\r\n*1\r\n$1\r\nm\r\n"), Some(Role::Sentinel(names)) if names == ["m"])
        );
        assert!(matches!(role("*1\r\n$5\r\nslave\r\n"), Some(Role::Other(role)) if role == "replica"));
        assert!(role("*0\r\n").is_none() && role(":1\r\n").is_none());
        assert!(master_name(&[]).is_err() && master_name(&[String::from("a"), String::from("b")]).is_err());
    }
}
