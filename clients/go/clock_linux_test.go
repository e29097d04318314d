package snowbank

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestAlarmRunsInSleep asks the kernel which clock the alarm uses. No test can let the machine
// sleep.
func TestAlarmRunsInSleep(t *testing.T) {
	alarm, isOfKernel := bootClock{}.newAlarm(func() {}).(*bootAlarm)
	if !isOfKernel {
		t.Fatal("it is no timer of the kernel")
	}
	defer alarm.stop()
	about, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", alarm.fd))
	if err != nil {
		t.Skip(err)
	}
	if !strings.Contains(string(about), "clockid: 7\n") {
		t.Errorf("it is no timer of CLOCK_BOOTTIME:\n%s", about)
	}
}
