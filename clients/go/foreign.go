package snowbank

import (
	"bytes"
	"fmt"
)

// foreignBytesMax is the most of another protocol's answer that an error shows.
const foreignBytesMax = 60

// isItOurs is the hint on a server that stays silent, as a Redis at a wrong port does.
const isItOurs = ": does another program listen there, such as a Redis?"

// describeForeign names the server of an answer that cannot be a frame.
func describeForeign(length uint32, answer []byte) string {
	switch {
	case bytes.HasPrefix(answer, []byte{0x15, 0x03}):
		// An alert: the listener took the request for a broken handshake.
		return "it speaks TLS: write tls:host:port"
	case bytes.HasPrefix(answer, []byte("HTTP")) || answer[0] == '<':
		return fmt.Sprintf("it answers in HTTP (%q): is this the port of a web server, or of the daemon's admin listener?",
			firstLine(answer))
	case answer[0] == '-' && answer[1] >= 'A' && answer[1] <= 'Z':
		return fmt.Sprintf("it answers as Redis does (%q): is this the port of a Redis server?", firstLine(answer))
	case isText(answer[:lengthSize]):
		return fmt.Sprintf("it answers in text (%q)", firstLine(answer))
	default:
		return fmt.Sprintf("a frame with a length of %d; %d to %d are allowed", length, lengthMin, lengthMax)
	}
}

func isText(answer []byte) bool {
	for _, b := range answer {
		if (b < ' ' || b > '~') && b != '\r' && b != '\n' {
			return false
		}
	}
	return true
}

func firstLine(answer []byte) string {
	answer = bytes.TrimLeft(answer, "\r\n")
	if end := bytes.IndexAny(answer, "\r\n"); end >= 0 {
		answer = answer[:end]
	}
	if len(answer) > foreignBytesMax {
		answer = answer[:foreignBytesMax]
	}
	return string(answer)
}
