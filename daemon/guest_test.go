package daemon

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/guest"
)

// A guest has the plan of an appliance from the boot services on. Before them it changes nothing of what others own.
func TestAGuestHasTheSamePlan(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	own, visiting := New(log).runner.Plan, NewGuest(log, guest.Placement{Folder: guest.Folder}).runner.Plan
	var ground, visited []string
	for i, s := range own {
		if s.Name == "roles-bound" {
			own = own[i:]
			break
		}
		ground = append(ground, s.Name)
	}
	for i, s := range visiting {
		if s.Name == "roles-bound" {
			visiting = visiting[i:]
			break
		}
		visited = append(visited, s.Name)
		if s.Name == "links-up" {
			assert.Nil(t, s.Do, "%s changes what is someone else's", s.Name)
		}
	}
	assert.Equal(t, []string{"data-mounted", "site-read", "identity", "links-up", "clock-set", "cluster-joined"}, visited)
	assert.Contains(t, ground, "packets-filtered")
	for i, s := range own {
		assert.Equal(t, s.Name, visiting[i].Name)
	}
	assert.Len(t, visiting, len(own))
}
