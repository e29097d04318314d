//! A bare echo: the effect of this machine on requests, without any target.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;

/// Several turns of requests at once; each is 16 bytes.
const BUFFER_SIZE: usize = 64 * 1024;

/// Starts a thread that sends back each byte of this many connections, and ends when they have ended.
///
/// # Errors
/// The system's.
pub(crate) fn start(connections: usize) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let thread = std::thread::Builder::new().name("echo".to_owned());
    // A connection that fails ends the thread, and the run against it.
    thread.spawn(move || accept(&listener, connections).and_then(|streams| echo(&streams)))?;
    Ok(address)
}

fn accept(listener: &TcpListener, connections: usize) -> io::Result<Vec<TcpStream>> {
    let accepted = (0..connections).map(|_| {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    });
    accepted.collect()
}

fn echo(streams: &[TcpStream]) -> io::Result<()> {
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (index, stream) in streams.iter().enumerate() {
        epoll::add(&watch, stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
    }
    let (mut open, mut buffer, mut events) = (streams.len(), vec![0; BUFFER_SIZE], Vec::with_capacity(64));
    while open > 0 {
        match epoll::wait(&watch, spare_capacity(&mut events), None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        for event in events.drain(..) {
            let mut stream = &streams[event.data.u64() as usize];
            match stream.read(&mut buffer) {
                Ok(0) => {
                    epoll::delete(&watch, stream)?;
                    open -= 1;
                }
                // A full socket ends the echo: the generator has stopped reading.
                Ok(size) => stream.write_all(&buffer[..size])?,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back_on_its_connection() {
        let address = start(2).expect("an echo");
        let mut streams = [0, 1].map(|_| TcpStream::connect(address).expect("a connection"));
        for (stream, byte) in streams.iter_mut().zip([b'a', b'b']) {
            stream.write_all(&[byte; 32]).expect("sent");
        }
        for (stream, byte) in streams.iter_mut().zip([b'a', b'b']) {
            let mut back = [0; 32];
            stream.read_exact(&mut back).expect("an echo");
            assert_eq!(back, [byte; 32]);
        }
    }
}
