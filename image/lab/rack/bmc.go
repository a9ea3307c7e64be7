package rack

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// simulated is ipmi_sim's configuration (ipmi_lan(5)): one BMC, one user, buttons that are a
// program.
const simulated = `name %q
set_working_mc 0x20
  startlan 1
    addr %s %d
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control %q
  user 1 true "" "" user 10 none md2 md5 straight
  user 2 true %q %q admin 10 none md2 md5 straight
`

// controller is what the simulator emulates (ipmi_sim_cmd(5)): a management controller and
// an event log.
const controller = `mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable 0x20 1000 0x0a
mc_enable 0x20
`

// startBMC starts the simulator. Its buttons come here by a Unix socket.
func (b *Box) startBMC() error {
	at := func(name string) string { return filepath.Join(b.Dir, name) }
	script := fmt.Sprintf("#!/bin/sh\nexec curl -sf --unix-socket '%s' --data-urlencode \"do=$*\" http://bmc/\n", at("buttons"))
	files := map[string]string{
		"chassis": script, "sim.emu": controller,
		"lan.conf": fmt.Sprintf(simulated, b.Name, "127.0.0.1", b.Port, at("chassis"), User, Password),
	}
	for name, text := range files {
		if err := os.WriteFile(at(name), []byte(text), 0o755); err != nil {
			return fmt.Errorf("make BMC of %s: %w", b.Name, err)
		}
	}
	os.Remove(at("buttons"))
	listener, err := net.Listen("unix", at("buttons"))
	if err != nil {
		return fmt.Errorf("make BMC of %s: %w", b.Name, err)
	}
	go http.Serve(listener, http.HandlerFunc(b.press))
	log, err := os.Create(at("bmc.log"))
	if err != nil {
		return fmt.Errorf("make BMC of %s: %w", b.Name, err)
	}
	defer log.Close()
	b.bmc = b.enter("ipmi_sim", "-n", "-c", at("lan.conf"), "-f", at("sim.emu"), "-s", at("state"))
	b.bmc.Stdout, b.bmc.Stderr = log, log
	if err := b.bmc.Start(); err != nil {
		return fmt.Errorf("start BMC of %s: %w", b.Name, err)
	}
	port := strconv.Itoa(b.Port)
	b.relay, err = newRelay(b.bed.PID(), net.JoinHostPort(BMCAddr, port), net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return err
	}
	go b.relay.run()
	return nil
}

// press answers one call of the simulator's chassis program: "get power boot",
// "set power 1", "check power".
func (b *Box) press(w http.ResponseWriter, r *http.Request) {
	words := strings.Fields(r.FormValue("do"))
	if len(words) == 0 {
		http.Error(w, "nothing said", http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch op, words := words[0], words[1:]; op {
	case "get":
		for _, what := range words {
			switch what {
			case "power":
				fmt.Fprintf(w, "power:%d\n", map[bool]int{true: 1}[b.on()])
			case "boot":
				fmt.Fprintf(w, "boot:%s\n", b.device)
			}
		}
	case "set":
		for i := 0; i+1 < len(words); i += 2 {
			b.Writes = append(b.Writes, words[i]+" "+words[i+1])
			if err := b.set(words[i], words[i+1]); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}
	}
}

func (b *Box) set(what, value string) error {
	switch what {
	case "power":
		if value == "1" {
			return b.start()
		}
		b.stop()
	case "shutdown":
		b.stop()
	case "reset":
		b.stop()
		return b.start()
	case "boot":
		b.device = value
	}
	return nil
}
