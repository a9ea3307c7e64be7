package ipxe

// text holds the scripts. Why they are as they are:
//
//   - A failed download is not tried again by itself: the script is asked for anew, so
//     that a machine follows a decision that has changed meanwhile. "--replace --autofree"
//     keeps the chain of scripts and images from filling the memory.
//   - A local disk: leaving iPXE with "exit" is not to be relied on. Many BIOSes answer
//     it by trying the network again, or hang; "sanboot --drive 0x80" starts the first
//     disk's boot sector directly and works on all that were met. On UEFI it is the other
//     way round: "exit 1" says "this entry failed, take the next one of the boot order",
//     while "exit 0" makes some firmware stop in its menu; and should the firmware come
//     back for more, it goes through DHCP and asks again.
//   - A refused machine is shown the reason for ten seconds and then goes on to its own
//     disk: refusing means that nothing is booted from here, not that a server which has
//     nothing to do with us is held back.
//   - On UEFI the kernel finds its ramdisks by the names in initrd=; on BIOS it ignores them.
const text = `
{{- define "refuse"}}#!ipxe
echo Firstlight: {{.MAC}} may not boot from here: {{.Reason}}
sleep 10
{{template "local" .}}{{end}}

{{- define "disk"}}#!ipxe
echo Firstlight: {{.MAC}} boots its own disk{{if .Reason}}: {{.Reason}}{{end}}
{{template "local" .}}{{end}}

{{- define "local"}}iseq ${platform} efi && goto efi ||
sanboot --no-describe --drive 0x80 ||
echo Firstlight: the first disk did not boot, asking again in 30 seconds
sleep 30
chain --replace --autofree {{.Self}} ||
exit 1
:efi
echo Firstlight: leaving to the next entry of the boot order
exit 1
{{end}}

{{- define "ramdisk"}}#!ipxe
echo Firstlight: {{.MAC}} boots the ramdisk ({{.Word}}){{if .Reason}}: {{.Reason}}{{end}}
kernel --name kernel {{.Kernel}}{{range $i, $_ := .Initrds}} initrd=ramdisk{{$i}}{{end}}{{range .Args}} {{.}}{{end}} || goto failed
{{range $i, $url := .Initrds}}initrd --name ramdisk{{$i}} {{$url}} || goto failed
{{end}}boot || goto failed
:failed
imgfree ||
echo Firstlight: could not load or start the ramdisk, asking again in 10 seconds
sleep 10
chain --replace --autofree {{.Self}} ||
goto failed
{{end}}

{{- define "retry"}}#!ipxe
echo Firstlight: {{.MAC}} waits: {{.Reason}}
:again
sleep 10
chain --replace --autofree {{.Self}} ||
goto again
{{end}}`
