package operator

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
	"firstlight.dev/firstlight/daemon/clusters/bpa/sizing"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

// What is done with the clusters that are proposed for a site that names none.
const (
	ProposalOff   = "off"
	ProposalShow  = "show"
	ProposalApply = "apply" // once, when proposalDue says so and no Provisioning exists
)

// Names of the proposal.
const (
	ProposalName      = "cluster-proposal"     // ConfigMap in the operator's namespace
	ProposalNamespace = v1alpha1.SiteNamespace // of proposed Provisionings
	proposalOwner     = "firstlight-sizing"
	proposalApplied   = "applied" // key: when it was
	proposalSettled   = "settled" // key: since when every node was verified or needed a person
	proposalDecision  = "decision"
)

// Proposals shows which clusters the hosts could become.
type Proposals struct {
	Config
	Client client.Client
	Reader client.Reader
	Now    func() time.Time
	Log    *slog.Logger

	launch func(context.Context) (launchState, error) // nil: as the API has it
}

// Run proposes every half minute until ctx ends.
func (r *Proposals) Run(ctx context.Context) error {
	if r.Proposal == ProposalOff || r.Proposal == "" {
		return nil
	}

	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for {
		if err := r.Propose(ctx); err != nil && ctx.Err() == nil {
			r.Log.Warn("clusters not proposed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Propose writes the proposal, and applies it if that is wanted and due.
func (r *Proposals) Propose(ctx context.Context) error {
	var hosts metal3api.BareMetalHostList
	if err := r.Client.List(ctx, &hosts, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list hosts: %w", err)
	}

	var all v1alpha1.ProvisioningList
	if err := r.Reader.List(ctx, &all); err != nil {
		return fmt.Errorf("list Provisionings: %w", err)
	}

	macs, names := pinnedByOthers(&v1alpha1.Provisioning{}, all.Items)
	var facts []match.Host
	for i := range hosts.Items {
		f := hostFacts(&hosts.Items[i])
		f.PinnedBy = names[hosts.Items[i].Name]
		for _, mac := range f.MACs {
			if by := macs[mac]; by != "" {
				f.PinnedBy = by
			}
		}

		facts = append(facts, f)
	}

	p := sizing.Propose(r.Site, ProposalNamespace, facts)
	var have corev1.ConfigMap
	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: ProposalName}, &have)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read proposal: %w", err)
	}

	launch, err := r.readLaunch(ctx)
	if err != nil {
		return err
	}

	// Both are kept in the ConfigMap: an operator that is restarted counts on.
	notes := map[string]string{proposalApplied: have.Data[proposalApplied], proposalDecision: have.Data[proposalDecision]}
	if notes[proposalApplied] == "" && r.Proposal == ProposalApply && len(all.Items) == 0 {
		since := settledSince(launch, have.Data[proposalSettled], r.Now())
		due, sentence := proposalDue(p, launch, since, r.Now())
		if due {
			if err := r.applyAll(ctx, p); err != nil {
				return err
			}
			notes[proposalApplied] = r.Now().UTC().Format(time.RFC3339)
			r.Log.Info("proposed clusters applied", "proposal", p.Sentence, "decision", sentence)
		}

		notes[proposalDecision] = sentence
		if !since.IsZero() {
			notes[proposalSettled] = since.UTC().Format(time.RFC3339)
		}
	}

	return r.writeProposal(ctx, p, notes)
}

func (r *Proposals) readLaunch(ctx context.Context) (launchState, error) {
	if r.launch != nil {
		return r.launch(ctx)
	}
	return readLaunch(ctx, r.Reader)
}

// settledSince is since when the launch has been settled: as kept, or from now on; zero if it is not.
func settledSince(l launchState, kept string, now time.Time) time.Time {
	since, err := time.Parse(time.RFC3339, kept)
	switch {
	case !l.isSettled():
		return time.Time{}
	case err != nil || since.After(now):
		return now
	}
	return since
}

func (r *Proposals) applyAll(ctx context.Context, p sizing.Proposal) error {
	var objects []client.Object
	for i := range p.Provisionings {
		objects = append(objects, &p.Provisionings[i])
	}

	set, err := apply.New(proposalOwner, objects...)
	if err != nil {
		return err
	}

	return set.Apply(ctx, r.Client)
}

func (r *Proposals) writeProposal(ctx context.Context, p sizing.Proposal, notes map[string]string) error {
	data := map[string]string{
		"proposal": p.Sentence,
		"waiting":  strings.Join(p.Waiting, "\n"),
		"left":     strings.Join(p.Left, "\n"),
	}
	for key, value := range notes {
		if value != "" {
			data[key] = value
		}
	}

	var documents []string
	for _, c := range p.Provisionings {
		text, err := yaml.Marshal(map[string]any{
			"apiVersion": c.APIVersion, "kind": c.Kind, "spec": c.Spec,
			"metadata": map[string]any{"name": c.Name, "namespace": c.Namespace, "labels": c.Labels},
		})
		if err != nil {
			return fmt.Errorf("encode proposal: %w", err)
		}
		documents = append(documents, string(text))
	}

	data["provisionings.yaml"] = strings.Join(documents, "---\n")
	set, err := apply.New(proposalOwner, &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: ProposalName}, Data: data,
	})
	if err != nil {
		return err
	}
	if set.CheckCurrent(ctx, r.Reader) == nil {
		return nil
	}

	return set.Apply(ctx, r.Client)
}
