use std::io; use crate::Effort; pub(crate) fn burst(_effort: Effort) -> io::Result<()> { Ok(()) } pub(crate) fn start(_effort: Effort) -> io::Result<()> { Ok(()) }
