package snowbank

import (
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// These are the same on every architecture of Linux.
const (
	clockBoottime    = 7
	timerAbsolute    = 1
	timerNonblocking = syscall.O_NONBLOCK | syscall.O_CLOEXEC
)

// bootClock is CLOCK_BOOTTIME. Go's own clock, CLOCK_MONOTONIC, stands still while the machine
// sleeps.
type bootClock struct{}

func (bootClock) now() time.Duration {
	var now syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		panic("clock_gettime(CLOCK_BOOTTIME): " + errno.Error())
	}
	return time.Duration(now.Nano())
}

// newAlarm uses a timer of the kernel, which rings as soon as the machine wakes up. Without one, as
// where no file can be opened, it uses Go's.
func (bootClock) newAlarm(ring func()) alarm {
	fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, clockBoottime, timerNonblocking, 0)
	if errno != 0 {
		return &goAlarm{clock: bootClock{}, ring: ring}
	}
	a := &bootAlarm{fd: fd, file: os.NewFile(fd, "timerfd")}
	go a.wait(ring)
	return a
}

type bootAlarm struct {
	file *os.File
	fd   uintptr
	mu   sync.Mutex
	// isStopped guards fd, whose number another file may have later.
	isStopped bool
}

// wait calls ring each time that the timer ends, until the alarm is stopped.
func (a *bootAlarm) wait(ring func()) {
	var expirations [8]byte
	for {
		if _, err := a.file.Read(expirations[:]); err != nil {
			return
		}
		ring()
	}
}

func (a *bootAlarm) set(at time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isStopped {
		return
	}
	// The first is the interval of a repeated timer: none.
	setting := [2]syscall.Timespec{{}, syscall.NsecToTimespec(int64(at))}
	syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, a.fd, timerAbsolute, uintptr(unsafe.Pointer(&setting)), 0, 0, 0)
}

func (a *bootAlarm) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isStopped = true
	a.file.Close()
}
