package rack

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// within runs do in the network of the process pid. A thread that cannot come back ends.
func within(pid int, do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		result <- func() error {
			own, err := os.Open("/proc/thread-self/ns/net")
			if err != nil {
				return err
			}
			defer own.Close()
			other, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/net")
			if err != nil {
				return err
			}
			defer other.Close()
			if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			err = do()
			if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
			return err
		}()
	}()
	return <-result
}
