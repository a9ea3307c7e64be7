package simulator

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
)

// Statuses of a command (ironic-python-agent, extensions/base.py).
const (
	commandRunning   = "RUNNING"
	commandSucceeded = "SUCCEEDED"
	commandFailed    = "FAILED"
)

// command is what the conductor asked for and what became of it.
type command struct {
	ID     string      `json:"id"`
	Name   string      `json:"command_name"`
	Status string      `json:"command_status"`
	Error  *agentError `json:"command_error"`
	Result any         `json:"command_result"`
}

// agentError is an error of the agent (errors.py, RESTError).
type agentError struct {
	Type    string `json:"type"`
	Code    int    `json:"code"`
	Message string `json:"message"`
	Details string `json:"details"`
}

func (f *agentError) Error() string { return f.Message + ": " + f.Details }

// commandParams is a command's parameters, those of all commands together.
type commandParams struct {
	Node  json.RawMessage
	Step  json.RawMessage
	Image imageInfo       `json:"image_info"`
	Drive json.RawMessage `json:"configdrive"`
}

// ability is one command: it may answer later.
type ability struct {
	async bool
	do    func(context.Context, commandParams) (any, *agentError)
}

// abilities are the commands that a conductor with direct deploys and cleaning gives.
func (a *agent) abilities() map[string]ability {
	steps := func(kind string, list ...object) ability {
		return ability{false, func(context.Context, commandParams) (any, *agentError) {
			return object{
				kind:                       object{"GenericHardwareManager": list},
				"hardware_manager_version": hardwareVersion(),
			}, nil
		}}
	}
	nothing := func(context.Context, commandParams) (any, *agentError) { return nil, nil }
	end := func(again bool) ability {
		return ability{true, func(ctx context.Context, _ commandParams) (any, *agentError) {
			a.server.powerOffGuest(a.run, again)
			return nil, nil
		}}
	}
	return map[string]ability{
		"clean.get_clean_steps": {false, func(context.Context, commandParams) (any, *agentError) {
			return object{
				"clean_steps": object{
					"GenericHardwareManager": []object{
						stepObject("erase_devices_metadata", 99), stepObject("erase_devices", 10),
						stepObject("erase_devices_express", 0),
					},
					"Eraser": []object{eraseStepObject()},
				},
				"hardware_manager_version": hardwareVersion(),
			}, nil
		}},
		"deploy.get_deploy_steps": steps(
			"deploy_steps", stepObject("erase_devices_metadata", 0), stepObject("write_image", 0),
			stepObject("inject_files", 0),
		),
		"service.get_service_steps":  steps("service_steps"),
		"clean.execute_clean_step":   {true, a.runStep("clean")},
		"deploy.execute_deploy_step": {true, a.runStep("deploy")},
		"standby.prepare_image":      {true, a.prepareImage},
		"standby.get_partition_uuids": {false, func(context.Context, commandParams) (any, *agentError) {
			return object{"root uuid": "0x46494e45"}, nil
		}},
		"standby.sync":             {false, nothing},
		"standby.power_off":        end(false),
		"standby.run_image":        end(true),
		"image.install_bootloader": {true, nothing},
		"system.lockdown":          {true, nothing},
		"log.collect_system_logs": {false, func(context.Context, commandParams) (any, *agentError) {
			return object{"system_logs": ""}, nil
		}},
	}
}

func hardwareVersion() object { return object{"generic_hardware_manager": "1.2"} }

func stepObject(name string, priority int) object {
	return object{
		"step":             name,
		"priority":         priority,
		"interface":        "deploy",
		"reboot_requested": false,
		"abortable":        true,
	}
}

// runStep runs a step of cleaning or deployment. Since the conductor's own step write_image is carried
// out by the agent's of the same name, the image and its config drive are that step's arguments.
func (a *agent) runStep(kind string) func(context.Context, commandParams) (any, *agentError) {
	return func(ctx context.Context, p commandParams) (any, *agentError) {
		var s struct {
			Step string
			Args struct {
				commandParams
				Disks []diskName
			}
		}
		if err := json.Unmarshal(p.Step, &s); err != nil {
			return nil, &agentError{"InvalidContentError", 400, "Invalid request body", err.Error()}
		}

		var result any
		var err *agentError
		switch {
		case s.Step == "write_image":
			result, err = a.prepareImage(ctx, s.Args.commandParams)
		case s.Step == eraseStep:
			err = a.eraseNamed(ctx, s.Args.Disks)
		case strings.HasPrefix(s.Step, "erase_devices"):
			a.server.eraseDisks()
		}

		return object{kind + "_result": result, kind + "_step": p.Step}, err
	}
}

// serve is the agent's own API, for the conductor.
func (a *agent) serve(w http.ResponseWriter, r *http.Request) {
	path := strings.Trim(strings.TrimPrefix(r.URL.Path, "/v1"), "/")
	if path == "status" {
		writeJSON(w, http.StatusOK, object{"started_at": 0, "version": agentVersion})
		return
	}

	a.mu.Lock()
	trusted := a.token != "" && r.URL.Query().Get("agent_token") == a.token
	a.mu.Unlock()
	if !trusted {
		a.server.logEvent("agent: refuses %s %s: wrong token", r.Method, r.URL.Path)
		writeFault(w, http.StatusUnauthorized, "401 Unauthorized: Token invalid.")
		return
	}

	id, one := strings.CutPrefix(path, "commands/")
	switch {
	case r.Method == http.MethodGet && path == "commands":
		writeJSON(w, http.StatusOK, object{"commands": a.results()})
	case r.Method == http.MethodGet && one:
		for _, c := range a.results() {
			if c.ID == id {
				writeJSON(w, http.StatusOK, c)
				return
			}
		}
		writeFault(w, http.StatusNotFound, "Not found: Command Result with id "+id+" not found.")
	case r.Method == http.MethodPost && path == "commands":
		a.start(w, r)
	default:
		a.server.logEvent("agent: has no %s %s", r.Method, r.URL.Path)
		writeFault(w, http.StatusNotFound, "404 Not Found: The requested URL was not found.")
	}
}

// results are copies of all commands, oldest first.
func (a *agent) results() []command {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]command, len(a.commands))
	for i, c := range a.commands {
		all[i] = *c
	}

	return all
}

// start begins a command, one at a time.
func (a *agent) start(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Name   string
		Params commandParams
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		writeFault(w, http.StatusBadRequest, "Invalid request body: "+err.Error())
		return
	}

	can, known := a.abilities()[ask.Name]
	if !known {
		a.server.logEvent("agent: does not know %s", ask.Name)
		writeFault(w, http.StatusBadRequest, "Invalid command: Unknown command: "+ask.Name)
		return
	}

	_, short, _ := strings.Cut(ask.Name, ".")
	a.mu.Lock()
	if n := len(a.commands); n > 0 && a.commands[n-1].Status == commandRunning {
		last := a.commands[n-1].Name
		a.mu.Unlock()
		writeFault(w, http.StatusConflict, "Agent is busy: executing command "+last)
		return
	}

	c := &command{ID: random(), Name: short, Status: commandRunning}
	a.commands = append(a.commands, c)
	if ask.Params.Node != nil {
		a.node = ask.Params.Node
	}

	a.mu.Unlock()
	a.server.logEvent("agent: %s %s", ask.Name, name(ask.Params.Step))
	if can.async {
		a.server.simulator.work.Go(func() {
			if sleep(a.run.ctx, a.server.simulator.config.WorkTime) {
				a.finish(c, can, ask.Params)
			}
		})
	} else {
		a.finish(c, can, ask.Params)
	}

	a.mu.Lock()
	now := *c
	a.mu.Unlock()
	writeJSON(w, http.StatusOK, now)
}

// finish does the work and tells how it ended; an asynchronous one is told to Ironic, too.
func (a *agent) finish(c *command, can ability, p commandParams) {
	result, err := can.do(a.run.ctx, p)
	a.mu.Lock()
	c.Result, c.Error, c.Status = result, err, commandSucceeded
	if err != nil {
		c.Status = commandFailed
	}

	a.mu.Unlock()
	if err != nil {
		a.server.logEvent("agent: %s failed: %v", c.Name, err)
	}

	if can.async {
		select {
		case a.force <- struct{}{}:
		default:
		}
	}
}

// writeFault answers with an error as the agent does (the format of WSME).
func writeFault(w http.ResponseWriter, code int, text string) {
	kind := "Client"
	if code >= 500 {
		kind = "Server"
	}
	writeJSON(w, code, object{"faultcode": kind, "faultstring": text})
}

// name is a step's, "" without one.
func name(step json.RawMessage) string {
	var s struct{ Step string }
	if json.Unmarshal(step, &s) != nil {
		return ""
	}
	return s.Step
}
