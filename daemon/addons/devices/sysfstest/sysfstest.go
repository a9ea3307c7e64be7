// Package sysfstest makes folders of files as the kernel's sysfs has them for PCI devices, for tests.
package sysfstest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tree is a fake of sysfs. Devices are folders, as the kernel's are behind its links; nothing happens by writing.
type Tree struct {
	T    testing.TB
	Root string
}

// Devices begins the names of files of devices.
const Devices = "bus/pci/devices/"

// New makes an empty one.
func New(t testing.TB) Tree {
	s := Tree{t, t.TempDir()}
	require.NoError(t, os.MkdirAll(s.path(Devices), 0o755))
	s.Write("bus/pci/drivers_probe", "")
	return s
}

func (s Tree) path(name string) string { return filepath.Join(s.Root, name) }

// Write makes a file.
func (s Tree) Write(name, text string) {
	s.T.Helper()
	require.NoError(s.T, os.MkdirAll(filepath.Dir(s.path(name)), 0o755))
	require.NoError(s.T, os.WriteFile(s.path(name), []byte(text), 0o644))
}

// Read returns what a file says, without white space around it.
func (s Tree) Read(name string) string {
	s.T.Helper()
	text, err := os.ReadFile(s.path(name))
	require.NoError(s.T, err)
	return strings.TrimSpace(string(text))
}

// Symlink makes a link, in the place of one that is there.
func (s Tree) Symlink(to, name string) {
	s.T.Helper()
	require.NoError(s.T, os.MkdirAll(filepath.Dir(s.path(name)), 0o755))
	_ = os.Remove(s.path(name))
	require.NoError(s.T, os.Symlink(to, s.path(name)))
}

// Add adds a device of a class and VENDOR:DEVICE, with a driver and network interfaces.
func (s Tree) Add(address, class, id, driver string, interfaces ...string) {
	s.T.Helper()
	vendor, device, _ := strings.Cut(id, ":")
	dir := Devices + address
	s.Write(dir+"/class", "0x"+class+"\n")
	s.Write(dir+"/vendor", "0x"+vendor+"\n")
	s.Write(dir+"/device", "0x"+device+"\n")
	s.Write(dir+"/numa_node", "1\n")
	s.Write(dir+"/driver_override", "(null)\n")
	s.Drive(address, driver)
	for _, name := range interfaces {
		s.Write(dir+"/net/"+name+"/type", "1\n")
		s.Write(dir+"/net/"+name+"/mtu", "1500\n")
	}
}

// Drive has a driver drive a device; "" is none.
func (s Tree) Drive(address, driver string) {
	s.T.Helper()
	if driver == "" {
		_ = os.Remove(s.path(Devices + address + "/driver"))
		return
	}
	s.AddDriver(driver)
	s.Symlink("../../drivers/"+driver, Devices+address+"/driver")
}

// AddDriver adds one to those that the kernel has loaded.
func (s Tree) AddDriver(name string) {
	s.T.Helper()
	s.Write("bus/pci/drivers/"+name+"/unbind", "")
}

// AddFunctions gives a physical function BUS:00.0 virtual ones, BUS:10.0 and so on, and returns their addresses.
func (s Tree) AddFunctions(pf string, number int, class, id, driver string) (all []string) {
	s.T.Helper()
	s.Write(Devices+pf+"/sriov_totalvfs", "8\n")
	s.Write(Devices+pf+"/sriov_numvfs", fmt.Sprintln(number))
	for i := range number {
		address := fmt.Sprintf("%s10.%d", strings.TrimSuffix(pf, "00.0"), i)
		s.Add(address, class, id, driver)
		s.Symlink("../"+pf, Devices+address+"/physfn")
		s.Symlink("../"+address, fmt.Sprintf("%s%s/virtfn%d", Devices, pf, i))
		s.Symlink(fmt.Sprintf("../../../../kernel/iommu_groups/%d", 7+i), Devices+address+"/iommu_group")
		s.Write(fmt.Sprintf("kernel/iommu_groups/%d/type", 7+i), "DMA\n")
		all = append(all, address)
	}
	return all
}

// AddSubfunction adds one of a number below a PCI device, with network interfaces.
func (s Tree) AddSubfunction(parent, name string, number int, interfaces ...string) {
	s.T.Helper()
	dir := Devices + parent + "/" + name
	s.Write(dir+"/sfnum", fmt.Sprintln(number))
	s.Symlink("../../pci/devices/"+parent+"/"+name, "bus/auxiliary/devices/"+name)
	for _, i := range interfaces {
		s.Write(dir+"/net/"+i+"/type", "1\n")
	}
}

// Remove removes a file, or a folder with all that is in it.
func (s Tree) Remove(name string) {
	s.T.Helper()
	require.NoError(s.T, os.RemoveAll(s.path(name)))
}
