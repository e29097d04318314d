//! A bare echo: the effect of this machine on requests, without any target.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

/// An echo copies bytes, and calls little.
const STACK_SIZE: usize = 64 * 1024;

/// Starts a thread for each of this many connections, which sends back each byte and ends with the connection.
///
/// # Errors
/// The system's.
pub(crate) fn start(connections: usize) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let thread = || std::thread::Builder::new().name("echo".to_owned()).stack_size(STACK_SIZE);
    // A connection that fails ends the run against it.
    thread().spawn(move || {
        listener
            .incoming()
            .take(connections)
            .try_for_each(|stream| thread().spawn(|| echo(&stream?)).map(drop))
    })?;
    Ok(address)
}

fn echo(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    io::copy(&mut &*stream, &mut stream).map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

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
