package grub

// text holds the scripts. Why they are as they are:
//
//   - A script that ends is asked for again, by the configuration: so a machine follows a decision that has changed
//     meanwhile. Nothing is sourced by what was sourced, so the memory does not fill.
//   - GRUB names the machine by the MAC of the port that it was loaded by.
//   - A local disk: Debian's GRUB ends with success whatever "exit" is given, and shim passes that on: firmware then
//     stops in its menu in place of the next boot entry. So the disk's own boot program is started from here, which
//     shim checks like any other, by the name that firmware uses for disks without an entry. Its device is that of
//     "root", by which it finds what it loads next. Where no disk has it, the machine restarts: it is offered no boot
//     file then, and its firmware takes the next entry.
//   - A refused machine is shown the reason for ten seconds and then continues to its own disk, as with iPXE.
const text = `
{{- define "config"}}while [ again ]; do
	if ! source '{{.Self}}'$net_default_mac; then
		echo 'Firstlight: the boot server did not answer, asking again in 10 seconds'
		sleep 10
	fi
done
{{end}}

{{- define "refuse"}}echo 'Firstlight: {{.MAC}} may not boot from here: {{.Reason}}'
sleep 10
{{template "local" .}}{{end}}

{{- define "disk"}}echo 'Firstlight: {{.MAC}} boots its own disk{{if .Reason}}: {{.Reason}}{{end}}'
{{template "local" .}}{{end}}

{{- define "local"}}if search --no-floppy --set=root --file /EFI/BOOT/BOOTX64.EFI; then
	if chainloader /EFI/BOOT/BOOTX64.EFI; then
		boot
	fi
fi
echo 'Firstlight: no disk starts with its signed boot program, restarting in 30 seconds'
sleep 30
reboot
{{end}}

{{- define "ramdisk"}}echo 'Firstlight: {{.MAC}} boots the ramdisk ({{.Word}}){{if .Reason}}: {{.Reason}}{{end}}'
if linux '{{.Kernel}}'{{range .Args}} '{{.}}'{{end}}; then
{{if .Initrds}}	if initrd{{range .Initrds}} '{{.}}'{{end}}; then
		boot
	fi
{{else}}	boot
{{end}}fi
echo 'Firstlight: could not load or start the ramdisk, asking again in 10 seconds'
sleep 10
{{end}}

{{- define "wait"}}echo 'Firstlight: {{.MAC}} waits: {{.Reason}}'
sleep 10
{{end}}`
