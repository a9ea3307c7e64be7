// Command netboot is the whole system of a machine that was booted over the network in a
// test: it says so on the console, with the kernel's command line, and powers off.
package main

import (
	"fmt"
	"os"
	"syscall"
)

func main() {
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		fmt.Println("netboot: mount proc:", err)
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		fmt.Println("netboot: read cmdline:", err)
	}
	fmt.Printf("\nNETBOOT-REACHED-INIT %s\n", line)
	syscall.Sync()
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
	select {}
}
