//! A bare echo. Requests to it show how much this machine delays requests without any target.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::retry_on_intr;

/// Room for several turns of requests of 14 bytes each.
const BUFFER_SIZE: usize = 64 * 1024;

/// Starts a thread that accepts this many connections and sends back each byte. The thread ends
/// when the last connection is closed.
///
/// # Errors
/// The system's error.
pub(crate) fn start(connections: usize) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let thread = std::thread::Builder::new().name("echo".to_owned());
    // If a connection fails, the thread ends, and so does the run.
    thread.spawn(move || echo(&listener, connections))?;
    Ok(address)
}

fn echo(listener: &TcpListener, connections: usize) -> io::Result<()> {
    let streams = listener.incoming().take(connections).collect::<io::Result<Vec<TcpStream>>>()?;
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (index, stream) in streams.iter().enumerate() {
        stream.set_nodelay(true)?;
        epoll::add(&watch, stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
    }
    let mut open = streams.len();
    let mut buffer = vec![0; BUFFER_SIZE];
    let mut events = Vec::with_capacity(64);
    while open > 0 {
        retry_on_intr(|| epoll::wait(&watch, spare_capacity(&mut events), None))?;
        for event in events.drain(..) {
            let mut stream = &streams[event.data.u64() as usize];
            // The event says that bytes or the end of the stream have arrived, so the read does not
            // block.
            let size = stream.read(&mut buffer)?;
            stream.write_all(&buffer[..size])?;
            if size == 0 {
                epoll::delete(&watch, stream)?;
                open -= 1;
            }
        }
    }
    Ok(())
}
