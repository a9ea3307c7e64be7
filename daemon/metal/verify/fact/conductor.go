package fact

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"firstlight.dev/firstlight/daemon/engine/apply"
)

// Ironic is a node of Ironic's.
type Ironic struct {
	Host        string // the BareMetalHost's name
	UUID        string
	State       string // provision_state: enroll, inspect wait, wait call-back, deploying, active, deploy failed, …
	Target      string
	Power       string // power on, power off, or "" if the BMC was not understood
	LastError   string
	Maintenance string    // reason, if it was taken out
	Step        string    // of cleaning or deployment: write_image
	Heartbeat   time.Time // of the agent in its ramdisk, in the running boot
	Since       time.Time // State has been so since
	Inspecting  time.Time // begin of the last inspection
}

// fields are what of a node is asked for: the whole of many nodes keeps Ironic busy for seconds.
const fields = "uuid,name,provision_state,target_provision_state,power_state,last_error,maintenance,maintenance_reason," +
	"deploy_step,clean_step,provision_updated_at,inspection_started_at,driver_internal_info"

// Conductor asks Ironic's API. The zero value of everything but Endpoint asks without
// password and trusts the system's authorities.
type Conductor struct {
	Endpoint           string // https://ADDR:6385
	Username, Password string
	CA                 []byte // PEM
}

// Nodes are all of Ironic's nodes by the name of their BareMetalHost (the operator names
// them NAMESPACE~NAME). It needs API version 1.81 or later, and returns within 15 s.
func (c Conductor) Nodes(ctx context.Context) (map[string]Ironic, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.CA) {
		return nil, fmt.Errorf("ask Ironic: there is no root certificate to check it with")
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Endpoint+"/v1/nodes?limit=1000&fields="+fields, nil)
	if err != nil {
		return nil, fmt.Errorf("ask Ironic: %w", err)
	}
	request.SetBasicAuth(c.Username, c.Password)
	request.Header.Set("X-OpenStack-Ironic-API-Version", "1.81")
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask Ironic: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("ask Ironic: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask Ironic: it says %s", response.Status)
	}
	return parseNodes(body)
}

func parseNodes(body []byte) (map[string]Ironic, error) {
	var list struct {
		Nodes []struct {
			UUID                 string         `json:"uuid"`
			Name                 *string        `json:"name"`
			ProvisionState       string         `json:"provision_state"`
			TargetProvisionState *string        `json:"target_provision_state"`
			PowerState           *string        `json:"power_state"`
			LastError            *string        `json:"last_error"`
			Maintenance          bool           `json:"maintenance"`
			MaintenanceReason    *string        `json:"maintenance_reason"`
			DeployStep           map[string]any `json:"deploy_step"`
			CleanStep            map[string]any `json:"clean_step"`
			ProvisionUpdatedAt   *string        `json:"provision_updated_at"`
			InspectionStartedAt  *string        `json:"inspection_started_at"`
			Internal             struct {
				Heartbeat string `json:"agent_last_heartbeat"`
			} `json:"driver_internal_info"`
		} `json:"nodes"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("read Ironic's nodes: %w", err)
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return strings.TrimSpace(*s)
	}
	all := map[string]Ironic{}
	for _, n := range list.Nodes {
		_, host, named := strings.Cut(text(n.Name), "~")
		if !named {
			continue // somebody else's
		}
		i := Ironic{
			Host: host, UUID: n.UUID, State: n.ProvisionState, Target: text(n.TargetProvisionState), Power: text(n.PowerState),
			LastError: apply.RedactIronicError(text(n.LastError)), Since: parseTime(text(n.ProvisionUpdatedAt)), Inspecting: parseTime(text(n.InspectionStartedAt)),
			Heartbeat: parseTime(n.Internal.Heartbeat),
		}
		for _, step := range []map[string]any{n.DeployStep, n.CleanStep} {
			if s, ok := step["step"].(string); ok {
				i.Step = s
			}
		}
		if n.Maintenance {
			i.Maintenance = apply.RedactIronicError(text(n.MaintenanceReason))
			if i.Maintenance == "" {
				i.Maintenance = "no reason was given"
			}
		}
		all[host] = i
	}
	return all, nil
}

// parseTime reads the two forms in which Ironic writes a time: with a zone in its columns,
// without one (and in UTC) in driver_internal_info. Anything else is the zero time.
func parseTime(s string) time.Time {
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999"} {
		if t, err := time.Parse(form, s); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}
